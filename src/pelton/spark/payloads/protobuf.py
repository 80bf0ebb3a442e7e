"""Messages of Protobuf: their classes, their types in Arrow, and their values."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pelton.errors import not_installed
from pelton.spark.parsing import OptionError
from pelton.spark.payloads.conversion import BrokenPayload

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.spark.payloads.registry import Schema

_TIME = "google.protobuf.Timestamp"
_WRAPPED = "google.protobuf."
_TEXTS = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})


def message_class(descriptors: bytes, name: str | None) -> Any:
    """The class of a message in a set of descriptors; of the only message without a name.

    Raises :class:`OptionError`.
    """
    try:
        files = files_of(descriptors)
    except ValueError as problem:
        raise OptionError(f"a set of descriptors: {problem}") from None
    pool = _pool(files)
    names = _messages(files)
    if name is None and len(names) == 1:
        name = names[0]
    if name not in names:
        raise OptionError(f"one of its messages ({', '.join(sorted(names))}), not {name}")
    return _class(pool, name)


def class_at(schema: Schema, path: tuple[int, ...]) -> Any:
    """The class of the message that a path of numbers names in the last file of a schema.

    Raises :class:`pelton.spark.payloads.conversion.BrokenPayload`.
    """
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto.FromString(schema.files[-1])
    names, messages = ([file.package] if file.package else []), file.message_type
    for number in path:
        if number >= len(messages):
            raise BrokenPayload(f"its schema has no message {number}")
        names.append(messages[number].name)
        messages = messages[number].nested_type
    return _class(_pool(schema.files), ".".join(names))


def index_of(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """The path of a payload's message in its file, and the rest; as serializers of registries write it."""

    def number(place: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            if place >= len(payload) or shift > 28:
                raise BrokenPayload("it does not begin with the number of a message")
            byte = payload[place]
            value |= (byte & 0x7F) << shift
            place, shift = place + 1, shift + 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), place

    many, place = number(0)
    if not many:
        return (0,), payload[place:]
    if not 0 < many <= 32:
        raise BrokenPayload("it does not begin with the number of a message")
    path = []
    for _ in range(many):
        one, place = number(place)
        if one < 0:
            raise BrokenPayload("it does not begin with the number of a message")
        path.append(one)
    return tuple(path), payload[place:]


def files_of(descriptors: bytes) -> tuple[bytes, ...]:
    """The files of a set of descriptors. ValueError if it is none."""
    descriptor_pb2 = _library()
    from google.protobuf.message import DecodeError

    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(descriptors).file
    except DecodeError as problem:
        raise ValueError(str(problem)) from None
    if not found:
        raise ValueError("it is empty")
    return tuple(each.SerializeToString() for each in found)


def renamed(file: bytes, name: str) -> bytes:
    """A file under the name by which others import it."""
    descriptor_pb2 = _library()
    from google.protobuf.message import DecodeError

    try:
        found = descriptor_pb2.FileDescriptorProto.FromString(file)
    except DecodeError as problem:
        raise ValueError(str(problem)) from None
    if name:
        found.name = name
    made: bytes = found.SerializeToString()
    return made


def _library() -> Any:
    try:
        from google.protobuf import descriptor_pb2
    except ModuleNotFoundError as problem:
        raise not_installed(problem, "formats") from None
    return descriptor_pb2


def _pool(files: tuple[bytes, ...]) -> Any:
    from google.protobuf import (
        descriptor_pb2,
        descriptor_pool,
        duration_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    pool = descriptor_pool.DescriptorPool()
    own = {descriptor_pb2.FileDescriptorProto.FromString(each).name for each in files}
    for known in (timestamp_pb2, duration_pb2, struct_pb2, wrappers_pb2):
        if known.DESCRIPTOR.name not in own:
            pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    try:
        for each in files:
            pool.AddSerializedFile(each)
    except TypeError as problem:
        raise OptionError(
            f"a set of descriptors with all imports (protoc --include_imports): {problem}"
        ) from None
    return pool


def _class(pool: Any, name: str) -> Any:
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(pool.FindMessageTypeByName(name))


def _messages(files: tuple[bytes, ...]) -> list[str]:
    from google.protobuf import descriptor_pb2

    found = []
    for each in files:
        file = descriptor_pb2.FileDescriptorProto.FromString(each)
        if not file.package.startswith("google.protobuf"):
            found += [".".join(filter(None, (file.package, one.name))) for one in file.message_type]
    return found


def struct_of(message: Any) -> pa.StructType:
    """The type of a message. Raises :class:`OptionError` for one inside of itself."""
    return _struct(message.DESCRIPTOR, ())


def _struct(descriptor: Any, within: tuple[str, ...]) -> pa.StructType:
    if descriptor.full_name in within:
        raise OptionError(f"messages that are not inside of themselves, as {descriptor.name} is")
    inner = (*within, descriptor.full_name)
    return pa.struct([pa.field(each.name, _type(each, inner)) for each in descriptor.fields])


def _type(field: Any, within: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return pa.map_(pa.string(), _one(entry["value"], within))
    kind = _one(field, within)
    return pa.list_(pa.field("element", kind)) if field.is_repeated else kind


def _one(field: Any, within: tuple[str, ...]) -> pa.DataType:
    kinds = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: pa.decimal128(20, 0),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_ENUM: pa.string(),
    }
    if field.cpp_type == field.CPPTYPE_STRING:
        return pa.binary() if field.type == field.TYPE_BYTES else pa.string()
    if field.cpp_type != field.CPPTYPE_MESSAGE:
        return kinds[field.cpp_type]
    name = field.message_type.full_name
    if name == _TIME:
        return pa.timestamp("us", "UTC")
    if name in _TEXTS or name == "google.protobuf.Duration":
        return pa.string()
    if name.startswith(_WRAPPED) and name.endswith("Value"):
        return _one(field.message_type.fields_by_name["value"], within)
    return _struct(field.message_type, within)


def _is_map(field: Any) -> bool:
    message = field.message_type
    return bool(field.is_repeated and message is not None and message.GetOptions().map_entry)


def reader(message: Any) -> Callable[[bytes], Any]:
    """From bytes to the values of a message."""
    from google.protobuf.message import DecodeError

    def read(payload: bytes) -> Any:
        try:
            found = message.FromString(payload)
        except DecodeError as problem:
            raise BrokenPayload(f"it is no {message.DESCRIPTOR.name}: {problem}") from None
        return _values(found)

    return read


def _values(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            found[field.name] = {str(key): _value(inner, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_value(field, each) for each in value]
        else:
            found[field.name] = _value(field, value)
    return found


def _value(field: Any, value: Any) -> Any:
    if field.cpp_type == field.CPPTYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    if field.cpp_type != field.CPPTYPE_MESSAGE:
        return value
    name = field.message_type.full_name
    if name == _TIME:
        return value.ToDatetime(tzinfo=UTC)
    if name in _TEXTS or name == "google.protobuf.Duration":
        from google.protobuf import json_format

        return json_format.MessageToJson(value, indent=None).strip('"')
    if name.startswith(_WRAPPED) and name.endswith("Value"):
        return value.value
    return _values(value)
