"""Handlers of consumers: tasks in asyncio, threads in blocking code; and what only one of both has."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from pelton import (
    ConsumerConfig,
    StreamConfig,
    connect,
    sync,
)
from tests.client.shells import SHELLS, connected, wait_for
from tests.client.test_consuming import COUNT, number, publish

if TYPE_CHECKING:
    from pelton import Message, sync
    from tests.peers import ServerProcess


def test_handlers_run_concurrently_and_no_more_than_asked(
    server: ServerProcess, unique: str
) -> None:
    async def program() -> None:
        async with connect(server.url) as nc:
            js = nc.jetstream()
            await js.create_stream(
                StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory")
            )
            await js.create_consumer(unique, ConsumerConfig(durable_name="c"))
            for n in range(50):
                await js.publish(f"{unique}.a", b"%d" % n)
            together: set[int] = set()
            most = 0
            full = asyncio.Event()
            seen: list[int] = []

            async def handle(message: Message) -> None:
                nonlocal most
                together.add(int(message.data))
                most = max(most, len(together))
                if len(together) == 8:
                    full.set()
                await full.wait()
                await message.ack()
                together.discard(int(message.data))
                seen.append(int(message.data))
                if len(seen) == 50:
                    messages.stop()

            consumer = await js.consumer(unique, "c")
            async with consumer.consume(handle, concurrency=8) as messages:
                await messages.run(timeout=60)
            assert most == 8
            assert sorted(seen) == list(range(50))
            with pytest.raises(ValueError, match="coroutine"):
                consumer.consume(lambda _: None, concurrency=2)
            await js.delete_stream(unique)

    asyncio.run(program())


@pytest.mark.parametrize("kind", ["coroutine function", "function"])
def test_what_arrives_during_run_is_handled_and_run_waits_for_handlers(
    server: ServerProcess, unique: str, kind: str
) -> None:
    async def program() -> None:
        async with connect(server.url) as nc:
            js = nc.jetstream()
            await js.create_stream(
                StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory")
            )
            await js.create_consumer(unique, ConsumerConfig(durable_name="c"))
            consumer = await js.consumer(unique, "c")
            begun, ends, seen = asyncio.Event(), asyncio.Event(), []

            async def handle(message: Message) -> None:
                begun.set()
                await ends.wait()
                seen.append(message.data)

            def handle_now(message: Message) -> None:
                begun.set()
                seen.append(message.data)

            handler = handle if kind == "coroutine function" else handle_now
            async with consumer.consume(handler) as messages:
                running = asyncio.create_task(messages.run())
                while (await consumer.info()).num_waiting == 0:
                    pass  # it runs, and nothing is there
                await js.publish(f"{unique}.a", b"1")
                await asyncio.wait_for(begun.wait(), 60)
                messages.stop()
                await nc.flush()
                await nc.flush()
                assert kind == "function" or not running.done()
                ends.set()
                await asyncio.wait_for(running, 60)
                assert seen == [b"1"]
            await js.delete_stream(unique)

    asyncio.run(program())


def test_several_tasks_fetch_from_one_consumer(server: ServerProcess, unique: str) -> None:
    async def program() -> None:
        async with connect(server.url) as nc:
            js = nc.jetstream()
            await js.create_stream(
                StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory")
            )
            await js.create_consumer(unique, ConsumerConfig(durable_name="c"))
            async with await js.consumer(unique, "c") as consumer:
                asked = [asyncio.create_task(consumer.next(timeout=60)) for _ in range(5)]
                await asyncio.sleep(0)
                asked[0].cancel()
                for n in range(5):
                    await js.publish(f"{unique}.a", b"%d" % n)
                found = {each.data for each in await asyncio.gather(*asked[1:]) if each}
                while len(found) < 5:  # the fifth went to the cancelled request
                    late = await consumer.next(timeout=60)
                    assert late is not None
                    found.add(late.data)
            assert len(nc._connection.interests) == 1
            await js.delete_stream(unique)

    asyncio.run(program())


def test_threads_handle_messages_and_their_acks_arrive(server: ServerProcess, unique: str) -> None:
    with sync.connect(server.url) as nc:
        js = nc.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory"))
        js.create_consumer(unique, ConsumerConfig(durable_name="c"))
        publish(js, unique, 0, COUNT)
        names: set[str] = set()
        seen: list[int] = []

        def handle(message: sync.Message) -> None:
            import threading

            names.add(threading.current_thread().name)
            if number(message) == 3 and message.metadata.delivered == 1:
                raise LookupError("three")
            if number(message) % 2:
                message.ack_sync()
            else:
                message.ack()
            seen.append(number(message))

        with js.consumer(unique, "c").consume(handle, concurrency=4) as messages:
            while len(seen) < COUNT:
                messages.run(timeout=0.1)
        assert sorted(seen) == list(range(COUNT))
        assert len(names) >= 4
        assert threading_is_over(names)
        wait_for(lambda: js.consumer_info(unique, "c").num_ack_pending == 0)
        assert nc.rtt() < 60  # the client is free again
        with pytest.raises(RuntimeError, match="takes its messages"):
            iter(messages)
        js.delete_stream(unique)


def threading_is_over(names: set[str]) -> bool:
    """Whether threads of these names end."""
    import threading

    deadline = time.monotonic() + 30
    while {each.name for each in threading.enumerate()} & names:
        if time.monotonic() > deadline:
            return False
    return True


@pytest.mark.parametrize("kind", ["tasks", "threads"])
def test_the_ack_wait_of_slow_handlers_and_buffered_messages_is_extended(
    server: ServerProcess, unique: str, kind: str
) -> None:
    """Handlers take longer than the ack wait, one after the other; nothing comes twice."""
    wait_s, slow_s = 0.4, 1.0
    with sync.connect(server.url) as nc:
        js = nc.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory"))
        js.create_consumer(unique, ConsumerConfig(durable_name="c", ack_wait=wait_s))
        publish(js, unique, 0, 3)
        deliveries: list[int] = []
        if kind == "threads":

            def handle(message: sync.Message) -> None:
                time.sleep(slow_s)
                deliveries.append(message.metadata.delivered)

            with js.consumer(unique, "c").consume(handle, concurrency=1, auto_ack=True) as messages:
                while len(deliveries) < 3:
                    messages.run(timeout=0.1)
        else:
            asyncio.run(slowly(server.url, unique, slow_s, deliveries))
        assert deliveries == [1, 1, 1]
        assert js.consumer_info(unique, "c").num_redelivered == 0
        js.delete_stream(unique)


async def slowly(url: str, stream: str, slow_s: float, deliveries: list[int]) -> None:
    async with connect(url) as nc:

        async def handle(message: Message) -> None:
            await asyncio.sleep(slow_s)
            deliveries.append(message.metadata.delivered)
            await message.ack()
            if len(deliveries) == 3:
                messages.stop()

        consumer = await nc.jetstream().consumer(stream, "c")
        async with consumer.consume(handle) as messages:
            await messages.run(timeout=60)


def test_an_operation_that_nobody_has_any_more_ends(server: ServerProcess, unique: str) -> None:
    async def program() -> None:
        async with connect(server.url) as nc:
            js = nc.jetstream()
            await js.create_stream(
                StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory")
            )
            await js.create_consumer(unique, ConsumerConfig(durable_name="c"))
            await js.publish(f"{unique}.a", b"1")
            consumer = await js.consumer(unique, "c")
            tasks = len(asyncio.all_tasks())
            async for message in consumer.consume():
                await message.ack()
                break
            gc.collect()
            for _ in range(3):
                await nc.flush()
            assert len(nc._connection.interests) == 1
            assert len(asyncio.all_tasks()) == tasks
            await js.delete_stream(unique)

    asyncio.run(program())


@pytest.mark.parametrize("way", ["loop", "callback"])
def test_the_ack_wait_of_what_is_handled_is_extended(
    shell: str, server: ServerProcess, unique: str, way: str
) -> None:
    """Without concurrency: the handler that is slow is this thread, or the task of the loop."""
    with sync.connect(server.url) as other, connected(shell, server.url) as nc:
        js = nc.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory"))
        js.create_consumer(unique, ConsumerConfig(durable_name="c", ack_wait=1))
        publish(js, unique, 0, 2)
        acks = other.subscribe(f"$JS.ACK.{unique}.c.>")
        other.flush()
        held: list[bytes] = []

        def hold() -> None:
            """As a handler that works until the server was told three times."""
            while sum(each == b"+WPI" for each in held) < 6:  # both messages are extended
                held.append(acks.next(timeout=60).data)

        async def hold_and_ack(message: Any) -> None:
            await asyncio.get_running_loop().run_in_executor(None, hold)
            await message.ack_sync()

        def hold_and_ack_here(message: Any) -> None:
            hold()
            message.ack_sync()

        consumer = js.consumer(unique, "c")
        if way == "callback":
            handler = hold_and_ack_here if shell == "blocking" else hold_and_ack
            with consumer.consume(handler, auto_extend=True) as messages:
                while consumer.info().ack_floor.stream_seq < 2:
                    messages.run(timeout=0.1)
        else:
            with consumer.consume(auto_extend=True, max_messages=2) as messages:
                for message in islice(messages, 2):
                    if shell == "blocking":
                        hold()
                    else:
                        while len(held) < 6:
                            if (ack := acks.next(timeout=0.05)) is not None:
                                held.append(ack.data)
                            nc.flush()  # lets the loop run
                    message.ack_sync()
        info = consumer.info()
        assert (info.num_redelivered, info.delivered.consumer_seq) == (0, 2)
        assert held.count(b"+WPI") >= 6
        js.delete_stream(unique)


def test_a_plain_function_is_not_extended_in_a_loop(server: ServerProcess, unique: str) -> None:
    async def program() -> None:
        async with connect(server.url) as nc:
            js = nc.jetstream()
            await js.create_stream(StreamConfig(name=unique, subjects=[unique], storage="memory"))
            await js.create_consumer(unique, ConsumerConfig(durable_name="c"))
            consumer = await js.consumer(unique, "c")
            with pytest.raises(ValueError, match="coroutine function"):
                consumer.consume(lambda _: None, auto_extend=True)
            await js.delete_stream(unique)

    asyncio.run(program())


@pytest.mark.parametrize("shell", SHELLS)
def test_a_handler_that_returns_a_coroutine_is_reported_and_nothing_acked(
    server: ServerProcess, unique: str, shell: str
) -> None:
    """A lambda around a coroutine function: nobody awaits what it returns."""

    async def later(_: Any) -> None:
        raise AssertionError("nobody runs this")

    failed: list[Exception] = []
    with connected(shell, server.url, on_error=failed.append) as nc:
        js = nc.jetstream()
        js.create_stream(unique, subjects=[unique], storage="memory")
        js.create_consumer(unique, ConsumerConfig(durable_name="c", max_deliver=1))
        js.publish(unique, b"")
        consumer = js.consumer(unique, "c")
        with consumer.consume(lambda message: later(message), auto_ack=True) as messages:
            while not failed:
                messages.run(timeout=0.05)
        assert "returned a coroutine" in str(failed[0])
        assert js.consumer_info(unique, "c").ack_floor.stream_seq == 0
        js.delete_stream(unique)


def test_a_run_ends_after_a_slow_handler_that_has_stopped_it(
    server: ServerProcess, unique: str
) -> None:
    async def program() -> None:
        async with connect(server.url) as nc:
            js = nc.jetstream()
            await js.create_stream(StreamConfig(name=unique, subjects=[unique], storage="memory"))
            await js.create_consumer(unique, ConsumerConfig(durable_name="c"))
            await js.publish(unique, b"")
            ended = asyncio.Event()

            async def handle(_: Any) -> None:
                messages.stop()
                await ended.wait()

            messages = (await js.consumer(unique, "c")).consume(handle, auto_ack=True)
            running = asyncio.create_task(messages.run())
            async for _ in messages.status():  # until nothing more arrives
                pass
            ended.set()
            await asyncio.wait_for(running, 60)

    asyncio.run(program())


def test_threads_of_handlers_end_with_the_run(server: ServerProcess, unique: str) -> None:
    with sync.connect(server.url) as nc:
        js = nc.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[unique], storage="memory"))
        js.create_consumer(unique, ConsumerConfig(durable_name="c"))
        for _ in range(30):
            js.publish(unique, b"")
        count = threading.active_count()
        consumer = js.consumer(unique, "c")
        messages = consumer.consume(lambda _: time.sleep(0.001), concurrency=3)
        drain = threading.Thread(target=messages.drain)
        drain.start()
        messages.run(timeout=60)
        drain.join(60)
        wait_for(lambda: threading.active_count() == count)
        messages = consumer.consume(lambda _: None, concurrency=3)
        messages.run(timeout=0.2)
        wait_for(lambda: threading.active_count() == count)
        dropped = weakref.ref(messages)
        del messages
        gc.collect()
        wait_for(lambda: dropped() is None)
