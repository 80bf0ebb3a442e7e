"""The blocking client against real servers."""

from __future__ import annotations

import pickle
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pelton import ConsumerConfig, Options, StreamConfig
from pelton.client.base.addresses import parse_servers
from pelton.client.sync.columns import ColumnReader
from pelton.client.sync.sharing import GATHER_S
from pelton.client.sync.transport import Transport
from pelton.errors import (
    ConnectError,
    ConnectionClosedError,
    ConnectionLostError,
    ConsumerNotFoundError,
    MessageNotFoundError,
    NoRespondersError,
    PayloadTooLargeError,
    PeltonTimeoutError,
    PublishFailedError,
    SlowConsumerError,
    StreamExistsError,
    StreamNotFoundError,
    WrongLastSequenceError,
)
from pelton.sync import connect
from tests.client.shells import wait_for
from tests.peers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.client.sync.jetstream import JetStream
    from pelton.sync import Client
    from tests.peers import ServerProcess


@pytest.fixture
def nc(server: ServerProcess) -> Iterator[Client]:
    with connect(server.url, name="test", timeout=10) as client:
        yield client


@pytest.fixture
def js(nc: Client, unique: str) -> Iterator[JetStream]:
    jetstream = nc.jetstream()
    jetstream.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory"))
    yield jetstream
    if unique in jetstream.stream_names():
        jetstream.delete_stream(unique)


def pushed(js: JetStream, stream: str, **config: Any) -> None:
    js.create_consumer(stream, ConsumerConfig(name="p", deliver_subject=f"to.{stream}", **config))


def filled(js: JetStream, stream: str, count: int) -> None:
    with js.publisher() as publisher:
        for number in range(1, count + 1):
            publisher.publish(f"{stream}.{number % 3}", b"%d" % number)


def test_publish_and_subscribe_with_headers_and_wildcards(nc: Client, unique: str) -> None:
    exact, wild = nc.subscribe(f"{unique}.a"), nc.subscribe(f"{unique}.*")
    nc.publish(f"{unique}.a", b"1", headers={"K": ["x", "y"]}, reply="r")
    nc.publish(f"{unique}.b", b"2")
    message = exact.next()
    assert (message.data, message.headers.lists(), message.reply) == (b"1", {"K": ["x", "y"]}, "r")
    assert [wild.next().data for _ in range(2)] == [b"1", b"2"]
    assert exact.next(timeout=0.05) is None


def test_a_queue_group_shares_and_auto_unsubscribe_ends(nc: Client, unique: str) -> None:
    one, two = nc.subscribe(unique, queue="q"), nc.subscribe(unique, queue="q")
    three = nc.subscribe(unique, max_msgs=3)
    for _ in range(20):
        nc.publish(unique, b"x")
    nc.flush()
    assert one.pending + two.pending == 20
    assert len(list(three)) == 3
    with pytest.raises(ConnectionClosedError):
        three.next()


def test_unsubscribe_and_drain(nc: Client, unique: str) -> None:
    gone, drained = nc.subscribe(unique), nc.subscribe(unique)
    gone.unsubscribe()
    nc.publish(unique, b"1")
    drained.drain()
    nc.publish(unique, b"2")
    nc.flush()
    assert [message.data for message in drained] == [b"1"]
    assert gone.pending == 0


def test_request_is_answered_by_another_connection(server: ServerProcess, unique: str) -> None:
    ready = threading.Event()

    def serve() -> None:
        with connect(server.url) as other:
            subscription = other.subscribe(unique)
            other.flush()
            ready.set()
            message = subscription.next(timeout=10)
            message.respond(message.data.upper(), headers={"Ok": "yes"})

    thread = threading.Thread(target=serve)
    thread.start()
    assert ready.wait(10)
    with connect(server.url) as nc:
        answer = nc.request(unique, b"abc", timeout=10)
        assert (answer.data, answer.header("Ok")) == (b"ABC", "yes")
    thread.join()


def test_requests_that_fail(nc: Client, unique: str) -> None:
    with pytest.raises(NoRespondersError):
        nc.request(unique, b"")
    nc.subscribe(unique)
    with pytest.raises(PeltonTimeoutError):
        nc.request(unique, b"", timeout=0.05)
    with pytest.raises(PayloadTooLargeError):
        nc.publish(unique, bytes(nc.server_info.max_payload + 1))
    with pytest.raises(ValueError, match="line end"):
        nc.publish(unique, b"", headers={"a": "b\n"})


