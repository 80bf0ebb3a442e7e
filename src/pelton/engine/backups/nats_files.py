"""The small files of nats-server's stream folders, as a backup has them: meta.inf, meta.sum, o.dat.

    meta.inf    JSON: "Created", of a consumer "Name", then its configuration
    meta.sum    HighwayHash-64 of meta.inf in hexadecimal; its key is SHA-256 of "<stream>" or "<stream>/<consumer>"
    o.dat       u8 22, u8 2, uvarint ack floor of the consumer, of the stream, delivered of the consumer, of the stream,
                uvarint pending, when some: varint base in s, each: uvarint sequence - floor,
                uvarint consumer's sequence - floor, varint base - time in s;
                uvarint redelivered, each: uvarint sequence - floor, uvarint times

Version 1 of o.dat has no consumer sequences of pending messages, and encodes times and the
delivered sequences differently. engine/backups/nats_consumer_state translates the numbers for Pelton's
consumers.
"""

import hashlib
from typing import TypeVar

import msgspec

from pelton.api.codec import JsonError, decode_request, encode
from pelton.api.consumers import ConsumerConfig
from pelton.api.fields import Time
from pelton.api.streams import StreamConfig
from pelton.api.times import format_time
from pelton.core.base.highway_hash import highway64

_MAGIC = 22
_VERSION = 2
_SECOND = 1_000_000_000
_MAX = 1 << 63

T = TypeVar("T", bound=msgspec.Struct)


class StreamMeta(StreamConfig, kw_only=True):
    """The content of a stream's meta.inf."""

    created: Time = 0


class ConsumerMeta(ConsumerConfig, kw_only=True):
    """The content of a consumer's meta.inf."""

    created: Time = 0


class NatsConsumerState(msgspec.Struct):
    """A consumer's state in nats-server's terms; pending: sequence -> (consumer's sequence, ns)."""

    floor_consumer: int = 0
    floor_stream: int = 0
    delivered_consumer: int = 0
    delivered_stream: int = 0
    pending: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)
    redelivered: dict[int, int] = msgspec.field(default_factory=dict)


def stream_key(stream: str) -> bytes:
    """Return the key of the checksums of a stream's own files."""
    return hashlib.sha256(stream.encode("utf-8", "surrogateescape")).digest()


def checksum(owner: str, meta: bytes) -> bytes:
    """Return meta.sum of a meta.inf; `owner` is the stream, or stream/consumer."""
    return highway64(stream_key(owner), meta).to_bytes(8, "little").hex().encode()


def stream_meta(config: StreamConfig, created_ns: int) -> bytes:
    """Return meta.inf of a stream."""
    return b'{"Created":%s,' % _quoted(format_time(created_ns)) + encode(config)[1:]


def consumer_meta(name: str, config: ConsumerConfig, created_ns: int) -> bytes:
    """Return meta.inf of a consumer."""
    lead = b'{"Created":%s,"Name":%s,' % (_quoted(format_time(created_ns)), _quoted(name))
    return lead + encode(msgspec.structs.replace(config, name=name))[1:]


def read_stream_meta(data: bytes) -> tuple[StreamConfig, int]:
    """Return configuration and creation time (ns) of a stream. ValueError: the file is not valid."""
    meta = _decoded(StreamMeta, data)
    return _plain(StreamConfig, meta), meta.created


def read_consumer_meta(data: bytes) -> tuple[ConsumerConfig, int]:
    """Return configuration and creation time (ns) of a consumer. ValueError: the file is not valid."""
    meta = _decoded(ConsumerMeta, data)
    return _plain(ConsumerConfig, meta), meta.created


def _decoded(kind: type[T], data: bytes) -> T:
    try:
        return decode_request(kind, data, strict=False)
    except JsonError as error:
        raise ValueError(str(error)) from None


def _plain(kind: type[T], meta: msgspec.Struct) -> T:
    return kind(**{name: getattr(meta, name) for name in kind.__struct_fields__})


def _quoted(text: str) -> bytes:
    return msgspec.json.encode(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


# -- o.dat -----------------------------------------------------------------------------------------


def pack_state(state: NatsConsumerState) -> bytes:
    """Return o.dat for a state."""
    out = bytearray((_MAGIC, _VERSION))
    floor, consumer_floor = state.floor_stream, state.floor_consumer
    for value in (consumer_floor, floor, state.delivered_consumer, state.delivered_stream):
        _put(out, value)
    _put(out, len(state.pending))
    if state.pending:
        base = max(ns for _, ns in state.pending.values()) // _SECOND
        _put(out, base << 1)
        for seq, (consumer_seq, ns) in state.pending.items():
            _put(out, seq - floor)
            _put(out, consumer_seq - consumer_floor)
            _put(out, (base - ns // _SECOND) << 1)
    _put(out, len(state.redelivered))
    for seq, times in state.redelivered.items():
        _put(out, seq - floor)
        _put(out, times)
    return bytes(out)


def unpack_state(data: bytes, most: int = _MAX) -> NatsConsumerState:
    """Return the state in an o.dat; an empty file has the state of a new consumer.

    ValueError: the file is not valid, or names more than `most` messages.
    """
    if not data:
        return NatsConsumerState()
    if len(data) < 2 or data[0] != _MAGIC or data[1] not in (1, _VERSION):
        raise ValueError("not a consumer state")
    version, numbers = data[1], _Numbers(data, 2)
    state = NatsConsumerState(numbers.take(), numbers.take(), numbers.take(), numbers.take())
    if version == 1:
        state.delivered_consumer += max(state.floor_consumer - 1, 0)
        state.delivered_stream += max(state.floor_stream - 1, 0)
    count = _count(numbers, most)
    base = numbers.signed() if count else 0
    for _ in range(count):
        seq = numbers.take() + state.floor_stream
        consumer_seq = numbers.take() + state.floor_consumer if version == _VERSION else 0
        offset = numbers.signed()
        at = base - offset if version == _VERSION else base + offset
        state.pending[seq] = (consumer_seq, max(at, 0) * _SECOND)
    for _ in range(_count(numbers, most)):
        seq, times = numbers.take() + state.floor_stream, numbers.take()
        state.redelivered[seq] = times
    if 0 in state.pending or 0 in state.redelivered:
        raise ValueError("not a consumer state: a sequence is 0")
    highest = max(state.floor_stream, state.delivered_stream, *state.pending, *state.redelivered)
    if max(highest, state.floor_consumer, state.delivered_consumer) >= _MAX:
        raise ValueError("not a consumer state: a sequence is too high")
    return state


def _count(numbers: "_Numbers", most: int) -> int:
    count = numbers.take()
    if count > most:
        raise ValueError(f"not a consumer state: it names {count} messages, {most} are possible")
    return count


class _Numbers:
    """Reads variable-length numbers one after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def take(self) -> int:
        value = shift = 0
        while True:
            if self._at >= len(self._data) or shift > 63:
                raise ValueError("not a consumer state: the file ends early")
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def signed(self) -> int:
        value = self.take()
        return (value >> 1) ^ -(value & 1)


def _put(out: bytearray, value: int) -> None:
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
