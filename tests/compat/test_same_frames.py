"""What clients send over a WebSocket, frame by frame, and what leaf nodes say first: both servers answer
with the same frames, the same lines, the same close codes.
"""

import base64
import re
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from tests.peers import available_servers
from tests.server.configured import Configured

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        "nats-server" not in available_servers(), reason="no nats-server from 2.14 on"
    ),
]

CONFIG = """
listen: 127.0.0.1:@port
max_payload: 1000
max_control_line: 500
websocket { listen: 127.0.0.1:@ws, no_tls: true }
leafnodes { listen: 127.0.0.1:@leaf, authorization { user: leaf, password: pw } }
"""
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
HELLO = b'CONNECT {"verbose":false,"pedantic":false}\r\n'


def frame(
    kind: int, data: bytes = b"", *, last: bool = True, masked: bool = True, rsv: int = 0
) -> bytes:
    """One frame of a client."""
    head = bytes([(0x80 if last else 0) | rsv << 4 | kind])
    bit = 0x80 if masked else 0
    if len(data) < 126:
        head += bytes([bit | len(data)])
    elif len(data) < 65536:
        head += bytes([bit | 126]) + struct.pack(">H", len(data))
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", len(data))
    if not masked:
        return head + data
    mask = b"\x01\x02\x03\x04"
    return head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))


def split(data: bytes, sizes: int = 7) -> bytes:
    """A message in fragments."""
    parts = [data[i : i + sizes] for i in range(0, len(data), sizes)]
    return b"".join(
        frame(BINARY if i == 0 else 0, part, last=i == len(parts) - 1)
        for i, part in enumerate(parts)
    )


ASK = b"SUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n"
FRAMES = {
    "binary": frame(BINARY, HELLO + ASK),
    "text": frame(TEXT, HELLO + ASK),
    "one operation each": b"".join(
        frame(BINARY, line + b"\r\n") for line in (HELLO + ASK).split(b"\r\n")[:-1]
    ),
    "fragments": split(HELLO + ASK),
    "a ping between fragments": frame(BINARY, HELLO, last=False)
    + frame(PING, b"x")
    + frame(0, ASK),
    "an operation over two messages": frame(BINARY, HELLO + ASK[:14]) + frame(BINARY, ASK[14:]),
    "empty frames": frame(BINARY) + frame(BINARY, HELLO + ASK) + frame(BINARY),
    "ping": frame(PING, b"are you there") + frame(BINARY, HELLO + b"PING\r\n"),
    "pong": frame(PONG, b"yes") + frame(BINARY, HELLO + b"PING\r\n"),
    "close": frame(CLOSE, struct.pack(">H", 1000) + b"bye"),
    "close without a code": frame(CLOSE),
    "close with half a code": frame(CLOSE, b"\x03"),
    "close with no UTF-8": frame(CLOSE, struct.pack(">H", 1000) + b"\xff\xfe"),
    "close with a code of no meaning": frame(CLOSE, struct.pack(">H", 5)),
    "not masked": frame(BINARY, HELLO + ASK, masked=False),
    "reserved bits": frame(BINARY, HELLO + ASK, rsv=1),
    "an opcode of no meaning": frame(3, b"x"),
    "a control opcode of no meaning": frame(11, b"x"),
    "a long ping": frame(PING, b"x" * 126),
    "a ping in fragments": frame(PING, b"x", last=False),
    "a fragment of nothing": frame(0, b"x"),
    "a message within another": frame(BINARY, HELLO, last=False) + frame(BINARY, ASK),
    "compressed though nobody agreed": frame(BINARY, b"\x02\x00", rsv=4),
    "a payload too long": frame(BINARY, HELLO + b"PUB a 1001\r\n"),
    "a line too long": frame(BINARY, HELLO + b"PUB " + b"a" * 600),
    "a wrong subject": frame(BINARY, HELLO + b"SUB a..b 1\r\nPING\r\n"),
    "no JSON": frame(BINARY, b"CONNECT {\r\n"),
}

