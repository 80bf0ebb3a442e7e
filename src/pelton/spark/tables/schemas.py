"""Schemas of tables: rows of Spark as Arrow, the columns of a table, and whether rows fit into it.

A table holds the types of the Delta protocol. Which rows fit :mod:`pelton.spark.tables.evolution` knows.

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

    from deltalake import DeltaTable
    from pyspark.sql.types import StructType

    from pelton.spark.tables.data_files import DataFile

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


def arrow_schema(schema: StructType, kind_of_table: str = "a Delta table") -> pa.Schema:
    """The schema of Spark's rows in the types of a table, in which all columns may be null.

    Raises :class:`TableError` for a type that no such table has.
    """
    from pyspark.errors import PySparkException

    from pelton.spark.older import to_arrow

    fields = []
    for name in schema.names:
        try:
            one = to_arrow(type(schema)([schema[name]])).field(0)
            fields.append(pa.field(name, table_type(one.type)))
        except (PySparkException, TypeError):
            kind = schema[name].dataType.simpleString()
            raise TableError(
                f"column {name} is {kind}, which {kind_of_table} does not hold"
            ) from None
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


def schema_of(table: DeltaTable) -> pa.Schema:
    """A table's schema in the form of :func:`arrow_schema`.

    Raises :class:`TableError` for a type that cannot be written.
    """
    fields = []
    for field in pa.schema(table.schema().to_arrow()):
        try:
            fields.append(pa.field(field.name, table_type(field.type)))
        except TypeError:
            raise TableError(
                f"column {field.name} of {table.table_uri} is {field.type}, which is not supported"
            ) from None
    return pa.schema(fields)


_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity.start")


def own_rules(table: DeltaTable) -> list[str]:
    """The table's own rules about values, which this writer does not enforce."""
    rules = [key for key in table.metadata().configuration if key.startswith("delta.constraints.")]
    for field in table.schema().fields:
        rules += [f"{key} of {field.name}" for key in _RULES if key in field.metadata]
    return rules


def check_rules(table: DeltaTable) -> None:
    """Raise :class:`TableError` for a table with rules about values that this writer does not
    enforce.
    """
    rules = own_rules(table)
    if rules:
        raise TableError(
            f"the table {table.table_uri} has {', '.join(rules)}, which is not checked here"
        )


def check_nulls(table: DeltaTable, files: Sequence[DataFile], schema: pa.Schema) -> None:
    """Raise :class:`TableError` when files have nulls in columns that must not be null."""
    for field in table.schema().fields:
        if not field.nullable and files:
            missing = field.name not in schema.names
            if missing or any(file.nulls(field.name) != 0 for file in files):
                raise TableError(
                    f"column {field.name} of {table.table_uri} must not be null, but rows are"
                )


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
