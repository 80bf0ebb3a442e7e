"""The asyncio client against real servers."""

from __future__ import annotations

import asyncio
import functools
import gc
from typing import TYPE_CHECKING, Any

import pytest

from pelton import ConsumerConfig, Message, Options, StreamConfig, connect
from pelton.client.base.addresses import parse_servers
from pelton.errors import (
    CallbackFailedError,
    ConnectError,
    ConnectionClosedError,
    ConnectionLostError,
    ConsumerDeletedError,
    ConsumerNotFoundError,
    NoRespondersError,
    OutputFullError,
    PayloadTooLargeError,
    PeltonError,
    PeltonTimeoutError,
    PublishFailedError,
    SlowConsumerError,
    StreamNotFoundError,
    WrongLastSequenceError,
)
from tests.peers import free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pelton import Client
    from pelton.client.aio.jetstream import JetStream
    from tests.peers import ServerProcess


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test on a loop of its own; whatever the loop complains about fails the test."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        complaints: list[dict[str, Any]] = []

        async def body() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: complaints.append(context))
            async with asyncio.timeout(60):
                await test(*args, **kwargs)

        asyncio.run(body())
        assert complaints == []

    return run


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until something has happened; the test's own timeout is the limit."""
    while not condition():
        await asyncio.sleep(0.005)


async def made(nc: Client, stream: str) -> JetStream:
    js = nc.jetstream()
    await js.create_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"], storage="memory"))
    return js


async def pushed(js: JetStream, stream: str, name: str, **config: Any) -> None:
    await js.create_consumer(
        stream, ConsumerConfig(name=name, deliver_subject=f"to.{stream}.{name}", **config)
    )


async def filled(js: JetStream, stream: str, count: int) -> None:
    async with js.publisher() as publisher:
        for number in range(1, count + 1):
            await publisher.publish(f"{stream}.{number % 3}", b"%d" % number)


@on_a_loop
async def test_publish_subscribe_and_callbacks(server: ServerProcess, unique: str) -> None:
    async with connect(server.url, name="test") as nc:
        plain: list[bytes] = []
        awaited: list[bytes] = []

        async def collect(message: Message) -> None:
            await asyncio.sleep(0)
            awaited.append(message.data)

        iterated = await nc.subscribe(f"{unique}.*", max_msgs=20)
        await nc.subscribe(f"{unique}.>", callback=lambda message: plain.append(message.data))
        slow = await nc.subscribe(f"{unique}.>", callback=collect)
        for number in range(20):
            await nc.publish(f"{unique}.a", b"%d" % number, headers={"N": str(number)})
        expected = [b"%d" % number for number in range(20)]
        received = [message async for message in iterated]
        assert [message.data for message in received] == expected
        assert received[7].header("N") == "7"
        await slow.drain()
        assert awaited == expected
        assert plain == expected
        assert nc.stats.messages_received == 60
        with pytest.raises(ConnectionClosedError):
            await iterated.next()


@on_a_loop
async def test_a_queue_group_shares(server: ServerProcess, unique: str) -> None:
    async with connect(server.url) as nc, connect(server.url) as other:
        one = await nc.subscribe(unique, queue="q")
        two = await other.subscribe(unique, queue="q")
        await other.flush()
        for _ in range(50):
            await nc.publish(unique, b"x")
        await nc.flush()
        await other.flush()
        assert one.pending + two.pending == 50


@on_a_loop
async def test_requests(server: ServerProcess, unique: str) -> None:
    async with connect(server.url) as nc, connect(server.url) as other:

        async def answer(message: Message) -> None:
            await message.respond(message.data + b"!", headers={"A": "b"})

        await other.subscribe(unique, callback=answer)
        await other.flush()
        answers = await asyncio.gather(*(nc.request(unique, b"%d" % n) for n in range(50)))
        assert [message.data for message in answers] == [b"%d!" % n for n in range(50)]
        assert answers[0].header("A") == "b"
        with pytest.raises(NoRespondersError):
            await nc.request(f"{unique}.nobody")
        await nc.subscribe(f"{unique}.silent")
        with pytest.raises(PeltonTimeoutError):
            await nc.request(f"{unique}.silent", timeout=0.05)
        with pytest.raises(PayloadTooLargeError):
            await nc.request(unique, bytes(nc.server_info.max_payload + 1))
        assert await nc.rtt() > 0


