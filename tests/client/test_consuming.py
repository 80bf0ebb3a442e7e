"""Consumers in both shells, against every server: single messages, batches, and without end."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from pelton import (
    ConsumerConfig,
    ConsumerEvent,
    ObjectStoreConfig,
    StreamConfig,
    sync,
)
from pelton.client.base.mailbox import RETRY_S
from pelton.errors import (
    BucketNotFoundError,
    CallbackFailedError,
    ConsumerBusyError,
    ConsumerNotFoundError,
    PullError,
    StreamNotFoundError,
)
from tests.client.shells import connected, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton import sync
    from tests.peers import ServerProcess

COUNT = 200


@pytest.fixture
def client(shell: str, server: ServerProcess) -> Iterator[Any]:
    with connected(shell, server.url, timeout=30) as each:
        yield each


@pytest.fixture
def js(client: Any, unique: str) -> Iterator[Any]:
    """JetStream with a stream of COUNT messages, "0", "1" ..., and a consumer "c"."""
    jetstream = client.jetstream()
    jetstream.create_stream(
        StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory", max_age=0)
    )
    jetstream.create_consumer(unique, ConsumerConfig(durable_name="c"))
    publish(jetstream, unique, 0, COUNT)
    yield jetstream
    jetstream.delete_stream(unique)


def publish(js: Any, stream: str, first: int, last: int) -> None:
    with js.publisher() as publisher:
        for n in range(first, last):
            publisher.publish(f"{stream}.a", b"%d" % n)


def number(message: Any) -> int:
    return int(message.data)


def subscriptions(client: Any) -> int:
    client.flush()
    return len(client._connection.interests)


def kinds(messages: Any) -> set[str]:
    return {event.type for event in messages._intake.events.unread}


# -- batches --------------------------------------------------------------------------------------


def test_next_and_fetch_give_what_is_there(js: Any, unique: str) -> None:
    with js.consumer(unique, "c") as consumer:
        assert consumer.info().num_pending == COUNT
        first = consumer.next(timeout=30)
        first.ack()
        found = [first, *consumer.fetch(9, timeout=30)]
        while len(found) < COUNT:
            found += consumer.fetch(COUNT, timeout=0.3)
        assert [number(each) for each in found] == list(range(COUNT))
        assert consumer.fetch(5, timeout=0.05) == []
        assert consumer.fetch(5, no_wait=True) == []
        assert consumer.next(timeout=0.05) is None


def test_fetch_keeps_a_limit_of_bytes(js: Any, unique: str) -> None:
    with js.consumer(unique, "c") as consumer:
        found = consumer.fetch(COUNT, timeout=30, max_bytes=600)
        assert 0 < len(found) < 15


def test_fetch_keeps_within_the_limits_of_the_consumer(js: Any, unique: str) -> None:
    config = ConsumerConfig(durable_name="small", max_batch=7, max_expires=0.1)
    js.create_consumer(unique, config)
    with js.consumer(unique, "small") as consumer:
        assert len(consumer.fetch(50, timeout=30)) == 50
        with consumer.consume() as messages:
            assert [number(each) for each in islice(messages, 60)] == list(range(50, 110))


def test_what_does_not_exist_is_said(js: Any, unique: str) -> None:
    with pytest.raises(ConsumerNotFoundError):
        js.consumer(unique, "nobody")
    with pytest.raises(StreamNotFoundError):
        js.consumer(f"{unique}x", "c")
    with pytest.raises(ValueError, match="is a pull consumer"):
        js.push_consumer(unique, "c")
    consumer = js.consumer(unique, "c")
    consumer.delete()
    with pytest.raises((ConsumerNotFoundError, PullError)):
        consumer.next(timeout=5)
    ordered = js.ordered_consumer(f"{unique}x")
    with pytest.raises(StreamNotFoundError):
        ordered.next()
    with pytest.raises(StreamNotFoundError), ordered.consume() as messages:
        list(messages)


def test_options_that_cannot_be_meant_are_refused_before_anything_is_sent(
    js: Any, unique: str, client: Any
) -> None:
    consumer, before = js.consumer(unique, "c"), subscriptions(client)
    for options in (
        {"max_messages": 0},
        {"max_bytes": -1},
        {"max_messages": 5, "max_bytes": 5},
        {"max_messages": 5, "threshold": 5},
        {"expires": 1, "heartbeat": 1},
        {"heartbeat": 0},
        {"on_missing": "perhaps"},
        {"concurrency": 2},
        {"auto_ack": True},
        {"callback": print, "concurrency": 0},
        {"callback": print, "nak_delay": -1},
        {"group": "g"},
        {"min_pending": 5},
        {"priority": 1},
    ):
        with pytest.raises(ValueError, match=r"."):
            consumer.consume(**options)
    for wrong in ({"batch": 0}, {"timeout": -1}, {"max_bytes": -1}, {"group": "g"}):
        with pytest.raises(ValueError, match=r"least one|at least 1|negative|no priority group"):
            consumer.fetch(**wrong)
    for options in ({"start_seq": 0}, {"start_seq": 3, "deliver_policy": "new"}):
        with pytest.raises(ValueError, match="start_seq"):
            js.ordered_consumer(unique, **options)
    for name in ({"stream": "a.b"}, {"stream": unique, "name_prefix": "a.b"}):
        with pytest.raises(ValueError, match="name"):
            js.ordered_consumer(**name)
    assert subscriptions(client) == before


@pytest.mark.needs("pauses of consumers", "resets of consumers")
def test_a_consumer_is_paused_and_reset_by_its_handle(js: Any, unique: str) -> None:
    with js.consumer(unique, "c") as consumer:
        assert consumer.pause("2100-01-01T00:00:00Z").paused
        assert consumer.fetch(1, timeout=0.1) == []
        assert not consumer.resume().paused
        for message in consumer.fetch(5, timeout=30):
            message.ack_sync()
        consumer.fetch(5, timeout=30)
        consumer.reset()
        assert number(consumer.next(timeout=30)) == 5


# -- without end ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"max_messages": 1}, {"max_messages": 7}, {"max_bytes": 2000}], ids=str
)
def test_an_iteration_yields_each_message_once_and_in_order(
    js: Any, unique: str, options: Any
) -> None:
    consumer = js.consumer(unique, "c")
    with consumer.consume(**options) as messages:
        for expected, message in enumerate(messages):
            assert number(message) == expected
            message.ack()
            if expected == COUNT - 1:
                publish(js, unique, COUNT, COUNT + 20)
            if expected == COUNT + 19:
                break
    wait_for(lambda: js.consumer_info(unique, "c").ack_floor.stream_seq >= COUNT + 19)
    limit = options.get("max_messages")
    assert all(event.count <= (limit or 2000) for event in messages._intake.events.unread)


def test_a_single_message_is_requested_when_the_one_before_is_handled(js: Any, unique: str) -> None:
    consumer = js.consumer(unique, "c")
    with consumer.consume(max_messages=1) as messages:
        for count, message in enumerate(islice(messages, 3), 1):
            # Not num_ack_pending: nats-server may deliver the next one before it takes the ack.
            assert consumer.info().delivered.consumer_seq == count
            message.ack()


def test_stop_gives_back_what_was_buffered(js: Any, client: Any, unique: str) -> None:
    consumer, before = js.consumer(unique, "c"), subscriptions(client)
    with consumer.consume(max_messages=50) as messages:
        next(iter(messages)).ack()
    assert list(messages) == []
    assert messages.ended
    assert subscriptions(client) == before
    # All others are there at once, and not only after the ack wait.
    again = consumer.fetch(COUNT - 1, timeout=30)
    assert {number(each) for each in again} == set(range(1, COUNT))


def test_drain_leaves_what_was_buffered_to_be_handled(js: Any, client: Any, unique: str) -> None:
    consumer, before = js.consumer(unique, "c"), subscriptions(client)
    messages = consumer.consume(max_messages=50)
    found = [next(iter(messages))]
    messages.drain()
    assert subscriptions(client) == before
    found += messages
    assert [number(each) for each in found] == list(range(len(found)))
    # nats-server also counts deliveries that it drops when the subscription ends
    assert len(found) <= js.consumer_info(unique, "c").num_ack_pending


@pytest.mark.parametrize("concurrency", [None, 1], ids=["here", "1"])
def test_a_callback_gets_each_message(js: Any, unique: str, concurrency: Any) -> None:
    seen: list[int] = []

    def handle(message: Any) -> None:
        seen.append(number(message))
        if len(seen) == COUNT:
            stopped.append(True)

    stopped: list[bool] = []
    consumer = js.consumer(unique, "c")
    with consumer.consume(handle, auto_ack=True, concurrency=concurrency) as messages:
        while not stopped:
            messages.run(timeout=0.05)
    assert seen == list(range(COUNT))
    wait_for(lambda: js.consumer_info(unique, "c").num_ack_pending == 0)


def test_stop_in_a_callback_ends_the_run(js: Any, unique: str) -> None:
    seen: list[int] = []

    def handle(message: Any) -> None:
        seen.append(number(message))
        if len(seen) == 10:
            operation.append(True)
            getattr(messages, "_inner", messages).stop()

    operation: list[bool] = []
    messages = js.consumer(unique, "c").consume(handle, auto_ack=True)
    messages.run(timeout=60)
    assert operation
    assert seen == list(range(10))
    with pytest.raises(RuntimeError, match="needs a callback"):
        js.consumer(unique, "c").consume().run()


def test_a_message_whose_handler_raises_is_delivered_again(
    js: Any, client: Any, unique: str
) -> None:
    calls: dict[int, int] = {}
    told: list[ConsumerEvent] = []

    def handle(message: Any) -> None:
        which = number(message)
        calls[which] = calls.get(which, 0) + 1
        if which % 50 == 7 and calls[which] == 1:
            raise LookupError(f"no {which}")

    consumer = js.consumer(unique, "c")
    options = {"auto_ack": True, "nak_delay": 0.01, "on_status": told.append}
    with consumer.consume(handle, **options) as messages:
        while len(calls) < COUNT or sum(calls.values()) < COUNT + 4:
            messages.run(timeout=0.05)
    assert {which for which, count in calls.items() if count == 2} == {7, 57, 107, 157}
    failures = [str(event.error) for event in told if event.type == "handler_failed"]
    assert failures == ["no 7", "no 57", "no 107", "no 157"]
    assert isinstance(client.last_error, CallbackFailedError)
    assert "no 157" in str(client.last_error)


@pytest.mark.parametrize("concurrency", [None, 2])
def test_the_failure_of_a_handler_is_an_event_of_the_connection(
    shell: str, server: ServerProcess, unique: str, concurrency: int | None
) -> None:
    told: list[Any] = []

    def handle(_: Any) -> None:
        raise LookupError("no paper")

    async def handle_later(_: Any) -> None:
        handle(_)

    with connected(shell, server.url, on_status=told.append) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[unique], storage="memory"))
        js.create_consumer(unique, ConsumerConfig(durable_name="c", max_deliver=1))
        js.publish(unique)
        work = handle_later if shell == "asyncio" and concurrency else handle
        options = {} if concurrency is None else {"concurrency": concurrency}
        with js.consumer(unique, "c").consume(work, **options) as messages:
            while not any(status.type == "error" for status in told):
                messages.run(timeout=0.05)
        js.delete_stream(unique)
    (failure,) = [status.error for status in told if status.type == "error" and status.error]
    assert [type(failure), type(failure.__cause__)] == [CallbackFailedError, LookupError]


def test_events_are_read_as_they_come(js: Any, unique: str) -> None:
    consumer = js.consumer(unique, "c")
    with consumer.consume(max_messages=COUNT, heartbeat=0.1, expires=0.3) as messages:
        for message in islice(messages, COUNT):
            message.ack()
        found = []
        for event in messages.status():
            found.append(event.type)
            if "discard" in found and "heartbeat" in found:
                break
    assert found[0] == "next"
    assert {*found} - {"heartbeats_missed"} == {
        "next",
        "heartbeat",
        "discard",
    }  # missed beside load


# -- ordered --------------------------------------------------------------------------------------


def test_an_ordered_consumer_goes_on_where_the_last_operation_ended(js: Any, unique: str) -> None:
    ordered = js.ordered_consumer(unique, name_prefix="view", start_seq=11)
    found = [ordered.next(timeout=30), *ordered.fetch(9, timeout=30)]
    with ordered.consume() as messages:
        found += islice(messages, 30)
    found += ordered.fetch(10, timeout=30)
    assert [number(each) for each in found] == list(range(10, 60))
    names = js.consumer_names(unique)
    assert any(name.startswith("view_") for name in names)
    ordered.close()
    assert js.consumer_names(unique) == ["c"]
    assert js.ordered_consumer(unique, deliver_policy="new").fetch(1, timeout=0.05) == []


def test_an_ordered_fetch_whose_consumer_goes_at_the_end_has_none(
    js: Any, server: ServerProcess, unique: str
) -> None:
    ordered = js.ordered_consumer(unique, deliver_policy="new")

    def remove() -> None:
        with sync.connect(server.url) as client:
            own = client.jetstream()
            while len(names := own.consumer_names(unique)) < 2:
                pass
            own.delete_consumer(unique, next(name for name in names if name != "c"))

    with ThreadPoolExecutor() as pool:
        removed = pool.submit(remove)
        assert ordered.fetch(1, timeout=RETRY_S) == []
        removed.result()


def test_an_ordered_consumer_runs_one_operation(js: Any, unique: str) -> None:
    ordered = js.ordered_consumer(unique)
    with ordered.consume() as messages:
        assert number(next(iter(messages))) == 0
        for operation in (ordered.next, ordered.fetch, ordered.consume, ordered.info):
            with pytest.raises(ConsumerBusyError, match="busy with consume"):
                operation()
    assert number(ordered.next()) == 1
    ordered.close()


@pytest.mark.parametrize("way", ["consume", "fetch", "objects"])
def test_an_ordered_reader_begins_anew_with_a_stream_that_was_made_again(
    shell: str, js: Any, unique: str, way: str
) -> None:
    """Behind the last sequence that it read in the stream before there is nothing."""
    if way == "objects":
        config = ObjectStoreConfig(bucket=unique, storage="memory")
        store = js.create_object_store(config)
        for _ in range(3):
            store.put("before", b"")
        with store.watch() as watcher:
            assert [each.name for each in watcher.initial()] == ["before"]
            store.destroy()
            store = js.create_object_store(config)
            store.put("after", b"")
            try:
                after = watcher.next(timeout=30)
            except BucketNotFoundError:
                assert shell == "asyncio"  # in the background it noticed that there was no store
                with store.watch() as again:
                    after = again.next(timeout=30)
            assert after.name == "after"
        store.destroy()
        return
    reader = js.ordered_consumer(unique)
    messages = reader.consume(heartbeat=0.5) if way == "consume" else reader
    take = iter(messages).__next__ if way != "fetch" else lambda: reader.fetch(1, timeout=30)[0]
    assert [number(take()) for _ in range(COUNT)] == list(range(COUNT))
    stream = js.stream_info(unique)
    js.delete_stream(unique)
    js.create_stream(stream.config)
    publish(js, unique, 1000, 1003)
    again = [take() for _ in range(3)]
    assert [number(each) for each in again] == [1000, 1001, 1002]
    assert [each.metadata.stream_seq for each in again] == [1, 2, 3]
    if way == "consume":
        messages.stop()
    elif way == "fetch":
        reader.close()


def test_an_ordered_consumer_survives_the_deletion_of_its_consumer(js: Any, unique: str) -> None:
    ordered = js.ordered_consumer(unique)
    with ordered.consume(max_messages=20) as messages:
        for expected, message in enumerate(messages):
            assert number(message) == expected
            if expected in (5, 100):
                for name in js.consumer_names(unique):
                    js.delete_consumer(unique, name)
            if expected == COUNT - 1:
                break
    assert "ordered_consumer_recreated" in kinds(messages)
    # one whose creation and deletion crossed ends by its inactive threshold
    wait_for(lambda: len(js.consumer_names(unique)) <= 1)
    for name in js.consumer_names(unique):
        js.delete_consumer(unique, name)
    assert ordered.fetch(1, timeout=0.05) == []
    js.delete_consumer(unique, js.consumer_names(unique)[0])
    publish(js, unique, COUNT, COUNT + 3)
    assert [number(each) for each in ordered.fetch(3, timeout=30)] == [COUNT, COUNT + 1, COUNT + 2]
    ordered.close()


# -- push -----------------------------------------------------------------------------------------


def test_a_push_consumer_is_consumed_with_flow_control(js: Any, unique: str) -> None:
    config = ConsumerConfig(
        durable_name="p", deliver_subject=f"{unique}p", flow_control=True, idle_heartbeat=0.2
    )
    js.create_consumer(unique, config)
    with pytest.raises(ValueError, match="is a push consumer"):
        js.consumer(unique, "p")
    payload = b"x" * 20_000
    with js.publisher() as publisher:
        for _ in range(300):
            publisher.publish(f"{unique}.big", payload)
    consumer = js.push_consumer(unique, "p")
    with consumer.consume() as messages:
        for expected, message in enumerate(messages, 1):
            message.ack()
            assert message.metadata.stream_seq == expected
            if expected == COUNT + 300:
                break
        for event in messages.status():
            if event.type == "heartbeat":
                break
            assert event.type in ("flow_control", "heartbeats_missed")  # missed beside load
    wait_for(lambda: js.consumer_info(unique, "p").num_ack_pending == 0)


def test_a_queue_group_shares_a_push_consumer(js: Any, server: ServerProcess, unique: str) -> None:
    config = ConsumerConfig(durable_name="q", deliver_subject=f"{unique}q", deliver_group="g")
    js.create_consumer(unique, config)
    with sync.connect(server.url) as other:
        theirs = other.jetstream().push_consumer(unique, "q").consume()
        found = []
        with js.push_consumer(unique, "q").consume() as messages:
            other.flush()
            publish(js, unique, COUNT, COUNT + 100)
            for message in messages:
                found.append(number(message))
                message.ack()
                if len(found) >= 20:
                    break
        theirs.drain()
        found += [number(each) for each in theirs]
    assert set(found) <= set(range(COUNT + 100))
    assert len(found) > 20


# -- priority groups ------------------------------------------------------------------------------


def grouped(js: Any, stream: str, policy: Any, **more: Any) -> Any:
    config = ConsumerConfig(
        durable_name="g", priority_groups=["main"], priority_policy=policy, **more
    )
    js.create_consumer(stream, config)
    return js.consumer(stream, "g")


@pytest.mark.needs("priority_groups")
def test_an_overflow_client_gets_messages_when_enough_wait(js: Any, unique: str) -> None:
    consumer = grouped(js, unique, "overflow")
    assert consumer.fetch(1, timeout=0.2, min_pending=COUNT + 1) == []
    assert len(consumer.fetch(1, timeout=30, group="main", min_pending=COUNT)) == 1
    with consumer.consume(min_pending=2) as messages:
        assert number(next(iter(messages))) == 1
    with pytest.raises(ValueError, match="no priority group 'other'"):
        consumer.fetch(1, group="other")
    with pytest.raises(ValueError, match="prioritized"):
        consumer.fetch(1, priority=2)


@pytest.mark.needs("priority_groups")
def test_a_pinned_client_keeps_its_pin_and_gives_it_up(
    js: Any, server: ServerProcess, unique: str
) -> None:
    consumer = grouped(js, unique, "pinned_client", priority_timeout="60s")
    told: list[ConsumerEvent] = []
    seen: list[int] = []
    unpin = f"$JS.API.CONSUMER.UNPIN.{unique}.g", b'{"group": "main"}'

    def run_until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, told
            messages.run(timeout=0.05)

    options = {"max_messages": 2, "heartbeat": 0.2, "expires": 1, "on_status": told.append}
    with consumer.consume(
        lambda message: seen.append(number(message)), auto_ack=True, **options
    ) as messages:
        run_until(lambda: len(seen) >= COUNT)
        assert [event.type for event in told].count("consumer_pinned") == 1
        with sync.connect(server.url) as other:
            rival = other.jetstream().consumer(unique, "g")
            publish(js, unique, COUNT, COUNT + 1)
            assert rival.fetch(1, timeout=0.2) == []
            run_until(lambda: len(seen) > COUNT)
            other.request(*unpin)
            publish(js, unique, COUNT + 1, COUNT + 2)
            run_until(lambda: len(seen) > COUNT + 1)
            assert "consumer_unpinned" in {event.type for event in told}
    assert seen == list(range(COUNT + 2))
    pins = [event.name for event in told if event.type == "consumer_pinned"]
    assert len(set(pins)) == 2


@pytest.mark.needs("priority_groups")
def test_a_client_of_lower_priority_waits(js: Any, server: ServerProcess, unique: str) -> None:
    consumer = grouped(js, unique, "prioritized")
    assert [number(each) for each in consumer.fetch(2, timeout=30, priority=9)] == [0, 1]
    with pytest.raises(ValueError, match="a priority is 0"):
        consumer.fetch(1, priority=10)
