"""Management of streams and consumers, and direct gets: both shells, every server."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pelton
from pelton import (
    ConsumerConfig,
    ConsumerExistsError,
    ConsumerNotFoundError,
    DirectGetError,
    InvalidStreamConfigError,
    MaximumConsumersError,
    MessageNotFoundError,
    NoRespondersError,
    NotClusteredError,
    PeltonTimeoutError,
    StreamConfig,
    StreamExistsError,
    StreamNotFoundError,
    StreamSealedError,
    SubjectsOverlapError,
    WrongLastMessageIdError,
    WrongStreamError,
)
from pelton.api import ApiError as WireError
from pelton.client.stored import PAGE_MAX, single_get
from pelton.sync import connect
from tests.client.shells import connected
from tests.nats_clusters import running_cluster, wait_until_ready
from tests.peers import OLDEST, available_servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess


@pytest.fixture
def client(shell: str, server: ServerProcess) -> Iterator[Any]:
    with connected(shell, server.url) as each:
        yield each


@pytest.fixture
def js(client: Any, unique: str) -> Iterator[Any]:
    """JetStream with a stream that takes ``unique.>`` and allows direct gets."""
    jetstream = client.jetstream()
    jetstream.create_stream(config(unique))
    yield jetstream
    jetstream.delete_stream(unique)


def config(name: str, **fields: Any) -> StreamConfig:
    given = {"subjects": [f"{name}.>"], "storage": "memory", "allow_direct": True}
    return StreamConfig(name=name, **{**given, **fields})


def fill(js: Any, *subjects: str) -> None:
    with js.publisher() as publisher:
        for number, subject in enumerate(subjects, 1):
            publisher.publish(subject, b"%d" % number)


def test_streams_are_created_updated_and_found(js: Any, unique: str) -> None:
    assert js.stream_name_by_subject(f"{unique}.a") == unique
    with pytest.raises(StreamNotFoundError, match=f"{unique}x.a"):
        js.stream_name_by_subject(f"{unique}x.a")
    with pytest.raises(ValueError, match="empty"):
        js.stream_name_by_subject("")
    other = config(f"{unique}-2", subjects=[f"{unique}-2.>"])
    assert js.create_or_update_stream(other).config.max_msgs == -1
    other.max_msgs = 7
    assert js.create_or_update_stream(other).config.max_msgs == 7
    js.delete_stream(other.name)


def test_errors_have_a_class_of_their_own(js: Any, unique: str) -> None:
    for wrong, kind in (
        (config(unique, max_msgs=3), StreamExistsError),
        (config(f"{unique}o", subjects=[f"{unique}.a"]), SubjectsOverlapError),
        (config(f"{unique}i", max_age="1s", duplicate_window="1h"), InvalidStreamConfigError),
    ):
        with pytest.raises(kind):
            js.create_stream(wrong)
    js.publish(f"{unique}.a", msg_id="1")
    with pytest.raises(WrongLastMessageIdError):
        js.publish(f"{unique}.a", expected_last_msg_id="2")
    with pytest.raises(WrongStreamError):
        js.publish(f"{unique}.a", expected_stream="other")
    js.update_stream(config(unique, max_consumers=-1))
    js.create_consumer(unique, ConsumerConfig(name="c"), action="create")
    with pytest.raises(ConsumerExistsError):
        js.create_consumer(unique, ConsumerConfig(name="c", ack_wait=99), action="create")
    with pytest.raises(ConsumerNotFoundError):
        js.update_consumer(unique, ConsumerConfig(name="d"))
    few = config(f"{unique}f", subjects=[f"{unique}f"], max_consumers=1)
    js.create_stream(few)
    js.create_consumer(few.name, ConsumerConfig(name="c"))
    with pytest.raises(MaximumConsumersError):
        js.create_consumer(few.name, ConsumerConfig(name="d"))
    js.update_stream(config(few.name, subjects=[few.name], max_consumers=1, sealed=True))
    with pytest.raises(StreamSealedError):
        js.publish(few.name)
    js.delete_stream(few.name)


def test_every_class_of_the_table_is_exported() -> None:
    users = {
        base
        for kind in WireError.__subclasses__()
        for base in kind.__bases__
        if base.__module__ == "pelton.errors" and base is not pelton.ApiError
    }
    assert len(users) > 15
    assert {each.__name__ for each in users} <= set(pelton.__all__)
    assert all(inspect.getdoc(each) for each in users)


def test_lists_come_page_by_page(client: Any, js: Any, unique: str) -> None:
    names = sorted(f"{unique}-{number:03}" for number in range(270))
    for name in names:
        config = ConsumerConfig(
            name=name, mem_storage=True, inactive_threshold=timedelta(minutes=5)
        )
        js.create_consumer(unique, config)
    assert list(js.iter_consumer_names(unique)) == names
    assert [info.name for info in js.iter_consumers(unique)] == names
    assert [info.name for info in islice(js.iter_consumers(unique), 3)] == names[:3]
    assert list(js.iter_stream_names(f"{unique}.a")) == [unique]
    assert [info.config.name for info in js.iter_streams(f"{unique}.a")] == [unique]
    assert unique in list(js.iter_stream_names())
    assert list(js.iter_streams(f"nobody.{unique}")) == []
    with pytest.raises(StreamNotFoundError):
        list(js.iter_consumers(f"{unique}x"))


@pytest.mark.needs("pauses of consumers", "resets of consumers", "pins of priority groups")
def test_consumers_pause_resume_reset_and_lose_pins(js: Any, unique: str) -> None:
    fill(js, f"{unique}.a", f"{unique}.b")
    info = js.create_or_update_consumer(unique, ConsumerConfig(durable_name="c", ack_wait=30))
    assert info.num_pending == 2
    assert (
        js.create_or_update_consumer(
            unique, ConsumerConfig(durable_name="c", ack_wait=60)
        ).config.ack_wait
        == 60 * 10**9
    )
    until = datetime.now(UTC) + timedelta(hours=1)
    paused = js.pause_consumer(unique, "c", until)
    assert paused.paused
    assert 0 < paused.pause_remaining_ns <= 3600 * 10**9
    assert paused.pause_until_ns // 10**9 == int(until.timestamp())
    assert js.consumer_info(unique, "c").paused
    assert js.resume_consumer(unique, "c") == (False, 0, 0)
    consumer = js.consumer(unique, "c", verify=False)
    for message in consumer.fetch(2, timeout=5):
        message.ack_sync()
    assert js.consumer_info(unique, "c").num_pending == 0
    assert js.reset_consumer(unique, "c", 2).num_pending == 1
    (again,) = consumer.fetch(5, timeout=5, no_wait=True)
    assert again.metadata.stream_seq == 2
    js.create_consumer(
        unique,
        ConsumerConfig(name="p", priority_groups=["g"], priority_policy="pinned_client"),
    )
    js.unpin_consumer(unique, "p", "g")
    with pytest.raises(ConsumerNotFoundError):
        js.unpin_consumer(unique, "q", "g")
    with pytest.raises(ValueError, match="group"):
        js.unpin_consumer(unique, "p", "")
    with pytest.raises(ConsumerNotFoundError):
        js.pause_consumer(unique, "gone", until)


def test_a_single_server_has_no_leaders_to_change(js: Any, unique: str) -> None:
    for ask in (
        lambda: js.step_down_stream(unique),
        lambda: js.remove_stream_peer(unique, "s1"),
    ):
        with pytest.raises(NotClusteredError):
            ask()


@pytest.mark.peer
@pytest.mark.skipif("nats-server" not in available_servers(OLDEST), reason="no nats-server")
def test_leaders_step_down_in_a_cluster() -> None:
    with running_cluster() as cluster, connect(cluster.urls) as client:
        wait_until_ready(client)
        js = client.jetstream(timeout=20)
        js.create_stream(StreamConfig(name="S", subjects=["s.>"], num_replicas=3))
        js.create_consumer("S", ConsumerConfig(durable_name="c"))
        before = js.stream_info("S").cluster
        assert before is not None
        js.step_down_stream("S")
        js.step_down_consumer("S", "c")
        for _ in range(20):  # the former leader may drop a message that it has not stored yet
            try:
                js.publish("s.a", msg_id="one", timeout=3)
                break
            except PeltonTimeoutError:
                continue
        assert js.stream_info("S").state.messages == 1


@pytest.mark.needs("direct gets by time or in batches")
def test_direct_gets_of_one_message(js: Any, unique: str) -> None:
    a, b = f"{unique}.a", f"{unique}.b"
    js.publish(a, b"1", headers={"Mine": ["x", "y"]})
    js.publish(b, b"2")
    js.publish(a, b"3")
    first = js.direct_get(unique, 1)
    assert first[:3] == (a, 1, b"1")
    assert first.headers.lists() == {"Mine": ["x", "y"]}
    assert first == js.get_message(unique, 1), "both ways give the same"
    assert js.direct_get(unique, last_by_subject=a).seq == 3
    assert js.direct_get(unique, last_by_subject=f"{unique}.*").seq == 3
    assert js.direct_get(unique, 2, next_by_subject=a).seq == 3
    assert js.direct_get(unique, next_by_subject=b).seq == 2
    assert js.direct_get(unique, start_time=first.timestamp_ns + 1).seq in (2, 3)
    for missing in ({"seq": 9}, {"last_by_subject": f"{unique}.c"}):
        with pytest.raises(MessageNotFoundError):
            js.direct_get(unique, **missing)
    with pytest.raises(NoRespondersError):
        js.direct_get(f"{unique}x", 1)


@pytest.mark.parametrize(
    "fields",
    [
        (None, None, None, None),
        (1, "a", None, None),
        (1, None, None, 5),
        (0, None, None, None),
        (None, "a", "b", None),
    ],
)
def test_a_direct_get_selects_one_message(fields: Any) -> None:
    with pytest.raises(ValueError, match=r"give|given|seq must be"):
        single_get(*fields)


@pytest.mark.needs("direct gets by time or in batches")
def test_batches_of_direct_gets_against_a_list(js: Any, unique: str) -> None:
    subjects = [f"{unique}.{number % 7}" for number in range(2 * PAGE_MAX + 100)]
    fill(js, *subjects)
    stored = [(subject, seq) for seq, subject in enumerate(subjects, 1)]
    for seq in (3, 4, 1500):
        js.delete_message(unique, seq)
        stored = [each for each in stored if each[1] != seq]
    assert [each[:2] for each in js.get_batch(unique)] == stored
    assert [each[:2] for each in js.get_batch(unique, 5, seq=2)] == stored[1:6]
    one = [each for each in stored if each[0] == f"{unique}.3"]
    found = js.get_batch(unique, subject=f"{unique}.3", max_bytes=2000)
    assert [each[:2] for each in found] == one, "also in small pages"
    last = js.get_message(unique, len(subjects))
    assert [each.seq for each in js.get_batch(unique, start_time=last.timestamp_ns)][-1] == last.seq
    assert list(js.get_batch(unique, seq=len(subjects) + 1)) == []
    assert list(js.get_batch(unique, subject=f"{unique}.none")) == []
    assert next(iter(js.get_batch(unique))).seq == 1, "an iteration may be left"
    with pytest.raises(ValueError, match="batch"):
        list(js.get_batch(unique, 0))
    with pytest.raises(NoRespondersError):
        list(js.get_batch(f"{unique}x"))


@pytest.mark.needs("direct gets by time or in batches")
def test_last_messages_of_many_subjects(js: Any, unique: str) -> None:
    subjects = [f"{unique}.{number % 40}" for number in range(100)]
    fill(js, *subjects)

    def last(up_to: int) -> list[tuple[str, int]]:
        found = {subject: seq for seq, subject in enumerate(subjects[:up_to], 1)}
        return sorted(found.items(), key=lambda each: each[1])

    def got(*args: Any, **kwargs: Any) -> list[tuple[str, int]]:
        return [each[:2] for each in js.get_last_messages_for(unique, *args, **kwargs)]

    assert got(f"{unique}.>") == last(100)
    assert got([f"{unique}.>"], max_bytes=300) == last(100), "also in small pages"
    assert got([f"{unique}.1", f"{unique}.2"], up_to_seq=41) == [
        each for each in last(41) if each[0] in (f"{unique}.1", f"{unique}.2")
    ]
    assert got(f"{unique}.>", up_to_seq=50) == last(50)
    assert got(f"{unique}.>", batch=3) == last(100)[:3]
    moment = js.get_message(unique, 100).timestamp_ns + 1
    assert got(f"{unique}.>", up_to_time=moment) == last(100)
    assert got(f"{unique}.none") == []
    for wrong in ([], [""]):
        with pytest.raises(ValueError, match="subject"):
            got(wrong)
    fill(js, *[f"{unique}.many.{number}" for number in range(1100)])
    with pytest.raises(DirectGetError) as caught:
        got(f"{unique}.many.*")
    assert caught.value.status == 413


@pytest.mark.needs("direct gets by time or in batches")
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_pages_are_like_one_answer(js: Any, unique: str, data: st.DataObject) -> None:
    count = js.stream_info(unique).state.messages
    if not count:
        fill(js, *[f"{unique}.{number % 5}" for number in range(60)])
        count = 60
    seq = data.draw(st.integers(1, count))
    batch = data.draw(st.none() | st.integers(1, count))
    size = data.draw(st.integers(1, 2000))
    found = [each.seq for each in js.get_batch(unique, batch, seq=seq, max_bytes=size)]
    assert found == list(range(seq, count + 1))[:batch]
