"""What a client has begun and broken off leaves nothing: no task, thread, socket, subscription, or consumer.

Each use is repeated, and then as often again: between the two looks only what a bound allows may have grown.
PELTON_FULL=1 repeats some thousand times and subscribes a hundred thousand times.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import pelton.testing
from pelton import (
    Client,
    ConsumerConfig,
    KeyValueConfig,
    ObjectStoreConfig,
    StreamConfig,
    connect,
    sync,
)
from pelton.client.aio.upkeep import OwnConsumers
from pelton.errors import ConnectionLostError, PeltonTimeoutError
from tests.client.shells import connected, wait_for
from tests.proxies import running_proxy
from tests.ways import length

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.peers import ServerProcess

LIVES = length(12, 1000)
SUBSCRIPTIONS = length(2000, 100_000)
GROWTH_MAX = 10
"""Objects of one type more are a leak, if fewer than the lives between the two looks."""


class Gone(Exception):
    """Raised in the middle of a use."""


@pytest.fixture(scope="module", autouse=True)
def earlier_objects() -> None:
    """What earlier tests of the process have left is not looked at: each look would take half a second."""
    gc.collect()
    gc.freeze()


def pelton_objects() -> Counter[str]:
    """Objects of Pelton's classes, and what runs or is open."""
    for _ in range(3):
        gc.collect()
    found = Counter(
        type(each).__qualname__
        for each in gc.get_objects()
        if str(type(each).__module__).startswith("pelton.")
    )
    found["thread"] = threading.active_count()
    found["descriptor"] = len(os.listdir("/proc/self/fd"))
    return found


def grown(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    return {name: n - before[name] for name, n in after.items() if n - before[name] >= GROWTH_MAX}


def prepare(admin: Any, unique: str) -> None:
    js = admin.jetstream()
    subjects = [f"{unique}.>"]
    js.create_stream(
        StreamConfig(name=unique, subjects=subjects, storage="memory", allow_direct=True)
    )
    js.create_consumer(
        unique, ConsumerConfig(durable_name="c", ack_policy="none", mem_storage=True)
    )
    js.create_key_value(KeyValueConfig(bucket=unique, storage="memory")).put("k", b"v")
    js.create_object_store(ObjectStoreConfig(bucket=unique, storage="memory")).put(
        "o", bytes(200_000), chunk_size=10_000
    )


def left_behind(admin: Any, unique: str) -> list[str]:
    """Consumers of the server that nobody uses any more."""
    js = admin.jetstream()
    streams = (unique, f"KV_{unique}", f"OBJ_{unique}")
    return [name for each in streams for name in js.consumer_names(each) if name != "c"]


# -- asyncio: tasks are cancelled in the middle of everything


async def uses_of_asyncio(nc: Client, unique: str) -> list[Callable[[], Awaitable[object]]]:
    js = nc.jetstream()
    consumer = await js.consumer(unique, "c")
    bucket, store = await js.key_value(unique), await js.object_store(unique)

    async def consume() -> None:
        async with consumer.consume() as messages:
            async for _ in messages:
                raise Gone

    async def consume_with_callback() -> None:
        async def handle(_: object) -> None:
            await asyncio.sleep(0)

        async with consumer.consume(handle, concurrency=3) as operation:
            await operation.run()

    async def ordered() -> None:
        async with js.ordered_consumer(unique).consume() as messages:
            async for _ in messages:
                pass

    async def watch() -> None:
        async with await bucket.watch() as watch:
            async for _ in watch:
                pass

    async def watch_objects() -> None:
        async with await store.watch() as watch:
            async for _ in watch:
                pass

    async def request_many() -> None:
        async for _ in nc.request_many(unique, max_wait=60):
            pass

    async def get_object() -> None:
        async for _ in store.chunks("o"):
            await asyncio.sleep(60)

    async def put_object() -> None:
        async def endless() -> Any:
            while True:
                yield bytes(1000)

        await store.put("p", endless(), chunk_size=1000)

    async def fetch_by_name() -> None:
        named = await js.consumer(unique, "c", verify=False)
        await named.fetch(1, timeout=60)

    async def subscribe() -> None:
        async with await nc.subscribe(unique) as subscription:
            await subscription.next(timeout=60)

    return [
        consume,
        consume_with_callback,
        lambda: consumer.fetch(5, timeout=60),
        ordered,
        watch,
        watch_objects,
        request_many,
        get_object,
        put_object,
        subscribe,
        fetch_by_name,
        lambda: nc.request(unique, timeout=60),
    ]


@pytest.mark.timeout(length(300, 1800))
def test_cancelled_tasks_leave_nothing(server: ServerProcess, unique: str) -> None:
    async def break_off(use: Callable[[], Awaitable[object]], steps: int) -> None:
        task = asyncio.ensure_future(use())
        for _ in range(steps % 7):
            await asyncio.sleep(0)
        if steps % 3 == 0:
            await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Gone):
            await task

    async def whole(admin: Any) -> None:
        async with connect(server.url, timeout=60) as nc:
            await nc.subscribe(unique, callback=lambda _: None)  # nobody answers requests
            uses = await uses_of_asyncio(nc, unique)
            looks = []
            for _ in range(2):
                for number in range(LIVES):
                    for use in uses:
                        await break_off(use, number)
                deadline = nc._clock() + 120
                while left := left_behind(admin, unique) or asyncio.all_tasks() - {
                    asyncio.current_task()
                }:
                    assert nc._clock() < deadline, left
                    await asyncio.sleep(0.02)
                await nc.flush()
                looks.append((pelton_objects(), len(nc._connection.interests)))
            (before, interests_before), (after, interests) = looks
            assert not grown(before, after)
            assert interests - interests_before < GROWTH_MAX

    with sync.connect(server.url, timeout=60) as admin:
        prepare(admin, unique)
        asyncio.run(whole(admin))


