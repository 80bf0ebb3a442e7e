"""Operations that consume go on after losses: of the connection, the server, the consumer, the stream."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from pelton import ConsumerConfig, ConsumerEvent, StreamConfig, connect, sync
from pelton.errors import (
    ConnectionClosedError,
    ConsumerDeletedError,
    ConsumerNotFoundError,
    PeltonTimeoutError,
    StreamNotFoundError,
)
from tests.client.shells import connected, wait_for
from tests.nats_clusters import running_cluster, wait_until_ready
from tests.peers import OLDEST, available_servers
from tests.proxies import Proxy, running_proxy
from tests.ways import EVERY_WAY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.peers import ServerProcess

COUNT = 400


class Reader:
    """An operation with a callback that keeps what it got, and its events."""

    def __init__(self, consumer: Any, **options: Any) -> None:
        self.seen: list[int] = []
        self.told: list[ConsumerEvent] = []
        options = {"heartbeat": 0.2, "expires": 2, "max_messages": 20} | options
        self.messages = consumer.consume(
            lambda message: self.seen.append(int(message.data)),
            on_status=self.told.append,
            **options,
        )

    def run_until(self, condition: Callable[[], bool], seconds: float = 90.0) -> None:
        """Handle messages until the condition holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, (len(self.seen), self.told[-20:])
            self.messages.run(timeout=0.05)

    def has(self, *kinds: str) -> bool:
        """Whether events of all these kinds were told."""
        return set(kinds) <= {event.type for event in self.told}

    def has_seen(self, count: int) -> bool:
        """Whether so many messages were handled."""
        return len(self.seen) >= count

    def has_all(self, expected: set[int]) -> bool:
        """Whether these messages were handled."""
        return expected <= set(self.seen)

    def whole(self, count: int) -> Callable[[], bool]:
        """A condition: all messages below ``count`` were seen."""
        return lambda: set(range(count)) <= set(self.seen)


def make(js: Any, stream: str, **more: Any) -> None:
    js.create_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"], max_age=0))
    js.create_consumer(stream, ConsumerConfig(durable_name="c", ack_wait=1, **more))


def publish(js: Any, stream: str, first: int, last: int) -> None:
    with js.publisher() as publisher:
        for n in range(first, last):
            publisher.publish(f"{stream}.a", b"%d" % n, msg_id=f"m{n}")


@pytest.fixture
def proxy(own_server: ServerProcess) -> Iterator[Proxy]:
    with running_proxy(own_server.port) as each:
        yield each


