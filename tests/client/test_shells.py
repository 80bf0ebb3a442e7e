"""What both shells do the same: one body for each, against every server there is."""

from __future__ import annotations

import gc
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from pelton import ConsumerConfig, StreamConfig
from pelton.errors import (
    ConnectionClosedError,
    ConsumerDeletedError,
    ConsumerNotFoundError,
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
    with js.consumer(unique, "c") as handle:
        for message in handle.fetch(5):
            message.ack()
        messages = handle.consume(max_messages=4)
        found = []
        for message in islice(messages, 15):
            message.ack_sync()
            found.append(message.data)
        messages.stop()
        assert found == [b"%d" % n for n in range(5, 20)]
        assert handle.fetch(1, no_wait=True) == []
        js.delete_consumer(unique, "c")
        with pytest.raises((ConsumerDeletedError, ConsumerNotFoundError)):
            handle.fetch(1, timeout=5)
    with pytest.raises(ConsumerNotFoundError):  # it is closed, and begins again
        handle.fetch(1, timeout=5)


def test_whoever_leaves_an_ordered_reader_leaves_no_consumer(js: Any, unique: str) -> None:
    for n in range(7):
        js.publish(f"{unique}.a", b"%d" % n)
    with js.ordered_consumer(unique, start_seq=2).consume() as reader:
        assert [message.data for message in islice(reader, 3)] == [b"1", b"2", b"3"]
        (name,) = js.consumer_names(unique)
        js.delete_consumer(unique, name)
        js.publish(f"{unique}.a", b"7")
        assert [message.data for message in islice(reader, 4)] == [b"4", b"5", b"6", b"7"]
        assert len(js.consumer_names(unique)) == 1
    assert js.consumer_names(unique) == []
    with pytest.raises(StreamNotFoundError):
        next(iter(js.ordered_consumer(f"{unique}x").consume()))


def test_push_consumers(client: Any, js: Any, unique: str) -> None:
    before = len(client._connection.interests)
    js.create_consumer(
        unique,
        ConsumerConfig(name="p", ack_policy="explicit", deliver_subject=f"{unique}_deliver"),
    )
    with js.push_consumer(unique, "p") as consumer:
        assert consumer.next(0.01) is None
        js.publish(f"{unique}.a", b"1")
        message = consumer.next(30)
        message.nak()
        again = consumer.next(30)
        again.in_progress()
        assert not again.acked
        again.term("no")
        assert again.acked
        assert (message.data, again.metadata.delivered) == (b"1", 2)
        assert consumer.info().stream_name == unique
    with pytest.raises(StreamNotFoundError):
        js.push_consumer(f"{unique}x", "p")
    gc.collect()
    client.flush()
    assert len(client._connection.interests) <= before + 1  # the inbox of all requests


def test_a_closed_client_says_so(client: Any, js: Any, unique: str, shell: str) -> None:
    with connected(shell, f"nats://127.0.0.1:{client._connection.info.port}") as other:
        handle = other.jetstream().consumer(unique, "c", verify=False)
        publisher = other.jetstream().publisher()
        publisher.flush()
        other.close()
        for call in (
            lambda: other.publish("a"),
            lambda: other.request("a"),
            other.flush,
            lambda: handle.fetch(1),
            lambda: publisher.publish(f"{unique}.a"),
            lambda: other.jetstream().stream_info(unique),
            lambda: next(iter(other.jetstream().ordered_consumer(unique).consume())),
        ):
            with pytest.raises(ConnectionClosedError, match="closed"):
                call()
