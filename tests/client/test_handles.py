"""Handles end with their block, and with whoever had them; threads do not share a client unnoticed."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import TYPE_CHECKING

import pytest

from penstock.client import ConsumerConfig, StreamConfig, connect, connect_blocking
from penstock.errors import ClientInUse, ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.client import BlockingClient
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
    before = len(nc.connection.interests)
    with js.pull(unique, "c") as handle, nc.subscribe("a"), js.subscribe(unique):
        assert len(handle.fetch(1)) == 1
        assert len(nc.connection.interests) == before + 3
    assert len(nc.connection.interests) == before
    with pytest.raises(ConnectionClosed, match="is closed"):
        handle.fetch(1)
    with pytest.raises(ConnectionClosed, match="is closed"):
        next(handle.messages())


def test_a_blocking_handle_that_nobody_has_any_more_gives_its_subscription_back(
    nc: BlockingClient, unique: str
) -> None:
    js = nc.jetstream()
    for _ in range(3):
        (message,) = js.pull(unique, "c").fetch(1)
        message.ack_sync()  # works without the handle
    gc.collect()
    nc.flush()
    assert len(nc.connection.interests) == 1  # the inbox of all requests
    messages = js.pull(unique, "c").messages()
    gc.collect()
    js.publish(f"{unique}.a", b"more")
    assert next(messages).data == b"more"  # whoever iterates has the handle
    messages.close()  # type: ignore[attr-defined]  # it is a generator
    del messages
    gc.collect()
    nc.flush()
    assert len(nc.connection.interests) == 1


def test_asyncio_handles_end_with_their_block_and_with_whoever_had_them(
    nc: BlockingClient, unique: str, server: ServerProcess
) -> None:
    async def scenario() -> None:
        async with connect(server.url, timeout=30) as client:
            js = client.jetstream()
            await js.stream_names()
            before = len(client.connection.interests)
            async with (
                js.pull(unique, "c") as handle,
                await client.subscribe("a"),
                await js.subscribe(unique),
            ):
                assert len(await handle.fetch(1)) == 1
                assert len(client.connection.interests) == before + 3
            assert len(client.connection.interests) == before
            with pytest.raises(ConnectionClosed, match="is closed"):
                await handle.fetch(1)
            assert client.watchers == set()
            for _ in range(2):
                (message,) = await js.pull(unique, "c").fetch(1)
                await message.ack_sync()
            gc.collect()
            await client.flush()
            assert len(client.connection.interests) == before
            assert client.watchers == set()

    asyncio.run(scenario())


def test_a_second_thread_is_refused_before_anything_is_sent(
    nc: BlockingClient, unique: str, server: ServerProcess
) -> None:
    js = nc.jetstream()
    waiting, handle = nc.subscribe(f"wait.{unique}"), js.pull(unique, "c")
    publisher, batch = js.publisher(), js.fast_batch()
    nc.flush()
    got: list[bytes] = []
    begun = threading.Event()

    def wait() -> None:
        with nc.guard:  # as every call has it while it lasts
            begun.set()
            got.append(waiting.next(timeout=60).data)

    thread = threading.Thread(target=wait)
    with connect_blocking(server.url) as other:
        heard = other.subscribe(f"*.{unique}")
        other.flush()
        thread.start()
        begun.wait(60)
        calls: list[Callable[[], object]] = [
            lambda: nc.publish(f"sent.{unique}"),
            lambda: nc.request(f"sent.{unique}"),
            lambda: nc.subscribe(f"sent.{unique}"),
            nc.flush,
            nc.rtt,
            nc.close,
            nc.drain,
            waiting.next,
            waiting.unsubscribe,
            lambda: js.publish(f"{unique}.sent"),
            lambda: handle.fetch(1),
            lambda: next(handle.messages()),
            lambda: publisher.publish(f"{unique}.sent"),
            lambda: batch.publish(f"{unique}.sent"),
        ]
        for call in calls:
            with pytest.raises(ClientInUse, match="nothing was sent"):
                call()
        other.publish(f"wait.{unique}", b"go on")
        thread.join(60)
        assert got == [b"go on"]
        nc.flush()  # afterwards any thread may
        assert heard.next().data == b"go on"
        other.flush()
        assert heard.pending == 0
    assert js.stream_info(unique).state.messages == 3
