"""Columns of Spark's rows, of an Iceberg table and of its files, and which fit into which.

A table identifies a column by a number, which stays when the column is renamed; files have the number
of each column. So the files of a batch can be written only when the table has the columns.

=================  ==============================================================================
rows               Spark's rows in the types of a table: no 8 and 16 bit integers
the table          names and types to compare the rows with; all columns may be null
the files          columns of the rows, in the table's types, with the table's numbers; their
                   names have only letters, digits and ``_``, as those of other writers
=================  ==============================================================================

Does not depend on catalogs or commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.transforms import IdentityTransform

from pelton.spark.tables.evolution import Evolution, evolution
from pelton.spark.tables.places import TableError
from pelton.spark.tables.schemas import check_partitions, table_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.partitioning import PartitionSpec

_NEWEST_VERSION = 2


def widened(kind: pa.DataType) -> pa.DataType:
    """A type without 8 and 16 bit integers."""
    if types.is_integer(kind):
        return kind if kind.bit_width >= 32 else pa.int32()
    if types.is_map(kind):
        return pa.map_(widened(kind.key_type), widened(kind.item_type))
    if types.is_list(kind):
        return pa.list_(pa.field("element", widened(kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([pa.field(each.name, widened(each.type)) for each in kind.fields])
    return kind


def table_schema(schema: Schema) -> pa.Schema:
    """A table's columns, to compare rows with; a type that Spark's rows lack stays unchanged."""
    fields = []
    for field in schema.as_arrow():
        try:
            kind = table_type(field.type)
        except TypeError:
            kind = field.type
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


def needed(schema: Schema, given: pa.Schema, *, merge: bool, name: object) -> Evolution:
    """How rows with the columns ``given`` become rows of a table.

    Raises :class:`TableError` with every difference when they do not fit.
    """
    check_partitions(given, ())
    found = evolution(table_schema(schema), given, merge=merge, name=name, widens=_widens)
    names = {each.lower() for each in given.names}
    wrong = [
        f"column {field.name} must not be null, but is not in the rows"
        for field in schema.fields
        if field.required and field.name.lower() not in names
    ]
    wrong += [
        f"column {field.name} has parts that must not be null"
        for field in schema.as_arrow()
        if field.name.lower() in names and _needs_parts(field.type)
    ]
    if wrong:
        raise TableError(f"the rows do not fit the table {name}: {', '.join(wrong)}")
    return found


def _widens(have: pa.DataType, given: pa.DataType) -> bool:
    """Whether Iceberg lets a column go from a type to a wider one."""
    if types.is_decimal(have) and types.is_decimal(given):
        return bool(have.scale == given.scale and have.precision < given.precision)
    return (have, given) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))


def _needs_parts(kind: pa.DataType) -> bool:
    """Whether a type has inner fields, other than keys of maps, that must not be null."""
    if types.is_map(kind):
        inner = [kind.item_field]
        return _needs_parts(kind.key_type) or any(map(_needed, inner))
    if types.is_list(kind) or types.is_large_list(kind):
        return _needed(kind.value_field)
    return types.is_struct(kind) and any(map(_needed, kind.fields))


def _needed(field: pa.Field) -> bool:
    return not field.nullable or _needs_parts(field.type)


def in_files(schema: Schema, names: Sequence[str]) -> Schema:
    """The columns ``names`` of a table, with their names in files."""
    plain = sanitize_column_names(schema)
    by_id = {field.field_id: field.name for field in plain.fields}
    by_name = {field.name: field for field in schema.fields}
    found = [by_name[name] for name in names]
    return Schema(*(f.model_copy(update={"name": by_id[f.field_id]}) for f in found))


def file_schema(schema: Schema, names: Sequence[str]) -> pa.Schema:
    """The schema of a file with the columns ``names`` of a table, with their numbers."""
    return pa.schema([_small(field) for field in in_files(schema, names).as_arrow()])


def _small(field: pa.Field) -> pa.Field:
    """A field with texts, binaries and lists of Spark's size; its other properties stay."""
    return field.with_type(_small_type(field.type))


def _small_type(kind: pa.DataType) -> pa.DataType:
    if types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind):
        return pa.binary()
    if types.is_map(kind):
        return pa.map_(_small(kind.key_field), _small(kind.item_field))
    if types.is_large_list(kind) or types.is_list(kind):
        return pa.list_(_small(kind.value_field))
    if types.is_struct(kind):
        return pa.struct([_small(field) for field in kind.fields])
    return kind


def identity_columns(spec: PartitionSpec, schema: Schema, name: object) -> tuple[str, ...]:
    """The columns by whose values a table is partitioned.

    Raises :class:`TableError` for any other partitioning, such as days of a time.
    """
    found = []
    for field in spec.fields:
        column = schema.find_column_name(field.source_id)
        if not isinstance(field.transform, IdentityTransform) or column is None:
            raise TableError(
                f"the table {name} is divided by {field.name} = {field.transform}, which is not"
                " written here; only by values of columns"
            )
        found.append(column)
    return tuple(found)


def check_version(metadata: Any, name: object) -> None:
    """Raise :class:`TableError` for a table in a format version that this writer does not support."""
    if metadata.format_version > _NEWEST_VERSION:
        raise TableError(
            f"the table {name} is of Iceberg's format {metadata.format_version};"
            f" formats 1 to {_NEWEST_VERSION} are written"
        )
