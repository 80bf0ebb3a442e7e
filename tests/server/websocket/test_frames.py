"""Frames: any split of the bytes gives the same, what breaks the rules ends the connection, and what
comes in is bounded.
"""

from __future__ import annotations

import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from pelton.server.transports.websocket.frames import Frames

LIMIT = 100_000


def client(**options: bool) -> Frames:
    """The other side of a server's Frames."""
    return Frames(LIMIT, masked_in=False, mask_out=True, **options)


@given(
    st.lists(st.binary(min_size=1, max_size=9000), max_size=8),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(1, 4000), max_size=20),
)
def test_any_split_gives_the_same_bytes(
    parts: list[bytes], compress: bool, browser: bool, cuts: list[int]
) -> None:
    for sender, receiver in (
        (client(compress=compress), Frames(LIMIT, compress=compress)),
        (Frames(LIMIT, compress=compress, browser=browser), client(compress=compress)),
    ):
        sent = b"".join(sender.frames(part) for part in parts)
        got, at = b"", 0
        for cut in [*cuts, len(sent)]:
            got += b"".join(receiver.feed(memoryview(sent)[at : at + cut]))
            at += cut
        assert got == b"".join(parts)
        assert not receiver.ended


def frame(opcode: Opcode, data: bytes, *, fin: bool = True, rsv1: bool = False) -> bytes:
    sent = bytearray(Frame(opcode, data, fin).serialize(mask=True))
    sent[0] |= 0x40 if rsv1 else 0
    return bytes(sent)


def test_messages_in_pieces_with_a_ping_between() -> None:
    frames = Frames(LIMIT)
    sent = frame(Opcode.TEXT, b"PUB a ", fin=False) + frame(Opcode.PING, b"there?")
    sent += frame(Opcode.CONT, b"1\r\n", fin=False) + frame(Opcode.CONT, b"x\r\n")
    assert b"".join(frames.feed(sent)) == b"PUB a 1\r\nx\r\n"
    assert frames.answers() == Frame(Opcode.PONG, b"there?").serialize(mask=False)


def test_a_close_frame_is_answered_once() -> None:
    frames = Frames(LIMIT)
    frames.feed(frame(Opcode.CLOSE, b"\x03\xe8bye"))
    assert frames.answers() == Frame(Opcode.CLOSE, b"\x03\xe8bye").serialize(mask=False)
    assert frames.ended == "Client Closed"
    assert frames.close_frame("Client Closed") == b""
    assert frames.feed(frame(Opcode.BINARY, b"late")) == []


def test_the_status_tells_the_reason() -> None:
    assert Frames(LIMIT).close_frame("Authentication Failure")[2:4] == (1008).to_bytes(2, "big")
    assert Frames(LIMIT).close_frame("Whatever")[2:4] == (1011).to_bytes(2, "big")


def deflated(data: bytes) -> bytes:
    machine = zlib.compressobj(wbits=-15)
    return (machine.compress(data) + machine.flush(zlib.Z_SYNC_FLUSH))[:-4]


BOMB = deflated(bytes(50_000_000))
BROKEN = {
    "no mask": (Frame(Opcode.BINARY, b"x").serialize(mask=False), "Protocol Violation"),
    "reserved bits": (b"\xb2\x81\0\0\0\0x", "Protocol Violation"),
    "unknown opcode": (b"\x83\x80\0\0\0\0", "Protocol Violation"),
    "long control frame": (b"\x89\xfe\x00\x80\0\0\0\0" + bytes(128), "Protocol Violation"),
    "ping in pieces": (b"\x09\x80\0\0\0\0", "Protocol Violation"),
    "continuation of nothing": (frame(Opcode.CONT, b"x"), "Protocol Violation"),
    "two beginnings": (frame(Opcode.BINARY, b"x", fin=False) * 2, "Protocol Violation"),
    "close with one byte": (frame(Opcode.CLOSE, b"x"), "Protocol Violation"),
    "compressed, not agreed": (frame(Opcode.BINARY, b"x", rsv1=True), "Protocol Violation"),
    "too long": (b"\x82\xff" + (1 << 30).to_bytes(8, "big"), "Maximum Message Payload Exceeded"),
    "impossibly long": (b"\x82\xff" + b"\xff" * 8, "Maximum Message Payload Exceeded"),
    "too long in pieces": (
        frame(Opcode.BINARY, bytes(LIMIT // 2), fin=False)
        + frame(Opcode.CONT, bytes(LIMIT // 2), fin=False) * 2,
        "Maximum Message Payload Exceeded",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_the_rules_ends_the_connection(name: str) -> None:
    sent, reason = BROKEN[name]
    frames = Frames(LIMIT)
    frames.feed(sent)
    assert frames.ended == reason
    assert frames.problem
    assert frames.answers()[:1] == b"\x88"


def test_a_bomb_is_not_inflated() -> None:
    frames = Frames(LIMIT, compress=True)
    assert len(BOMB) < LIMIT
    assert frames.feed(frame(Opcode.BINARY, BOMB, rsv1=True)) == []
    assert frames.ended == "Maximum Message Payload Exceeded"
    pieces = Frames(LIMIT, compress=True)
    small = deflated(bytes(LIMIT - 1))
    got = pieces.feed(frame(Opcode.BINARY, small, rsv1=True))
    assert sum(map(len, got)) == LIMIT - 1
    assert not pieces.ended
    broken = Frames(LIMIT, compress=True)
    broken.feed(frame(Opcode.BINARY, os.urandom(100), rsv1=True))
    assert broken.ended == "Protocol Violation"


@given(st.binary(max_size=400))
def test_garbage_never_raises(data: bytes) -> None:
    frames = Frames(LIMIT, compress=True)
    frames.feed(data)
    frames.answers()
    assert isinstance(frames.ended, str)
