"""Serving while loading: what is answered at once, what waits, and who opens early at all."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from pelton.core.base.clock import SystemClock
from pelton.core.broker.event_loop import EventLoop
from pelton.core.broker.reactor import Connection
from pelton.core.broker.router import Router
from pelton.core.broker.session import Sessions
from pelton.server.early_start import PLAIN, EarlyStart, may_open_early
from pelton.server.settings import Settings
from pelton.server.settings.users import User


class Early:
    """A server that serves nothing but its opening; `client` works in the loading thread."""

    def __init__(self) -> None:
        self.event_loop = EventLoop(SystemClock())
        self.connects = 0
        self.router = Router(self.event_loop)
        self.sessions = Sessions(self.event_loop, self.connected, self.router)
        self.opening = EarlyStart(self.event_loop, self.sessions)
        self.event_loop.start(self.sessions, self.opening.call_soon)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.event_loop.listen(self.listening.fileno(), self.accept)

    def connected(self, connection: Connection, _text: bytes) -> Router:
        connection.verbose = connection.pedantic = False
        self.connects += 1
        return self.router

    def accept(self) -> None:
        connected, _ = self.listening.accept()
        connected.setblocking(False)
        self.event_loop.adopt(connected.detach())

    def client(self) -> socket.socket:
        client = socket.create_connection(self.listening.getsockname(), timeout=10)
        client.sendall(b"CONNECT {}\r\n")
        return client

    def serve(self, load: Callable[[], object]) -> None:
        self.opening.serve((load, int))


@pytest.fixture
def early() -> Iterator[Early]:
    early = Early()
    with early.listening:
        yield early
    early.event_loop.shutdown()


def read_until(client: socket.socket, mark: bytes) -> bytes:
    data = b""
    while not data.endswith(mark):
        got = client.recv(65536)
        assert got, data
        data += got
    return data


def test_pings_are_answered_while_loading_and_publishes_wait_for_its_end(early: Early) -> None:
    with contextlib.ExitStack() as stack:
        quiet: list[bytes] = []
        clients: list[socket.socket] = []

        def load() -> None:
            listener, talker = (stack.enter_context(early.client()) for _ in range(2))
            clients.extend((listener, talker))
            listener.sendall(b"SUB a.* 1\r\nPING\r\n")
            assert read_until(listener, b"PONG\r\n") == b"PONG\r\n"
            talker.sendall(b"PING\r\nPUB a.b 2\r\nhi\r\nPUB a.c 3\r\nyou\r\nPING\r\nPU")
            quiet.append(read_until(talker, b"PONG\r\n"))
            talker.settimeout(0.05)
            with pytest.raises(TimeoutError):  # the second PING is behind the publishes
                quiet.append(talker.recv(1))
            talker.settimeout(10)
            listener.sendall(b"PING\r\n")
            quiet.append(read_until(listener, b"PONG\r\n"))

        early.serve(load)
        assert quiet == [b"PONG\r\n", b"PONG\r\n"]
        listener, talker = clients
        early.sessions.go_on()
        early.event_loop.run(0)
        talker.sendall(b"B a.d 0\r\n\r\n")
        early.event_loop.run(1000)
        got = read_until(listener, b"MSG a.d 1 0\r\n\r\n")
        assert got == b"MSG a.b 1 2\r\nhi\r\nMSG a.c 1 3\r\nyou\r\nMSG a.d 1 0\r\n\r\n"
        assert read_until(talker, b"PONG\r\n") == b"PONG\r\n"


def test_one_that_goes_while_its_publish_waits_is_forgotten(early: Early) -> None:
    def load() -> None:
        with early.client() as client:
            client.sendall(b"PING\r\nPUB a 0\r\n\r\n")
            read_until(client, b"PONG\r\n")
        with early.client() as client:
            client.sendall(b"PING\r\n")
            read_until(client, b"PONG\r\n")

    early.serve(load)
    early.sessions.go_on()
    for _ in range(3):
        early.event_loop.run(10)
    assert early.event_loop.all_connections() == []


def test_a_connect_is_answered_while_loading(early: Early) -> None:
    seen: list[tuple[bytes, int]] = []
    clients: list[socket.socket] = []

    def load() -> None:
        client = socket.create_connection(early.listening.getsockname(), timeout=10)
        clients.append(client)
        client.sendall(b"CONNECT {}\r\nPING\r\nPUB a 0\r\n\r\nPING\r\n")
        seen.append((read_until(client, b"PONG\r\n"), early.connects))

    early.serve(load)
    assert seen == [(b"PONG\r\n", 1)]
    early.sessions.go_on()
    early.event_loop.run(0)
    with clients[0] as client:
        assert read_until(client, b"PONG\r\n") == b"PONG\r\n"  # behind the publish


@pytest.mark.parametrize("part", [0, 1])
def test_what_loading_raises_is_raised_in_the_main_thread(early: Early, part: int) -> None:
    def fails() -> None:
        assert threading.current_thread() is not threading.main_thread()
        raise ImportError("no such thing")

    with pytest.raises(ImportError, match="no such thing"):
        early.opening.serve(*[(int, int)] * part, (fails, int))


def test_a_part_is_used_while_the_next_one_loads(early: Early) -> None:
    """Publishes and timers of a part that is loaded do not wait for the rest."""
    got: list[bytes] = []
    called = threading.Event()

    def fired() -> None:
        got.append(b"timer")
        called.set()

    def begin() -> None:
        early.opening.call_later(0.001, lambda: got.append(b"cancelled")).cancel()
        early.opening.call_later(0.002, fired)
        early.sessions.go_on()

    def rest() -> None:
        with early.client() as client:
            client.sendall(b"SUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n")
            got.append(read_until(client, b"PONG\r\n"))
        assert called.wait(10)

    early.opening.serve((int, begin), (rest, int))
    assert sorted(got) == [b"MSG a 1 2\r\nhi\r\nPONG\r\n", b"timer"]


def test_an_error_in_the_main_thread_waits_for_the_loading(early: Early) -> None:
    left: list[threading.Thread] = []

    def load() -> None:
        left.append(threading.current_thread())

    def fails() -> None:
        raise OSError("no store")

    with pytest.raises(OSError, match="no store"):
        early.opening.serve((int, fails), (load, int))
    assert not left[0].is_alive()


def test_a_plain_server_opens_early_whatever_its_plain_settings_are() -> None:
    assert may_open_early(Settings())
    assert may_open_early(Settings(jetstream=True, port=1, store_dir="/x", max_payload=7))
    assert set(Settings.__struct_fields__) >= PLAIN


@pytest.mark.parametrize(
    "settings",
    [
        Settings(token="t"),
        Settings(users=[User("u", "p")]),
        Settings(auth_timeout_ns=1),
    ],
)
def test_one_that_has_to_know_its_clients_does_not(settings: Settings) -> None:
    assert not may_open_early(settings)
