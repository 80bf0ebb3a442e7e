"""The turn with real sockets: reads, sends, back-pressure by the kernel, closing, and sync threads."""

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from pelton.core.base.clock import Clock, SystemClock
from pelton.core.broker.event_loop import EventLoop
from pelton.core.broker.reactor import Connection
from pelton.core.broker.router import Router
from pelton.core.broker.session import Sessions


class Box:
    """An EventLoop with its sessions; `connect` gives the client's end of a socket pair."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.event_loop = EventLoop(clock or SystemClock())
        self.router = Router(self.event_loop)
        self.sessions = Sessions(self.event_loop, self.on_connect, self.router)
        self.event_loop.start(self.sessions, lambda callback: callback())
        self.connections: list[Connection] = []

    def on_connect(self, connection: Connection, _text: bytes) -> Router:
        connection.verbose = connection.pedantic = False
        connection.headers = True
        return self.router

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.settimeout(5)
        self.connections.append(self.event_loop.adopt(ours.detach()))
        theirs.sendall(b"CONNECT {}\r\n")
        self.event_loop.run(1000)
        return theirs


@pytest.fixture
def box() -> Iterator[Box]:
    box = Box()
    yield box
    box.event_loop.shutdown()


def read_exactly(sock: socket.socket, box: Box, n: int) -> bytes:
    data = b""
    sock.setblocking(False)
    for _ in range(10_000):
        try:
            data += sock.recv(1 << 20)
        except BlockingIOError:
            box.event_loop.run(1000)
        if len(data) >= n:
            break
    return data


def test_ping_pong_and_pub_sub_over_sockets(box: Box) -> None:
    a, b = box.connect(), box.connect()
    a.sendall(b"SUB x 1\r\nPING\r\n")
    assert read_exactly(a, box, 6) == b"PONG\r\n"
    b.sendall(b"PUB x 5\r\nhello\r\n")
    assert read_exactly(a, box, 18) == b"MSG x 1 5\r\nhello\r\n"


def test_a_message_in_many_pieces_arrives_once(box: Box) -> None:
    a, b = box.connect(), box.connect()
    a.sendall(b"SUB x 1\r\n")
    box.event_loop.run(1000)
    for byte in b"PUB x 5\r\nhello\r\n":
        b.sendall(bytes([byte]))
        box.event_loop.run(1000)
    want = b"MSG x 1 5\r\nhello\r\n"
    assert read_exactly(a, box, len(want)) == want


def test_large_messages_pass_in_both_directions(box: Box) -> None:
    a, b = box.connect(), box.connect()
    a.sendall(b"SUB x 1\r\n")
    box.event_loop.run(1000)
    payload = os.urandom(1_000_000)
    b.setblocking(False)
    message = b"PUB x 1000000\r\n" + payload + b"\r\n"
    want = b"MSG x 1 1000000\r\n" + payload + b"\r\n"
    a.setblocking(False)
    got = b""
    sent = 0
    for _ in range(10_000):
        if sent < len(message):
            with contextlib.suppress(BlockingIOError):
                sent += b.send(message[sent:])
        box.event_loop.run(1)
        with contextlib.suppress(BlockingIOError):
            got += a.recv(1 << 20)
        if len(got) >= len(want):
            break
    assert got == want


def test_a_reader_that_stops_is_closed_when_over_max_pending() -> None:
    box = Box()
    box.event_loop.max_pending = 4 * 1024 * 1024
    a, b = box.connect(), box.connect()
    a.sendall(b"SUB x 1\r\n")
    box.event_loop.run(1000)
    b.setblocking(False)
    message = b"PUB x 100000\r\n" + b"x" * 100_000 + b"\r\n"
    rest = b""
    for _ in range(100_000):
        if box.connections[0].closed:
            break
        rest = rest or message
        with contextlib.suppress(BlockingIOError):
            rest = rest[b.send(rest) :]
        box.event_loop.run(10)
    assert box.connections[0].reason == "Slow Consumer (Pending Bytes)"
    assert not box.connections[1].closed
    box.event_loop.shutdown()


def test_a_blocked_reader_is_closed_at_the_write_deadline() -> None:
    box = Box()
    box.event_loop.write_deadline_ns = 200_000_000
    a, b = box.connect(), box.connect()
    a.sendall(b"SUB x 1\r\n")
    b.sendall(b"PUB x 900000\r\n" + b"x" * 100)
    box.event_loop.run(1000)
    b.setblocking(False)
    rest = b"x" * 899_900 + b"\r\n"
    for _ in range(1000):
        if rest:
            with contextlib.suppress(BlockingIOError):
                rest = rest[b.send(rest) :]
        box.event_loop.run(20)
        if box.connections[0].closed:
            break
    assert box.connections[0].reason == "Slow Consumer (Write Deadline)"
    box.event_loop.shutdown()


def test_an_error_text_reaches_a_client_that_was_still_sending(box: Box) -> None:
    a = box.connect()
    a.sendall(b"NONSENSE\r\n" + b"x" * 200_000)
    box.event_loop.run(1000)
    assert a.recv(1000) == b"-ERR 'Unknown Protocol Operation'\r\n"
    assert a.recv(1000) == b""
    assert box.connections[0].reason == "Protocol Violation"


def test_the_peer_closing_forgets_its_subscriptions(box: Box) -> None:
    a = box.connect()
    a.sendall(b"SUB x 1\r\n")
    box.event_loop.run(1000)
    assert box.router.subscription_count() == 1
    a.close()
    box.event_loop.run(1000)
    assert (box.router.subscription_count(), box.connections[0].reason) == (0, "Client Closed")


def test_an_idle_connection_holds_no_buffers(box: Box) -> None:
    clients = [box.connect() for _ in range(300)]
    for client in clients:
        client.sendall(b"PING\r\n")
    for _ in range(20):
        box.event_loop.run(10)
    for client in clients:
        assert client.recv(100) == b"PONG\r\n"
    assert [c.buffered() for c in box.connections] == [0] * 300


def test_a_clock_that_stands_still_stops_no_turn() -> None:
    """The loop measures its own waits by the kernel's time."""
    clock = Clock(1_000)
    box = Box(clock)
    theirs = box.connect()
    for _ in range(300):  # among these are turns that look for events without sleeping
        theirs.sendall(b"PING\r\n")
        box.event_loop.poll_once()
        assert theirs.recv(100) == b"PONG\r\n"
    assert box.event_loop.now_ns == 1_000
    box.event_loop.shutdown()


