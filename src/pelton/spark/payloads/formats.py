"""Formats of payloads: from bytes to values, and the schema that a format itself states.

A format is picklable, and made ready for use on the machine that reads. Payloads that are none of the format
raise :class:`BrokenPayload`. Does not depend on Spark.
"""

from __future__ import annotations

import io
import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from pelton.errors import not_installed
from pelton.spark.payloads.conversion import BrokenPayload
from pelton.spark.payloads.registry import Registry, split

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

NAMES = ("json", "msgpack", "cbor", "avro", "protobuf")


class Format(ABC):
    """One format of payloads."""

    name: str

    @abstractmethod
    def reader(self) -> Callable[[bytes], Any]:
        """From bytes to values. It raises :class:`BrokenPayload`, and others if a schema cannot be had."""

    def stated(self) -> pa.StructType | None:
        """The schema that every payload has; None if only the payloads have one.

        Raises :class:`OptionError`.
        """
        return None

    def seen(self, payloads: pa.Array) -> pa.StructType | None:
        """The schema of these payloads, from schemas that they name or from their values."""
        from pelton.spark.payloads.inference import seen_in

        read = self.reader()
        return seen_in(filter(None, (value_of(read, each.as_py()) for each in payloads)))


def value_of(read: Callable[[bytes], Any], payload: bytes | None) -> Any:
    """The value of a payload; None if it is broken."""
    try:
        return None if payload is None else read(payload)
    except BrokenPayload:
        return None


@dataclass(frozen=True)
class Json(Format):
    """JSON: numbers too large for a double stay exact, and so do not fit one."""

    name = "json"

    def reader(self) -> Callable[[bytes], Any]:
        """By ``msgspec``; by the standard library where that refuses."""
        decode = msgspec.json.Decoder().decode

        def read(payload: bytes) -> Any:
            try:
                return decode(payload)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return _slowly(payload)
            except RecursionError:
                raise BrokenPayload("it is nested too deeply") from None

        return read


def _slowly(payload: bytes) -> Any:
    try:
        text = payload.decode()
        found = json.loads(text, parse_float=_number, parse_constant=_no_constant)
        text.encode()
        json.dumps(found, ensure_ascii=False, default=str).encode()  # half of a surrogate pair
    except RecursionError:
        raise BrokenPayload("it is nested too deeply") from None
    except ValueError as problem:
        raise BrokenPayload(str(problem)) from None
    return found


def _number(text: str) -> float | Decimal:
    found = float(text)
    return found if math.isfinite(found) else Decimal(text)


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


@dataclass(frozen=True)
class MessagePack(Format):
    """MessagePack."""

    name = "msgpack"

    def reader(self) -> Callable[[bytes], Any]:
        """By ``msgspec``."""
        decode = msgspec.msgpack.Decoder(strict=False).decode

        def read(payload: bytes) -> Any:
            try:
                return _named(decode(payload))
            except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as problem:
                raise BrokenPayload(str(problem)) from None
            except RecursionError:
                raise BrokenPayload("it is nested too deeply") from None

        return read


@dataclass(frozen=True)
class Cbor(Format):
    """CBOR."""

    name = "cbor"

    def reader(self) -> Callable[[bytes], Any]:
        """By ``cbor2``."""
        try:
            import cbor2
        except ModuleNotFoundError as problem:
            raise not_installed(problem, "formats") from None

        def read(payload: bytes) -> Any:
            stream = io.BytesIO(payload)
            try:
                found = cbor2.load(stream)
            except (cbor2.CBORDecodeError, ValueError, OverflowError, TypeError) as problem:
                raise BrokenPayload(str(problem)) from None
            except RecursionError:
                raise BrokenPayload("it is nested too deeply") from None
            if stream.tell() != len(payload):
                raise BrokenPayload("there are bytes behind the value")
            return _named(found)

        return read


