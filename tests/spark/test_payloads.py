"""Payloads as values and columns, without Spark: what fits a type, what is left, which schema data has."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import cbor2
import fastavro
import msgspec
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from pelton.spark.parsing import OptionError
from pelton.spark.payloads import protobuf, whole
from pelton.spark.payloads.conversion import UnknownTypeError, fit_of
from pelton.spark.payloads.formats import Avro, Cbor, Format, Json, MessagePack, Protobuf
from pelton.spark.payloads.frames import Decoder, Seen
from pelton.spark.payloads.inference import MAX_FIELDS, count_of, grown, merged, seen_in, type_of


def struct(fields: dict[str, pa.DataType]) -> pa.StructType:
    return pa.struct([pa.field(name, kind) for name, kind in fields.items()])


NAMES = st.sampled_from(["a", "b", "id", "amount", "x y", "ü", "a.b"])
NUMBERS = st.one_of(
    st.integers(-(2**66), 2**66),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, -0.0, 2**63 - 1, 2**63, 1e300, 12.0]),
)
PLAIN = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=5))
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)
TYPES = st.recursive(
    st.sampled_from([pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.int16()]),
    lambda inner: inner.map(pa.list_) | st.dictionaries(NAMES, inner, min_size=1).map(struct),
    max_leaves=6,
)
STRUCTS = st.dictionaries(NAMES, TYPES, min_size=1, max_size=4).map(struct)


def binary(*payloads: bytes | None) -> pa.Array:
    return pa.array(payloads, pa.binary())


def decoded(form: Format, kind: pa.StructType, *payloads: bytes | None) -> list[tuple[Any, Any]]:
    values, rests = Decoder(form, kind).columns(binary(*payloads))
    left = [None if each is None else json.loads(each) for each in rests.to_pylist()]
    return list(zip(values.to_pylist(), left, strict=True))


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """All that a value has but nulls, by path."""
    if isinstance(value, dict):
        parts = [(f".{key}" if path else key, each) for key, each in value.items()]
    elif isinstance(value, list):
        parts = [(f"[{number}]", each) for number, each in enumerate(value)]
    else:
        return {} if value is None else {path: value}
    return {where: one for key, each in parts for where, one in leaves(each, path + key).items()}


FAULTS = [
    *(b"", b"5", b"null", b"[1]", b'{"a":NaN}', b'{"a":1e400}', b'{"a":1,"a":2}', b'{}{"a":1}'),
    *(b'{}} {"i":1,"v":{}', b'{"a":"\\ud800"}', b'{"a":"\xff"}', b'{"a":01}'),
]


@given(OBJECTS, STRUCTS)
def test_every_value_is_in_the_column_or_in_the_rest(value: Any, kind: pa.StructType) -> None:
    rest: dict[str, Any] = {}
    fitted = pa.array([fit_of(kind)(value, rest)], kind).to_pylist()[0]
    found = leaves(fitted)
    for path, each in rest.items():
        for where, one in leaves(each, path).items():
            assert where not in found
            found[where] = one
    wanted = leaves(value)
    for path in list(found):  # a text column has other values as JSON
        if path not in wanted and isinstance(found[path], str):
            for where, one in leaves(json.loads(found[path]), path).items():
                found[where] = one
            del found[path]
    for path, one in wanted.items():
        there = found.get(path)
        if isinstance(there, str) and not isinstance(one, str):
            there = json.loads(there)
        assert there == one or (one in ({}, []) and there is None), path


@given(st.lists(OBJECTS, max_size=5), STRUCTS, st.data())
def test_many_at_once_are_read_as_one_by_one(
    values: list[Any], kind: pa.StructType, data: st.DataObject
) -> None:
    texts = [json.dumps(each, indent=data.draw(st.sampled_from([None, 1]))) for each in values]
    broken = data.draw(st.lists(st.sampled_from(FAULTS), max_size=2))
    payloads = [*map(str.encode, texts), *broken]
    slow = [
        (value, rest)
        for each in payloads
        for value, rest in zip(*(one.to_pylist() for one in _slowly(each, kind)), strict=True)
    ]
    found = whole.read(binary(*payloads), kind) if whole.reads(kind) else None
    if found is not None:
        assert [(value, None) for value in found.to_pylist()] == slow
        assert not broken
    values_, rests = Decoder(Json(), kind).columns(binary(*payloads))
    assert list(zip(values_.to_pylist(), rests.to_pylist(), strict=True)) == slow


def _slowly(payload: bytes, kind: pa.StructType) -> tuple[pa.Array, pa.Array]:
    decoder = Decoder(Json(), kind)
    decoder._whole = False
    return decoder.columns(binary(payload))


def test_what_many_at_once_refuse() -> None:
    kind = struct({"a": pa.int64(), "b": pa.float64(), "c": pa.string()})
    taken = b'{"a": 1, "b": 2, "c": "2026-01-01T00:00:00Z"}'
    found = whole.read(binary(taken), kind)
    assert found is not None
    assert found.to_pylist() == [{"a": 1, "b": 2.0, "c": "2026-01-01T00:00:00Z"}]
    deep = b"[" * 1_000_000
    for other in (b"", b"null", b"{} {}", b'{"b":NaN}', b'{"b":Infinity}', b'{"d":1}', deep):
        assert whole.read(binary(taken, other), kind) is None, other[:20]
    assert whole.read(binary(taken, None), kind) is None
    assert whole.read(binary(b'{}} {"i":1,"v":{}', b""), kind) is None


def test_what_fits_a_type() -> None:
    kind = struct(
        {"n": pa.int32(), "d": pa.decimal128(6, 2), "t": pa.timestamp("us", "UTC")}
        | {"day": pa.date32(), "raw": pa.binary(), "f": pa.float32(), "yes": pa.bool_()}
        | {"text": pa.string(), "m": pa.map_(pa.string(), pa.int64())}
    )
    good = {
        "n": 7.0,
        "d": "12.5",
        "t": "2026-11-29T12:00:00+02:00",
        "day": "2026-11-29",
        "raw": "aGk=",
        "f": 0.5,
        "yes": True,
        "text": [1, {"a": None}],
        "m": {"k": 1},
    }
    [(value, rest)] = decoded(Json(), kind, json.dumps(good).encode())
    assert rest is None
    assert value["n"] == 7
    assert value["d"] == Decimal("12.50")
    assert value["t"].isoformat() == "2026-11-29T10:00:00+00:00"
    assert value["raw"] == b"hi"
    assert value["text"] == '[1,{"a":null}]'
    assert value["m"] == [("k", 1)]
    bad = {
        "n": 2**31,
        "d": "12.555",
        "t": "now",
        "day": "2026-11-31",
        "raw": "?",
        "f": 1e39,
        "yes": 1,
        "m": {"k": "x"},
        "extra": {"a": [1]},
    }
    [(value, rest)] = decoded(Json(), kind, json.dumps(bad).encode())
    assert {**value, "m": None} == dict.fromkeys(kind.names)
    assert rest.pop("m.k") == "x"
    assert rest == {name: each for name, each in bad.items() if name != "m"}
    for wrong in (pa.duration("s"), pa.map_(pa.int64(), pa.int64())):
        with pytest.raises(UnknownTypeError):
            fit_of(struct({"a": wrong}))


def test_names_in_another_case() -> None:
    kind = struct({"id": pa.int64(), "Name": pa.string()})
    assert decoded(Json(), kind, b'{"ID": 1, "name": "x"}') == [({"id": 1, "Name": "x"}, None)]
    assert decoded(Json(), kind, b'{"ID": 1, "id": 2}') == [({"id": 2, "Name": None}, {"ID": 1})]
    assert decoded(Json(), kind, b'{"ID": 1, "Id": 2}') == [({"id": 1, "Name": None}, {"Id": 2})]


def test_numbers_that_overflow_are_left() -> None:
    kind = struct({"f": pa.float64(), "n": pa.int64()})
    [(value, rest)] = decoded(Json(), kind, b'{"f": 1e400, "n": 9223372036854775808}')
    assert value == {"f": None, "n": None}
    assert rest == {"f": "1E+400", "n": 2**63}


def test_broken_payloads_say_why() -> None:
    kind = struct({"a": pa.int64()})
    found = decoded(Json(), kind, b'{"a": 1', b"\xff", b"[1]", b"null", None, b"[" * 100_000)
    assert [value for value, _ in found] == [None] * 6
    errors = [None if rest is None else rest["error"] for _, rest in found]
    assert errors[2:5] == ["it is a list, not an object", "it is null, not an object", None]
    assert "nested too deeply" in str(errors[5])
    assert found[0][1]["payload"] == '{"a": 1'
    assert found[1][1]["payload"] == "/w=="


@given(st.lists(OBJECTS, max_size=6))
def test_data_fits_the_schema_that_is_inferred_from_it(values: list[Any]) -> None:
    kind = seen_in(values)
    if kind is None:
        return
    for value in values:
        rest: dict[str, Any] = {}
        pa.array([fit_of(kind)(value, rest)], kind)
        for lost in rest.values():  # only numbers that their double cannot hold, and nothing at all
            assert type_of(lost) is None or isinstance(lost, int), (kind, rest)


@given(st.lists(OBJECTS, max_size=3), st.lists(OBJECTS, max_size=3))
def test_a_schema_grows_and_keeps_its_types(old: list[Any], new: list[Any]) -> None:
    have = seen_in(old) or pa.struct([])
    more = grown(have, seen_in(new))
    assert more.names[: len(have.names)] == have.names
    assert grown(more, seen_in(new)) == more
    seen = Seen(Json(), have)
    seen.add(binary(*(json.dumps(each).encode() for each in new)))
    assert grown(have, seen.type) == more

    def kept(before: pa.DataType, after: pa.DataType) -> None:
        if pa.types.is_struct(before):
            for each in before.fields:
                kept(each.type, after.field(each.name).type)
        elif pa.types.is_list(before):
            kept(before.value_type, after.value_type)
        else:
            assert before == after

    kept(have, more)


def test_which_types_data_has() -> None:
    def of(*values: Any) -> pa.DataType | None:
        found = None
        for each in values:
            found = merged(found, type_of(each))
        return found

    assert of(None, [], {}) is None
    assert of(1, 2**62) == pa.int64()
    assert of(1, 2**70) == pa.decimal128(38, 0)
    assert of(1, 0.5) == pa.float64()
    assert of(1, "x") == of(True, 1) == of({"a": 1}, [1]) == pa.string()
    assert of([None], [1], []) == pa.list_(pa.field("element", pa.int64()))
    assert of({"a": 1}, {"A": 2.5, "b": None}) == struct({"a": pa.float64()})
    many = {f"device {number}": {"at": number} for number in range(5000)}
    assert count_of(grown(pa.struct([]), seen_in([many, {"z": 1}]))) <= MAX_FIELDS
    deep: Any = 1
    for _ in range(50):
        deep = {"a": deep}
    assert str(of(deep)).count("struct") == 20


@given(OBJECTS)
def test_messagepack_and_cbor_are_read_as_json_is(value: Any) -> None:
    def fits(each: Any) -> bool:  # MessagePack has no larger integers
        if isinstance(each, dict | list):
            return all(map(fits, each.values() if isinstance(each, dict) else each))
        return not isinstance(each, int) or -(2**63) <= each < 2**64

    kind = seen_in([value]) or struct({"a": pa.int64()})
    wanted = decoded(Json(), kind, json.dumps(value).encode())
    assert decoded(Cbor(), kind, cbor2.dumps(value)) == wanted
    if fits(value):
        assert decoded(MessagePack(), kind, msgspec.msgpack.encode(value)) == wanted
    for form in (Cbor(), MessagePack()):
        for broken in (b"", b"\xc1\xff", b"\x81", b"\xff" * 3):
            [(found, rest)] = decoded(form, kind, broken)
            assert found is None
            assert rest["error"]


SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "more", "type": {"type": "map", "values": "double"}},
        {"name": "either", "type": ["int", "string"]},
        {"name": "parent", "type": ["null", {"type": "record", "name": "Parent", "fields": [
            {"name": "id", "type": "int"}, {"name": "kind", "type": "Kind"}]}]},
    ],
}  # fmt: skip


def avro_of(value: Any, schema: Any = SCHEMA) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_avro_of_one_schema() -> None:
    from datetime import UTC, datetime

    form = Avro(json.dumps(SCHEMA))
    kind = form.stated()
    assert kind is not None
    assert str(kind.field("price").type) == "decimal128(9, 2)"
    order = {
        "id": 7,
        "name": None,
        "price": Decimal("12.50"),
        "kind": "B",
        "tags": ["x"],
        "at": datetime(2026, 11, 29, tzinfo=UTC),
        "more": {"a": 0.5},
        "either": 5,
        "parent": {"id": 1, "kind": "A"},
    }
    [(value, rest)] = decoded(form, kind, avro_of(order))
    assert rest is None
    assert value == {**order, "more": [("a", 0.5)], "either": "5"}
    for broken in (b"", avro_of(order)[:-3], avro_of(order) + b"x", b"\xff" * 20):
        assert decoded(form, kind, broken)[0][0] is None
    for wrong in ("{", '"string"', '{"type": "record"}', json.dumps(_recursive())):
        with pytest.raises(OptionError, match="an Avro schema"):
            Avro(wrong).stated()


def _recursive() -> dict[str, Any]:
    return {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}


FIELD = descriptor_pb2.FieldDescriptorProto


def descriptors(syntax: str = "proto3") -> bytes:
    """``message Reading { int64 id = 1; ... }``, as protoc writes it."""
    file = descriptor_pb2.FileDescriptorProto(
        name="reading.proto",
        package="plant",
        syntax=syntax,
        dependency=["google/protobuf/timestamp.proto"],
    )
    inner = file.message_type.add(name="Point")
    inner.field.add(name="x", number=1, type=FIELD.TYPE_DOUBLE, label=FIELD.LABEL_OPTIONAL)
    one = file.message_type.add(name="Reading")
    kind = file.enum_type.add(name="Kind")
    for number, name in enumerate(("NONE", "HOT")):
        kind.value.add(name=name, number=number)
    for number, (name, type_, label, of) in enumerate(
        [
            ("id", FIELD.TYPE_INT64, FIELD.LABEL_OPTIONAL, None),
            ("name", FIELD.TYPE_STRING, FIELD.LABEL_OPTIONAL, None),
            ("raw", FIELD.TYPE_BYTES, FIELD.LABEL_OPTIONAL, None),
            ("kind", FIELD.TYPE_ENUM, FIELD.LABEL_OPTIONAL, ".plant.Kind"),
            ("points", FIELD.TYPE_MESSAGE, FIELD.LABEL_REPEATED, ".plant.Point"),
            ("at", FIELD.TYPE_MESSAGE, FIELD.LABEL_OPTIONAL, ".google.protobuf.Timestamp"),
            ("big", FIELD.TYPE_UINT64, FIELD.LABEL_OPTIONAL, None),
        ],
        1,
    ):
        one.field.add(name=name, number=number, type=type_, label=label, type_name=of)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def test_protobuf_of_one_descriptor() -> None:
    form = Protobuf(descriptors(), "plant.Reading")
    kind = form.stated()
    assert kind is not None
    message = protobuf.message_class(descriptors(), "plant.Reading")
    one = message(id=7, name="x", raw=b"\0", kind=1, big=2**64 - 1)
    one.points.add(x=0.5)
    one.at.FromSeconds(1_800_000_000)
    [(value, rest)] = decoded(form, kind, one.SerializeToString())
    assert rest is None
    assert value == {
        "id": 7,
        "name": "x",
        "raw": b"\0",
        "kind": "HOT",
        "points": [{"x": 0.5}],
        "at": one.at.ToDatetime(tzinfo=value["at"].tzinfo),
        "big": Decimal(2**64 - 1),
    }
    assert decoded(form, kind, b"")[0][0]["id"] == 0  # as Protobuf has it: a missing number is 0
    assert decoded(form, kind, b"\xff\xff")[0][1]["error"].startswith("it is no Reading")
    with pytest.raises(OptionError, match="one of its messages"):
        Protobuf(descriptors(), "Nothing").stated()
    with pytest.raises(OptionError, match="a set of descriptors"):
        Protobuf(b"\xff", None).stated()


def test_the_index_of_a_message() -> None:
    assert protobuf.index_of(b"\0rest") == ((0,), b"rest")
    assert protobuf.index_of(b"\x04\x02\x00rest") == ((1, 0), b"rest")
    for wrong in (b"", b"\x04", b"\x01", b"\xff" * 9):
        with pytest.raises(ValueError, match="number of a message"):
            protobuf.index_of(wrong)
