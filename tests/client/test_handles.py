"""Handles end with their block, and with whoever had them; threads do not share a client unnoticed."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pelton.client import ConsumerConfig, StreamConfig, connect, connect_blocking
from pelton.client.protocol.protocol_lines import ProtocolLines
from pelton.errors import ClientInUseError, ConnectionClosedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.client import BlockingClient
    from tests.peers import ServerProcess


@pytest.fixture
def nc(server: ServerProcess, unique: str) -> Iterator[BlockingClient]:
    with connect_blocking(server.url, timeout=30) as client:
        js = client.jetstream()
        js.create_stream(
            StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory", max_age=0)
        )
        js.create_consumer(unique, ConsumerConfig(durable_name="c"))
        for _ in range(3):
            js.publish(f"{unique}.a", b"x")
        yield client
    with connect_blocking(server.url, timeout=30) as client:
        client.jetstream().delete_stream(unique)


def test_blocking_handles_end_with_their_block(nc: BlockingClient, unique: str) -> None:
    js = nc.jetstream()
    before = len(nc._connection.interests)
    with js.pull(unique, "c") as handle, nc.subscribe("a"), js.subscribe(unique):
        assert len(handle.fetch(1)) == 1
        assert len(nc._connection.interests) == before + 3
    assert len(nc._connection.interests) == before
    with pytest.raises(ConnectionClosedError, match="is closed"):
        handle.fetch(1)
    with pytest.raises(ConnectionClosedError, match="is closed"):
        next(handle.messages())


def wait_for_the_inbox_alone(nc: BlockingClient) -> None:
    """Only the inbox of all requests is left; a subscription that ends waits for its last messages."""
    deadline = time.monotonic() + 30
    while len(nc._connection.interests) > 1:
        assert time.monotonic() < deadline, nc._connection.interests
        nc.flush()
    assert len(nc._connection.interests) == 1


def test_a_blocking_handle_that_nobody_has_any_more_gives_its_subscription_back(
    nc: BlockingClient, unique: str
) -> None:
    js = nc.jetstream()
    for _ in range(3):
        (message,) = js.pull(unique, "c").fetch(1)
        message.ack_sync()  # works without the handle
    gc.collect()
    wait_for_the_inbox_alone(nc)
    messages = js.pull(unique, "c").messages()
    gc.collect()
    js.publish(f"{unique}.a", b"more")
    assert next(messages).data == b"more"  # whoever iterates has the handle
    messages.close()  # type: ignore[attr-defined]  # it is a generator
    del messages
    gc.collect()
    wait_for_the_inbox_alone(nc)


def test_a_handle_that_was_given_up_and_that_nobody_has_any_more_ends(
    nc: BlockingClient, unique: str
) -> None:
    """Its subscription waits for messages on their way, to give them back; the client goes on."""
    handle = nc.jetstream().pull(unique, "c")
    assert len(handle.fetch(1)) == 1
    handle._give_up(returns=True)
    del handle
    gc.collect()
    for _ in range(2):
        nc.flush()
    assert len(nc._connection.interests) == 1
    assert nc._watchers == set()
    nc._keeper._thread.join(0.1)
    assert nc._keeper._thread.is_alive()


def test_asyncio_handles_end_with_their_block_and_with_whoever_had_them(
    nc: BlockingClient, unique: str, server: ServerProcess
) -> None:
    async def scenario() -> None:
        async with connect(server.url, timeout=30) as client:
            js = client.jetstream()
            await js.stream_names()
            before = len(client._connection.interests)
            async with (
                js.pull(unique, "c") as handle,
                await client.subscribe("a"),
                await js.subscribe(unique),
            ):
                assert len(await handle.fetch(1)) == 1
                assert len(client._connection.interests) == before + 3
            assert len(client._connection.interests) == before
            with pytest.raises(ConnectionClosedError, match="is closed"):
                await handle.fetch(1)
            assert client._watchers == set()
            for _ in range(2):
                (message,) = await js.pull(unique, "c").fetch(1)
                await message.ack_sync()
            gc.collect()
            await client.flush()
            assert len(client._connection.interests) == before
            assert client._watchers == set()

    asyncio.run(scenario())


def test_a_pull_handle_is_for_one_thread_at_a_time(nc: BlockingClient, unique: str) -> None:
    handle = nc.jetstream().pull(unique, "c")
    asked = threading.Event()
    nc._connection.lines = ProtocolLines(
        lambda _, line: asked.set() if "MSG.NEXT" in line else None
    )
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.append(len(handle.fetch(4, timeout=60))))
    thread.start()
    assert asked.wait(60)
    for call in (lambda: handle.fetch(1), lambda: next(handle.messages())):
        with pytest.raises(ClientInUseError, match="nothing was sent"):
            call()
    nc.jetstream().publish(f"{unique}.a", b"more")
    thread.join(60)
    assert got == [4]
