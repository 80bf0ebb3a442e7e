"""A small program of a user, with types: the suite checks it with mypy --strict, and runs it."""

import asyncio
import sys

from pelton import ConsumerConfig, KeyValueConfig, ObjectStoreConfig, StreamConfig, connect, sync


async def with_asyncio(url: str) -> list[bytes]:
    """A message, a value and an object, awaited."""
    async with connect(url) as client:
        jetstream = client.jetstream()
        await jetstream.create_stream(StreamConfig(name="AIO", subjects=["aio.>"]))
        async with jetstream.publisher() as publisher:
            await publisher.publish("aio.one", b"message")
        await jetstream.create_consumer("AIO", ConsumerConfig(durable_name="reader"))
        consumer = await jetstream.consumer("AIO", "reader")
        message = await consumer.next(timeout=30)
        assert message is not None
        await message.ack()
        bucket = await jetstream.create_key_value(KeyValueConfig(bucket="aio"))
        await bucket.put("key", b"value")
        entry = await bucket.get("key")
        assert entry is not None
        store = await jetstream.create_object_store(ObjectStoreConfig(bucket="aio"))
        await store.put("name", b"pattern" * 50_000)
        return [message.data, entry.value, await store.get("name")]


def blocking(url: str) -> list[bytes]:
    """The same without asyncio."""
    with sync.connect(url) as client:
        jetstream = client.jetstream()
        jetstream.create_stream(StreamConfig(name="BLOCKING", subjects=["blocking.>"]))
        ack = jetstream.publish("blocking.one", b"message")
        jetstream.create_consumer("BLOCKING", ConsumerConfig(durable_name="reader"))
        message = jetstream.consumer("BLOCKING", "reader").next(timeout=30)
        assert message is not None
        assert message.metadata.stream_seq == ack.seq
        message.ack()
        bucket = jetstream.create_key_value(KeyValueConfig(bucket="blocking"))
        bucket.put("key", b"value")
        entry = bucket.get("key")
        assert entry is not None
        store = jetstream.create_object_store(ObjectStoreConfig(bucket="blocking"))
        store.put("name", b"pattern" * 50_000)
        return [message.data, entry.value, store.get("name")]


if __name__ == "__main__":
    for found in (asyncio.run(with_asyncio(sys.argv[1])), blocking(sys.argv[1])):
        print(*(data[:7].decode() for data in found), len(found[-1]))
