"""One row of the comparison of clients: one library, one kind of work, against a server that runs.

``bench_client.py`` starts this file with each library's own interpreter, so it imports nothing but the
standard library and that client. It prints one JSON object: operations, their seconds, and the
processor's seconds of this process.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import asynccontextmanager

PAYLOAD = b"x" * 128
IN_FLIGHT = 512
OBJECT = 8 * 1024 * 1024


class Timed:
    """Seconds of the wall and of the processor between enter and exit."""

    def __enter__(self):
        self.wall, self.cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_):
        self.wall = time.perf_counter() - self.wall
        self.cpu = time.process_time() - self.cpu


class Pelton:
    """Pelton's asyncio client."""

    @asynccontextmanager
    async def connected(self, url):
        from pelton import connect

        async with connect(url) as nc:
            self.nc, self.js = nc, nc.jetstream()
            yield

    async def stream(self, name):
        from pelton import StreamConfig

        await self.js.create_stream(StreamConfig(name=name, subjects=[name]))

    async def publish_async(self, name, count):
        async with self.js.publisher() as publisher:
            for _ in range(count):
                await publisher.publish(name, PAYLOAD)

    async def publish(self, name, count):
        for _ in range(count):
            await self.js.publish(name, PAYLOAD)

    async def consume(self, name, count):
        from pelton import ConsumerConfig

        await self.js.create_consumer(
            name, ConsumerConfig(name="c", durable_name="c", ack_policy="explicit")
        )
        consumer = await self.js.consumer(name, "c")
        with Timed() as timed:
            async with consumer.consume(max_messages=500) as messages:
                async for message in messages:
                    await message.ack()
                    count -= 1
                    if not count:
                        break
            await self.nc.flush()
        return timed

    async def fetch(self, name, count):
        from pelton import ConsumerConfig

        await self.js.create_consumer(
            name, ConsumerConfig(name="f", durable_name="f", ack_policy="explicit")
        )
        with Timed() as timed:
            async with await self.js.consumer(name, "f") as consumer:
                while count > 0:
                    for message in await consumer.fetch(100, timeout=5):
                        await message.ack()
                        count -= 1
            await self.nc.flush()
        return timed

    async def answer(self, subject):
        async def echo(message):
            await message.respond(message.data)

        await self.nc.subscribe(subject, callback=echo)

    async def receive(self, subject, count, send):
        subscription = await self.nc.subscribe(subject, max_msgs=count)
        await self.nc.flush()
        with Timed() as timed:
            await send()
            async for _ in subscription:
                pass
        return timed

    async def bucket(self, name):
        return await self.js.create_key_value(name)

    async def objects(self, name):
        from pelton import ObjectStoreConfig

        store = await self.js.create_object_store(ObjectStoreConfig(bucket=name))
        return store.put, store.get


class NatsPy(Pelton):
    """nats-py."""

    @asynccontextmanager
    async def connected(self, url):
        import nats

        self.nc = await nats.connect(url, pending_size=64 * 1024 * 1024)
        self.js = self.nc.jetstream(timeout=60, publish_async_max_pending=IN_FLIGHT)
        yield
        await self.nc.close()

    async def stream(self, name):
        await self.js.add_stream(name=name, subjects=[name])

    async def publish_async(self, name, count):
        for _ in range(count):
            await self.js.publish_async(name, PAYLOAD, wait_stall=60)
        await self.js.publish_async_completed()

    async def consume(self, name, count):
        return await self.fetch(name, count)  # it has no call that goes on by itself

    async def fetch(self, name, count):
        subscription = await self.js.pull_subscribe(name, "f", stream=name)
        with Timed() as timed:
            while count > 0:
                for message in await subscription.fetch(100, timeout=5):
                    await message.ack()
                    count -= 1
            await self.nc.flush()
        return timed

    async def answer(self, subject):
        async def echo(message):
            await message.respond(message.data)

        await self.nc.subscribe(subject, cb=echo)

    async def receive(self, subject, count, send):
        subscription = await self.nc.subscribe(
            subject, pending_msgs_limit=-1, pending_bytes_limit=-1
        )
        await self.nc.flush()
        with Timed() as timed:
            await send()
            async for _ in subscription.messages:
                count -= 1
                if not count:
                    break
        return timed

    async def bucket(self, name):
        return await self.js.create_key_value(bucket=name)

    async def objects(self, name):
        store = await self.js.create_object_store(name)
        return store.put, store.get


