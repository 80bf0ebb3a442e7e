"""Handles end with their block, and with whoever had them; threads may share them."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pelton import ConsumerConfig, StreamConfig, connect, sync
from pelton.client.protocol.events import ProtocolLines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton import sync
    from tests.peers import ServerProcess


@pytest.fixture
def nc(server: ServerProcess, unique: str) -> Iterator[sync.Client]:
    with sync.connect(server.url, timeout=30) as client:
        js = client.jetstream()
        js.create_stream(
            StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory", max_age=0)
        )
        js.create_consumer(unique, ConsumerConfig(durable_name="c"))
        for _ in range(3):
            js.publish(f"{unique}.a", b"x")
        yield client
    with sync.connect(server.url, timeout=30) as client:
        client.jetstream().delete_stream(unique)


def test_blocking_handles_end_with_their_block(nc: sync.Client, unique: str) -> None:
    js = nc.jetstream()
    js.create_consumer(unique, ConsumerConfig(durable_name="p", deliver_subject=f"to.{unique}"))
    before = len(nc._connection.interests)
    with (
        js.consumer(unique, "c") as consumer,
        js.push_consumer(unique, "p") as push,
        nc.subscribe("a"),
    ):
        assert len(consumer.fetch(1)) == 1
        assert push.next() is not None
        with consumer.consume() as messages:
            assert next(messages).data == b"x"
            assert len(nc._connection.interests) == before + 4
    assert len(nc._connection.interests) == before
    with pytest.raises(StopIteration):
        next(messages)
    with consumer, push:  # a later call subscribes anew
        assert len(consumer.fetch(1)) == 1
        assert push.next() is not None
        assert len(nc._connection.interests) == before + 2
    assert len(nc._connection.interests) == before


def wait_for_the_inbox_alone(nc: sync.Client) -> None:
    """Only the inbox of all requests is left; a subscription that ends waits for its last messages."""
    deadline = time.monotonic() + 30
    while len(nc._connection.interests) > 1:
        assert time.monotonic() < deadline, nc._connection.interests
        nc.flush()
    assert len(nc._connection.interests) == 1


def test_a_blocking_handle_that_nobody_has_any_more_gives_its_subscription_back(
    nc: sync.Client, unique: str
) -> None:
    js = nc.jetstream()
    for _ in range(3):
        (message,) = js.consumer(unique, "c").fetch(1)
        message.ack_sync()  # works without the handle
    gc.collect()
    wait_for_the_inbox_alone(nc)
    messages = iter(js.consumer(unique, "c").consume())
    gc.collect()
    js.publish(f"{unique}.a", b"more")
    assert next(messages).data == b"more"  # whoever iterates has the operation
    del messages
    gc.collect()
    wait_for_the_inbox_alone(nc)


def test_a_handle_that_was_given_up_and_that_nobody_has_any_more_ends(
    nc: sync.Client, unique: str
) -> None:
    """Its subscription waits for messages on their way, to give them back; the client goes on."""
    consumer = nc.jetstream().consumer(unique, "c")
    assert len(consumer.fetch(1)) == 1
    (inbox,) = consumer._idle
    inbox.leave()
    del consumer, inbox
    gc.collect()
    for _ in range(2):
        nc.flush()
    assert len(nc._connection.interests) == 1
    assert nc._watchers == set()
    nc._keeper._thread.join(0.1)
    assert nc._keeper._thread.is_alive()


def test_asyncio_handles_end_with_their_block_and_with_whoever_had_them(
    nc: sync.Client, unique: str, server: ServerProcess
) -> None:
    async def scenario() -> None:
        async with connect(server.url, timeout=30) as client:
            js = client.jetstream()
            await js.create_consumer(
                unique, ConsumerConfig(durable_name="p", deliver_subject=f"to.{unique}")
            )
            before = len(client._connection.interests)
            async with (
                await js.consumer(unique, "c") as consumer,
                await js.push_consumer(unique, "p") as push,
                await client.subscribe("a"),
            ):
                assert len(await consumer.fetch(1)) == 1
                assert await push.next() is not None
                async with consumer.consume(max_messages=1) as messages:
                    assert (await anext(messages)).data == b"x"
                    assert len(client._connection.interests) == before + 4
            assert len(client._connection.interests) == before
            with pytest.raises(StopAsyncIteration):
                await anext(messages)
            assert client._watchers == set()
            (message,) = await (await js.consumer(unique, "c")).fetch(1)
            await message.ack_sync()
            await js.publish(f"{unique}.a", b"more")
            assert (await anext((await js.consumer(unique, "c")).consume())).data == b"more"
            gc.collect()
            async with asyncio.timeout(30):  # a subscription waits for its last messages
                while len(client._connection.interests) > before:
                    await client.flush()
            assert client._watchers == set()

    asyncio.run(scenario())


def test_threads_may_share_a_consumer(nc: sync.Client, unique: str) -> None:
    consumer = nc.jetstream().consumer(unique, "c")
    asked = threading.Event()
    nc._connection.lines = ProtocolLines(
        lambda _, line: asked.set() if "MSG.NEXT" in line else None
    )
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.append(len(consumer.fetch(4, timeout=60))))
    thread.start()
    assert asked.wait(60)
    while consumer.info().num_ack_pending < 3:
        pass  # the thread's request gets all messages that are there
    assert consumer.fetch(1, no_wait=True) == []
    nc.jetstream().publish(f"{unique}.a", b"more")
    thread.join(60)
    assert got == [4]
