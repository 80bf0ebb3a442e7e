"""Schemas of tables: rows of Spark as Arrow, the columns of a table, and whether rows fit into it.

A table holds the types of the Delta protocol, or fewer (:meth:`TableFormat.fit`).
Which rows fit :mod:`pelton.spark.tables.evolution` knows.

Does not depend on files or commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types

from pelton.spark.tables.evolution import shown
from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from pelton.spark.tables.table import TableFormat

UTC_TIME = pa.timestamp("us", "UTC")
_SIMPLE = (
    types.is_boolean,
    types.is_signed_integer,
    types.is_float32,
    types.is_float64,
    types.is_date32,
    types.is_string,
    types.is_binary,
)


def arrow_schema(schema: StructType, form: TableFormat) -> pa.Schema:
    """The schema of Spark's rows in the types of a table, in which all columns may be null.

    Raises :class:`TableError` for a type that no such table has.
    """
    from pyspark.errors import PySparkException

    from pelton.spark.older import to_arrow

    fields = []
    for name in schema.names:
        try:
            one = to_arrow(type(schema)([schema[name]])).field(0)
            fields.append(pa.field(name, form.fit(one.type)))
        except (PySparkException, TypeError):
            kind = schema[name].dataType.simpleString()
            raise TableError(f"column {name} is {kind}, which {form.kind} does not hold") from None
    return pa.schema(fields)


def table_type(given: pa.DataType) -> pa.DataType:
    """The table's type for a type of Arrow: microseconds, plain strings, fields that may be null.

    Raises ``TypeError`` when there is none.
    """
    if any(test(given) for test in _SIMPLE) or types.is_decimal128(given):
        return given
    if types.is_large_string(given) or types.is_large_binary(given):
        return pa.string() if types.is_large_string(given) else pa.binary()
    if types.is_timestamp(given):
        return UTC_TIME if given.tz else pa.timestamp("us")
    if types.is_map(given):
        return pa.map_(table_type(given.key_type), table_type(given.item_type))
    if types.is_list(given) or types.is_large_list(given):
        return pa.list_(pa.field("element", table_type(given.value_type)))
    if types.is_struct(given):
        inner = [given.field(i) for i in range(given.num_fields)]
        if not any((field.metadata or {}).get(b"variant") for field in inner):
            return pa.struct([pa.field(field.name, table_type(field.type)) for field in inner])
    raise TypeError(given)


def check_partitions(
    schema: pa.Schema, partition_by: Sequence[str], *, all_columns: bool = False
) -> None:
    """Raise :class:`TableError` unless a table can have this schema and these partition columns.

    ``all_columns`` says that every column may be a partition column, because files hold these as well.
    """
    folded = [name.lower() for name in schema.names]
    twice = [name for name in schema.names if folded.count(name.lower()) > 1]
    if twice:
        raise TableError(
            f"a table holds a name once, in any case, but there are {', '.join(twice)}"
        )
    for name in partition_by:
        if name not in schema.names:
            have = ", ".join(schema.names)
            raise TableError(f"partitionBy names {name}, but the columns are {have}")
        kind = schema.field(name).type
        if types.is_nested(kind) or types.is_binary(kind):
            raise TableError(f"partitionBy names {name}, which is {shown(kind)}: not a plain value")
    if schema.names and not all_columns and set(partition_by) >= set(schema.names):
        raise TableError("partitionBy names every column; at least one must be left for the files")


def check_partitioned(
    partition_by: Sequence[str] | None, have: Sequence[str], where: object
) -> None:
    """Raise :class:`TableError` unless the columns that a write names are those of the table."""
    if partition_by is not None and tuple(partition_by) != tuple(have):
        there = f"by {', '.join(have)}" if have else "not at all"
        raise TableError(
            f"partitionBy is {', '.join(partition_by)}, but {where} is partitioned {there}"
        )
