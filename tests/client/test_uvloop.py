"""The asyncio client on uvloop, whose clock counts whole milliseconds."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from pelton import (
    Client,
    ConsumerConfig,
    KeyValueConfig,
    ObjectStoreConfig,
    ServiceConfig,
    StreamConfig,
    connect,
)
from pelton.client.aio.waiting import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.peers import ServerProcess

uvloop = pytest.importorskip("uvloop")
BUSY_S = 0.0002


def on_uvloop(server: ServerProcess, body: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    """Run the body with a client, in a loop of its own."""

    async def run() -> None:
        async with connect(server.url) as client:
            await body(client)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def compute(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_every_kind_of_call(server: ServerProcess, unique: str) -> None:
    async def body(client: Client) -> None:
        js = client.jetstream()
        await js.create_stream(
            StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory")
        )
        async with js.publisher() as publisher:
            for number in range(200):
                await publisher.publish(f"{unique}.a", b"%d" % number)
        await js.create_consumer(unique, ConsumerConfig(durable_name="c"))
        consumer = await js.consumer(unique, "c")
        seen = []
        async with consumer.consume() as messages:
            async for message in messages:
                seen.append(int(message.data))
                await message.ack()
                if len(seen) == 200:
                    break
        assert seen == list(range(200))
        assert await consumer.next(timeout=0.05) is None
        bucket = await js.create_key_value(KeyValueConfig(bucket=unique, storage="memory"))
        await asyncio.gather(*(bucket.put(f"k.{n}", b"%d" % n) for n in range(50)))
        entries = await asyncio.gather(*(bucket.get(f"k.{n}") for n in range(50)))
        assert [entry.value for entry in entries if entry] == [b"%d" % n for n in range(50)]
        store = await js.create_object_store(ObjectStoreConfig(bucket=unique, storage="memory"))
        data = bytes(range(256)) * 8192
        await store.put("o", data)
        assert await store.get("o") == data

    on_uvloop(server, body)


def test_a_round_trip_takes_time(server: ServerProcess) -> None:
    async def body(client: Client) -> None:
        assert 0 < await client.rtt() < 60

    on_uvloop(server, body)


def test_a_service_counts_the_time_of_a_quick_handler(server: ServerProcess, unique: str) -> None:
    async def body(client: Client) -> None:
        service = await client.add_service(ServiceConfig(name=unique, version="1.0.0"))
        await service.add_endpoint("e", lambda request: compute(BUSY_S), subject=unique)
        await client.publish(unique, reply=f"{unique}.answer")
        await client.flush()
        while not (stats := service.stats().endpoints[0]).num_requests:
            await asyncio.sleep(0.01)
        assert stats.processing_time_ns >= BUSY_S * 1e9

    on_uvloop(server, body)


def test_the_clock_of_a_loop() -> None:
    class Virtual(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return 7.0

    for loop in (asyncio.new_event_loop(), uvloop.new_event_loop()):
        assert clock_of(loop) is time.monotonic
        loop.close()
    virtual = Virtual()
    assert clock_of(virtual)() == 7.0
    virtual.close()
