"""What hurts users of other Python clients, in either shell and with every server: it must not hurt here."""

from __future__ import annotations

import asyncio
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import pelton.testing
from pelton import ConsumerConfig, ServiceConfig, StreamConfig, connect, sync
from pelton.errors import CallbackFailedError, ConnectionLostError
from tests.client.shells import connected, wait_for
from tests.proxies import running_proxy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.peers import ServerProcess

MESSAGES = 10_000
SEQ = re.compile(rb'"seq":(\d+)')
WAIT = 60
FEW = 20


def make(js: Any) -> None:
    js.create_stream(StreamConfig(name="S", subjects=["s.>"]))
    js.create_consumer("S", ConsumerConfig(durable_name="c", ack_wait=5))


def again(call: Callable[[], Any]) -> Any:
    """The result of a call, made again when its connection breaks, which is said at once."""
    while True:
        try:
            return call()
        except ConnectionLostError:
            continue


def test_a_publish_with_an_id_outlives_its_connection(shell: str) -> None:
    """The ack is lost with the connection: with an id the message is sent again, and stored once."""
    with (
        pelton.testing.broker() as broker,
        connected(shell, broker.memory_url, timeout=30) as client,
        ThreadPoolExecutor() as pool,
    ):
        js = client.jetstream()
        make(js)

        def cut(subject: str) -> None:
            while not any(each.subject == subject for each in broker.published):
                pass
            broker.disconnect()

        broker.drop("s.*")
        breaks = pool.submit(cut, "s.id")
        ack = js.publish("s.id", b"x", msg_id="1")
        breaks.result()
        assert (ack.seq, ack.duplicate) == (1, False)
        assert js.publish("s.id", b"x", msg_id="1").duplicate
        broker.drop("s.*")
        breaks = pool.submit(cut, "s.none")
        with pytest.raises(ConnectionLostError):
            js.publish("s.none", b"x")
        breaks.result()
        assert [each.subject for each in broker.published if each.subject == "s.none"] == ["s.none"]
        assert js.stream_info("S").state.messages == 1


@pytest.mark.timeout(180)
def test_every_handle_pulls_on_after_a_restart(shell: str, own_server: ServerProcess) -> None:
    """Handles made before the server is killed get what is published after it is there again."""
    with connected(shell, own_server.url, timeout=30, reconnect_wait=0.05) as client:
        js = client.jetstream()
        make(js)
        consumer, ordered = js.consumer("S", "c"), js.ordered_consumer("S")
        unverified = js.consumer("S", "c", verify=False)
        calls: list[Callable[[], Any]] = [
            lambda: consumer.next(timeout=WAIT),
            lambda: consumer.fetch(1, timeout=WAIT)[0],
            lambda: unverified.fetch(1, timeout=WAIT)[0],
            lambda: ordered.next(timeout=WAIT),
        ]
        for _ in range(2):
            for each in calls:
                number = again(lambda: js.publish("s.a", b"x")).seq
                while (message := each()).metadata.stream_seq < number:
                    if each is not calls[-1]:
                        message.ack()
                if each is not calls[-1]:
                    message.ack()
            own_server.stop(kill=True)
            own_server.start()


@pytest.mark.timeout(180)
def test_publishes_are_acked_after_each_reconnect(shell: str, own_server: ServerProcess) -> None:
    """The inbox of acks works on the new connection: no publish waits for its timeout."""
    with (
        running_proxy(own_server.port) as proxy,
        connected(shell, proxy.url, timeout=WAIT, reconnect_wait=0.01) as client,
    ):
        js = client.jetstream()
        make(js)
        acked = 0
        for number in range(10):
            begun = time.monotonic()
            again(lambda n=number: js.publish("s.a", b"%d" % n, msg_id=f"m{n}"))
            assert time.monotonic() - begun < WAIT / 2
            acked += 1
            proxy.cut()
        assert again(lambda: js.stream_info("S")).state.messages == acked == 10


def test_members_of_a_queue_bind_to_one_durable(
    shell: str, server: ServerProcess, unique: str
) -> None:
    config = ConsumerConfig(durable_name="d", deliver_subject=f"to.{unique}", deliver_group="q")
    with connected(shell, server.url) as client, connected(shell, server.url) as other:
        client.jetstream().create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
        client.jetstream().create_consumer(unique, config)
        members = [each.jetstream().push_consumer(unique, "d") for each in (client, other)]
        for member in members:
            assert member.next(timeout=0.01) is None  # subscribes
        for n in range(20):
            client.jetstream().publish(f"{unique}.a", b"%d" % n)
        seen: set[int] = set()
        deadline = time.monotonic() + WAIT
        while len(seen) < 20:
            assert time.monotonic() < deadline
            for member in members:
                message = member.next(timeout=0.05)
                if message is not None:
                    seen.add(int(message.data))
                    message.ack()
        assert client.jetstream().consumer_names(unique) == ["d"]
        client.jetstream().delete_stream(unique)


def test_publishes_do_not_wait_for_each_other(
    shell: str, server: ServerProcess, unique: str
) -> None:
    """While no ack arrives, a publisher sends as many messages as its window has room for."""
    with (
        running_proxy(server.port) as proxy,
        sync.connect(server.url) as admin,
        connected(shell, proxy.url, timeout=WAIT) as client,
    ):
        admin.jetstream().create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
        publisher = client.jetstream().publisher(window=100, timeout=0.3)
        proxy.loses = lambda operation: b'"seq":' in operation
        for n in range(100):
            publisher.publish(f"{unique}.a", b"", msg_id=f"{n}")
        client.flush()
        wait_for(lambda: len({SEQ.findall(each)[0] for each in [*proxy.lost]}) == 100)
        assert admin.jetstream().stream_info(unique).state.messages == 100
        proxy.loses = lambda _: False
        publisher.flush()  # sends them again; the stream has them already
        assert publisher.acked == publisher.duplicates == 100
        assert admin.jetstream().stream_info(unique).state.messages == 100
        admin.jetstream().delete_stream(unique)