@pytest.mark.timeout(180)
def test_nothing_is_lost_over_a_killed_server(shell: str, own_server: ServerProcess) -> None:
    with connected(shell, own_server.url, timeout=30, reconnect_wait=0.05) as client:
        js = client.jetstream()
        make(js, "S")
        publish(js, "S", 0, COUNT)
        reader = Reader(js.consumer("S", "c"), auto_ack=True)
        ordered = js.ordered_consumer("S")
        with ordered.consume(max_messages=20) as in_order:
            incoming = iter(in_order)
            found = [int(message.data) for message in islice(incoming, 100)]
            reader.run_until(lambda: len(reader.seen) >= COUNT // 2)
            own_server.stop(kill=True)
            own_server.start()
            publish(js, "S", COUNT, COUNT + 50)
            reader.run_until(reader.whole(COUNT + 50))
            found += [int(message.data) for message in islice(incoming, COUNT - 50)]
        assert found == list(range(COUNT + 50))
        assert reader.has("next", "reset")
        before = js.consumer("S", "c")
        reader.messages.stop()
        own_server.stop(kill=True)
        own_server.start()
        publish(js, "S", COUNT + 50, COUNT + 51)
        late = [before.next(timeout=60)]
        while int(late[-1].data) != COUNT + 50:  # acks may have been lost with the server
            late.append(before.next(timeout=60))
        assert len(client._connection.interests) <= 2


@pytest.mark.timeout(180)
def test_connections_that_break_again_and_again_cost_nothing(shell: str, proxy: Proxy) -> None:
    with connected(shell, proxy.url, timeout=30, reconnect_wait=0.01) as client:
        js = client.jetstream()
        make(js, "S")
        publish(js, "S", 0, COUNT)
        ordered = js.ordered_consumer("S")
        with ordered.consume(max_messages=30) as in_order:
            for expected, message in enumerate(in_order):
                assert int(message.data) == expected
                if expected % 100 == 50:
                    proxy.cut()
                if expected == COUNT - 1:
                    break
        reader = Reader(js.consumer("S", "c"), auto_ack=True)
        for count in (90, 180, 270):
            reader.run_until(partial(reader.has_seen, count))
            proxy.cut()
        reader.run_until(reader.whole(COUNT))
        reader.messages.stop()


@pytest.mark.timeout(180)
def test_messages_that_get_lost_on_their_way_come_again(shell: str, proxy: Proxy) -> None:
    """Every seventh message gets lost, and a heartbeat or a message behind it tells."""
    count = 0

    def loses(operation: bytes) -> bool:
        nonlocal count
        if b"$JS.ACK." not in operation.partition(b"\r\n")[0]:
            return False
        count += 1
        return count % 7 == 0

    with connected(shell, proxy.url, timeout=30) as client:
        js = client.jetstream()
        make(js, "S")
        publish(js, "S", 0, 60)
        proxy.loses = loses
        ordered = js.ordered_consumer("S")
        told: list[ConsumerEvent] = []
        options = {"heartbeat": 0.2, "expires": 2, "on_status": told.append}
        with ordered.consume(**options) as in_order:
            found = [int(message.data) for message in islice(in_order, 60)]
        assert found == list(range(60))
        assert any("a gap" in event.description for event in told)
        reader = Reader(js.consumer("S", "c"), auto_ack=True)
        reader.run_until(reader.whole(60))
        assert proxy.lost
        reader.messages.stop()


@pytest.mark.timeout(180)
def test_a_server_that_falls_silent_is_noticed(shell: str, proxy: Proxy) -> None:
    with connected(shell, proxy.url, timeout=30) as client:
        make(client.jetstream(), "S")
        js = client.jetstream(timeout=0.5)  # looks the consumer up while answers get lost
        while True:
            try:
                consumer = js.consumer("S", "c")
                break
            except PeltonTimeoutError:
                continue  # beside load
        reader = Reader(consumer, auto_ack=True)
        reader.run_until(lambda: reader.has("heartbeat"))
        assert not reader.has("heartbeats_missed")
        proxy.loses = lambda operation: operation.startswith((b"MSG", b"HMSG"))
        reader.run_until(lambda: reader.has("heartbeats_missed"))
        with sync.connect(f"nats://127.0.0.1:{proxy._target}") as other:
            publish(other.jetstream(), "S", 0, 5)
        proxy.loses = lambda _: False
        reader.run_until(reader.whole(5))
        reader.messages.stop()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("ordered", [False, True])
def test_missed_heartbeats_are_counted_also_while_nobody_answers(
    shell: str, proxy: Proxy, ordered: bool
) -> None:
    """Programs give an operation up after some; a new one goes on when the server is there again."""
    with connected(shell, proxy.url, timeout=30) as client:
        make(client.jetstream(), "S")
        js = client.jetstream(timeout=2)

        def begun() -> Reader:
            return Reader(js.ordered_consumer("S") if ordered else js.consumer("S", "c"))

        reader = begun()
        reader.run_until(lambda: reader.has("heartbeat"))
        reader.told.clear()  # those of a slow start
        proxy.loses = lambda operation: operation.startswith((b"MSG", b"HMSG"))

        def counts() -> list[int]:
            return [each.count for each in reader.told if each.type == "heartbeats_missed"]

        reader.run_until(lambda: 3 in counts())
        since = (
            len(counts()) - counts()[::-1].index(1) - 1
        )  # a blocking look-up counts beyond three
        assert counts()[since : since + 3] == [1, 2, 3]
        reader.messages.stop()
        proxy.loses = lambda _: False
        client.jetstream().publish("S.0", b"0")
        reader = begun()
        reader.run_until(reader.whole(1))
        reader.messages.stop()


def test_a_slow_handler_is_no_missed_heartbeat(server: ServerProcess, unique: str) -> None:
    with sync.connect(server.url, timeout=30) as client:
        js = client.jetstream()
        make(js, unique)

        def missed(concurrency: int | None) -> bool:
            told: list[ConsumerEvent] = []
            handled: list[Any] = []
            publish(js, unique, 0, 3)

            def handle(message: Any) -> None:
                handled.append(message)
                time.sleep(0.5)

            with js.consumer(unique, "c").consume(
                handle,
                concurrency=concurrency,
                on_status=told.append,
                max_messages=1,
                heartbeat=0.1,
                expires=0.3,
            ) as messages:
                messages.run(timeout=1.2)
            assert handled
            return "heartbeats_missed" in {event.type for event in told}

        for concurrency in (None, 1):  # beside load the server may miss some, but not each time
            assert not all(missed(concurrency) for _ in range(4))
        js.delete_stream(unique)


@pytest.mark.parametrize("what", ["consumer", "stream"])
@pytest.mark.timeout(120)
def test_a_deleted_consumer_that_is_made_again_is_found(
    shell: str, server: ServerProcess, unique: str, what: str
) -> None:
    with connected(shell, server.url, timeout=30) as client:
        js = client.jetstream()
        make(js, unique)
        publish(js, unique, 0, 30)
        reader = Reader(js.consumer(unique, "c"), auto_ack=True)
        reader.run_until(reader.whole(30))
        if what == "stream":
            js.delete_stream(unique)
            reader.run_until(lambda: reader.has("stream_not_found"))
        else:
            js.delete_consumer(unique, "c")
            reader.run_until(lambda: reader.has("consumer_not_found"))
        assert reader.has("consumer_deleted")
        reader.seen.clear()
        make(js, unique)
        publish(js, unique, 30, 60)
        reader.run_until(lambda: set(range(30, 60)) <= set(reader.seen))
        reader.messages.stop()
        js.delete_stream(unique)


@pytest.mark.timeout(120)
def test_a_missing_consumer_is_made_again_when_asked(
    shell: str, server: ServerProcess, unique: str
) -> None:
    with connected(shell, server.url, timeout=30) as client:
        js = client.jetstream()
        make(js, unique, filter_subject=f"{unique}.a")
        reader = Reader(js.consumer(unique, "c"), auto_ack=True, on_missing="recreate")
        publish(js, unique, 0, 10)
        reader.run_until(reader.whole(10))
        js.delete_consumer(unique, "c")
        reader.run_until(lambda: reader.has("consumer_recreated"))
        assert js.consumer_info(unique, "c").config.filter_subject == f"{unique}.a"
        js.delete_stream(unique)
        reader.run_until(lambda: reader.has("stream_not_found"))
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
        publish(js, unique, 10, 20)
        reader.run_until(reader.whole(20))
        reader.messages.stop()
        js.delete_stream(unique)


@pytest.mark.parametrize("what", ["consumer", "stream"])
@pytest.mark.timeout(120)
def test_a_deleted_consumer_ends_an_iteration_that_says_so(
    shell: str, server: ServerProcess, unique: str, what: str
) -> None:
    with connected(shell, server.url, timeout=30) as client:
        js = client.jetstream()
        make(js, unique)
        publish(js, unique, 0, 3)
        before = len(client._connection.interests)
        with js.consumer(unique, "c").consume(on_missing="raise") as messages:
            incoming = iter(messages)
            for _ in range(3):
                next(incoming).ack()
            if what == "stream":
                js.delete_stream(unique)
            else:
                js.delete_consumer(unique, "c")
            with pytest.raises((ConsumerDeletedError, ConsumerNotFoundError, StreamNotFoundError)):
                next(incoming)
        assert len(client._connection.interests) <= before + 1
        if what == "consumer":
            js.delete_stream(unique)


@pytest.mark.timeout(120)
def test_a_push_consumer_is_found_again(shell: str, own_server: ServerProcess) -> None:
    with connected(shell, own_server.url, timeout=30, reconnect_wait=0.05) as client:
        js = client.jetstream()
        config = ConsumerConfig(durable_name="p", deliver_subject="to.p", idle_heartbeat=0.2)
        js.create_stream(StreamConfig(name="S", subjects=["S.>"]))
        js.create_consumer("S", config)
        seen: list[int] = []
        told: list[ConsumerEvent] = []
        messages = js.push_consumer("S", "p").consume(
            lambda message: seen.append(int(message.data)),
            auto_ack=True,
            on_missing="recreate",
            on_status=told.append,
        )

        def run_until(count: int) -> None:
            deadline = time.monotonic() + 60
            while not set(range(count)) <= set(seen):
                assert time.monotonic() < deadline, (seen, told)
                messages.run(timeout=0.05)

        publish(js, "S", 0, 10)
        run_until(10)
        own_server.stop(kill=True)
        own_server.start()
        publish(js, "S", 10, 20)
        run_until(20)
        js.delete_consumer("S", "p")
        publish(js, "S", 20, 30)
        run_until(30)
        assert "consumer_recreated" in {event.type for event in told}
        messages.stop()


@pytest.mark.timeout(120)
def test_a_client_that_is_lost_ends_its_operations(shell: str, own_server: ServerProcess) -> None:
    with connected(shell, own_server.url, timeout=30, reconnect=False) as client:
        js = client.jetstream()
        make(js, "S")
        with js.consumer("S", "c").consume() as messages:
            own_server.stop(kill=True)
            with pytest.raises(ConnectionClosedError):
                list(messages)


def test_a_cancelled_task_leaves_nothing_behind(server: ServerProcess, unique: str) -> None:
    async def program() -> None:
        async with connect(server.url) as nc:
            js = nc.jetstream()
            await js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
            await js.create_consumer(unique, ConsumerConfig(durable_name="c"))
            for n in range(10):
                await js.publish(f"{unique}.a", b"%d" % n)
            consumer = await js.consumer(unique, "c")
            first = asyncio.Event()
            before = len(asyncio.all_tasks())

            async def work() -> None:
                async with consumer.consume() as messages:
                    async for _ in messages:
                        first.set()
                        await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await first.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()
            assert len(asyncio.all_tasks()) == before
            assert len(nc._connection.interests) == 1
            # The nine others were given back; the first one waits for its ack.
            found = await consumer.fetch(9, timeout=30)
            assert {message.data for message in found} == {b"%d" % n for n in range(1, 10)}
            await js.delete_stream(unique)

    asyncio.run(program())


@EVERY_WAY  # test_nats_cluster.py has it beside everything else
@pytest.mark.peer
@pytest.mark.timeout(300)
@pytest.mark.skipif("nats-server" not in available_servers(OLDEST), reason="no nats-server")
def test_consuming_goes_on_with_the_next_leader() -> None:
    with running_cluster() as cluster, sync.connect(cluster.urls, timeout=30) as admin:
        wait_until_ready(admin)
        js = admin.jetstream(timeout=30)
        js.create_stream(StreamConfig(name="S", subjects=["S.>"], num_replicas=3))
        js.create_consumer("S", ConsumerConfig(durable_name="c", ack_wait=2))
        cluster.revive(admin, "S")
        for shell in ("asyncio", "blocking"):
            with connected(shell, cluster.urls, timeout=30, reconnect_wait=0.05) as client:
                theirs = client.jetstream(timeout=5)
                consumer = theirs.consumer("S", "c")
                reader = Reader(consumer, auto_ack=True)
                start = 0 if shell == "asyncio" else COUNT
                half = start + COUNT // 2
                publish(js, "S", start, half)
                reader.run_until(partial(reader.has_all, set(range(start, half))))
                peers = js.consumer_info("S", "c").cluster
                assert peers is not None
                cluster.nodes[peers.leader].stop(kill=True)
                publish(js, "S", half, start + COUNT)
                expected = set(range(start, start + COUNT))
                reader.run_until(partial(reader.has_all, expected), 150)
                assert reader.has("reset")
                reader.messages.stop()
                reader.messages.run(timeout=10)
            cluster.revive(admin, "S")


@pytest.mark.parametrize("way", ["fetch", "consume"])
def test_an_ordered_consumer_leaves_none_behind(
    shell: str, own_server: ServerProcess, proxy: Proxy, way: str
) -> None:
    """Answers to creations are lost, and consumers deleted as soon as they are there."""
    with (
        sync.connect(own_server.url, timeout=30) as admin,
        connected(shell, proxy.url, timeout=0.5, reconnect_wait=0.05) as client,
    ):
        make(admin.jetstream(), "S")
        admin.jetstream().delete_consumer("S", "c")
        publish(admin.jetstream(), "S", 0, 60)
        answers: list[bytes] = []

        def loses(operation: bytes) -> bool:
            if b"consumer_create_response" not in operation:
                return False
            answers.append(operation)
            if len(answers) == 3:  # it is there, and gone before the client knows
                name = re.findall(rb'"name":"(\w+)"', operation)[0]
                admin.jetstream().delete_consumer("S", name.decode())
            return len(answers) in (1, 2)

        proxy.loses = loses
        ordered = client.jetstream().ordered_consumer("S")
        found: list[int] = []
        if way == "fetch":
            while len(found) < 60:
                with contextlib.suppress(PeltonTimeoutError):
                    found += [int(each.data) for each in ordered.fetch(20, timeout=20)]
            wait_for(lambda: len(admin.jetstream().consumer_names("S")) == 1)
            ordered.close()
        else:
            options = {"max_messages": 20, "heartbeat": 0.2, "expires": 1}
            with ordered.consume(**options) as messages:
                found += [int(each.data) for each in islice(messages, 60)]
                wait_for(lambda: len(admin.jetstream().consumer_names("S")) == 1)
        assert found == list(range(60))
        assert len(answers) >= 4
        wait_for(lambda: admin.jetstream().consumer_names("S") == [])
