"""The schema of values, and schemas that get the fields of newer values.

Numbers get the type that holds all of them (``bigint``, ``decimal(38,0)``, ``double``); a field with values of
different kinds is a text. A field that only had nulls, empty lists or empty objects is not known yet.
A type of None stands for such a value. Does not depend on Spark.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_FIELDS = 1000
"""The most fields that are found in data, so that texts used as names do not become columns without end."""
MAX_DEPTH = 20
"""Below so many levels a value is a text."""

_LONG = 2**63
_DIGITS = 10**38
_UTC = pa.timestamp("us", "UTC")
_WHOLE = pa.decimal128(38, 0)


def type_of(value: Any, depth: int = 0) -> pa.DataType | None:
    """The type of a value; None if it says nothing."""
    if value is None:
        return None
    if type(value) is dict:
        return pa.string() if depth >= MAX_DEPTH else _struct_of(value, depth)
    if type(value) in (list, tuple):
        if depth >= MAX_DEPTH:
            return pa.string()
        found = None
        for each in value:
            found = merged(found, type_of(each, depth + 1))
        return None if found is None else pa.list_(pa.field("element", found))
    return _plain(value)


def _struct_of(value: dict[Any, Any], depth: int) -> pa.DataType | None:
    fields: dict[str, pa.Field] = {}
    for key, each in value.items():
        kind = type_of(each, depth + 1)
        if kind is not None and isinstance(key, str) and key and key.lower() not in fields:
            fields[key.lower()] = pa.field(key, kind)
    return pa.struct(list(fields.values())) if fields else None


def _plain(value: Any) -> pa.DataType:
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        if -_LONG <= value < _LONG:
            return pa.int64()
        return _WHOLE if abs(value) < _DIGITS else pa.string()
    if isinstance(value, float):
        return pa.float64()
    if isinstance(value, bytes):
        return pa.binary()
    if isinstance(value, datetime):
        return _UTC if value.tzinfo else pa.timestamp("us")
    if isinstance(value, date):
        return pa.date32()
    if isinstance(value, Decimal):
        return pa.float64()
    return pa.string()


def merged(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    """The type that holds the values of both."""
    if one is None or other is None or one == other:
        return other if one is None else one
    if types.is_struct(one) and types.is_struct(other):
        fields = {each.name.lower(): each for each in one.fields}
        for each in other.fields:
            there = fields.get(each.name.lower())
            kind = each.type if there is None else merged(there.type, each.type)
            fields[each.name.lower()] = (there or each).with_type(kind)
        return pa.struct(list(fields.values()))
    if types.is_list(one) and types.is_list(other):
        return pa.list_(pa.field("element", merged(one.value_type, other.value_type)))
    if types.is_map(one) and types.is_map(other):
        return pa.map_(one.key_type, merged(one.item_type, other.item_type))
    return _number_of(one, other) or pa.string()


def _number_of(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type for numbers of both; None if one is no number."""
    if types.is_integer(one) and types.is_integer(other):
        return max(one, other, key=lambda kind: int(kind.bit_width))
    numbers = (types.is_integer, types.is_floating, types.is_decimal)
    if not all(any(test(kind) for test in numbers) for kind in (one, other)):
        return None
    if types.is_floating(one) or types.is_floating(other):
        return pa.float64()
    decimals = [_WHOLE if types.is_integer(kind) else kind for kind in (one, other)]
    scale = max(kind.scale for kind in decimals)
    digits = max(kind.precision - kind.scale for kind in decimals)
    return pa.decimal128(min(38, digits + scale), scale)


def seen_in(values: Iterable[Any]) -> pa.StructType | None:
    """The type of all values that are objects; None if none of them has a field."""
    found: pa.DataType | None = None
    for value in values:
        if type(value) is dict:
            found = merged(found, type_of(value))
    return found


def grown(have: pa.StructType, seen: pa.StructType | None) -> pa.StructType:
    """A schema with the fields of ``seen`` that it lacks, also in structs; types stay as they are.

    No more are added once there are :data:`MAX_FIELDS`.
    """
    if seen is None:
        return have
    left = [MAX_FIELDS - count_of(have)]
    found = _grown(have, seen, left)
    assert types.is_struct(found)
    return found


def count_of(kind: pa.DataType) -> int:
    """The number of fields of a type, with those inside of others."""
    if types.is_struct(kind):
        return sum(1 + count_of(each.type) for each in kind.fields)
    if types.is_list(kind):
        return count_of(kind.value_type)
    return count_of(kind.item_type) if types.is_map(kind) else 0


def _grown(have: pa.DataType, seen: pa.DataType, left: list[int]) -> pa.DataType:
    if types.is_struct(have) and types.is_struct(seen):
        fields = {each.name.lower(): each for each in have.fields}
        for each in seen.fields:
            there = fields.get(each.name.lower())
            if there is not None:
                fields[each.name.lower()] = there.with_type(_grown(there.type, each.type, left))
            elif (many := 1 + count_of(each.type)) <= left[0]:
                left[0] -= many
                fields[each.name.lower()] = each
        return pa.struct(list(fields.values()))
    if types.is_list(have) and types.is_list(seen):
        inner = _grown(have.value_type, seen.value_type, left)
        return have if inner == have.value_type else pa.list_(pa.field("element", inner))
    if types.is_map(have) and types.is_struct(seen):  # a map has the fields of an object as entries
        item = have.item_type
        for each in seen.fields:
            item = _grown(item, each.type, left)
        return have if item == have.item_type else pa.map_(have.key_type, item)
    return have
