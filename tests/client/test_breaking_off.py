"""Attempts to connect that are broken off, by ``close`` or by cancelling a task: they end at once and leave
no socket, no task and no thread behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pelton import connect, sync
from pelton.errors import ConnectionClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOREVER_S = 600
PATIENCE_S = 60
GREETING = b'INFO {"server_id":"X","max_payload":1024,"headers":true%s}\r\n'


class Silent:
    """A server that says nothing more from a stage of the handshake on."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.met: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        port = self.listener.getsockname()[1]
        scheme = {"tls": "wss", "websocket": "ws"}.get(stage, "nats")
        self.url = f"{scheme}://127.0.0.1:{port}"
        if stage == "connect":  # the queue of the listener is full: nobody accepts
            self.met.append(socket.create_connection(("127.0.0.1", port)))
        else:
            self._thread = threading.Thread(target=self._serve, daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self.listener.accept()
            client.settimeout(PATIENCE_S)
            if self.stage in ("pong", "upgrade"):
                client.sendall(
                    GREETING % (b"" if self.stage == "pong" else b',"tls_required":true')
                )
            if self.stage != "greeting":  # the client says something before it waits
                assert client.recv(4096)
            self.met.append(client)

    def wait_until_met(self) -> None:
        """Until the client waits for what does not come."""
        if self.stage == "connect":
            port = f"{self.listener.getsockname()[1]:04X}"
            wait_for(lambda: any(each.endswith(port) for each in connecting()))
        else:
            wait_for(lambda: bool(self.met))

    def assert_left(self) -> None:
        """The client has closed its socket."""
        if self.stage == "connect":
            wait_for(lambda: not connecting())
            return
        with contextlib.suppress(ConnectionResetError):
            while self.met[0].recv(4096):
                pass

    def close(self) -> None:
        self.listener.close()
        for each in self.met:
            each.close()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def connecting() -> list[str]:
    """The remote addresses of this process's sockets that have sent SYN."""
    own = {
        os.readlink(f"/proc/self/fd/{each}").partition("[")[2].rstrip("]")
        for each in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{each}")
    }
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[2] for row in rows if row[3] == "02" and row[9] in own]


@pytest.fixture(params=["connect", "greeting", "pong", "upgrade", "tls", "websocket"])
def silent(request: pytest.FixtureRequest) -> Iterator[Silent]:
    each = Silent(request.param)
    yield each
    each.close()


class Good:
    """A server for one connection, which it ends when told."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self.listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self.client, _ = self.listener.accept()
        self.listener.close()
        self.client.sendall(GREETING % b"")
        lines = self.client.makefile("rb")
        while lines.readline() != b"PING\r\n":
            pass
        self.client.sendall(b"PONG\r\n")

    def hang_up(self) -> None:
        self._thread.join(PATIENCE_S)
        self.client.shutdown(socket.SHUT_RDWR)
        self.client.close()


def test_close_ends_an_attempt_of_another_thread(silent: Silent) -> None:
    """Whether a call or the client's own thread connects again."""
    before = threading.active_count()
    good = Good()
    client = sync.connect(good.url, connect_timeout=FOREVER_S, timeout=FOREVER_S)
    heard = client.subscribe("a")
    client.set_servers([silent.url])
    raised: list[BaseException] = []

    def call() -> None:
        try:
            heard.next(timeout=FOREVER_S)
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=call)
    good.hang_up()
    thread.start()
    silent.wait_until_met()
    begun = time.monotonic()
    client.close()
    thread.join(PATIENCE_S)
    assert time.monotonic() - begun < PATIENCE_S / 2
    assert [type(each) for each in raised] == [ConnectionClosedError]
    silent.assert_left()
    wait_for(lambda: threading.active_count() <= before)


@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_a_cancelled_task_leaves_no_socket(silent: Silent, again: bool) -> None:
    """The task that connects for the first time; or that of a client which is closed."""

    async def scenario() -> None:
        others = asyncio.all_tasks()
        if again:
            good = Good()
            client = await connect(good.url, connect_timeout=FOREVER_S)
            client.set_servers([silent.url])
            await asyncio.to_thread(good.hang_up)
            await asyncio.to_thread(silent.wait_until_met)
            await asyncio.wait_for(client.close(), PATIENCE_S)
        else:

            async def connecting() -> None:
                await connect(silent.url, connect_timeout=FOREVER_S)

            task = asyncio.create_task(connecting())
            await asyncio.to_thread(silent.wait_until_met)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.to_thread(silent.assert_left)
        async with asyncio.timeout(PATIENCE_S):
            while asyncio.all_tasks() != others:
                await asyncio.sleep(0.001)

    asyncio.run(scenario())