async def iterated(messages: Any) -> None:
    count = 0
    async for _ in messages:
        count += 1
        if count == MESSAGES:
            return


def test_an_iteration_costs_no_more_than_a_callback() -> None:
    """Processor time of the same messages, consumed in either way; other clients need 3.5 times as much."""

    async def taken(work: Callable[[Any], Awaitable[None]]) -> float:
        async with broker.connect() as client:
            consumer = await client.jetstream().consumer("S", "c")
            begun = time.thread_time()
            await work(consumer)
            return time.thread_time() - begun

    async def iterate(consumer: Any) -> None:
        async with consumer.consume(max_messages=1000) as messages:
            await iterated(messages)

    async def call(consumer: Any) -> None:
        count, over = 0, asyncio.Event()

        def handle(_: Any) -> None:
            nonlocal count
            count += 1
            if count == MESSAGES:
                over.set()

        async with consumer.consume(handle, max_messages=1000):
            await over.wait()

    times: dict[str, list[float]] = {"iterate": [], "call": []}
    with pelton.testing.broker() as broker, broker.connect_sync() as admin:
        js = admin.jetstream()
        js.create_stream(StreamConfig(name="S", subjects=["s"]))
        with js.publisher() as publisher:
            for _ in range(MESSAGES):
                publisher.publish("s", b"x" * 100)
        for _ in range(3):
            for name, work in (("iterate", iterate), ("call", call)):
                js.create_consumer("S", ConsumerConfig(durable_name="c", ack_policy="none"))
                times[name].append(asyncio.run(taken(work)))
                js.delete_consumer("S", "c")
    assert min(times["iterate"]) < 2 * min(times["call"]), times


def test_the_log_says_which_message_a_handler_failed_on(
    shell: str, server: ServerProcess, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(message: Any) -> None:
        if message.metadata.delivered == 1:
            raise LookupError("no paper")
        done.append(message)

    done: list[Any] = []
    with connected(shell, server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
        js.create_consumer(unique, ConsumerConfig(durable_name="c"))
        js.publish(f"{unique}.a", b"1")
        with js.consumer(unique, "c").consume(handle, auto_ack=True) as messages:
            deadline = time.monotonic() + WAIT
            while not done:
                assert time.monotonic() < deadline
                messages.run(timeout=0.05)
        js.delete_stream(unique)
    (told,) = [each for each in caplog.records if "CallbackFailedError" in each.getMessage()]
    assert f"bytes, #1 of {unique}, delivery 1>: LookupError: no paper" in told.getMessage()
    assert told.exc_info is not None


def test_on_error_is_told_in_place_of_the_log(
    shell: str, server: ServerProcess, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(_: Any) -> None:
        raise LookupError("no paper")

    errors: list[Exception] = []
    with connected(shell, server.url, on_error=errors.append) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
        js.create_consumer(unique, ConsumerConfig(durable_name="c", max_deliver=1))
        js.publish(f"{unique}.a", b"1")
        with js.consumer(unique, "c").consume(handle) as messages:
            deadline = time.monotonic() + WAIT
            while not errors:
                assert time.monotonic() < deadline
                messages.run(timeout=0.05)
        js.delete_stream(unique)
        [error] = errors
        assert isinstance(error, CallbackFailedError)
        assert isinstance(error.__cause__, LookupError)
        assert client.last_error is error
    assert not [each for each in caplog.records if "CallbackFailedError" in each.getMessage()]


def test_handlers_that_have_nothing_to_do_cost_nothing(server: ServerProcess, unique: str) -> None:
    """Each message woke all of them: 500 handlers, 5 ms of work for one message."""
    most = 200

    async def run() -> None:
        inside = 0
        full, let_out = asyncio.Event(), asyncio.Event()

        async def handle(_: Any) -> bytes:
            nonlocal inside
            inside += 1
            if inside == most + FEW:
                full.set()
            if inside > FEW:
                await let_out.wait()
            return b""

        async with connect(server.url) as client:
            js = client.jetstream()
            await js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.a"]))
            await js.create_consumer(unique, ConsumerConfig(durable_name="c"))
            consumer = await js.consumer(unique, "c")
            service = await client.add_service(ServiceConfig(name=unique, version="1.0.0"))
            await service.add_endpoint("e", handle, subject=f"{unique}.b", concurrency=most)
            async with consumer.consume(handle, concurrency=most, auto_ack=True):
                for subject in (f"{unique}.a", f"{unique}.b"):
                    inside = 0
                    full.clear()
                    let_out.clear()
                    for number in range(1, FEW + 1):
                        await client.publish(subject)
                        while inside < number:  # nobody tells
                            await asyncio.sleep(0.001)
                        assert len(asyncio.all_tasks()) < FEW
                    for _ in range(2 * most):
                        await client.publish(subject)
                    await asyncio.wait_for(full.wait(), WAIT)
                    await client.flush()
                    assert inside == most + FEW
                    let_out.set()
                    while inside < 2 * most + FEW:
                        await asyncio.sleep(0.001)
            await service.stop()
            await js.delete_stream(unique)

    asyncio.run(run())
