"""Listening sockets in the core's turns: batches, no room, closing, and what calls back."""

import errno
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pelton.core.base.clock import SystemClock
from pelton.core.broker.event_loop import EventLoop
from pelton.core.broker.router import Router
from pelton.core.broker.session import Sessions
from pelton.server.logs.log import Log
from pelton.server.transports import listener as module
from pelton.server.transports.listener import Listener, open_sockets


class Full(socket.socket):
    """A listening socket of a process that may open no more files."""

    full = True

    def accept(self) -> Any:
        if self.full:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


class Later:
    """A loop of which only the timers are used; the test says when their time has come."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def call_later(self, _seconds: float, call: Callable[..., None], *arguments: object) -> None:
        self.calls.append(lambda: call(*arguments))


class House:
    """A turn and a listener that lets everybody in."""

    def __init__(self, sockets: list[socket.socket], folder: Path) -> None:
        self.event_loop = EventLoop(SystemClock())
        self.router = Router(self.event_loop)
        self.sessions = Sessions(
            self.event_loop, lambda _connection, _text: self.router, self.router
        )
        self.soon: list[Callable[[], None]] = []
        self.event_loop.start(self.sessions, self.soon.append)
        self.problems: list[BaseException] = []
        self.event_loop.on_error = self.problems.append
        self.taken = 0
        self.log = folder / "log"
        self.sockets = sockets
        self.listener = Listener(sockets, self.accepted, self.event_loop, Log(str(self.log)))

    def accepted(self, connected: socket.socket, _host: str, _port: int) -> None:
        self.taken += 1
        self.event_loop.adopt(connected.detach()).write(b"hello\r\n")
        self.event_loop.kick()  # says nothing here: the turn goes on anyway

    def said(self) -> str:
        return self.log.read_text()

    def client(self) -> socket.socket:
        return socket.create_connection(self.sockets[0].getsockname(), timeout=10)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(open_sockets("127.0.0.1", -1), tmp_path)
    house.listener.open()
    yield house
    house.listener.close()
    house.event_loop.shutdown()


def test_who_comes_is_greeted_in_the_same_turn(house):
    with house.client() as client:
        house.event_loop.poll_once()
        assert client.recv(100) == b"hello\r\n"
        client.sendall(b"PING\r\n")
        house.event_loop.poll_once()
        assert b"PONG" in client.recv(100)


def test_a_batch_at_a_time(house, monkeypatch):
    monkeypatch.setattr(module, "ACCEPT_BATCH", 3)
    clients = [house.client() for _ in range(7)]
    taken = []
    while house.taken < 7:
        house.event_loop.run(1000)
        taken.append(house.taken)
    assert taken == [3, 6, 7]
    for client in clients:
        client.close()


def test_what_goes_wrong_with_one_is_reported_and_the_next_comes_in(house):
    accepted = house.listener._accepted

    def fail(*_arguments: object) -> None:
        house.listener._accepted = accepted
        raise ValueError("no")

    house.listener._accepted = fail
    with house.client(), house.client() as second:
        house.event_loop.poll_once()
        assert second.recv(100) == b"hello\r\n"
    assert [str(problem) for problem in house.problems] == ["no"]


def test_after_close_nobody_is_taken_and_the_port_is_free(house):
    address = house.sockets[0].getsockname()
    with house.client() as waiting:
        house.listener.close()
        house.event_loop.run(0)
        assert house.taken == 0
        with pytest.raises(ConnectionResetError):
            waiting.recv(100)
    with socket.create_server(address):
        pass


def test_one_listener_may_close_the_other_in_a_turn(tmp_path):
    house = House(open_sockets("127.0.0.1", -1), tmp_path)
    other = open_sockets("127.0.0.1", -1)[0]
    sockets = [house.sockets[0], other]
    heard = []

    def accept(each: socket.socket) -> None:
        heard.append(each)
        for listening in sockets:
            house.event_loop.ignore(listening.fileno())

    for each in sockets:
        each.listen()
        house.event_loop.listen(each.fileno(), lambda each=each: accept(each))
    with house.client(), socket.create_connection(other.getsockname(), timeout=10):
        house.event_loop.run(1000)
        house.event_loop.run(0)
    assert len(heard) == 1
    for each in sockets:
        each.close()
    house.event_loop.shutdown()


@pytest.mark.parametrize("looping", [True, False])
def test_without_room_it_looks_away_for_a_moment(looping, tmp_path):
    listening = Full(socket.AF_INET)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    listening.setblocking(False)
    house = House([listening], tmp_path)
    later = Later()
    house.listener.open(later if looping else None)
    with house.client() as client:
        for _ in range(3):
            house.event_loop.run(0)
        assert house.said().count("Cannot accept a connection: Too many open files") == 1
        assert house.said().count("raise the limit of open files") == 1
        listening.full = False
        house.event_loop.run(0)
        assert house.taken == 0
        if looping:
            later.calls.pop()()
        else:  # there is a loop at last
            house.listener.open(later)
        house.event_loop.run(1000)
        assert client.recv(100) == b"hello\r\n"
    house.listener.close()
    assert not later.calls
    house.event_loop.shutdown()


def test_a_pause_may_outlive_the_listener(tmp_path):
    listening = Full(socket.AF_INET)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    listening.setblocking(False)
    house = House([listening], tmp_path)
    later = Later()
    house.listener.open(later)
    with house.client():
        house.event_loop.run(1000)
        house.listener.close()
        later.calls.pop()()
    house.event_loop.run(0)
    house.event_loop.shutdown()


def test_what_waits_for_asyncio_gets_its_turn_at_once(house):
    with house.client():
        house.event_loop.poll_once()
    assert house.soon == []
    house.listener._accepted = lambda connected, *_: (
        connected.close(),
        house.event_loop.hand_back(),
    )
    with house.client():
        house.event_loop.poll_once()
    assert len(house.soon) == 1
    house.soon.pop()()
    assert house.soon == []