@on_a_loop
async def test_slow_subscriptions_tell(server: ServerProcess, unique: str) -> None:
    errors: list[Exception] = []
    async with connect(server.url, on_error=errors.append) as nc:
        blocked = asyncio.Event()

        async def wait(_: Message) -> None:
            await blocked.wait()

        iterated = await nc.subscribe(unique, pending_messages_max=3)
        called = await nc.subscribe(unique, callback=wait, pending_bytes_max=4)
        for _ in range(10):
            await nc.publish(unique, b"xy")
        await nc.flush()
        with pytest.raises(SlowConsumerError) as caught:
            await iterated.next()
        assert caught.value.dropped == 7
        assert (await iterated.next()).data == b"xy"
        assert [type(error) for error in errors] == [SlowConsumerError]
        assert called.dropped >= 7
        blocked.set()


@on_a_loop
async def test_an_object_may_be_a_callback(server: ServerProcess, unique: str) -> None:
    class Handler:
        def __init__(self) -> None:
            self.heard = asyncio.Event()

        async def __call__(self, message: Message) -> None:
            await asyncio.sleep(0)
            self.heard.set()

    handler = Handler()
    async with connect(server.url) as nc:
        await nc.subscribe(unique, callback=handler)
        await nc.publish(unique, b"1")
        await handler.heard.wait()


@on_a_loop
async def test_what_a_callback_raises_is_told(server: ServerProcess, unique: str) -> None:
    errors: list[Exception] = []

    async def fail(message: Message) -> None:
        raise LookupError(message.data)

    async with connect(server.url, on_error=errors.append) as nc:
        await nc.subscribe(f"{unique}.*", callback=fail)
        await nc.publish(f"{unique}.a", b"1")
        await nc.publish(f"{unique}.b", b"2")
        await until(lambda: len(errors) == 2)
    for error, token, data in zip(errors, "ab", (b"1", b"2"), strict=True):
        assert isinstance(error, CallbackFailedError)
        assert error.subject == f"{unique}.*"
        assert isinstance(error.message, Message)
        assert (error.message.subject, error.message.data) == (f"{unique}.{token}", data)
        assert isinstance(error.__cause__, LookupError)
        assert f"LookupError: {data!r}" in str(error)
        assert f"{unique}.{token}" in str(error)


@on_a_loop
async def test_drain_handles_everything_then_closes(server: ServerProcess, unique: str) -> None:
    handled: list[bytes] = []
    closed: list[bool] = []

    async def handle(message: Message) -> None:
        await asyncio.sleep(0.001)
        handled.append(message.data)

    nc = await connect(server.url, on_close=lambda: closed.append(True))
    await nc.subscribe(unique, callback=handle)
    for number in range(50):
        await nc.publish(unique, b"%d" % number)
    await nc.drain()
    assert handled == [b"%d" % number for number in range(50)]
    assert nc.closed
    assert closed == [True]
    await nc.close()
    with pytest.raises(ConnectionClosedError):
        await nc.publish(unique, b"")


@on_a_loop
async def test_no_server_is_an_error_that_names_all_of_them() -> None:
    ports = [free_port(), free_port()]
    with pytest.raises(ConnectError) as caught:
        await connect([f"nats://127.0.0.1:{port}" for port in ports])
    assert all(str(port) in str(caught.value) for port in ports)


