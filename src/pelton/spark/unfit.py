"""Rows with a value that no table or message can hold as text or date.

Spark's texts may have any bytes, for example after ``cast(data AS string)``, and its dates any year.
Other readers of a table stop at a text that is not UTF-8, and Python at a date outside the years 1 to
9999. A batch is checked as a whole, which costs no work per row; rows are looked for only in a batch
that has a bad one.

Does not depend on Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_DAYS = (-719_162, 2_932_896)
"""The first day of the year 1 and the last one of the year 9999, counted from 1970."""
_DAY_US = 86_400_000_000


def unfit_rows(batch: pa.RecordBatch, but: Collection[str] = ()) -> dict[int, str]:
    """The numbers of rows that do not fit, each with the reason; ``but`` are columns to leave out."""
    found: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in but or _fits(column):
            continue
        for row in _unfit(column, 0):
            found.setdefault(row, f"column {name} {_reason(column[row])}")
    return found


def without_values(
    batch: pa.RecordBatch, rows: Collection[int], but: Collection[str] = ()
) -> pa.RecordBatch:
    """The batch with nulls in these rows, except in the columns ``but``."""
    bad = pa.array([row in rows for row in range(batch.num_rows)], pa.bool_())
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        kept = column if name in but else pc.if_else(bad, pa.scalar(None, column.type), column)
        columns.append(kept)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _fits(column: pa.Array) -> bool:
    """Whether all values fit."""
    kind = column.type
    if types.is_string(kind) or types.is_large_string(kind):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return False
        return True
    if types.is_date32(kind):
        return _between(column.cast(pa.int32()), *_DAYS)
    if types.is_timestamp(kind) and kind.unit == "us":
        return _between(column.cast(pa.int64()), _DAYS[0] * _DAY_US, (_DAYS[1] + 1) * _DAY_US - 1)
    if types.is_struct(kind):
        return all(_fits(each) for each in column.flatten())
    if types.is_list(kind) or types.is_large_list(kind):
        return _fits(column.flatten())
    if types.is_map(kind):
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        return all(_fits(each[first:last]) for each in (column.keys, column.items))
    return True


def _between(numbers: pa.Array, low: int, high: int) -> bool:
    found = pc.min_max(numbers).as_py()
    return found["min"] is None or (low <= found["min"] and found["max"] <= high)


def _unfit(column: pa.Array, first: int) -> Iterator[int]:
    """The rows of a column that has unfit ones, by halves."""
    if len(column) == 1:
        yield first
        return
    half = len(column) // 2
    for start, part in ((0, column[:half]), (half, column[half:])):
        if not _fits(part):
            yield from _unfit(part, first + start)


def _reason(value: pa.Scalar) -> str:
    kind = value.type
    if types.is_string(kind) or types.is_large_string(kind):
        return f"is not UTF-8: {value.cast(pa.binary()).as_py()!r:.80}"
    if types.is_date32(kind) or types.is_timestamp(kind):
        return "is outside the years 1 to 9999"
    return "holds a text that is not UTF-8, or a date outside the years 1 to 9999"
