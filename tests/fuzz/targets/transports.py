"""What stands before the protocol: a proxy's header, a WebSocket's request and frames."""

from __future__ import annotations

from collections.abc import Iterable

from pelton.server.transports.proxy_protocol import V2_SIGNATURE, parse_header
from pelton.server.transports.websocket.frames import Frames
from pelton.server.transports.websocket.upgrade import UpgradeRefused, parse_request
from tests.fuzz.inputs import pieces

MAX_BYTES = 2000
WORDS = (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", V2_SIGNATURE, b"PROXY UNKNOWN\r\n", b"GET / HTTP/1.1\r\n", b"Upgrade: websocket\r\n", b"\x82\x85", b"\x89\x80", b"\x88\x82\x00\x00\x00\x00\x03\xe8", b"\xc2\xfe\x00\x80")  # fmt: skip


def run(data: bytes) -> None:
    """Byte 0: what the rest is; byte 1: where it is split."""
    if len(data) < 2:
        return
    kind, seed, body = data[0] % 3, data[1], data[2:]
    if kind == 0:
        proxy(body)
    elif kind == 1:
        try:
            parse_request(body)
        except UpgradeRefused as refused:
            assert 400 <= refused.status < 600
    else:
        compress, masked = bool(seed & 1), not seed & 2
        assert read([body], compress, masked) == read(pieces(body, seed), compress, masked)


def proxy(body: bytes) -> None:
    def said(part: bytes) -> object:
        try:
            return parse_header(part)
        except ValueError:
            return ValueError

    whole = said(body)
    for end in range(len(body)):
        early = said(body[:end])
        assert early is None or early == whole, (body[:end], early, whole)
    if whole is not None and whole is not ValueError:
        assert whole.length <= len(body)  # type: ignore[attr-defined] # it is a Header


def read(parts: list[bytes], compress: bool, masked: bool) -> tuple[object, ...]:
    frames = Frames(500, compress=compress, masked_in=masked)
    out, answers = b"", b""
    for part in parts:
        for piece in frames.feed(part):
            out += piece
        answers += frames.answers()
    return out, answers, frames.ended, frames.problem


def seeds() -> Iterable[bytes]:
    yield b"\0\0PROXY TCP6 ::1 ::2 1 65535\r\nINFO"
    yield b"\0\0" + V2_SIGNATURE + b"\x21\x11\0\x0c\1\2\3\4\5\6\7\x08\x10\x92\0\x50rest"
    yield b"\0\0" + V2_SIGNATURE + b"\x20\0\0\0"
    yield b"\1\0GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    made = Frames(500, mask_out=True, masked_in=False)
    squeezed = Frames(500, compress=True, mask_out=True, masked_in=False)
    for seed in (0, 1, 4, 9):
        yield bytes([2, seed]) + made.frames(b"PING\r\n") + made.frames(b"x" * 300)
        yield bytes([2, seed]) + squeezed.frames(b"PUB a 3\r\n" * 40)
    yield b"\2\2" + Frames(500).frames(b"PONG\r\n")
