"""Leaving out files that hold no row a query asks for, by the statistics in the table's log.

A file is left out only when its statistics prove it; Spark looks at each row of the others. Columns
of floating numbers prove nothing, for a NaN is above all bounds and in none of them. Bounds of
times may be cut to milliseconds by others, so they are taken for wider than they are.

Knows nothing of where files are.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.datasource import Filter

_CUT = timedelta(milliseconds=1)


def may_hold(file: Mapping[str, Any], conditions: Sequence[Filter]) -> bool:
    """Whether a file may hold a row that meets all conditions.

    ``file`` is a row of ``get_add_actions(flatten=True)``: ``min.x``, ``max.x``, ``null_count.x``,
    ``partition.x``, ``num_records``.
    """
    return all(_may_meet(file, condition) for condition in conditions)


def _may_meet(file: Mapping[str, Any], condition: Filter) -> bool:
    path: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(path) != 1:
        return True
    name = path[0]
    low: Any
    high: Any
    nulls: int | None
    rows: int | None
    if f"partition.{name}" in file:
        low = high = file[f"partition.{name}"]
        nulls, rows = (1, 1) if low is None else (0, 1)
    else:
        low, high = file.get(f"min.{name}"), file.get(f"max.{name}")
        nulls, rows = file.get(f"null_count.{name}"), file.get("num_records")
    if isinstance(condition, IsNotNull):
        return nulls is None or rows is None or nulls < rows
    if isinstance(condition, IsNull):
        return nulls is None or nulls > 0
    if isinstance(low, float) or isinstance(high, float):
        return True
    if isinstance(high, datetime) and high < datetime.max.replace(tzinfo=high.tzinfo) - _CUT:
        high += _CUT
    if isinstance(condition, In):
        return any(_between(low, high, value) for value in condition.value)
    try:
        return _within(low, high, condition)
    except TypeError:  # bounds of another type than the condition's prove nothing
        return True


def _between(low: Any, high: Any, value: Any) -> bool:
    try:
        return value is None or ((low is None or low <= value) and (high is None or value <= high))
    except TypeError:
        return True


def _within(low: Any, high: Any, condition: Filter) -> bool:
    value = getattr(condition, "value", None)
    if value is None:
        return True
    if isinstance(condition, EqualTo | EqualNullSafe):
        return _between(low, high, value)
    if isinstance(condition, GreaterThan):
        return high is None or bool(high > value)
    if isinstance(condition, GreaterThanOrEqual):
        return high is None or bool(high >= value)
    if isinstance(condition, LessThan):
        return low is None or bool(low < value)
    if isinstance(condition, LessThanOrEqual):
        return low is None or bool(low <= value)
    if isinstance(condition, StringStartsWith):
        least = low is None or low[: len(value)] <= value
        return least and (high is None or high >= value)
    return True
