"""Rows whose columns differ from a table's: which differences a write settles, and how.

====================  =====================================================================================
a name in other case  is the table's column, as Spark compares names
a narrower number     is widened in the rows: int in a bigint column, float in a double one
a missing column      is null; so is a missing field of a struct
a new column, or a    is added to the table with ``mergeSchema``, also to structs within lists and maps
field of a struct
a wider number        widens the column with ``mergeSchema``, where the format allows it (Iceberg)
anything else         is refused, with every difference in one error
====================  =====================================================================================

Does not depend on a format.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Callable

# Whole numbers that a float holds without loss, in bits.
_EXACT_BITS = {32: 16, 64: 32}
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}


@dataclass(frozen=True)
class Evolution:
    """The columns of rows as a table has them, and what the table needs first."""

    columns: pa.Schema
    """The columns of the rows, with the names and types of the table once it has changed."""
    added: pa.Schema
    """Columns that the table lacks."""
    changed: pa.Schema
    """Columns of the table with new fields or a wider type."""


def never(_: pa.DataType, __: pa.DataType) -> bool:
    """No column of the format gets a wider type."""
    return False


def evolution(
    have: pa.Schema,
    given: pa.Schema,
    *,
    merge: bool,
    name: object,
    widens: Callable[[pa.DataType, pa.DataType], bool] = never,
) -> Evolution:
    """How rows with the columns ``given`` become rows of a table with the columns ``have``.

    Without ``merge`` the table does not change. ``widens``: whether the format lets a column go from a type to
    another one. Raises :class:`TableError` with every difference that cannot be settled.
    """
    folded = {each.name.lower(): each for each in have}
    found = _Differences(merge, widens)
    columns, added, changed = [], [], []
    for each in given:
        there = folded.get(each.name.lower())
        if there is None:
            found.new(each.name, each.type)
            columns.append(each)
            added.append(each)
            continue
        kind = found.merged(there.type, each.type, each.name)
        columns.append(there.with_type(kind))
        if kind != there.type:
            changed.append(there.with_type(kind))
    if found.wrong:
        hint = "; mergeSchema=true adds columns" if found.only_new and not merge else ""
        raise TableError(f"the rows do not fit the table {name}: {', '.join(found.wrong)}{hint}")
    return Evolution(pa.schema(columns), pa.schema(added), pa.schema(changed))


@dataclass
class _Differences:
    """Compares types, and collects the differences that cannot be settled."""

    merge: bool
    widens: Callable[[pa.DataType, pa.DataType], bool]
    wrong: list[str] = field(default_factory=list)
    only_new: bool = True

    def new(self, path: str, kind: pa.DataType) -> None:
        """The table lacks a column or field."""
        if not self.merge:
            self.wrong.append(f"column {path} {shown(kind)} is not in the table")

    def merged(self, have: pa.DataType, given: pa.DataType, path: str) -> pa.DataType:
        """The table's type for values of a given type: its own one, or one with more fields."""
        if have == given:
            return have
        if types.is_struct(have) and types.is_struct(given):
            return self._struct(have, given, path)
        if _is_list(have) and _is_list(given):
            inner = have.value_field
            kind = self.merged(inner.type, given.value_type, f"{path}.element")
            return have if kind == inner.type else pa.list_(inner.with_type(kind))
        if types.is_map(have) and types.is_map(given):
            key = self.merged(have.key_type, given.key_type, f"{path}.key")
            item = have.item_field
            kind = self.merged(item.type, given.item_type, f"{path}.value")
            if (key, kind) == (have.key_type, item.type):
                return have
            return pa.map_(have.key_field.with_type(key), item.with_type(kind))
        if holds(have, given):
            return have
        if self.merge and self.widens(have, given):
            return given
        self.only_new = False
        self.wrong.append(f"column {path} is {shown(given)}, in the table {shown(have)}")
        return have

    def _struct(self, have: pa.StructType, given: pa.StructType, path: str) -> pa.DataType:
        fields = {each.name.lower(): each for each in have.fields}
        for each in given.fields:
            there = fields.get(each.name.lower())
            if there is None:
                self.new(f"{path}.{each.name}", each.type)
                fields[each.name.lower()] = each
            else:
                kind = self.merged(there.type, each.type, f"{path}.{each.name}")
                fields[each.name.lower()] = there.with_type(kind)
        merged = pa.struct(list(fields.values()))
        return have if merged == have else merged


def holds(kind: pa.DataType, given: pa.DataType) -> bool:
    """Whether a column of numbers holds every number of a narrower type, unchanged."""
    if types.is_integer(given):
        if types.is_integer(kind):
            return bool(kind.bit_width > given.bit_width)
        if types.is_floating(kind):
            return bool(given.bit_width <= _EXACT_BITS.get(kind.bit_width, 0))
        digits = _INTEGER_DIGITS[given.bit_width]
        return bool(types.is_decimal(kind) and kind.precision - kind.scale >= digits)
    if types.is_float32(given):
        return bool(types.is_float64(kind))
    if types.is_decimal(given) and types.is_decimal(kind):
        whole = kind.precision - kind.scale >= given.precision - given.scale
        return bool(whole and kind.scale >= given.scale)
    return False


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with the columns of ``schema``, found by their names in any case.

    Columns that the rows lack are null. Raises ``pa.ArrowException`` for values that do not fit.
    """
    if batch.schema == schema:
        return batch
    folded = {name.lower(): number for number, name in enumerate(batch.schema.names)}
    arrays = []
    for each in schema:
        number = folded.get(each.name.lower())
        if number is None:
            arrays.append(pa.nulls(batch.num_rows, each.type))
        else:
            arrays.append(conformed_array(batch.column(number), each.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def conformed_array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values in another type; the fields of structs are found by their names in any case.

    ``cast`` of pyarrow below 20 takes no struct with more fields, and none of them knows names in other case.
    """
    if array.type == kind:
        return array
    if types.is_struct(kind) and types.is_struct(array.type):
        folded = {each.name.lower(): number for number, each in enumerate(array.type.fields)}
        parts = [
            pa.nulls(len(array), each.type)
            if (number := folded.get(each.name.lower())) is None
            else conformed_array(array.field(number), each.type)
            for each in kind.fields
        ]
        if not parts:
            return array.cast(kind)
        return pa.StructArray.from_arrays(parts, fields=kind.fields, mask=array.is_null())
    if _is_list(kind) and _is_list(array.type):
        values = conformed_array(array.flatten(), kind.value_type)
        return pa.ListArray.from_arrays(_offsets(array), values, type=kind)
    if types.is_map(kind) and types.is_map(array.type):
        # As a list of entries, because the functions of pyarrow for lists take no map.
        entries = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
        flat = entries.flatten()
        keys = conformed_array(flat.field(0), kind.key_type)
        items = conformed_array(flat.field(1), kind.item_type)
        return pa.MapArray.from_arrays(_offsets(entries), keys, items, type=kind)
    return array.cast(kind)


def _offsets(lists: pa.Array) -> pa.Array:
    """Where each list begins in the values of all, and the end; null for a list that is null."""
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32()))
    begins = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    there = pa.concat_arrays([lists.is_valid(), pa.array([True])])
    return pc.if_else(there, begins, None)


def _is_list(kind: pa.DataType) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind))


def shown(kind: pa.DataType) -> str:
    """The name of a type in Spark; the name in Arrow when Spark has none."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type

    try:
        return str(from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString())
    except PySparkException:
        return str(kind)
