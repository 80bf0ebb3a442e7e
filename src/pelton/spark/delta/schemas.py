"""Columns of a Delta table, and its own rules about values. Does not depend on files or commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from pelton.spark.tables.places import TableError
from pelton.spark.tables.schemas import table_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltalake import DeltaTable

    from pelton.spark.delta.data_files import DataFile

_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity.start")


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