@on_a_loop
async def test_streams_consumers_and_expectations(server: ServerProcess, unique: str) -> None:
    async with connect(Options(servers=parse_servers(server.url))) as nc:
        js = await made(nc, unique)
        assert (await js.publish(f"{unique}.a", b"1", msg_id="m")).seq == 1
        assert (await js.publish(f"{unique}.a", b"1", msg_id="m")).duplicate
        with pytest.raises(WrongLastSequenceError):
            await js.publish(f"{unique}.a", b"", expected_last_seq=9)
        assert (await js.get_message(unique, 1)).data == b"1"
        assert unique in await js.stream_names()
        assert [info.config.name for info in await js.streams(f"{unique}.a")] == [unique]
        info = await js.create_consumer(unique, ConsumerConfig(durable_name="c"))
        assert (info.name, info.num_pending) == ("c", 1)
        assert await js.consumer_names(unique) == ["c"]
        assert [one.name for one in await js.consumers(unique)] == ["c"]
        await js.delete_consumer(unique, "c")
        await js.delete_message(unique, 1)
        assert (await js.stream_info(unique)).state.messages == 0
        assert await js.purge_stream(unique) == 0
        assert (await js.account_info()).streams >= 1
        await js.delete_stream(unique)
        with pytest.raises(StreamNotFoundError):
            await js.stream_info(unique)


@on_a_loop
async def test_a_publisher_has_a_future_per_message(server: ServerProcess, unique: str) -> None:
    async with connect(server.url) as nc:
        js = await made(nc, unique)
        async with js.publisher(window=8) as publisher:
            futures = [await publisher.publish(f"{unique}.a", b"%d" % n) for n in range(100)]
        assert [future.result().seq for future in futures] == list(range(1, 101))
        publisher = js.publisher()
        lost = await publisher.publish(f"nobody.{unique}", b"")
        kept = await publisher.publish(f"{unique}.a", b"")
        assert (await kept).seq == 101
        with pytest.raises(NoRespondersError):
            await lost
        with pytest.raises(PublishFailedError):
            await publisher.flush()
        await publisher.flush()


@on_a_loop
async def test_pull_ack_nak_term(server: ServerProcess, unique: str) -> None:
    async with connect(server.url) as nc:
        js = await made(nc, unique)
        await filled(js, unique, 4)
        await js.create_consumer(unique, ConsumerConfig(durable_name="c", ack_policy="explicit"))
        consumer = await js.consumer(unique, "c")
        one, two, three, four = await consumer.fetch(4)
        await one.ack()
        await two.ack_sync()
        await three.nak(delay=0.01)
        await four.term()
        (again,) = await consumer.fetch(1, timeout=30)
        assert (again.metadata.stream_seq, again.metadata.delivered) == (3, 2)
        await again.in_progress()
        await again.ack_sync()
        assert await consumer.fetch(2, no_wait=True) == []
        assert (await js.consumer_info(unique, "c")).num_ack_pending == 0


@on_a_loop
async def test_a_cancelled_fetch_loses_nothing(server: ServerProcess, unique: str) -> None:
    async with connect(server.url) as nc:
        js = await made(nc, unique)
        await filled(js, unique, 3)
        await js.create_consumer(unique, ConsumerConfig(durable_name="c"))
        consumer = await js.consumer(unique, "c")
        fetch = asyncio.create_task(consumer.fetch(5, timeout=30))
        await until(lambda: nc.stats.messages_received >= 8)  # 5 answers and 3 messages
        fetch.cancel()
        await asyncio.wait([fetch])
        # a request of before may have got one once more, and returned it
        found = await consumer.fetch(3)
        assert sorted(message.data for message in found) == [b"1", b"2", b"3"]


@on_a_loop
async def test_messages_flow_until_their_consumer_is_deleted(
    server: ServerProcess, unique: str
) -> None:
    async with connect(server.url) as nc:
        js = await made(nc, unique)
        await filled(js, unique, 120)
        await js.create_consumer(unique, ConsumerConfig(durable_name="c", ack_policy="explicit"))
        seen = []

        async def pull() -> None:
            consumer = await js.consumer(unique, "c")
            async for message in consumer.consume(max_messages=10, on_missing="raise"):
                await message.ack()
                seen.append(message.metadata.stream_seq)
                if len(seen) == 120:
                    await js.delete_consumer(unique, "c")

        with pytest.raises((ConsumerDeletedError, ConsumerNotFoundError)):  # of a waiting request
            await pull()
        assert seen == list(range(1, 121))


