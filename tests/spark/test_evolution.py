"""Rows that differ from a table: which differences are settled, and that no value changes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.spark.tables.evolution import conformed, conformed_array, evolution, holds
from pelton.spark.tables.places import TableError

INT, LONG, TEXT = pa.int32(), pa.int64(), pa.string()


def schema(**kinds: pa.DataType) -> pa.Schema:
    return pa.schema(list(kinds.items()))


def struct(**kinds: pa.DataType) -> pa.DataType:
    return pa.struct(list(kinds.items()))


@pytest.mark.parametrize(
    ("have", "rows", "columns"),
    [
        (schema(id=LONG), schema(id=INT), schema(id=LONG)),
        (schema(id=LONG), schema(ID=pa.int8()), schema(id=LONG)),
        (schema(x=pa.float64()), schema(x=pa.float32()), schema(x=pa.float64())),
        (
            schema(s=struct(a=LONG, b=TEXT)),
            schema(s=struct(B=TEXT)),
            schema(s=struct(a=LONG, b=TEXT)),
        ),
        (schema(a=INT, b=TEXT), schema(b=TEXT), schema(b=TEXT)),
        (schema(l=pa.list_(LONG)), schema(l=pa.list_(INT)), schema(l=pa.list_(LONG))),
        (
            schema(m=pa.map_(TEXT, LONG)),
            schema(m=pa.map_(TEXT, INT)),
            schema(m=pa.map_(TEXT, LONG)),
        ),
    ],
)
def test_what_fits_a_table_as_it_is(have: pa.Schema, rows: pa.Schema, columns: pa.Schema) -> None:
    for merge in (True, False):
        found = evolution(have, rows, merge=merge, name="t")
        assert found.columns == columns
        assert not found.added.names
        assert not found.changed.names


@pytest.mark.parametrize(
    ("have", "rows", "added", "changed"),
    [
        (schema(a=INT), schema(a=INT, n=TEXT), schema(n=TEXT), schema()),
        (
            schema(s=struct(a=INT)),
            schema(s=struct(b=TEXT)),
            schema(),
            schema(s=struct(a=INT, b=TEXT)),
        ),
        (
            schema(l=pa.list_(struct(x=INT))),
            schema(L=pa.list_(struct(X=INT, y=struct(z=LONG)))),
            schema(),
            schema(l=pa.list_(struct(x=INT, y=struct(z=LONG)))),
        ),
        (
            schema(m=pa.map_(TEXT, struct(x=INT))),
            schema(m=pa.map_(TEXT, struct(x=INT, y=INT))),
            schema(),
            schema(m=pa.map_(TEXT, struct(x=INT, y=INT))),
        ),
    ],
)
def test_what_a_table_gets_with_merge_schema(
    have: pa.Schema, rows: pa.Schema, added: pa.Schema, changed: pa.Schema
) -> None:
    found = evolution(have, rows, merge=True, name="t")
    assert (found.added, found.changed) == (added, changed)
    with pytest.raises(TableError, match="is not in the table; mergeSchema=true adds columns"):
        evolution(have, rows, merge=False, name="t")


def test_all_differences_are_named_at_once() -> None:
    have = schema(id=INT, s=struct(a=INT, l=pa.list_(TEXT)), n=TEXT)
    rows = schema(id=LONG, s=struct(a=TEXT, l=pa.list_(INT), b=INT), n=INT)
    with pytest.raises(TableError) as refused:
        evolution(have, rows, merge=False, name="t")
    text = str(refused.value)
    for part in (
        "column id is bigint, in the table int",
        "column s.a is string, in the table int",
        "column s.l.element is int, in the table string",
        "column s.b int is not in the table",
        "column n is int, in the table string",
    ):
        assert part in text
    assert "mergeSchema" not in text


def test_a_wider_number_where_the_format_allows_it() -> None:
    have, rows = schema(s=struct(a=INT)), schema(s=struct(a=LONG))
    with pytest.raises(TableError, match=r"s\.a is bigint, in the table int"):
        evolution(have, rows, merge=True, name="t")
    found = evolution(have, rows, merge=True, name="t", widens=lambda old, new: new == LONG)
    assert found.changed == found.columns == rows


NUMBERS = {
    pa.int8(): [-128, 127],
    pa.int16(): [-(2**15), 2**15 - 1],
    pa.int32(): [-(2**31), 2**31 - 1],
    pa.int64(): [-(2**63), 2**63 - 1],
    pa.float32(): [0.5, -3.0e38],
    pa.float64(): [0.1, 1e300],
    pa.decimal128(5, 2): [Decimal("999.99"), Decimal("-0.01")],
    pa.decimal128(12, 4): [Decimal("99999999.9999")],
    pa.decimal128(38, 10): [Decimal("9999999999999999999999999999.9999999999")],
}


@pytest.mark.parametrize("narrow", NUMBERS, ids=str)
@pytest.mark.parametrize("wide", NUMBERS, ids=str)
def test_a_column_that_holds_a_type_holds_its_greatest_values(
    wide: pa.DataType, narrow: pa.DataType
) -> None:
    if holds(wide, narrow):
        values = pa.array(NUMBERS[narrow], narrow)
        assert conformed_array(values, wide).cast(narrow).equals(values)
    elif wide != narrow and pa.types.is_integer(wide) and pa.types.is_integer(narrow):
        with pytest.raises(pa.ArrowInvalid):
            conformed_array(pa.array(NUMBERS[narrow], narrow), wide)


def kinds() -> st.SearchStrategy[pa.DataType]:
    def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        structs = st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3)
        return st.one_of(
            st.builds(pa.list_, inner),
            st.builds(lambda item: pa.map_(TEXT, item), inner),
            st.builds(lambda fields: struct(**fields), structs),
        )

    return st.recursive(st.sampled_from([INT, TEXT, pa.bool_()]), nested, max_leaves=6)


def grown(kind: pa.DataType, draw: Any) -> pa.DataType:
    """The type with wider numbers, and structs with more fields, in another order and other case."""
    if pa.types.is_struct(kind):
        fields = [
            (each.name.upper() if draw(st.booleans()) else each.name, grown(each.type, draw))
            for each in kind.fields
        ]
        if draw(st.booleans()):
            fields.append(("new", draw(kinds())))
        return pa.struct(draw(st.permutations(fields)))
    if pa.types.is_list(kind):
        return pa.list_(grown(kind.value_type, draw))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, grown(kind.item_type, draw))
    return LONG if kind == INT and draw(st.booleans()) else kind


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        made: st.SearchStrategy[Any] = st.fixed_dictionaries(
            {each.name: values_of(each.type) for each in kind.fields}
        )
    elif pa.types.is_list(kind):
        made = st.lists(values_of(kind.value_type), max_size=3)
    elif pa.types.is_map(kind):
        keys = st.text("xy", max_size=2)
        made = st.dictionaries(keys, values_of(kind.item_type), max_size=3).map(
            lambda found: list(found.items())
        )
    else:
        made = {INT: st.integers(-5, 5), TEXT: st.text(max_size=2), pa.bool_(): st.booleans()}[kind]
    return st.none() | made


def expected(value: Any, kind: pa.DataType) -> Any:
    """The model: a value with the fields of another type."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        folded = {name.lower(): each for name, each in value.items()}
        return {
            each.name: expected(folded.get(each.name.lower()), each.type) for each in kind.fields
        }
    if pa.types.is_list(kind):
        return [expected(each, kind.value_type) for each in value]
    if pa.types.is_map(kind):
        return [(key, expected(each, kind.item_type)) for key, each in value]
    return value


@given(data=st.data())
def test_values_are_those_of_the_model(data: st.DataObject) -> None:
    kind = data.draw(kinds())
    wide = grown(kind, data.draw)
    values = data.draw(st.lists(values_of(kind), max_size=6))
    array = pa.array(values, kind)
    begin = data.draw(st.integers(0, len(values)))
    found = conformed_array(array.slice(begin), wide)
    found.validate(full=True)
    assert found.type == wide
    assert found.to_pylist() == [expected(each, wide) for each in values[begin:]]
    given_rows, table = pa.schema([("C", kind)]), pa.schema([("more", TEXT), ("c", wide)])
    rows = conformed(pa.record_batch([array], schema=given_rows), table)
    assert rows.to_pylist() == [{"more": None, "c": expected(each, wide)} for each in values]