def test_a_slow_subscription_tells_once_and_goes_on(nc: Client, unique: str) -> None:
    subscription = nc.subscribe(unique, pending_messages_max=2)
    for number in range(5):
        nc.publish(unique, b"%d" % number)
    nc.flush()
    with pytest.raises(SlowConsumerError) as caught:
        subscription.next()
    assert caught.value.dropped == 3
    assert [subscription.next().data for _ in range(2)] == [b"0", b"1"]


def test_no_server_is_a_connect_error_that_names_it() -> None:
    port = free_port()
    with pytest.raises(ConnectError, match=str(port)):
        connect(f"nats://127.0.0.1:{port}")


def test_a_client_is_opened_from_pickled_options(server: ServerProcess) -> None:
    options = pickle.loads(pickle.dumps(Options(servers=parse_servers(server.url), name="p")))
    with connect(options) as nc:
        assert nc.rtt() < 5
    nc.close()
    with pytest.raises(ConnectionClosedError):
        nc.publish("a", b"")


def test_streams_are_managed(js: JetStream, unique: str) -> None:
    info = js.stream_info(unique)
    assert info.config.subjects == [f"{unique}.>"]
    assert js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory"))
    with pytest.raises(StreamExistsError):
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.x"], storage="memory"))
    changed = js.update_stream(
        StreamConfig(name=unique, subjects=[f"{unique}.>"], storage="memory", max_msgs=50)
    )
    assert changed.config.max_msgs == 50
    assert unique in js.stream_names()
    assert js.stream_names(f"{unique}.a") == [unique]
    assert unique in [found.config.name for found in js.streams()]
    filled(js, unique, 10)
    counts = js.stream_info(unique, subjects_filter=">").state.subjects
    assert counts == {f"{unique}.0": 3, f"{unique}.1": 4, f"{unique}.2": 3}
    assert js.purge_stream(unique, keep=6) == 4
    assert js.purge_stream(unique, seq=6) == 1
    assert js.purge_stream(unique, filter_subject=f"{unique}.0") == 2  # 6 and 9 of 6 to 10
    assert js.purge_stream(unique) == 3
    assert js.account_info().streams >= 1
    js.delete_stream(unique)
    with pytest.raises(StreamNotFoundError):
        js.stream_info(unique)


def test_stored_messages_are_read_and_deleted(js: JetStream, unique: str) -> None:
    js.publish(f"{unique}.a", b"\x00\xff", headers={"K": "v"})
    js.publish(f"{unique}.b", b"2")
    found = js.get_message(unique, 1)
    assert (found.subject, found.seq, found.data) == (f"{unique}.a", 1, b"\x00\xff")
    assert found.headers.lists() == {"K": ["v"]}
    assert abs(found.timestamp_ns - time.time_ns()) < 3600e9
    assert js.get_message(unique, last_by_subject=f"{unique}.*").seq == 2
    assert js.get_message(unique, 2, next_by_subject=f"{unique}.b").seq == 2
    js.delete_message(unique, 1)
    with pytest.raises(MessageNotFoundError):
        js.get_message(unique, 1)


def test_consumers_are_managed(js: JetStream, unique: str) -> None:
    config = ConsumerConfig(name="c", durable_name="c", ack_policy="explicit")
    config.filter_subject = f"{unique}.1"
    info = js.create_consumer(unique, config, action="create")
    assert (info.name, info.stream_name) == ("c", unique)
    config.max_deliver = 5
    assert js.update_consumer(unique, config).config.max_deliver == 5
    ephemeral = js.create_consumer(unique, ConsumerConfig())
    assert sorted(js.consumer_names(unique)) == sorted(["c", ephemeral.name])
    assert len(js.consumers(unique)) == 2
    js.delete_consumer(unique, "c")
    with pytest.raises(ConsumerNotFoundError):
        js.consumer_info(unique, "c")