def test_rest_handles_all_that_was_sent_and_what_follows() -> None:
    box = Box(Clock(1_000))
    near, far = box.connect(), box.connect()
    near.sendall(b"SUB a 1\r\n")
    box.event_loop.rest()
    far.sendall(b"PUB a 1\r\nx\r\n" * 5000)
    box.event_loop.rest()
    near.setblocking(False)
    got = b""
    with contextlib.suppress(BlockingIOError):
        while True:
            got += near.recv(1 << 20)
    assert got == b"MSG a 1 1\r\nx\r\n" * 5000
    box.event_loop.shutdown()


def test_time_goes_back_for_connections_too() -> None:
    clock = Clock(5_000_000_000)
    box = Box(clock)
    clock.set(9_000_000_000)
    theirs = box.connect()
    (connection,) = box.connections
    assert connection.last_ns == 9_000_000_000
    box.event_loop.rewind(5_000_000_000)
    assert clock.now() == box.event_loop.now_ns == 5_000_000_000
    assert connection.start_ns == connection.last_ns == 5_000_000_000
    with pytest.raises(ValueError, match="goes back"):
        clock.rewind(6_000_000_000)
    with pytest.raises(TypeError):
        SystemClock().rewind(1)
    theirs.close()
    box.event_loop.shutdown()
