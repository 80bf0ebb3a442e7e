"""Connections whose bytes pass a transport: the turn tells it when the socket is ready, what it takes
in is done as if read from a socket, what it can't write is held.
"""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.base.clock import SystemClock
from pelton.core.broker.event_loop import EventLoop
from pelton.core.broker.reactor import Connection
from pelton.core.broker.router import Router
from pelton.core.broker.session import Sessions


class Held:
    """A transport without encryption over one end of a socket pair."""

    def __init__(self, event_loop: EventLoop, mine: socket.socket) -> None:
        self.event_loop, self.mine = event_loop, mine
        self.connection: Connection | None = None
        self.backlog = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        try:
            sent = self.mine.send(data)
        except BlockingIOError:
            sent = 0
        self.backlog = data[sent:]
        if self.backlog:
            assert self.connection is not None
            self.event_loop.hold(self.connection, True)

    def writable(self) -> None:
        assert self.connection is not None
        self.backlog = self.backlog[self.mine.send(self.backlog) :]
        self.event_loop.hold(self.connection, bool(self.backlog))

    def readable(self) -> None:
        assert self.connection is not None
        data = self.mine.recv(65536)
        if data:
            self.event_loop.take_in(self.connection, data)
        else:
            self.event_loop.disconnect(self.connection, "Client Closed")

    def close(self) -> None:
        self.closed = True
        self.mine.close()


class Setting:
    """A turn with one such connection."""

    def __init__(self) -> None:
        self.event_loop = EventLoop(SystemClock())
        router = Router(self.event_loop)

        def connect(connection: Connection, text: bytes) -> object:
            connection.verbose = connection.pedantic = False
            return router

        self.sessions = Sessions(self.event_loop, connect, router)
        self.event_loop.start(self.sessions, lambda call: None)
        self.errors: list[BaseException] = []
        self.event_loop.on_error = self.errors.append
        mine, self.theirs = socket.socketpair()
        mine.setblocking(False)
        self.theirs.settimeout(10)
        self.transport = Held(self.event_loop, mine)
        self.connection = self.sessions.accept(self.transport)
        self.transport.connection = self.connection
        self.event_loop.attach(self.connection, mine.fileno())

    def close(self) -> None:
        self.event_loop.shutdown()
        self.theirs.close()

    def answer(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            self.event_loop.run(0)
            data += self.theirs.recv(size - len(data))
        return data


@pytest.fixture
def setting():
    made = Setting()
    yield made
    made.close()


@given(st.lists(st.integers(1, 30), max_size=20))
def test_any_split_is_taken_in(cuts: list[int]) -> None:
    made = Setting()
    try:
        sent = b"CONNECT {}\r\nSUB a 1\r\nPUB a 5\r\nhello\r\nPUB a 0\r\n\r\nPING\r\n"
        at = 0
        for cut in [*cuts, len(sent)]:
            made.event_loop.take_in(made.connection, sent[at : at + cut])
            at += cut
        wanted = b"MSG a 1 5\r\nhello\r\nMSG a 1 0\r\n\r\nPONG\r\n"
        assert made.answer(len(wanted)) == wanted
        assert made.connection.buffered() < 200_000
    finally:
        made.close()


def test_the_turn_reads_and_closes(setting: Setting) -> None:
    setting.theirs.sendall(b"CONNECT {}\r\nPING\r\n")
    assert setting.answer(6) == b"PONG\r\n"
    setting.theirs.shutdown(socket.SHUT_WR)
    setting.event_loop.run(100)
    assert setting.connection.closed
    assert setting.connection.reason == "Client Closed"
    assert setting.transport.closed
    setting.event_loop.take_in(setting.connection, b"PING\r\n")  # too late: nothing happens


def test_what_is_not_taken_waits_and_then_goes_in_order(setting: Setting) -> None:
    setting.theirs.sendall(b"CONNECT {}\r\nSUB a 1\r\n")
    setting.event_loop.run(100)
    body = bytes(range(256)) * 2000
    for _ in range(5):
        setting.event_loop.take_in(setting.connection, b"PUB a %d\r\n%b\r\n" % (len(body), body))
    setting.event_loop.run(0)
    assert setting.connection.pending_bytes() > 0
    message = b"MSG a 1 %d\r\n%b\r\n" % (len(body), body)
    assert setting.answer(5 * len(message)) == 5 * message
    setting.event_loop.run(0)
    assert setting.connection.pending_bytes() == 0


def test_a_connection_that_ends_sends_its_last_words_first(setting: Setting) -> None:
    setting.theirs.sendall(b"CONNECT {}\r\nSUB a 1\r\n")
    setting.event_loop.run(100)
    body = b"x" * 900_000
    setting.event_loop.take_in(setting.connection, b"PUB a %d\r\n%b\r\n" % (len(body), body))
    setting.event_loop.run(0)
    setting.connection.fail(b"over", "Because")
    assert not setting.connection.closed
    wanted = b"MSG a 1 %d\r\n%b\r\n-ERR 'over'\r\n" % (len(body), body)
    assert setting.answer(len(wanted)) == wanted
    setting.event_loop.run(100)
    assert setting.connection.closed
    assert setting.connection.reason == "Because"


def test_who_takes_nothing_is_cut_off_at_the_write_deadline(setting: Setting) -> None:
    setting.event_loop.write_deadline_ns = 1
    setting.theirs.sendall(b"CONNECT {}\r\nSUB a 1\r\n")
    setting.event_loop.run(100)
    body = b"x" * 900_000
    setting.event_loop.take_in(setting.connection, b"PUB a %d\r\n%b\r\n" % (len(body), body))
    for _ in range(50):
        setting.event_loop.run(100)
        if setting.connection.closed:
            break
    assert setting.connection.reason == "Slow Consumer (Write Deadline)"


def test_a_transport_that_trips_ends_its_connection_only(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trip() -> None:
        raise RuntimeError("tripped")

    monkeypatch.setattr(setting.transport, "readable", trip)
    setting.theirs.sendall(b"x")
    setting.event_loop.run(100)
    assert setting.connection.reason == "Internal Error"
    assert [str(error) for error in setting.errors] == ["tripped"]
