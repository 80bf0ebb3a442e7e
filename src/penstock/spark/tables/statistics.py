"""What a file holds, so that readers can leave it out: the statistics of a Delta table.

They come from the footer of the Parquet file, where they are anyway::

    {"numRecords": 3, "minValues": {"seq": 1, "subject": "a"}, "maxValues": {...},
     "nullCount": {"seq": 0, "subject": 0}}

A value that could mislead is left out: minimum and maximum of a column with a NaN, infinities, a
maximum that cannot be shortened. Strings are shortened to 32 characters, the maximum upwards.

Knows nothing of where files are.
"""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow.parquet as pq

_TEXT_CHARACTERS = 32
_LAST_CHARACTER = "\U0010ffff"
_encoder = msgspec.json.Encoder(decimal_format="number")


def statistics(footer: pq.FileMetaData, schema: pa.Schema, nan: Collection[str]) -> str:
    """The statistics of a file with this footer, as the JSON that the table's log holds.

    ``nan`` names the columns that hold a NaN.
    """
    wanted = {f.name: f.type for f in schema if not types.is_nested(f.type)}
    nulls: dict[str, int | None] = dict.fromkeys(wanted, 0)
    bounds: dict[str, tuple[Any, Any] | None] = {}
    unknown = {name for name in wanted if not _has_order(wanted[name])} | set(nan)
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        for index in range(row_group.num_columns):
            column = row_group.column(index)
            name, found = column.path_in_schema, column.statistics
            if name not in wanted:
                continue
            if found is None or not found.has_null_count:
                nulls[name] = None
            elif (so_far := nulls[name]) is not None:
                nulls[name] = so_far + found.null_count
            if found is not None and found.has_min_max:
                bounds[name] = _wider(bounds.get(name), found.min, found.max)
            elif found is None or found.null_count != column.num_values:
                unknown.add(name)
    low, high = {}, {}
    for name, bound in bounds.items():
        if name in unknown or bound is None:
            continue
        least, most = _lower(bound[0]), _upper(bound[1])
        if least is not None:
            low[name] = least
        if most is not None:
            high[name] = most
    return _encoder.encode(
        {
            "numRecords": footer.num_rows,
            "minValues": low,
            "maxValues": high,
            "nullCount": {name: count for name, count in nulls.items() if count is not None},
        }
    ).decode()


def _has_order(kind: pa.DataType) -> bool:
    return not (types.is_boolean(kind) or types.is_binary(kind))


def _wider(so_far: tuple[Any, Any] | None, low: Any, high: Any) -> tuple[Any, Any]:
    return (low, high) if so_far is None else (min(so_far[0], low), max(so_far[1], high))


def _lower(value: Any) -> Any:
    return value[:_TEXT_CHARACTERS] if isinstance(value, str) else _plain(value)


def _upper(value: Any) -> Any:
    if not isinstance(value, str):
        return _plain(value)
    if len(value) <= _TEXT_CHARACTERS:
        return value
    if value[_TEXT_CHARACTERS] == _LAST_CHARACTER:
        return None
    return value[:_TEXT_CHARACTERS] + _LAST_CHARACTER


def _plain(value: Any) -> Any:
    """A value as the log holds it; None when it cannot."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime.datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text + "Z" if value.tzinfo is not None else text
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value if isinstance(value, int | Decimal) else None
