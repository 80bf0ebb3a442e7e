"""The client behind a SOCKS 5 proxy: a proxy of the test's own, which passes bytes on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton import connect, sync
from pelton.client.protocol.options import Options
from pelton.client.protocol.socks import Proxy, parse_proxy, talk
from pelton.errors import ConnectError
from tests.peers import ServerProcess, free_port, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 20.0


class SocksProxy:
    """Answers as RFC 1928 says; ``asked`` are the addresses that were asked for."""

    def __init__(self, user: str = "", password: str = "", refuse: int = 0) -> None:
        self._login = (user, password)
        self._refuse = refuse
        self.asked: list[tuple[int, str, int]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        def take(size: int) -> bytes:
            return client.recv(size, socket.MSG_WAITALL)

        with contextlib.suppress(OSError):
            version, count = take(2)
            assert version == 5
            ways = take(count)
            way = 2 if self._login[0] else 0
            if way not in ways:
                client.sendall(b"\5\xff")
                client.close()
                return
            client.sendall(bytes([5, way]))
            if way:
                user = take(take(2)[1]).decode()
                given = (user, take(take(1)[0]).decode())
                client.sendall(bytes([1, given != self._login]))
                if given != self._login:
                    client.close()
                    return
            _, command, _, kind = take(4)
            assert command == 1
            host = (
                take(take(1)[0]).decode()
                if kind == 3
                else socket.inet_ntop(
                    *((socket.AF_INET, take(4)) if kind == 1 else (socket.AF_INET6, take(16)))
                )
            )
            port = int.from_bytes(take(2))
            self.asked.append((kind, host, port))
            if self._refuse:
                client.sendall(bytes([5, self._refuse, 0, 1]) + bytes(6))
                client.close()
                return
            server = socket.create_connection((host, port), SECONDS)
            self._open.append(server)
            client.sendall(b"\5\0\0\3\4name\x10\x92")  # a name as the bound address
            threading.Thread(target=self._pass, args=(server, client), daemon=True).start()
            self._pass(client, server)

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server("pelton") as running:
        yield running


def test_the_blocking_client_behind_a_proxy(server: ServerProcess) -> None:
    with SocksProxy("anna", "p@ss") as proxy:
        url = f"socks5://anna:p%40ss@{proxy.address}"
        with sync.connect(f"nats://localhost:{server.port}", socks_proxy=url) as client:
            assert client.rtt() > 0
            client.publish("a", bytes(1_000_000))
            client.flush()
        assert proxy.asked == [(3, "localhost", server.port)]  # the proxy looks the name up
        with sync.connect(server.url, socks_proxy=url) as client:
            assert client.rtt() > 0
        assert proxy.asked[1:] == [(1, "127.0.0.1", server.port)]


def test_the_asyncio_client_behind_a_proxy(server: ServerProcess) -> None:
    async def run(url: str) -> None:
        async with await connect(server.url, socks_proxy=url) as client:
            assert await client.rtt() > 0

    with SocksProxy() as proxy:
        asyncio.run(run(proxy.address))
        assert proxy.asked == [(1, "127.0.0.1", server.port)]


@pytest.mark.parametrize(
    ("proxy", "user", "says"),
    [
        (SocksProxy("anna", "x"), "", "wants a user"),
        (SocksProxy("anna", "x"), "anna:y@", "refuses the user anna"),
        (SocksProxy(refuse=5), "", "connection refused"),
        (SocksProxy(refuse=200), "", "reason 200"),
    ],
)
def test_a_proxy_that_refuses(
    server: ServerProcess, proxy: SocksProxy, user: str, says: str
) -> None:
    async def run(url: str) -> None:
        await connect(server.url, socks_proxy=url, reconnect=False)

    with proxy:
        url = f"socks5h://{user}{proxy.address}"
        with pytest.raises(ConnectError, match=says):
            sync.connect(server.url, socks_proxy=url, reconnect=False)
        with pytest.raises(ConnectError, match=says):
            asyncio.run(run(url))


def test_a_proxy_that_is_not_there(server: ServerProcess) -> None:
    url = f"127.0.0.1:{free_port()}"
    with pytest.raises(ConnectError, match=f"the proxy socks5://{url}: .*refused"):
        sync.connect(server.url, socks_proxy=url, reconnect=False)
    with pytest.raises(ConnectError, match=r"is no SOCKS 5 proxy|closed the connection"):
        sync.connect(server.url, socks_proxy=f"127.0.0.1:{server.port}", reconnect=False)


@pytest.mark.parametrize("url", ["http://h", "socks4://h", "socks5://", "socks5://h:x", "h:99999"])
def test_addresses_that_no_proxy_has(url: str) -> None:
    with pytest.raises(ValueError, match="proxy"):
        Options(socks_proxy=url)


def test_the_address_of_a_proxy() -> None:
    assert parse_proxy("h") == Proxy("h", 1080)
    found = parse_proxy("socks5://a:b%3A@[::1]:9")
    assert found == Proxy("::1", 9, "a", "b:")
    assert str(found) == "socks5://[::1]:9"
    assert "b:" not in repr(found)


@given(st.lists(st.binary(max_size=20), max_size=6), st.booleans())
def test_whatever_a_proxy_says(answers: list[bytes], login: bool) -> None:
    """It ends in a connection, or in ConnectError."""
    conversation = talk(Proxy("h", 1, "u" if login else ""), "name", 80)
    with contextlib.suppress(ConnectError, StopIteration):
        _, wanted = next(conversation)
        for each in answers:
            _, wanted = conversation.send((each + bytes(300))[:wanted])
