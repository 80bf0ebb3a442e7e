"""Readers that nobody has any more, or that are open when their client closes, leave no consumer behind.

Written in each shell as its users write it: the frames that keep a reader alive are theirs.
"""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from pelton import ConsumerConfig, KeyValueConfig, ObjectStoreConfig, StreamConfig, connect, sync
from tests.client.shells import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton import Client, sync
    from tests.peers import ServerProcess

MESSAGES = 20


@pytest.fixture
def admin(server: ServerProcess, unique: str) -> Iterator[Any]:
    """JetStream of another client, with a stream, a bucket and an object store."""
    with sync.connect(server.url, timeout=30) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory"))
        js.create_key_value(KeyValueConfig(bucket=unique, storage="memory")).put("a", b"1")
        js.create_object_store(ObjectStoreConfig(bucket=unique, storage="memory")).put("a", b"1")
        for n in range(MESSAGES):
            js.publish(f"{unique}.a", b"%d" % n)
        yield js
        for stream in streams(unique):
            js.delete_stream(stream)


def streams(unique: str) -> list[str]:
    return [unique, f"KV_{unique}", f"OBJ_{unique}"]


def consumers(js: Any, unique: str) -> int:
    return sum(len(js.consumer_names(each)) for each in streams(unique))


async def read_in_asyncio(client: Client, way: str, unique: str) -> object:
    """Begin to read; the reader is dropped, unless the caller keeps what this returns."""
    js = client.jetstream()
    if way == "consume":
        messages = js.ordered_consumer(unique).consume()
        async for message in messages:
            assert message.data == b"0"
            break
        return messages
    if way == "fetch":
        ordered = js.ordered_consumer(unique)
        assert len(await ordered.fetch(3)) == 3
        return ordered
    if way == "bucket":
        bucket = await js.key_value(unique)
        entries = await bucket.watch()
        assert (await entries.next()).key == "a"
        return entries
    objects = await (await js.object_store(unique)).watch()
    assert (await objects.next()) is not None
    return objects


def read_in_blocking_code(client: sync.Client, way: str, unique: str) -> object:
    js = client.jetstream()
    if way == "consume":
        messages = js.ordered_consumer(unique).consume()
        for message in messages:
            assert message.data == b"0"
            break
        return messages
    if way == "fetch":
        ordered = js.ordered_consumer(unique)
        assert len(ordered.fetch(3)) == 3
        return ordered
    if way == "bucket":
        entries = js.key_value(unique).watch()
        assert entries.next().key == "a"
        return entries
    objects = js.object_store(unique).watch()
    assert objects.next() is not None
    return objects


@pytest.mark.parametrize("way", ["consume", "fetch", "bucket", "objects"])
@pytest.mark.parametrize("kept", [False, True], ids=["dropped", "open"])
def test_the_consumer_of_a_reader_goes_with_it(
    shell: str, server: ServerProcess, admin: Any, unique: str, way: str, kept: bool
) -> None:
    """Dropped: while its client stays open and idle. Kept: when the client closes."""
    if shell == "blocking":
        with sync.connect(server.url, timeout=30) as client:
            reader: object = read_in_blocking_code(client, way, unique)
            assert consumers(admin, unique) == 1
            if not kept:
                del reader
                gc.collect()
                wait_for(lambda: consumers(admin, unique) == 0)
    else:

        async def program() -> None:
            async with connect(server.url, timeout=30) as client:
                reader: object = await read_in_asyncio(client, way, unique)
                assert await asyncio.to_thread(consumers, admin, unique) == 1
                if not kept:
                    del reader
                    gc.collect()
                    await asyncio.to_thread(wait_for, lambda: consumers(admin, unique) == 0)

        asyncio.run(program())
    wait_for(lambda: consumers(admin, unique) == 0)


def test_a_dropped_operation_gives_its_messages_back(
    shell: str, server: ServerProcess, admin: Any, unique: str
) -> None:
    """What it had buffered is delivered again at once, and not after the ack wait."""
    admin.create_consumer(unique, ConsumerConfig(durable_name="c", ack_wait="10m"))
    if shell == "blocking":
        with sync.connect(server.url, timeout=30) as client:
            for message in client.jetstream().consumer(unique, "c").consume():
                message.ack_sync()
                break
            del message
            gc.collect()
            again = admin.consumer(unique, "c").fetch(MESSAGES - 1, timeout=60)
    else:

        async def program() -> list[Any]:
            async with connect(server.url, timeout=30) as client:
                consumer = await client.jetstream().consumer(unique, "c")
                async for message in consumer.consume():
                    await message.ack_sync()
                    break
                del message
                gc.collect()
                fetch = admin.consumer(unique, "c").fetch
                found: list[Any] = await asyncio.to_thread(fetch, MESSAGES - 1, timeout=60)
                return found

        again = asyncio.run(program())
    assert sorted(int(each.data) for each in again) == list(range(1, MESSAGES))


def test_a_dropped_operation_unsubscribes_before_it_gives_back(
    server: ServerProcess, admin: Any, unique: str
) -> None:
    """Or the server delivers to it again what it gives back, and nobody has that until the ack wait is over."""
    admin.create_consumer(unique, ConsumerConfig(durable_name="c", ack_wait="10m"))
    sent: list[str] = []

    def hear(direction: str, line: str) -> None:
        if direction == "out":
            sent.append(line)

    with sync.connect(server.url, timeout=30, on_protocol=hear) as client:
        for message in client.jetstream().consumer(unique, "c").consume():
            message.ack_sync()
            break
        del message
        sent.clear()
        gc.collect()
        again = admin.consumer(unique, "c").fetch(MESSAGES - 1, timeout=60)
        lines = [line for line in sent if line.startswith(("UNSUB", "PUB $JS.ACK"))]
    assert len(again) == MESSAGES - 1
    assert lines[0].startswith("UNSUB")
    assert len(lines) > 1