def _named(value: Any) -> Any:
    """A value whose maps have texts as keys, and that has only types that conversion knows."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else str(key): _named(each) for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_named(each) for each in value]
    if isinstance(value, msgspec.msgpack.Ext):
        return bytes(value.data)
    return value


@dataclass(frozen=True)
class Avro(Format):
    """Avro: all payloads of one schema, or each with the number of its schema in a registry."""

    name = "avro"
    schema: str | None = None
    registry: Registry | None = None

    def reader(self) -> Callable[[bytes], Any]:
        """By ``fastavro``."""
        try:
            import fastavro
        except ModuleNotFoundError as problem:
            raise not_installed(problem, "formats") from None
        from pelton.spark.payloads import avro

        fixed = None if self.schema is None else avro.parsed(self.schema)
        registry = self.registry
        known: dict[int, Any] = {}

        def read(payload: bytes) -> Any:
            schema: Any = fixed
            if registry is not None:
                number, payload = _split(payload)
                if number not in known:
                    known[number] = avro.parsed(_found(registry, number, "AVRO").text)
                schema = known[number]
            stream = io.BytesIO(payload)
            try:
                found = fastavro.schemaless_reader(stream, schema, None)
            except Exception as problem:  # of many classes, for bytes of another schema
                said = str(problem) or type(problem).__name__
                raise BrokenPayload(f"it is no Avro of its schema: {said}") from None
            if stream.tell() != len(payload):
                raise BrokenPayload("there are bytes behind the Avro value")
            return found

        return read

    def stated(self) -> pa.StructType | None:
        """The schema as Arrow has it."""
        from pelton.spark.payloads import avro

        return None if self.schema is None else avro.struct_of(avro.parsed(self.schema))

    def seen(self, payloads: pa.Array) -> pa.StructType | None:
        """The schemas whose numbers the payloads have, all in one."""
        from pelton.spark.payloads import avro
        from pelton.spark.payloads.inference import merged

        if self.registry is None:
            return self.stated()
        found: pa.DataType | None = None
        for number in sorted(_numbers(payloads)):
            try:
                kind = avro.struct_of(avro.parsed(_found(self.registry, number, "AVRO").text))
            except BrokenPayload:
                continue
            found = merged(found, kind)
        return found


@dataclass(frozen=True)
class Protobuf(Format):
    """Protobuf: messages of a set of descriptors, or each with the number of its schema in a registry."""

    name = "protobuf"
    descriptors: bytes | None = field(default=None, repr=False)
    message: str | None = None
    registry: Registry | None = None

    def reader(self) -> Callable[[bytes], Any]:
        """By ``protobuf``."""
        from pelton.spark.payloads import protobuf

        if self.descriptors is not None:
            return protobuf.reader(protobuf.message_class(self.descriptors, self.message))
        registry = self.registry
        assert registry is not None
        known: dict[tuple[int, tuple[int, ...]], Callable[[bytes], Any]] = {}

        def read(payload: bytes) -> Any:
            number, payload = _split(payload)
            path, payload = protobuf.index_of(payload)
            if (number, path) not in known:
                found = _found(registry, number, "PROTOBUF")
                known[number, path] = protobuf.reader(protobuf.class_at(found, path))
            return known[number, path](payload)

        return read

    def stated(self) -> pa.StructType | None:
        """The schema as Arrow has it."""
        from pelton.spark.payloads import protobuf

        if self.descriptors is None:
            return None
        return protobuf.struct_of(protobuf.message_class(self.descriptors, self.message))

    def seen(self, payloads: pa.Array) -> pa.StructType | None:
        """The schemas whose numbers the payloads have, all in one."""
        from pelton.spark.payloads import protobuf
        from pelton.spark.payloads.inference import merged

        if self.registry is None:
            return self.stated()
        found: pa.DataType | None = None
        named = set()
        for each in payloads:
            try:
                number, rest = _split(each.as_py() or b"")
                named.add((number, protobuf.index_of(rest)[0]))
            except BrokenPayload:
                continue
        for number, path in sorted(named):
            try:
                schema = _found(self.registry, number, "PROTOBUF")
                kind = protobuf.struct_of(protobuf.class_at(schema, path))
            except BrokenPayload:
                continue
            found = merged(found, kind)
        return found


def _split(payload: bytes) -> tuple[int, bytes]:
    try:
        return split(payload)
    except ValueError as problem:
        raise BrokenPayload(str(problem)) from None


def _numbers(payloads: pa.Array) -> set[int]:
    found = set()
    for each in payloads:
        try:
            found.add(_split(each.as_py() or b"")[0])
        except BrokenPayload:
            continue
    return found


def _found(registry: Registry, number: int, kind: str) -> Any:
    """A schema of the registry; a payload that names one that is not there is broken."""
    found = registry.schema(number)
    if found is None:
        raise BrokenPayload(f"{registry} has no schema {number}")
    if found.kind != kind:
        raise BrokenPayload(f"schema {number} of {registry} is {found.kind}, not {kind}")
    return found
