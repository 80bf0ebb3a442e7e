"""The client's WebSocket: its bytes beside those of the library ``websockets``."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side

from pelton import Options
from pelton.client.base.addresses import Server, parse_server
from pelton.client.protocol.websocket import WebSocket
from pelton.errors import ConnectError

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
OFFER = "permessage-deflate; client_no_context_takeover; server_no_context_takeover"
SERVER = Server("h", 8080, websocket=True)


def accepted(compress: bool = False, **options: Any) -> WebSocket:
    """A WebSocket whose handshake is done."""
    given_options = Options(websocket_compression=compress, **options)
    websocket = WebSocket(SERVER, given_options)
    assert websocket.receive(answer(websocket, OFFER if compress else "")) == b""
    assert websocket.open
    assert websocket.compressed is compress
    return websocket


def answer(websocket: WebSocket, extensions: str = "", **changed: str) -> bytes:
    """What a server says to the request."""
    lines = websocket.request().decode().split("\r\n")
    key = next(line[19:] for line in lines if line.startswith("Sec-WebSocket-Key: "))
    digest = hashlib.sha1(key.encode() + GUID, usedforsecurity=False).digest()
    fields = {
        "Upgrade": "websocket",
        "Connection": "keep-alive, Upgrade",
        "Sec-WebSocket-Accept": base64.b64encode(digest).decode(),
        **({"Sec-WebSocket-Extensions": extensions} if extensions else {}),
        **{name.replace("_", "-"): value for name, value in changed.items()},
    }
    head = [changed.get("status", "HTTP/1.1 101 Switching Protocols")]
    head += [f"{name}: {value}" for name, value in fields.items() if name != "status"]
    return "\r\n".join([*head, "", ""]).encode()


def test_the_request_has_path_and_headers() -> None:
    server = parse_server("wss://u:p@example.org/nats/a b?x=1")
    options = Options(websocket_headers={"Authorization": "Bearer t", "Cookie": "a=b"})
    lines = WebSocket(server, options).request().decode().split("\r\n")
    assert lines[0] == "GET /nats/a%20b?x=1 HTTP/1.1"
    assert {"Host: example.org", "Authorization: Bearer t", "Cookie: a=b"} <= set(lines)
    assert lines[-2:] == ["", ""]
    assert "x=1" not in str(server) + repr(server), "a query may hold a secret"
    ported = WebSocket(parse_server("ws://[::1]:81"), Options())
    assert b"GET / HTTP/1.1\r\nHost: [::1]:81\r\n" in ported.request()


@pytest.mark.parametrize(
    "headers", [{"a b": "c"}, {"A": "b\r\nC: d"}, {"Host": "x"}, {"sec-websocket-key": "x"}]
)
def test_headers_that_a_request_cannot_have_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="websocket_headers"):
        Options(websocket_headers=headers)


@pytest.mark.parametrize(
    "changed",
    [
        {"status": "HTTP/1.1 403 Forbidden"},
        {"status": "nonsense"},
        {"Upgrade": "h2c"},
        {"Connection": "close"},
        {"Sec_WebSocket_Accept": "AAAA"},
        {"Sec_WebSocket_Extensions": OFFER},
        {"Sec_WebSocket_Extensions": "other"},
    ],
)
def test_an_answer_that_does_not_fit_is_refused(changed: dict[str, str]) -> None:
    websocket = WebSocket(SERVER, Options())
    with pytest.raises(ConnectError, match="WebSocket"):
        websocket.receive(answer(websocket, **changed))


def test_a_head_without_end_is_refused() -> None:
    websocket = WebSocket(SERVER, Options())
    with pytest.raises(ConnectError, match="no more than"):
        websocket.receive(b"HTTP/1.1 101 x\r\n" + b"a" * 70_000)


PAYLOADS = st.binary(max_size=300) | st.integers(60, 70_000).map(lambda n: b"ab" * n)


@given(st.lists(PAYLOADS), st.booleans())
def test_the_library_reads_what_we_write(payloads: list[bytes], compress: bool) -> None:
    websocket = accepted(compress)
    reader = Protocol(Side.SERVER, max_size=None)
    if compress:
        reader.extensions = [PerMessageDeflate(True, True, 15, 15)]
    for payload in payloads:
        reader.receive_data(websocket.frames(payload))
    frames = [frame for frame in reader.events_received() if isinstance(frame, Frame)]
    assert b"".join(bytes(frame.data) for frame in frames) == b"".join(payloads)
    assert all(frame.opcode is Opcode.BINARY for frame in frames)


@given(st.data(), st.booleans())
def test_any_split_of_what_the_library_writes_gives_the_same(
    data: st.DataObject, compress: bool
) -> None:
    websocket = accepted(compress)
    deflate = [PerMessageDeflate(True, True, 15, 15)] if compress else []
    whole, expected, pings = b"", b"", []
    for payload in data.draw(st.lists(PAYLOADS, max_size=6)):
        pieces = data.draw(st.integers(1, 3))
        size = len(payload) // pieces + 1
        for number in range(pieces):
            piece = payload[number * size : (number + 1) * size]
            opcode = Opcode.BINARY if number == 0 else Opcode.CONT
            frame = Frame(opcode, piece, fin=number == pieces - 1)
            whole += frame.serialize(mask=False, extensions=deflate)
            if data.draw(st.booleans()):
                pings.append(b"%d" % len(pings))
                whole += Frame(Opcode.PING, pings[-1]).serialize(mask=False)
        expected += payload
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    found = answers = b""
    for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += websocket.receive(whole[start:stop])
        answers += websocket.answers()
    assert not websocket.closed
    assert found == expected
    reader = Protocol(Side.SERVER)
    reader.receive_data(answers)
    assert [
        bytes(each.data) for each in reader.events_received() if isinstance(each, Frame)
    ] == pings


@given(st.binary(max_size=80), st.booleans())
def test_any_bytes_are_taken_or_end_the_connection(data: bytes, compress: bool) -> None:
    whole, split = accepted(compress), accepted(compress)
    found = whole.receive(data)
    parts = b"".join(split.receive(data[at : at + 1]) for at in range(len(data)))
    assert (found, whole.closed) == (parts, split.closed)
    assert "\n" not in whole.closed.partition("closed the WebSocket")[0]


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (b"\x82\x81abcdx", "mask"),
        (b"\x89\x7e\x00\x7e" + 126 * b"x", "too long"),
        (b"\x09\x00", "fragmented"),
        (b"\x80\x00", "unexpected continuation"),
        (b"\x02\x00\x82\x00", "expected a continuation"),
        (b"\xc2\x00", "reserved"),
        (b"\x8b\x00", "invalid opcode"),
        (b"\x82\x7f\x7f" + b"\xff" * 7, "exceeds limit"),
        (b"\x88\x05\x03\xe8bye", "closed the WebSocket: 1000 bye"),
        (b"\x88\x00", "1005"),
    ],
)
def test_what_ends_a_connection(frame: bytes, says: str) -> None:
    websocket = accepted()
    assert websocket.receive(b"\x82\x01a" + frame) == b"a", "what came before counts"
    assert says in websocket.closed
    assert websocket.answers()[0] == 0x88
    assert websocket.receive(b"\x82\x01b") == b""


def test_a_compressed_message_that_is_broken_or_endless() -> None:
    websocket = accepted(compress=True)
    websocket.receive(b"\xc2\x03\xff\xff\xff")
    assert "compression" in websocket.closed