@on_a_loop
async def test_push_and_its_queue_group(server: ServerProcess, unique: str) -> None:
    async with connect(server.url) as nc:
        js = await made(nc, unique)
        await filled(js, unique, 100)
        await pushed(js, unique, "p", flow_control=True, idle_heartbeat=0.1)
        async with await js.push_consumer(unique, "p") as consumer:
            seen = []
            while len(seen) < 100:
                message = await consumer.next()
                assert message is not None
                seen.append(message.metadata.stream_seq)
        assert seen == list(range(1, 101))
        await pushed(js, unique, "q", deliver_group="workers")
        shared: list[int] = []
        for _ in range(2):
            (await js.push_consumer(unique, "q")).consume(
                lambda message: shared.append(message.metadata.stream_seq)
            )
        await until(lambda: len(shared) == 100)
        assert sorted(shared) == list(range(1, 101))


@on_a_loop
async def test_ordered_reading_starts_over_when_its_consumer_is_lost(
    server: ServerProcess, unique: str
) -> None:
    async with connect(server.url) as nc:
        js = await made(nc, unique)
        await filled(js, unique, 10)
        seen = []
        async with js.ordered_consumer(unique).consume() as messages:
            async for message in messages:
                seen.append(message.metadata.stream_seq)
                if len(seen) == 5:
                    (name,) = await js.consumer_names(unique)
                    await js.delete_consumer(unique, name)
                    await filled(js, unique, 10)
                if len(seen) == 20:
                    break
        assert seen == list(range(1, 21))
        assert await js.consumer_names(unique) == []


@on_a_loop
async def test_a_restart_is_survived(own_server: ServerProcess, unique: str) -> None:
    told: list[str] = []
    async with connect(
        own_server.url,
        timeout=10,
        on_disconnect=lambda error: told.append(type(error).__name__),
        on_reconnect=lambda: told.append("again"),
    ) as nc:
        js = nc.jetstream()
        await js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
        config = ConsumerConfig(durable_name="c", ack_policy="explicit", ack_wait=0.5)
        await js.create_consumer(unique, config)
        consumer = await js.consumer(unique, "c")
        news = await nc.subscribe("news")
        silent = await nc.subscribe("silent")
        request = asyncio.create_task(nc.request("silent", timeout=30))
        await silent.next()
        seen: set[bytes] = set()

        async def pull() -> None:
            async for message in consumer.consume(heartbeat=0.5):
                await message.ack_sync()
                seen.add(message.data)
                if len(seen) == 200:
                    return

        puller = asyncio.create_task(pull())
        async with js.publisher(window=32, attempts_max=10) as publisher:
            for number in range(200):
                await publisher.publish(f"{unique}.a", b"%d" % number, msg_id=f"{number}")
                if number == 50:
                    await asyncio.to_thread(own_server.stop)
                    with pytest.raises(ConnectionLostError):
                        await request
                    await nc.publish("news", b"kept")
                    await asyncio.to_thread(own_server.start)
        assert (await news.next()).data == b"kept"
        try:
            await puller
        except (
            ConnectionLostError,
            NoRespondersError,
        ):  # an ack_sync was under way; consumers may end first
            await pull()
        assert seen == {b"%d" % number for number in range(200)}
        assert (await js.stream_info(unique)).state.messages == 200
        assert nc.stats.reconnects == told.count("again") >= 1


@on_a_loop
async def test_publishing_without_a_connection_is_bounded(own_server: ServerProcess) -> None:
    async with connect(own_server.url, pending_bytes_max=1000) as nc:
        await asyncio.to_thread(own_server.stop)
        await until(lambda: not nc.connected)
        for _ in range(8):
            await nc.publish("a", bytes(100))  # 113 bytes with its line
        with pytest.raises(OutputFullError):
            await nc.publish("a", bytes(100))


@on_a_loop
async def test_giving_up_closes_the_client(own_server: ServerProcess) -> None:
    closed = asyncio.Event()
    nc = await connect(
        own_server.url, reconnect_attempts_max=1, reconnect_wait=0.001, on_close=closed.set
    )
    subscription = await nc.subscribe("a")
    request = asyncio.create_task(nc.flush())
    await request
    await asyncio.to_thread(own_server.stop)
    await closed.wait()
    assert nc.closed
    with pytest.raises(ConnectionClosedError, match="gave up reconnecting") as lost:
        _ = [message async for message in subscription]
    assert lost.value.subject == "a"
    with pytest.raises(PeltonError, match=r"closed|lost"):
        await nc.flush()
    with pytest.raises(ConnectionClosedError, match="gave up reconnecting"):
        await nc.publish("a", b"x")