def test_publish_expectations_and_duplicates(js: JetStream, unique: str) -> None:
    subject = f"{unique}.a"
    assert js.publish(subject, b"1", msg_id="one", expected_last_seq=0).seq == 1
    again = js.publish(subject, b"1", msg_id="one")
    assert (again.seq, again.duplicate) == (1, True)
    with pytest.raises(WrongLastSequenceError):
        js.publish(subject, b"2", expected_last_seq=7)
    with pytest.raises(WrongLastSequenceError):
        js.publish(subject, b"2", expected_last_subject_seq=0)
    assert js.publish(subject, b"2", expected_stream=unique, expected_last_msg_id="one").seq == 2
    with pytest.raises(NoRespondersError):
        js.publish(f"nobody.{unique}", b"")


def test_a_publisher_acks_all_and_tells_which_failed(js: JetStream, unique: str) -> None:
    with js.publisher(window=16) as publisher:
        for number in range(300):
            publisher.publish(f"{unique}.a", b"%d" % number, msg_id=f"{number % 200}")
    assert (publisher.acked, publisher.duplicates) == (300, 100)
    assert js.stream_info(unique).state.messages == 200
    publisher = js.publisher()
    publisher.publish(f"{unique}.a", b"fine")
    publisher.publish(f"nobody.{unique}", b"", msg_id="lost")
    with pytest.raises(PublishFailedError) as caught:
        publisher.flush()
    ((subject, msg_id, error),) = caught.value.failures
    assert (subject, msg_id) == (f"nobody.{unique}", "lost")
    assert isinstance(error, NoRespondersError)
    assert publisher.acked == 1


def test_pull_ack_nak_term_and_redelivery(js: JetStream, unique: str) -> None:
    filled(js, unique, 5)
    js.create_consumer(unique, ConsumerConfig(durable_name="c", ack_policy="explicit"))
    consumer = js.consumer(unique, "c")
    messages = consumer.fetch(5)
    assert [message.metadata.stream_seq for message in messages] == [1, 2, 3, 4, 5]
    assert messages[0].metadata.pending == 4
    messages[0].ack()
    messages[1].ack_sync()
    messages[2].nak()
    messages[3].term("bad")
    messages[4].in_progress()
    (again,) = consumer.fetch(1, timeout=5)
    assert (again.metadata.stream_seq, again.metadata.delivered) == (3, 2)
    again.ack_sync()
    info = js.consumer_info(unique, "c")
    assert (info.num_ack_pending, info.ack_floor.stream_seq) == (1, 4)
    assert consumer.fetch(3, no_wait=True) == []
    assert consumer.fetch(3, timeout=0.1) == []