class Natsio(Pelton):
    """natsio."""

    @asynccontextmanager
    async def connected(self, url):
        import natsio

        async with await natsio.connect(url) as nc:
            self.nc = nc
            self.js = nc.jetstream(timeout=60, publish_async_max_pending=IN_FLIGHT)
            yield

    async def stream(self, name):
        from natsio.jetstream import StreamConfig

        await self.js.create_stream(StreamConfig(name=name, subjects=[name]))

    async def publish_async(self, name, count):
        from natsio.jetstream import TooManyStalledMsgsError

        for _ in range(count):
            while True:
                try:
                    await self.js.publish_async(name, PAYLOAD)
                    break
                except TooManyStalledMsgsError:
                    continue
        await self.js.publish_async_complete()

    async def _consumer(self, name, durable):
        from natsio.jetstream import ConsumerConfig

        stream = await self.js.stream(name)
        return await stream.create_consumer(ConsumerConfig(durable_name=durable))

    async def consume(self, name, count):
        consumer = await self._consumer(name, "c")
        with Timed() as timed:
            async with consumer.consume(max_messages=500) as messages:
                async for message in messages:
                    await message.ack()
                    count -= 1
                    if not count:
                        break
            await self.nc.flush()
        return timed

    async def fetch(self, name, count):
        consumer = await self._consumer(name, "f")
        with Timed() as timed:
            while count > 0:
                for message in await consumer.fetch(100, timeout=5):
                    await message.ack()
                    count -= 1
            await self.nc.flush()
        return timed

    async def answer(self, subject):
        async def echo(message):
            await message.respond(message.data)

        await self.nc.subscribe(subject, cb=echo)

    async def receive(self, subject, count, send):
        subscription = await self.nc.subscribe(
            subject, pending_msgs_limit=10**9, pending_bytes_limit=10**12
        )
        await self.nc.flush()
        with Timed() as timed:
            await send()
            async for _ in subscription:
                count -= 1
                if not count:
                    break
        return timed

    async def bucket(self, name):
        from natsio.kv import KeyValueConfig

        return await self.js.create_key_value(KeyValueConfig(bucket=name))

    async def objects(self, name):
        from natsio.objectstore import ObjectStoreConfig

        store = await self.js.create_object_store(ObjectStoreConfig(bucket=name))
        return store.put, getattr(store, "get_bytes", store.get)


LIBRARIES = {"pelton": Pelton, "nats-py": NatsPy, "natsio": Natsio}


async def measure(library, row, count, name):
    """The timed part of a row."""
    if row in ("publish, 512 in flight", "publish, one at a time"):
        await library.stream(name)
        run = library.publish_async if "512" in row else library.publish
        with Timed() as timed:
            await run(name, count)
        return timed
    if row in ("consume, ack each", "fetch 100, ack each"):
        await library.stream(name)
        await library.publish_async(name, count)
        return await (library.consume if row.startswith("consume") else library.fetch)(name, count)
    if row == "core publish":
        with Timed() as timed:
            for _ in range(count):
                await library.nc.publish(name, PAYLOAD)
            await library.nc.flush()
        return timed
    if row == "core publish and subscribe":

        async def send():
            for _ in range(count):
                await library.nc.publish(name, PAYLOAD)
            await library.nc.flush()

        return await library.receive(name, count, send)
    if row == "request and reply":
        await library.answer(name)
        with Timed() as timed:
            for _ in range(count):
                await library.nc.request(name, PAYLOAD, timeout=60)
        return timed
    if row in ("key-value put", "key-value get"):
        bucket = await library.bucket(name)
        keys = [f"key.{number}" for number in range(200)]
        if row.endswith("get"):
            for key in keys:
                await bucket.put(key, PAYLOAD)
        with Timed() as timed:
            for number in range(count):
                key = keys[number % 200]
                if row.endswith("put"):
                    await bucket.put(key, PAYLOAD)
                else:
                    await bucket.get(key)
        return timed
    put, get = await library.objects(name)
    data = PAYLOAD * (OBJECT // len(PAYLOAD))
    await put("big", data)
    with Timed() as timed:
        for _ in range(count):
            if row == "object put, 8 MiB":
                await put("big", data)
            else:
                await get("big")
    return timed


async def main() -> None:
    """Arguments: library, row, URL, operations, and a name for streams and subjects."""
    name, row, url, count, unique = sys.argv[1:]
    library = LIBRARIES[name]()
    async with library.connected(url):
        timed = await measure(library, row, int(count), unique)
    print(json.dumps({"operations": int(count), "wall_s": timed.wall, "cpu_s": timed.cpu}))


if __name__ == "__main__":
    asyncio.run(main())