@on_a_loop
async def test_every_loop_hears_that_the_client_is_lost(
    own_server: ServerProcess, unique: str
) -> None:
    told: list[Exception] = []
    nc = await connect(
        own_server.url, reconnect_attempts_max=1, reconnect_wait=0.001, on_error=told.append
    )
    js = await made(nc, unique)
    await filled(js, unique, 3)
    await js.create_consumer(unique, ConsumerConfig(durable_name="c", ack_policy="explicit"))
    await pushed(js, unique, "p")
    await pushed(js, unique, "q")
    push = await js.push_consumer(unique, "p")
    begun = asyncio.Semaphore(0)

    async def read(messages: Any) -> None:
        async for _ in messages:
            begun.release()

    async def handle(message: Message) -> None:
        begun.release()

    consumer = await js.consumer(unique, "c")
    loops = [
        asyncio.create_task(read(each.consume()))
        for each in (consumer, push, js.ordered_consumer(unique))
    ]
    await nc.subscribe("handled", callback=handle)
    await nc.subscribe("called", callback=lambda message: begun.release())
    handled = (await js.push_consumer(unique, "q")).consume(handle)
    await nc.publish("handled", b"")
    await nc.publish("called", b"")
    ended = await nc.subscribe("ended", max_msgs=1)
    await nc.publish("ended", b"last")
    for _ in range(4 * 3 + 2):
        await begun.acquire()
    await asyncio.to_thread(own_server.stop)
    for loop in loops:
        with pytest.raises(ConnectionClosedError, match="gave up reconnecting"):
            await loop
    with pytest.raises(ConnectionClosedError, match="gave up reconnecting"):
        await read(consumer.consume())
    with pytest.raises(ConnectionClosedError, match="gave up reconnecting"):
        await handled.run()
    with pytest.raises(ConnectionClosedError):
        await consumer.fetch()
    closed = [error for error in told if isinstance(error, ConnectionClosedError)]
    assert {"handled", "called"} <= {error.subject for error in closed}
    assert [message.data async for message in ended] == [b"last"]  # it had ended in good order


@on_a_loop
async def test_closing_ends_the_loops_in_good_order(server: ServerProcess, unique: str) -> None:
    told: list[Exception] = []
    nc = await connect(server.url, on_error=told.append)
    js = await made(nc, unique)
    await js.create_consumer(unique, ConsumerConfig(durable_name="c", ack_policy="explicit"))
    await pushed(js, unique, "p")
    loops = [
        await nc.subscribe(unique),
        (await js.push_consumer(unique, "p")).consume(),
        (await js.consumer(unique, "c")).consume(),
        js.ordered_consumer(unique).consume(),
    ]

    async def read(messages: Any) -> int:
        return len([message async for message in messages])

    tasks = [asyncio.create_task(read(messages)) for messages in loops]
    await nc.subscribe(unique, callback=lambda message: None)
    await nc.flush()
    await nc.close()
    assert [await task for task in tasks] == [0, 0, 0, 0]
    assert told == []


@on_a_loop
async def test_the_next_server_takes_over(server: ServerProcess, own_server: ServerProcess) -> None:
    async with connect([own_server.url, server.url]) as nc:
        subscription = await nc.subscribe("takeover")
        first = nc.server_info.server_id
        await asyncio.to_thread(own_server.stop, kill=True)
        await until(lambda: nc.connected and nc.server_info.server_id != first)
        await nc.publish("takeover", b"x")
        assert (await subscription.next()).data == b"x"


def test_a_handler_that_never_begins_is_not_missed(
    server: ServerProcess, recwarn: pytest.WarningsRecorder
) -> None:
    """A client that closes cancels the tasks of handlers, also those that have not begun."""

    async def handle() -> None: ...

    async def program() -> None:
        async with connect(server.url) as client:
            client._tell(handle)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

    asyncio.run(program())
    gc.collect()
    assert not [each for each in recwarn if "never awaited" in str(each.message)]