def test_a_creation_that_comes_behind_its_removal() -> None:
    """As nats-server may carry them out; the answer to the creation is awaited no more."""

    async def whole(broker: pelton.testing.Broker) -> None:
        async with broker.connect() as nc:
            js, hasty = nc.jetstream(), nc.jetstream(timeout=0.05)
            await js.create_stream("S")
            broker.delay("$JS.API.CONSUMER.CREATE.>", 0.2, times=1)
            consumers = OwnConsumers(hasty, "S")
            with pytest.raises(PeltonTimeoutError):
                await consumers.create(ConsumerConfig())
            removed = False
            while not removed or await js.consumer_names("S"):
                await consumers.remove()
                removed = any(".CONSUMER.CREATE." in each.subject for each in broker.published)
            subjects = [each.subject for each in broker.published]
            assert sum(".CONSUMER.DELETE." in each for each in subjects) >= 2

    with pelton.testing.broker() as broker:
        asyncio.run(whole(broker))


# -- blocking: exceptions in the middle of everything, iterations that are given up


def uses_of_blocking(nc: Any, unique: str) -> list[Callable[[], object]]:
    js = nc.jetstream()
    bucket, store = js.key_value(unique), js.object_store(unique)

    def fails(_: object) -> None:
        raise Gone

    def consume() -> None:
        nc.publish(f"{unique}.a", b"x")
        with js.consumer(unique, "c").consume() as messages:
            for _ in messages:
                raise Gone

    def ordered() -> None:
        with js.ordered_consumer(unique).consume() as messages:
            for _ in messages:
                raise Gone

    def given_up() -> None:
        next(iter(js.ordered_consumer(unique).consume()))
        next(iter(js.get_batch(unique, 10)))

    def watch() -> None:
        with bucket.watch() as watch:
            for _ in watch:
                raise Gone

    def watch_objects() -> None:
        with store.watch() as watch:
            for _ in watch:
                raise Gone

    def request_many() -> None:
        for _ in nc.request_many(f"$JS.API.STREAM.INFO.{unique}", max_wait=60):
            raise Gone

    def get_object() -> None:
        for _ in store.chunks("o"):
            raise Gone

    def put_object() -> None:
        store.put("p", iter([bytes(1000), 5]), chunk_size=100)

    def subscribe() -> None:
        with nc.subscribe(unique):
            raise Gone

    def publisher() -> None:
        with js.publisher() as publisher:
            publisher.publish(f"{unique}.b", b"x")
            raise Gone

    def handlers() -> None:
        with js.consumer(unique, "c").consume(fails, concurrency=2) as operation:
            operation.run(timeout=0.01)

    return [
        consume,
        lambda: js.consumer(unique, "c").fetch(1, timeout=0.001),
        ordered,
        given_up,
        watch,
        watch_objects,
        request_many,
        get_object,
        put_object,
        subscribe,
        publisher,
        handlers,
    ]


