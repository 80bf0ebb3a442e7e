"""What both shells do the same: one body for each, against every server there is."""

from __future__ import annotations

import gc
import inspect
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

import pelton.client
from pelton.client import ConsumerConfig, StreamConfig
from pelton.client.base.steps import Call, FlowCall
from pelton.errors import (
    ConnectionClosedError,
    ConsumerDeletedError,
    NoRespondersError,
    PeltonTimeoutError,
    PublishFailedError,
    SlowConsumerError,
    StreamNotFoundError,
    WrongLastSequenceError,
)
from tests.client.shells import connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess

ONE_SHELL_ONLY = {
    "Client": {"drain", "detach", "wait_until"},
    "JetStream": {"column_reader", "read_columns"},
}


@pytest.fixture
def client(shell: str, server: ServerProcess) -> Iterator[Any]:
    with connected(shell, server.url) as each:
        yield each


@pytest.fixture
def js(client: Any, unique: str) -> Iterator[Any]:
    """JetStream with a stream that takes ``unique.>``."""
    jetstream = client.jetstream()
    jetstream.create_stream(
        StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory", max_age=0)
    )
    yield jetstream
    jetstream.delete_stream(unique)


def calls_of(kind: type) -> set[str]:
    """Names of the calls that a class without I/O has for both shells."""
    return {
        name
        for base in kind.__mro__
        for name, value in vars(base).items()
        if isinstance(value, Call | FlowCall)
    }


def flows_of(kind: type) -> set[str]:
    """Names of the calls that are iterated over."""
    return {
        name
        for base in kind.__mro__
        for name, value in vars(base).items()
        if isinstance(value, FlowCall)
    }


def public(kind: type) -> set[str]:
    """Names of the methods for users: those that are no steps themselves."""
    return {
        name
        for name, value in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        and not str(inspect.signature(value).return_annotation).startswith(("Steps", "Flow"))
    }


KINDS = ("Client", "JetStream", "Message", "Publisher", "PullConsumer", "Subscription")
KINDS += (
    "AtomicBatch",
    "FastBatch",
    "PushSubscription",
    "StatusEvents",
    "Counter",
    "ObjectStore",
    "ObjectWatcher",
)
KINDS += ("KeyValue", "KeyWatch", "KeyTransaction")
KINDS += ("Consumer", "ConsumerMessages", "OrderedConsumer", "PushConsumer", "PushMessages")


@pytest.mark.parametrize("name", KINDS)
def test_both_shells_have_the_same_calls_explained(name: str) -> None:
    ours, theirs = getattr(pelton.client, name), getattr(pelton.client, f"Blocking{name}")
    assert public(ours) ^ public(theirs) <= ONE_SHELL_ONLY.get(name, set())
    for each in calls_of(ours) & calls_of(theirs):
        for kind in (ours, theirs):
            method = getattr(kind, each)
            assert method.__name__ == each
            assert (inspect.getdoc(method) or "").strip(), method
            assert each in public(kind)
        awaited = inspect.iscoroutinefunction(getattr(ours, each))
        assert awaited or each in flows_of(ours)
        assert not inspect.iscoroutinefunction(getattr(theirs, each))


def test_requests_and_flushes(client: Any, unique: str) -> None:
    with pytest.raises(NoRespondersError):
        client.request(f"{unique}.nobody")
    subscription = client.subscribe(f"{unique}.*", max_msgs=2)
    with pytest.raises(PeltonTimeoutError, match=unique):
        client.request(f"{unique}.silent", timeout=0.05)
    assert subscription.next(5).reply
    assert client.rtt() < 60
    client.publish(f"{unique}.last", b"2")
    client.flush()
    assert [message.data for message in subscription] == [b"2"]


def test_dropped_messages_are_told_of_once(client: Any, unique: str) -> None:
    with client.subscribe(unique, pending_messages_max=2) as subscription:
        for n in range(5):
            client.publish(unique, b"%d" % n)
        client.flush()
        with pytest.raises(SlowConsumerError) as told:
            subscription.next()
        assert told.value.dropped == subscription.dropped == 3
        assert [subscription.next().data for _ in range(2)] == [b"0", b"1"]


