"""The statistics of a Delta table's files, by which readers skip files.

They come from the footer of the Parquet file, which has most of them, and from what was seen of the
rows::

    {"numRecords": 3, "minValues": {"seq": 1, "subject": "a"}, "maxValues": {...},
     "nullCount": {"seq": 0, "subject": 0}}

Every column of a type that has bounds gets both, unless all its values are null: to readers that use
``deltalake``, a file that lacks a bound has no row that matches.

===================  ==========================================================================
a NaN in the column  both bounds are infinite and prove nothing: for some readers a NaN is above all
                     numbers, for others it is neither above nor below
infinity             as ``"Infinity"``, ``"-Infinity"``, because JSON has no such numbers
texts                shortened to 32 characters and more, the maximum upwards
decimals             all digits and no exponent, which not every reader takes
dates, times         ISO 8601 to the microsecond, ``+10000-01-01`` after the year 9999
===================  ==========================================================================

Does not depend on the location of files.
"""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyarrow import types

from pelton.spark.tables.seen import leaves

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    import pyarrow.parquet as pq

    from pelton.spark.tables.seen import Seen

STATISTICS_OF = "delta.dataSkippingStatsColumns"
"""The property of a table that names the columns that have statistics; without it all have some."""

_TEXT_CHARACTERS = 32
_LAST_CHARACTER = "\U0010ffff"
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_ERA_DAYS, _ERA_YEARS = 146_097, 400
_DAY_US = 86_400 * 10**6
_encoder = msgspec.json.Encoder()


class _Stats(msgspec.Struct, rename="camel"):
    """Statistics whose bounds stay unchanged, digit by digit."""

    num_records: int
    min_values: msgspec.Raw
    max_values: msgspec.Raw
    null_count: dict[str, int]


def statistics(
    footer: pq.FileMetaData, schema: pa.Schema, seen: Seen, names: Container[str] | None = None
) -> str:
    """The statistics of a file with this footer, as JSON for the table's log; of all columns, or of ``names``."""
    low, high, nulls = {}, {}, {}
    for number, field in leaves(schema):
        if names is not None and field.name not in names:
            continue
        count = _nulls(footer, number, field.name, seen)
        if count is not None:
            nulls[field.name] = count
        bounds = _bounds(footer, number, field, seen)
        if bounds is not None:
            low[field.name] = _logged(_lower(bounds[0]), field.type)
            high[field.name] = _logged(_upper(bounds[1]), field.type)
    return _encoder.encode(
        {
            "numRecords": footer.num_rows,
            "minValues": low,
            "maxValues": high,
            "nullCount": nulls,
        }
    ).decode()


def columns_of(configuration: Mapping[str, str]) -> frozenset[str] | None:
    """The columns that a table wants statistics of; None for all, also if it names fields of columns."""
    told = configuration.get(STATISTICS_OF, "")
    names = frozenset(name.strip(" `") for name in told.split(",")) - {""}
    return None if not names or any("." in name for name in names) else names


def with_nulls(stats: str, names: Iterable[str]) -> str:
    """The statistics for a table with more columns than the file, in which these are null."""
    known = msgspec.json.decode(stats, type=_Stats)
    for name in names:
        known.null_count.setdefault(name, known.num_records)
    return _encoder.encode(known).decode()


def _nulls(footer: pq.FileMetaData, number: int, name: str, seen: Seen) -> int | None:
    if name in seen.nulls:
        return seen.nulls[name]
    count = 0
    for group in range(footer.num_row_groups):
        found = footer.row_group(group).column(number).statistics
        if found is None or not found.has_null_count:
            return None
        count += found.null_count
    return count


def _bounds(
    footer: pq.FileMetaData, number: int, field: pa.Field, seen: Seen
) -> tuple[Any, Any] | None:
    """The least and greatest value, times as numbers; None without a value or an order."""
    if types.is_binary(field.type):
        return None
    if field.name in seen.nan:
        return -math.inf, math.inf
    found = seen.bounds.get(field.name)
    raw = types.is_temporal(field.type)
    for group in range(footer.num_row_groups):
        column = footer.row_group(group).column(number).statistics
        if column is not None and column.has_min_max:
            low, high = (column.min_raw, column.max_raw) if raw else (column.min, column.max)
            found = (low, high) if found is None else (min(low, found[0]), max(high, found[1]))
    return found


def _lower(value: Any) -> Any:
    return value[:_TEXT_CHARACTERS] if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    """A text that is not less than ``value``, and shorter if possible; other values unchanged."""
    if not isinstance(value, str):
        return value
    for length in range(_TEXT_CHARACTERS, len(value)):
        if value[length] != _LAST_CHARACTER:
            return value[:length] + _LAST_CHARACTER
    return value


def _logged(value: Any, kind: pa.DataType) -> Any:
    """A value in the form of the log."""
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal):
        return msgspec.Raw(f"{value:f}".encode())
    if types.is_date(kind):
        return _day(value)
    if types.is_timestamp(kind):
        days, rest = divmod(value, _DAY_US)
        clock = (datetime.datetime.min + datetime.timedelta(microseconds=rest)).time()
        zone = "Z" if kind.tz else ""
        return f"{_day(days)}T{clock.isoformat(timespec='microseconds')}{zone}"
    return value


def _day(days: int) -> str:
    """A day by its number since 1970, also for years that Python lacks."""
    ordinal = days + _EPOCH
    if 1 <= ordinal <= datetime.date.max.toordinal():
        return datetime.date.fromordinal(ordinal).isoformat()
    eras, rest = divmod(ordinal - 1, _ERA_DAYS)
    day = datetime.date.fromordinal(rest + 1)
    year = day.year + eras * _ERA_YEARS
    sign = "+" if year > datetime.MAXYEAR else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}{day.isoformat()[4:]}"