@pytest.mark.parametrize("way", ["fetch", "consume"])
def test_acks_in_quick_succession_are_sent_together_and_without_another_call(
    server: ServerProcess, js: JetStream, unique: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write for each ack took twice the time of everything else."""
    count = 1000
    filled(js, unique, count)
    js.create_consumer(unique, ConsumerConfig(durable_name="c", max_ack_pending=count))
    writes = []
    send = Transport.send

    def counted(transport: Transport, data: bytes | memoryview) -> int:
        if threading.current_thread() is threading.main_thread() and b"+ACK" in bytes(data):
            writes.append(len(data))
        return send(transport, data)

    with connect(server.url, timeout=30) as client:
        consumer = client.jetstream().consumer(unique, "c")
        monkeypatch.setattr(Transport, "send", counted)
        if way == "fetch":
            for message in consumer.fetch(count, timeout=60):
                message.ack()
        else:
            for number, message in enumerate(consumer.consume(), 1):
                message.ack()
                if number == count:
                    break
        wait_for(lambda: js.consumer_info(unique, "c").ack_floor.stream_seq == count)
        assert len(writes) < count / 2


def test_an_ack_is_sent_at_once_after_a_pause(js: JetStream, unique: str) -> None:
    """The handler took its time, so no other ack is likely to follow soon."""
    filled(js, unique, 3)
    js.create_consumer(unique, ConsumerConfig(durable_name="c"))
    for message in js.consumer(unique, "c").fetch(3, timeout=60):
        js.client.wait_until(lambda: False, 2 * GATHER_S)
        message.ack()
        assert js.client._connection.bytes_waiting == 0


def test_pull_limits_of_bytes_and_missing_consumers(js: JetStream, unique: str) -> None:
    for _ in range(4):
        js.publish(f"{unique}.a", bytes(1000))
    js.create_consumer(unique, ConsumerConfig(durable_name="c", ack_policy="explicit"))
    consumer = js.consumer(unique, "c")
    assert len(consumer.fetch(10, max_bytes=2500, timeout=5)) == 2
    assert len(consumer.fetch(2, max_bytes=2500, timeout=30)) == 2
    missing = js.consumer(unique, "missing", verify=False)
    with pytest.raises(
        (ConsumerNotFoundError, PeltonTimeoutError)
    ):  # servers before 2.10.26 keep silent
        missing.fetch(1, timeout=0.1)


def test_messages_flow_until_the_operation_is_stopped(js: JetStream, unique: str) -> None:
    filled(js, unique, 250)
    js.create_consumer(unique, ConsumerConfig(durable_name="c", ack_policy="explicit"))
    consumer = js.consumer(unique, "c")
    seen = []
    messages = consumer.consume(max_messages=20)
    for message in messages:
        message.ack()
        seen.append(message.metadata.stream_seq)
        if len(seen) == 250:
            messages.stop()
    assert seen == list(range(1, 251))


def test_push_with_flow_control_and_heartbeats(js: JetStream, unique: str) -> None:
    filled(js, unique, 200)
    pushed(js, unique, flow_control=True, idle_heartbeat=0.1)
    with js.push_consumer(unique, "p") as consumer:
        found = [consumer.next() for _ in range(200)]
        assert [each.metadata.stream_seq for each in found if each] == list(range(1, 201))
        assert consumer.next(timeout=0.3) is None  # heartbeats are no messages
        js.publish(f"{unique}.a", b"late")
        late = consumer.next()
        assert late is not None
        assert late.data == b"late"


def test_ordered_reading_goes_on_when_its_consumer_is_lost(js: JetStream, unique: str) -> None:
    filled(js, unique, 20)
    ordered = js.ordered_consumer(unique, filter_subjects=[f"{unique}.1", f"{unique}.2"])
    messages = ordered.consume()
    seen = [next(messages).metadata.stream_seq for _ in range(3)]
    for name in js.consumer_names(unique):
        js.delete_consumer(unique, name)
    filled(js, unique, 30)
    while len(seen) < 34:
        seen.append(next(messages).metadata.stream_seq)
    first = [seq for seq in range(1, 21) if seq % 3]
    assert seen == first + [20 + seq for seq in range(1, 31) if seq % 3]
    messages.stop()
    assert js.consumer_names(unique) == []


def test_a_range_is_read_in_columns(js: JetStream, unique: str) -> None:
    filled(js, unique, 1000)
    js.delete_message(unique, 500)

    def rows(start: int, stop: int, **options: object) -> list[tuple[int, bytes]]:
        return [
            (row[0], row[4])
            for columns in js.read_columns(unique, start, stop, **options)
            for row in columns.rows()
        ]

    all_rows = [(seq, b"%d" % seq) for seq in range(1, 1001) if seq != 500]
    assert rows(1, 1001) == all_rows
    assert rows(1, 10_000, rows=7) == all_rows
    assert rows(499, 502) == [(499, b"499"), (501, b"501")]
    assert rows(500, 501) == []
    assert rows(990, 995, max_bytes=1) == [(seq, b"%d" % seq) for seq in range(990, 995)]
    assert rows(1, 100, filter_subjects=f"{unique}.1") == [
        r for r in all_rows[:99] if r[0] % 3 == 1
    ]
    assert rows(5000, 6000) == []
    assert rows(10, 10) == []
    assert js.consumer_names(unique) == []
    with pytest.raises(StreamNotFoundError):
        list(js.read_columns("missing", 1, 10))


def test_other_calls_work_while_a_column_reader_is_open(js: JetStream, unique: str) -> None:
    filled(js, unique, 300)
    js.create_consumer(unique, ConsumerConfig(name="c", ack_policy="none", inactive_threshold=60))
    with ColumnReader(js, unique, "c", rows=50, batch=100) as reader:
        first = reader.read()
        assert js.stream_info(unique).state.messages == 300
        with pytest.raises(RuntimeError, match="another reader"):
            ColumnReader(js, unique, "c")
        seen = first.rows()
        while len(seen) < 300:
            seen += reader.read().rows()
        assert [row[0] for row in seen] == list(range(1, 301))
        assert reader.read(timeout=0.05).count == 0
        js.publish(f"{unique}.x", b"late")
        assert [row[4] for row in reader.read().rows()] == [b"late"]

    with ColumnReader(js, unique, "missing") as reader, pytest.raises(NoRespondersError):
        reader.read(timeout=1)


def test_a_restarted_server_is_found_again(own_server: ServerProcess, unique: str) -> None:
    with connect(own_server.url, timeout=10) as nc:
        js = nc.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
        subscription = nc.subscribe("news")
        filled(js, unique, 100)
        reader = js.read_columns(unique, 1, 10_000, rows=10)
        seen = next(reader).rows()
        own_server.stop()
        own_server.start()
        for columns in reader:
            seen += columns.rows()
        assert [row[0] for row in seen] == list(range(1, 101))
        assert nc.reconnects >= 1
        nc.publish("news", b"again")
        assert subscription.next().data == b"again"
        assert js.stream_info(unique).state.messages == 100


@pytest.mark.parametrize("kill", [False, True])
def test_a_publisher_survives_a_restart_without_loss_or_double(
    own_server: ServerProcess, unique: str, kill: bool
) -> None:
    with connect(own_server.url, timeout=10) as nc:
        js = nc.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
        with js.publisher(window=64, attempts_max=10) as publisher:
            for number in range(2000):
                publisher.publish(f"{unique}.a", b"%d" % number, msg_id=f"{number}")
                if number == 1000:
                    own_server.stop(kill=kill)
                    own_server.start()
        seen = sorted(
            int(row[4]) for columns in js.read_columns(unique, 1, 10_000) for row in columns.rows()
        )
        assert seen == list(range(2000))


def test_every_loop_hears_that_the_client_is_lost(own_server: ServerProcess, unique: str) -> None:
    with connect(own_server.url, reconnect_attempts_max=1, reconnect_wait=0.001, timeout=30) as nc:
        js = nc.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
        js.publish(f"{unique}.a", b"x")
        js.create_consumer(unique, ConsumerConfig(durable_name="c", ack_policy="explicit"))
        pushed(js, unique)
        consumer, plain = js.consumer(unique, "c"), nc.subscribe("a")
        messages, push = consumer.consume(), js.push_consumer(unique, "p").consume()
        ended = nc.subscribe("ended", max_msgs=1)
        nc.publish("ended", b"last")
        nc.flush()
        assert next(messages).data == b"x"
        own_server.stop()
        for loop in (messages, iter(plain), push, consumer.consume()):
            with pytest.raises(ConnectionClosedError, match="gave up reconnecting"):
                for _ in loop:
                    pass
        for call in (consumer.fetch, plain.next, lambda: nc.publish("a"), lambda: nc.request("a")):
            with pytest.raises(ConnectionClosedError, match="gave up reconnecting"):
                call()
        assert nc.closed
        assert [message.data for message in ended] == [b"last"]  # it had ended in good order


def test_closing_ends_the_loops_in_good_order(nc: Client, js: JetStream, unique: str) -> None:
    with connect(str(nc.options.servers[0])) as other:
        pushed(js, unique)
        own = other.jetstream()
        loops = [
            iter(other.subscribe("a")),
            iter(own.push_consumer(unique, "p").consume()),
            iter(own.ordered_consumer(unique).consume()),
        ]
    assert [list(loop) for loop in loops] == [[], [], []]


def test_a_call_does_not_wait_for_ever_for_a_server(own_server: ServerProcess) -> None:
    with connect(own_server.url, timeout=0.05) as nc:
        subscription = nc.subscribe("a")
        own_server.stop()
        with pytest.raises(
            (ConnectionLostError, PeltonTimeoutError)
        ):  # it depends on when the end is noticed
            nc.flush()
        for call in (nc.flush, lambda: nc.publish("a"), lambda: nc.request("a")):
            with pytest.raises(PeltonTimeoutError):
                call()
        assert subscription.next() is None
        assert not nc.closed
        own_server.start()
        messages = iter(subscription)  # goes on until there is one
        with nc._guard:
            nc._ready(30)
        nc.publish("a", b"x")
        assert next(messages).data == b"x"


def test_without_reconnect_a_lost_server_closes_the_client(own_server: ServerProcess) -> None:
    with connect(own_server.url, reconnect=False) as nc:
        own_server.stop()
        with pytest.raises((ConnectionLostError, ConnectionClosedError)):
            nc.flush()
        with pytest.raises(ConnectionClosedError):
            nc.flush()
        assert nc.closed