def test_publishes_and_pulls(client: Any, js: Any, unique: str) -> None:
    assert [js.publish(f"{unique}.a", b"%d" % n).seq for n in range(3)] == [1, 2, 3]
    with pytest.raises(WrongLastSequenceError):
        js.publish(f"{unique}.a", expected_last_seq=1)
    with js.publisher(window=3) as publisher:
        for n in range(3, 20):
            publisher.publish(f"{unique}.a", b"%d" % n, msg_id=str(n))
        publisher.publish(f"{unique}.a", msg_id="19")
        publisher.flush()
        assert (publisher.acked, publisher.duplicates) == (18, 1)
        publisher.publish(f"{unique}x.a")
        with pytest.raises(PublishFailedError) as failed:
            publisher.flush()
        assert [subject for subject, _, _ in failed.value.failures] == [f"{unique}x.a"]
    js.create_consumer(unique, ConsumerConfig(durable_name="c"))
    with js.pull(unique, "c") as handle:
        for message in handle.fetch(5):
            message.ack()
        messages = handle.messages(batch=4)
        found = []
        for message in islice(messages, 15):
            message.ack_sync()
            found.append(message.data)
        messages.close()
        assert found == [b"%d" % n for n in range(5, 20)]
        assert handle.fetch(1, no_wait=True) == []
        js.delete_consumer(unique, "c")
        with pytest.raises((ConsumerDeletedError, NoRespondersError)):
            handle.fetch(1, timeout=5)
    with pytest.raises(ConnectionClosedError, match="is closed"):
        handle.fetch(1)


def test_whoever_leaves_an_ordered_reader_leaves_no_consumer(js: Any, unique: str) -> None:
    for n in range(7):
        js.publish(f"{unique}.a", b"%d" % n)
    reader = js.ordered(unique, start_seq=2)
    assert [message.data for message in islice(reader, 3)] == [b"1", b"2", b"3"]
    (name,) = js.consumer_names(unique)
    js.delete_consumer(unique, name)
    js.publish(f"{unique}.a", b"7")
    assert [message.data for message in islice(reader, 4)] == [b"4", b"5", b"6", b"7"]
    assert len(js.consumer_names(unique)) == 1
    reader.close()
    assert js.consumer_names(unique) == []
    with pytest.raises(StreamNotFoundError):
        next(js.ordered(f"{unique}x"))


def test_push_subscriptions(client: Any, js: Any, unique: str) -> None:
    before = len(client._connection.interests)
    with js.subscribe(unique, ConsumerConfig(ack_policy="explicit")) as subscription:
        js.publish(f"{unique}.a", b"1")
        message = subscription.next(30)
        message.nak()
        again = subscription.next(30)
        again.in_progress()
        assert not again.acked
        again.term("no")
        assert again.acked
        assert (message.data, again.metadata.delivered) == (b"1", 2)
        assert subscription.info.stream_name == unique
    with pytest.raises(StreamNotFoundError):
        js.subscribe(f"{unique}x")
    gc.collect()
    client.flush()
    assert len(client._connection.interests) <= before + 1  # the inbox of all requests


def test_a_closed_client_says_so(client: Any, js: Any, unique: str, shell: str) -> None:
    with connected(shell, f"nats://127.0.0.1:{client._connection.info.port}") as other:
        handle, publisher = other.jetstream().pull(unique, "c"), other.jetstream().publisher()
        publisher.flush()
        other.close()
        for call in (
            lambda: other.publish("a"),
            lambda: other.request("a"),
            other.flush,
            lambda: handle.fetch(1),
            lambda: publisher.publish(f"{unique}.a"),
            lambda: other.jetstream().stream_info(unique),
            lambda: next(other.jetstream().ordered(unique)),
        ):
            with pytest.raises(ConnectionClosedError, match="closed"):
                call()
