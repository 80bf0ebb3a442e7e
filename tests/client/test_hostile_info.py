"""Servers that say strange things of themselves: each attempt ends in a documented error or in a
connection, and the client goes on.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton import connect, sync
from pelton.client.base.addresses import Server
from pelton.client.protocol.connection import Connection, State
from pelton.client.protocol.info import ServerInfo
from pelton.client.protocol.options import Options
from pelton.errors import ConnectError, PayloadTooLargeError, PeltonError

DEEP = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
BROKEN = [
    b"[]",
    b"null",
    b"{",
    b"\xff\xfe",
    b'{"version":"\xff"}',
    b'{"max_payload":"much"}',
    b'{"max_payload":1e400}',
    b'{"connect_urls":"nats://h"}',
    b'{"connect_urls":[1]}',
    b'{"headers":1}',
    b'{"nonce":"\\ud800"}',
    DEEP,
]
URLS = [
    "h" * 70 + ":4222",
    ".:1",
    "..",
    "\u2025:1",
    "a\u0000b:1",
    "[::1",
    "h:0",
    "h:99999",
    "h:x",
    "",
    " ",
    "\n",
    "ws://h",
    "user:pass@",
    "xn--a" + "-" * 60,
]


@contextmanager
def greeting(*infos: bytes) -> Iterator[str]:
    """A server that greets its first clients with these, one after the other, and later ones with
    the last; it says PONG to a PING, and hangs up on all of the first ones behind it.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"nats://127.0.0.1:{listener.getsockname()[1]}"
        kept: list[socket.socket] = []

        def serve() -> None:
            number = 0
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                last = number >= len(infos) - 1
                try:
                    client.sendall(b"INFO " + infos[min(number, len(infos) - 1)] + b"\r\n")
                    received = b""
                    while b"PING\r\n" not in received and (data := client.recv(4096)):
                        received += data
                    client.sendall(b"PONG\r\n")
                except OSError:
                    pass
                number += 1
                kept.append(client)
                if not last:
                    client.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield url
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for client in kept:
                client.close()


@pytest.mark.parametrize("info", BROKEN, ids=range(len(BROKEN)))
def test_an_info_that_is_none_is_a_connect_error(info: bytes) -> None:
    with greeting(info) as url:
        with pytest.raises(ConnectError, match=r"bad INFO|broke the protocol|no NATS server"):
            sync.connect(url)

        async def scenario() -> None:
            with pytest.raises(ConnectError, match=r"bad INFO|broke the protocol|no NATS server"):
                await connect(url)

        asyncio.run(scenario())


def test_addresses_that_are_none_do_not_end_the_client() -> None:
    """The pool learns them, tries them, and comes back to the server that there is."""
    info = json.dumps({"connect_urls": URLS}).encode()
    options: dict[str, Any] = {"reconnect_wait": 0.001, "reconnect_wait_max": 0.001, "timeout": 30}
    with greeting(info, info, b"{}") as url, sync.connect(url, **options) as nc:
        while nc.reconnects < 2:
            try:
                nc.flush()
            except PeltonError:
                with nc._guard:
                    nc._ready()
        assert nc.connected

    async def scenario() -> None:
        again = asyncio.Semaphore(0)
        with greeting(info, info, b"{}") as url:
            async with connect(url, on_reconnect=again.release, **options) as nc:
                await again.acquire()
                await again.acquire()
                assert nc.connected

    asyncio.run(scenario())


def test_a_server_that_takes_nothing_is_a_documented_error() -> None:
    with (
        greeting(b'{"max_payload":-1}') as url,
        sync.connect(url) as nc,
        pytest.raises(PayloadTooLargeError),
    ):
        nc.publish("a", b"")


@given(st.text())
def test_every_version_can_be_compared(version: str) -> None:
    assert not ServerInfo(version=version).version_at_least(10**9, 0)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(ServerInfo.__struct_fields__), VALUES), st.booleans())
def test_no_info_raises(fields: dict[str, Any], later: bool) -> None:
    connection = Connection(Options(name="n"))
    connection.connected_to(Server("h"))
    if later:
        connection.receive_data(b"INFO {}\r\nPONG\r\n")
        assert connection.state is State.CONNECTED
    connection.receive_data(b"INFO " + json.dumps(fields).encode() + b"\r\n")
    connection.events()
    assert connection.state in (
        State.DISCONNECTED,
        State.AWAITING_TLS,
        State.AWAITING_PONG,
        State.CONNECTED,
    )
