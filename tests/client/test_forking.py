"""A process that was forked leaves its parent's clients alone: calls there say so, and the parent goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from pelton import ConnectionClosedError, connect, sync

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peers import ServerProcess

CHILD_S = 30


def in_child(work: Callable[[], object]) -> str:
    """What ``work`` returns or raises in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.alarm(CHILD_S)  # a child that waits for a lock of the parent ends
            answer = str(work())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        answer = told.read()
    os.waitpid(child, 0)
    return answer


def sockets() -> set[str]:
    """The sockets of this process, which other tests' clients may share."""
    links = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
    names = [os.readlink(each) for each in links if os.path.exists(each)]
    return {name for name in names if name.startswith("socket:")}


def test_a_blocking_client(server: ServerProcess) -> None:
    before = sockets()
    with sync.connect(server.url) as client:
        of_client = sockets() - before
        heard = client.subscribe("a")
        client.flush()

        def calls() -> str:
            assert of_client
            assert not of_client & sockets()
            for call in (
                lambda: client.publish("a", b"child"),
                client.flush,
                lambda: heard.next(timeout=5),
                lambda: client.request("a"),
                lambda: client.jetstream().stream_names(),
            ):
                with pytest.raises(ConnectionClosedError, match="was forked"):
                    call()
            client.close()
            with sync.connect(server.url) as own:
                own.publish("a", b"own")
                own.flush()
            return "done"

        assert in_child(calls) == "done"
        client.publish("a", b"parent")
        assert [heard.next(timeout=5).data for _ in range(2)] == [b"own", b"parent"]
        assert client.connected


def test_a_blocking_client_that_another_thread_uses(server: ServerProcess) -> None:
    """The lock that the thread holds is free in the child."""
    with sync.connect(server.url) as client:
        held, enough = threading.Event(), threading.Event()

        def hold() -> None:
            with client._guard:
                held.set()
                enough.wait(CHILD_S)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(CHILD_S)
        try:
            assert "was forked" in in_child(client.flush)
        finally:
            enough.set()
            thread.join()
        client.flush()


def test_an_asyncio_client(server: ServerProcess) -> None:
    async def run() -> None:
        before = sockets()
        async with connect(server.url) as client:
            of_client = sockets() - before
            heard = await client.subscribe("a")
            await client.flush()

            def calls() -> str:
                assert of_client
                assert not of_client & sockets()

                async def inside() -> str:
                    with pytest.raises(ConnectionClosedError, match="was forked"):
                        await client.publish("a", b"child")
                    with pytest.raises(ConnectionClosedError, match="was forked"):
                        await client.flush()
                    async with connect(server.url) as own:
                        await own.publish("a", b"own")
                        await own.flush()
                    return "done"

                return asyncio.run(inside())

            assert in_child(calls) == "done"
            await client.publish("a", b"parent")
            assert [(await heard.next(timeout=5)).data for _ in range(2)] == [b"own", b"parent"]

    asyncio.run(run())


def test_a_client_that_was_closed_before_stays_so(server: ServerProcess) -> None:
    client: sync.Client = sync.connect(server.url)
    client.close()
    assert in_child(client.flush) == "ConnectionClosedError: the client is closed"