LEAF = '"user":"leaf","pass":"pw","name":"n","version":"2.14.0","server_id":"NX"'
LEAFS = {
    "nothing of a leaf": b"HELLO\r\n",
    "a ping first": b"PING\r\n",
    "no credentials": b"CONNECT {}\r\n",
    "a wrong password": f"CONNECT {{{LEAF.replace('pw', 'no')}}}\r\n".encode(),
    "no JSON": b"CONNECT {\r\n",
    "a list": b"CONNECT []\r\n",
    "a wrong type": b'CONNECT {"user":1}\r\n',
    "a publish before": b"LMSG a 1\r\nx\r\n",
    "a subscription before": b"LS+ a\r\n",
    "a payload too long": f"CONNECT {{{LEAF}}}\r\nPING\r\nLMSG a 1001\r\n".encode(),
    "a line too long": b"CONNECT " + b"x" * 5000,
}


class Read:
    """Bytes of a connection until the server closes it, or until a PONG has come."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.data = b""
        self.open = True

    def until(self, done: Callable[[bytes], bool]) -> None:
        while self.open and not done(self.data):
            try:
                got = self.connection.recv(65536)
            except ConnectionResetError:
                got = b""
            self.open = bool(got)
            self.data += got


def frames_of(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """The whole frames of a server, messages joined to one stream, and what is left."""
    found: list[tuple[int, bytes]] = []
    while len(data) >= 2:
        size, at = data[1] & 0x7F, 2
        if size >= 126:
            width = 2 if size == 126 else 8
            size, at = int.from_bytes(data[2 : 2 + width], "big"), 2 + width
        if len(data) < at + size:
            break
        kind, body = data[0] & 15, data[at : at + size]
        data = data[at + size :]
        if found and kind in (0, TEXT, BINARY) and found[-1][0] in (TEXT, BINARY):
            found[-1] = (found[-1][0], found[-1][1] + body)
        else:
            found.append((kind, body))
    return found, data


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Configured, Configured]]:
    ours, theirs = Configured("pelton", CONFIG), Configured("nats-server", CONFIG)
    yield ours, theirs
    ours.stop()
    theirs.stop()


def talked(server: Configured, said: bytes) -> tuple[list[tuple[int, bytes]], bool]:
    """The frames that come for what is said, and whether the server hung up."""
    with server.connect("ws") as connection:
        key = base64.b64encode(b"0123456789abcdef").decode()
        connection.sendall(
            (
                "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
            ).encode()
        )
        read = Read(connection)
        read.until(lambda data: b"INFO {" in data and data.endswith(b"\r\n"))
        read.data = b""
        connection.sendall(said)
        read.until(lambda data: b"PONG\r\n" in data)
        found, left = frames_of(read.data)
        assert not left
        return found, not read.open


def said(each: tuple[int, bytes]) -> tuple[int, bytes]:
    """A frame; of a reason to close only its code, since the words are free."""
    kind, body = each
    return kind, body[:2] if kind == CLOSE else body


@pytest.mark.parametrize("name", FRAMES)
def test_frames(both: tuple[Configured, Configured], name: str) -> None:
    (ours, ours_ended), (theirs, theirs_ended) = (talked(server, FRAMES[name]) for server in both)
    assert ours_ended == theirs_ended
    if [kind for kind, _ in theirs] != [kind for kind, _ in ours]:
        kind, body = ours.pop()  # of what is broken we say why, there the connection just ends
        assert (kind, body[:2]) == (CLOSE, struct.pack(">H", 1002))
    assert [said(each) for each in ours] == [said(each) for each in theirs]


def led(server: Configured, said: bytes) -> list[str]:
    """The lines that a leaf is answered, without what is each server's own, to the end."""
    with server.connect("leaf") as connection:
        connection.sendall(said)
        read = Read(connection)
        read.until(lambda _: False)
    lines = re.sub(rb"INFO [^\r]*", b"INFO", read.data).decode().split("\r\n")
    return [line for line in lines if not line.startswith(("PING", "PONG", "LS+", "LS-"))]


@pytest.mark.parametrize("name", LEAFS)
def test_leafs_that_are_refused(both: tuple[Configured, Configured], name: str) -> None:
    ours, theirs = (led(server, LEAFS[name]) for server in both)
    assert ours == theirs


def test_a_client_at_the_leaf_nodes_port(both: tuple[Configured, Configured]) -> None:
    """Nats-server takes a PUB there; here that is no operation of a leaf node."""
    with both[0].connect("leaf") as connection:
        connection.sendall(f"CONNECT {{{LEAF}}}\r\nPING\r\nPUB a 1\r\nx\r\n".encode())
        read = Read(connection)
        read.until(lambda _: False)
    assert read.data.endswith(b"PONG\r\n-ERR 'Unknown Protocol Operation'\r\n")