@pytest.mark.needs("direct gets by time or in batches")
@pytest.mark.timeout(length(300, 1800))
def test_exceptions_in_blocking_code_leave_nothing(
    server: ServerProcess, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.CRITICAL, "pelton"),  # a record keeps the frames of its exception
        sync.connect(server.url, timeout=60) as admin,
        sync.connect(server.url, timeout=60) as nc,
    ):
        prepare(admin, unique)
        uses = uses_of_blocking(nc, unique)
        looks = []
        for _ in range(2):
            for _ in range(LIVES):
                for use in uses:
                    with contextlib.suppress(Gone, TypeError):
                        use()
            gc.collect()
            nc.flush()
            wait_for(lambda: not left_behind(admin, unique))
            looks.append((pelton_objects(), len(nc._connection.interests)))
        (before, interests_before), (after, interests) = looks
        assert not grown(before, after)
        assert interests - interests_before < GROWTH_MAX


def test_an_operation_that_nobody_holds_asks_for_nothing(
    server: ServerProcess, unique: str
) -> None:
    """A blocking program that forgets to stop one: its requests would take the messages of others."""
    with sync.connect(server.url) as nc:
        prepare(nc, unique)
        js = nc.jetstream()
        consumer = js.consumer(unique, "c")
        for concurrency in (1, 2):
            consumer.consume(lambda _: None, concurrency=concurrency).run(timeout=0.01)
        iter(consumer.consume())
        gc.collect()
        nc.flush()
        wait_for(lambda: not consumer.info().num_waiting)
        js.publish(f"{unique}.a", b"x")
        assert consumer.next(timeout=60).data == b"x"


# -- subscriptions


@pytest.mark.timeout(length(300, 1800))
def test_many_subscriptions_come_and_go(server: ServerProcess, unique: str, shell: str) -> None:
    """Unsubscribed, drained, made again after a reconnect: each time nothing is left."""
    count = SUBSCRIPTIONS
    with (
        running_proxy(server.port) as proxy,
        sync.connect(server.url) as admin,
        connected(shell, proxy.url, timeout=120, reconnect_wait=0.01) as nc,
    ):
        nc.flush()
        before = len(nc._connection.interests)

        def subscribe() -> list[Any]:
            made = [nc.subscribe(f"{unique}.{number}") for number in range(count)]
            nc.flush()
            assert len(nc._connection.interests) == before + count
            return made

        for subscription in subscribe():
            subscription.unsubscribe()
        nc.flush()
        assert len(nc._connection.interests) == before
        for subscription in subscribe()[: length(100, 10_000)]:
            subscription.drain()
        assert len(nc._connection.interests) == before + count - length(100, 10_000)
        last = nc.subscribe(f"{unique}.last")
        proxy.cut()
        wait_for(lambda: returned(nc))
        admin.publish(f"{unique}.last", b"x")
        assert last.next(timeout=60).data == b"x"
        nc.drain(timeout=120)
        assert not nc._connection.interests
    for _ in range(3):
        gc.collect()
    alive = [each for each in gc.get_objects() if type(each).__name__ == "Subscription"]
    assert len(alive) < GROWTH_MAX  # the last ones are names of this test


def returned(nc: Any) -> bool:
    """Whether the server has the subscriptions again."""
    again = bool(nc.reconnects)
    try:
        nc.flush()
    except ConnectionLostError:
        return False
    return again


def test_a_client_drains_all_subscriptions_at_once(server: ServerProcess, unique: str) -> None:
    """Not one round trip for each; and each callback handles what was on its way."""
    lines: list[str] = []
    handled: Counter[str] = Counter()

    async def handle(message: Any) -> None:
        await asyncio.sleep(0)
        handled[message.subject] += 1

    async def whole() -> None:
        nc = await connect(server.url, on_protocol=lambda *line: lines.append(repr(line)))
        for number in range(100):
            await nc.subscribe(f"{unique}.{number}", callback=handle)
            await nc.publish(f"{unique}.{number}")
        await nc.flush()
        lines.clear()
        await nc.drain()

    asyncio.run(whole())
    assert len(handled) == handled.total() == 100
    assert sum("UNSUB" in line for line in lines) == 100
    assert sum("PING" in line for line in lines) < 5
