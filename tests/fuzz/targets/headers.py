"""Header blocks: what streams see, what is stored, what clients read, against a reader of a few lines."""

from __future__ import annotations

from collections.abc import Iterable

from pelton.core.base.durations import format_duration, parse_duration
from pelton.core.protocol.headers import decode_headers, encode_headers
from pelton.core.protocol.publish_headers import scan, tidied, value
from pelton.core.stream.refusals import parse_ttl

WORDS = (
    b"NATS/1.0\r\n", b"NATS/1.0 503 No\r\n", b"Nats-Msg-Id: ", b"Nats-Expected-Stream: ", b"Nats-Expected-Last-Sequence: ",
    b"Nats-Expected-Last-Subject-Sequence: ", b"Nats-Expected-Last-Subject-Sequence-Subject: ", b"Nats-Expected-Last-Msg-Id: ",
    b"Nats-Incr: +1\r\n", b"Nats-TTL: 1h2m\r\n", b"Nats-Rollup: sub\r\n", b"Nats-Batch-Id: a\r\n", b"Nats-Schedule: @every 5s\r\n",
    b"Nats-Schedule-Time-Zone: \r\n", b"Nats-Stream-Source: a\r\n", b"Nats-Request-Info: {}\r\n", b"\r\n\r\n", b"never", b"1.5h", b"-1ns",
)  # fmt: skip
SLOTS = {
    b"Nats-Msg-Id": "message_id",
    b"Nats-Expected-Stream": "stream",
    b"Nats-Expected-Last-Sequence": "last_sequence",
    b"Nats-Expected-Last-Subject-Sequence": "subject_sequence",
    b"Nats-Expected-Last-Subject-Sequence-Subject": "subject",
    b"Nats-Expected-Last-Msg-Id": "last_id",
}


def run(data: bytes) -> None:
    """The whole input is a block, and a duration."""
    found = scan(data)
    lines = data.split(b"\n")[:-1]
    for name, slot in SLOTS.items():
        values = [said for line in lines if (said := value_of(line, name))]
        assert found[slot] == (values[0] if values else None), (slot, found[slot], values)
        first = next((said for line in lines if (said := value_of(line, name)) is not None), None)
        assert value(data, name) == first
    if data.startswith(b"NATS/1.0") and len(lines) > 1:
        assert tidied(tidied(data)) == tidied(data)
    read(data)
    durations(data[:40].decode("latin-1"))


def value_of(line: bytes, name: bytes) -> bytes | None:
    key, colon, rest = line.partition(b":")
    if key != name or not colon:
        return None
    rest = rest.lstrip(b" ")
    return rest.removesuffix(b"\r")


def read(block: bytes) -> None:
    try:
        status, text, headers = decode_headers(block)
    except ValueError:
        return
    assert 0 <= status <= 999
    assert decode_headers(encode_headers(headers))[2] == headers
    assert isinstance(text, str)


def durations(text: str) -> None:
    ns = parse_duration(text)
    if ns is not None:
        assert parse_duration(format_duration(ns)) == ns
    parse_ttl(text)


def seeds() -> Iterable[bytes]:
    for word in WORDS:
        yield b"NATS/1.0\r\n" + word + b"x\r\n\r\n"
        yield b"NATS/1.0 408 Request Timeout\r\nA: b\r\n" + word + b"\r\n\r\n"
    yield from (b"1h2m3.5s", b"-1.000001ms", b"9223372036854775807ns", "3µs".encode())
