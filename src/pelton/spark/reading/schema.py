"""The columns of a read: those of the options, or those of a schema that the user gives.

Does not depend on the network.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    TimestampType,
)

from pelton.spark.parsing import SEQUENCE_MAX, OptionError, subject
from pelton.spark.reading.plan import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from pelton.spark.filters import Filter
    from pelton.spark.reading.options import Options

_TYPES: dict[str, DataType] = {
    "string": StringType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "binary": BinaryType(),
    "map<string, array<string>>": MapType(StringType(), ArrayType(StringType())),
}


def schema_text(options: Options) -> str:
    """The schema in Spark's notation."""
    return ", ".join(f"{name} {COLUMNS[name]}" for name in options.column_names())


def filter_of(options: Options) -> Filter | None:
    """The filter of the option ``where``. Raises :class:`OptionError`."""
    if not options.where:
        return None
    from pyspark.sql.types import StructField, StructType

    from pelton.spark.filters import Filter
    from pelton.spark.older import to_arrow

    fields = [StructField(name, _TYPES[kind]) for name, kind in COLUMNS.items()]
    return Filter.of(options.where, to_arrow(StructType(fields)))


def range_of(options: Options) -> tuple[int, int]:
    """The first and the last sequence that the option ``where`` allows."""
    first, last = 1, SEQUENCE_MAX
    for term in options.where:
        if term.column.lower() != "seq" or not all(
            isinstance(each, Decimal) for each in term.values
        ):
            continue
        values = sorted(map(int, term.values))
        if term.sign in ("=", "in", ">", ">="):
            first = max(first, values[0])
        if term.sign in ("=", "in", "<", "<="):
            last = min(last, values[-1])
    return first, last


def subjects_of(options: Options) -> tuple[str, ...]:
    """The subjects to ask the server for: those of the options, or those that ``where`` names."""
    for term in options.where:
        if term.column.lower() == "subject" and term.sign in ("=", "in") and not options.subjects:
            try:
                return tuple(dict.fromkeys(subject(str(each)) for each in term.values))
            except OptionError:
                return ()  # no stream has such a subject; the filter finds that
    return options.subjects


def projected(options: Options, schema: StructType | None) -> Options:
    """The options with the columns of Spark's schema, which is the user's where there is one.

    Raises :class:`OptionError` for a column that does not exist or has another type, and when the option
    ``columns`` contradicts the schema.
    """
    if schema is None:
        return options
    names = tuple(field.name for field in schema.fields)
    for field in schema.fields:
        wanted = COLUMNS.get(field.name)
        if wanted is None:
            raise OptionError(
                f"the schema has a column {field.name!r}. The columns are: {', '.join(COLUMNS)}"
            )
        if field.dataType != _TYPES[wanted]:
            found = field.dataType.simpleString()
            raise OptionError(
                f"the schema has {field.name} as {found}, but it is {wanted}, nulls allowed"
            )
        if not field.nullable:
            raise OptionError(
                f"the schema has {field.name} as not null, but Spark takes the columns of this"
                " source only as nullable"
            )
    if not names or len(set(names)) != len(names):
        raise OptionError("the schema must have columns, and each of them once")
    if options.columns is not None and options.columns != names:
        raise OptionError(
            f"option columns is {', '.join(options.columns)}, but the schema has"
            f" {', '.join(names)}: give one of the two"
        )
    return replace(options, columns=names)
