"""What each rule of a pull consumer says, byte for byte: requests, acks, deliveries."""

from typing import Any

import pytest

from pelton.core.consumer.consumer import ACK_ALL, ACK_EXPLICIT, ACK_NONE
from pelton.core.stream.stream import SYNC_ALWAYS
from tests.core.streams import Site, block, filled, statuses

SECOND = 1_000_000_000
WAIT_NS = 30 * SECOND


# --- pull requests -------------------------------------------------------------------------------


def test_no_wait_ends_at_the_end_of_the_stream() -> None:
    site, _ = filled()
    site.pull('{"batch":5,"no_wait":true}')
    assert statuses(site.heard()) == ["1", "2", "3", "404 No Messages"]
    site.pull('{"batch":5,"no_wait":true}')
    (end,) = site.heard()
    assert (end.headers, end.payload, end.reply, end.subject) == (
        b"NATS/1.0 404 No Messages\r\n\r\n",
        b"",
        "",
        "in.n",
    )
    site.pull('{"batch":5,"no_wait":true,"expires":1000000000}')
    assert site.heard() == []
    site.publish("s.x")
    assert statuses(site.heard()) == ["4", "404 No Messages"]


def test_no_wait_behind_waiting_requests_is_refused() -> None:
    site, consumer = filled(3, max_ack_pending=1)
    site.pull("10", "in.slow")
    assert statuses(site.heard()) == ["1"]
    site.pull('{"batch":1,"no_wait":true}')
    assert statuses(site.heard()) == ["408 Requests Pending"]
    assert consumer.state().num_waiting == 1


def test_expiry_tells_what_is_left() -> None:
    site, consumer = filled(1)
    site.pull('{"batch":5,"expires":1000000000,"max_bytes":1000}')
    size = len("s.0") + len(site.heard()[0].reply) + 1
    assert consumer.tick() == site.reactor.now_ns + SECOND
    site.after(SECOND)
    (end,) = site.heard()
    line, left, rest = end.headers.split(b"\r\n", 2)
    assert (line, left, rest) == (
        b"NATS/1.0 408 Request Timeout",
        b"Nats-Pending-Messages: 4",
        b"Nats-Pending-Bytes: %d\r\n\r\n" % (1000 - size),
    )
    assert consumer.state().num_waiting == 0


def test_max_bytes_ends_requests() -> None:
    site, _ = filled(4)
    size = len("s.0") + len("$JS.ACK.S.C.1.1.1.1700000000000000000.3") + 1
    site.pull(f'{{"batch":9,"max_bytes":{2 * size + 5}}}')
    heard = site.heard()
    assert statuses(heard) == ["1", "2", "409 Message Size Exceeds MaxBytes"]
    assert heard[2].headers.endswith(
        b"\r\nNats-Pending-Messages: 7\r\nNats-Pending-Bytes: 5\r\n\r\n"
    )
    site.pull(f'{{"batch":9,"max_bytes":{size}}}')
    assert statuses(site.heard()) == ["3"]  # exactly used up: no status
    site.pull('{"batch":1,"max_bytes":1000}')
    heard = site.heard()
    assert statuses(heard) == ["4", "409 Batch Completed"]
    assert heard[1].headers.endswith(
        b"Nats-Pending-Messages: 0\r\nNats-Pending-Bytes: %d\r\n\r\n" % (1000 - size)
    )


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ('{"batch":3}', "409 Exceeded MaxRequestBatch of 2"),
        ('{"expires":91000000000}', "409 Exceeded MaxRequestExpires of 1m30s"),
        ('{"max_bytes":200}', "409 Exceeded MaxRequestMaxBytes of 100"),
        ('{"idle_heartbeat":1}', "400 Bad Request - heartbeat value too large"),
        ('{"expires":10,"idle_heartbeat":6}', "400 Bad Request - heartbeat value too large"),
        ('{"batch":"x"}', "400 Bad Request - invalid JSON"),
    ],
)
def test_requests_beyond_the_rules(body: str, line: str) -> None:
    site, _ = filled(0, max_batch=2, max_expires_ns=90 * SECOND, max_bytes=100)
    site.pull(body)
    assert statuses(site.heard()) == [line]


def test_requests_of_those_who_have_gone_do_not_wait() -> None:
    site, consumer = filled(0)
    here, leaves, unsubscribes, once = (site.server.client() for _ in range(4))
    asked = ((here, "here"), (leaves, "leaves"), (unsubscribes, "unsubscribes"), (once, "once"))
    for client, reply in asked:
        client.send(f"SUB {reply} 1\r\n")
        site.pull("1", reply)
    assert consumer.state().num_waiting == 4
    unsubscribes.send("UNSUB 1\r\n")
    once.send("UNSUB 1 1\r\nPUB once 0\r\n\r\n")
    assert consumer.state().num_waiting == 2
    site.reactor.disconnect(leaves.connection, "Client Closed")
    site.reactor.turn()
    assert consumer.state().num_waiting == 1
    assert here.events() == []
    unsubscribes.send("SUB unsubscribes 1\r\n")  # its request is gone for good
    assert consumer.state().num_waiting == 1
    for _ in range(2):
        site.publish("s.a")
    assert len(here.events()) == 1
    assert consumer.state().num_pending == 1


def test_a_full_queue_of_requests() -> None:
    site, consumer = filled(0, max_waiting=2)
    other = site.server.client()
    other.send("SUB gone 1\r\n")
    site.pull("1", "gone")
    site.pull('{"expires":2000000000}', "in.b")
    site.pull("1", "in.c")
    assert statuses(site.heard()) == ["409 Exceeded MaxWaiting"]
    site.pull('{"expires":2000000000,"idle_heartbeat":1000000000}', "in.d")
    assert site.heard() == []
    other.send("UNSUB 1\r\n")
    site.clock.advance(SECOND)
    site.reactor.turn()
    site.pull("1", "in.e")  # the one without interest makes room
    assert consumer.state().num_waiting == 2
    site.publish("s.a")
    site.publish("s.a")
    assert statuses(site.heard()) == ["1", "2"]


def test_requests_without_interest_get_nothing_and_cost_nothing() -> None:
    site, consumer = filled(2)
    site.pull("2", "nobody.there")
    site.pull("1", "in.n")
    assert statuses(site.heard()) == ["1"]
    assert consumer.state().num_ack_pending == 1
    site.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", b"1")  # no reply subject: ignored
    site.pull("1")
    assert statuses(site.heard()) == ["2"]


def test_heartbeats_of_a_waiting_request() -> None:
    site, _ = filled(1)
    site.pull('{"batch":5,"expires":10000000000,"idle_heartbeat":2000000000}')
    assert statuses(site.heard()) == ["1"]
    site.after(2 * SECOND)
    (beat,) = site.heard()
    assert (
        beat.headers
        == b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
    )
    site.after(SECOND)
    assert site.heard() == []
    site.publish("s.a")
    site.heard()
    site.after(SECOND)
    assert site.heard() == []
    site.after(SECOND)
    assert statuses(site.heard()) == ["100 Idle Heartbeat"]


def test_closing_tells_the_requests() -> None:
    site, consumer = filled(0)
    site.pull("3")
    consumer.close("Consumer Deleted")
    site.api_subjects.remove(consumer)
    assert statuses(site.heard()) == ["409 Consumer Deleted"]
    site.pull("1")
    (nobody,) = site.heard()
    assert nobody.status == "503"


def test_a_client_that_does_not_read_is_not_sent_more() -> None:
    site = Site()
    for _ in range(40):
        site.publish("s.a", b"x" * 100_000)
    site.heard()
    consumer = site.consumer()
    slow = site.server.client()
    slow.send("SUB slow 1\r\n")
    slow.connection.set_blocked(True)
    site.pull("40", "slow")
    site.reactor.settle()
    sent = consumer.state().num_ack_pending
    assert 0 < sent < 10
    slow.connection.set_blocked(False)
    for _ in range(10):
        slow.raw()
    assert consumer.state().num_ack_pending == 40


# --- acks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"+ACK", b"+OK"])
def test_an_ack_with_a_reply_is_answered_empty(body: bytes) -> None:
    site, consumer = filled(1)
    site.pull()
    (message,) = site.heard()
    for _ in range(2):
        site.ack(message, body, "in.done")
        (done,) = site.heard()
        assert (done.subject, done.headers, done.payload) == ("in.done", b"", b"")
    assert consumer.state().floor_stream_seq == 1


@pytest.mark.parametrize(
    ("body", "answers"),
    [
        (b"", 0),
        (b"+ACK", 0),
        (b"-NAK", 1),
        (b"+WPI", 1),
        (b"+TERM", 1),
        (b"what", 1),
        (b"-NAK x", 1),
        (b"+ACK ", 1),
    ],
)
def test_acks_of_what_was_never_delivered(body: bytes, answers: int) -> None:
    site, consumer = filled(3)
    site.pull()
    site.heard()
    site.publish("$JS.ACK.S.C.1.2.2.0.1", body, "in.done")
    assert len(site.heard()) == answers
    assert consumer.state().num_ack_pending == 1


def test_next_acknowledges_and_asks_for_more() -> None:
    site, consumer = filled(4)
    site.pull()
    (message,) = site.heard()
    site.ack(message, b"+NXT", "in.a")
    (message,) = site.heard()
    site.ack(message, b'+NXT {"batch":2}', "in.a")
    assert statuses(site.heard()) == ["3", "4"]
    assert consumer.state().floor_stream_seq == 2


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [
        (b"", 0),
        (b' {"delay":5000000000}', 5),
        (b" 5s", 5),
        (b" nonsense", 0),
        (b" {", 0),
        (b' {"delay":-1}', 0),
    ],
)
def test_refusal_with_a_delay(delay: bytes, seconds: int) -> None:
    site, _ = filled(1)
    told: list[tuple[object, ...]] = []
    site.api_subjects.nak_advisory = lambda *call: told.append(call[1:])
    site.pull("9")
    (message,) = site.heard()
    site.ack(message, b"-NAK" + delay)
    if seconds:
        assert site.heard() == []
        site.after(seconds * SECOND - 1)
        assert site.heard() == []
        site.after(1)
    (again,) = site.heard()
    assert [again.number(n) for n in range(3)] == [2, 1, 2]
    assert told == [(1, 1, 1)]


def test_termination() -> None:
    site, consumer = filled(1)
    told: list[tuple[object, ...]] = []
    site.api_subjects.term_advisory = lambda *call: told.append(call[1:])
    site.pull("9")
    (message,) = site.heard()
    site.ack(message, b"+TERM  broken for good")
    assert told == [(1, 1, 1, "broken for good")]
    assert consumer.state().num_ack_pending == 0
    site.after(100 * SECOND)
    assert site.heard() == []


def test_backoff_stretches_the_waits_and_ends_at_max_deliver() -> None:
    site, consumer = filled(1, backoff_ns=(SECOND, 3 * SECOND), max_deliver=3)
    told: list[tuple[object, ...]] = []
    site.api_subjects.max_deliver_advisory = lambda *call: told.append(call[1:])
    site.pull("9")
    times = []
    for second in range(12):
        times += [second for _ in site.heard()]
        site.after(SECOND)
    assert times == [0, 1, 4]
    assert told == [(1, 3)]
    assert consumer.state().num_ack_pending == 0
    assert site.log.msgs == 1


def test_ack_all_clears_what_is_below() -> None:
    site, consumer = filled(5, ack_policy=ACK_ALL)
    site.pull("5")
    heard = site.heard()
    site.ack(heard[2])
    site.reactor.settle()
    state = consumer.state()
    assert (state.floor_consumer_seq, state.floor_stream_seq, state.num_ack_pending) == (3, 3, 2)
    site.ack(heard[1], b"", "in.done")  # below the floor: answered
    assert len(site.heard()) == 1
    assert consumer.state().floor_stream_seq == 3


def test_ack_all_of_a_removed_message_moves_the_floor() -> None:
    site, consumer = filled(5, ack_policy=ACK_ALL)
    site.pull("5")
    heard = site.heard()
    for seq in (2, 3):
        site.stream.delete_message(seq, False)
    site.ack(heard[0])
    site.ack(heard[2], b"", "in.done")
    assert len(site.heard()) == 1
    state = consumer.state()
    assert (state.floor_consumer_seq, state.floor_stream_seq, state.num_ack_pending) == (3, 3, 2)


@pytest.mark.parametrize("before", [0, 1])
def test_a_late_ack_all_of_a_removed_message_settles_nothing_since_a_reset(before: int) -> None:
    site, consumer = filled(5, ack_policy=ACK_ALL)
    site.pull("5")
    late = site.heard()[2]
    site.stream.delete_message(3, False)
    consumer.reset(1)
    site.pull("5")
    heard = site.heard()
    for message in heard[1 : 1 + before]:
        site.ack(message)
    site.ack(late)  # its consumer sequence is now that of the next message
    site.reactor.settle()
    state = consumer.state()
    assert (state.floor_consumer_seq, state.floor_stream_seq, state.num_ack_pending) == (2, 3, 2)
    site.ack(heard[2])
    site.reactor.settle()
    state = consumer.state()
    assert (state.floor_consumer_seq, state.floor_stream_seq, state.num_ack_pending) == (3, 4, 1)


@pytest.mark.parametrize("policy", [ACK_ALL, ACK_EXPLICIT])
def test_a_late_ack_settles_what_was_given_up(policy: int) -> None:
    site, consumer = filled(4, ack_policy=policy, max_deliver=1, ack_wait_ns=SECOND)
    site.pull("4")
    heard = site.heard()
    site.after(SECOND)
    assert [seq for seq, _ in consumer.given_up()] == [1, 2, 3, 4]
    site.ack(heard[1], b"", "in.done")
    assert len(site.heard()) == 1
    left = [3, 4] if policy == ACK_ALL else [1, 3, 4]
    assert [seq for seq, _ in consumer.given_up()] == left
    site.ack(heard[3])
    site.reactor.settle()
    assert [seq for seq, _ in consumer.given_up()] == ([] if policy == ACK_ALL else [1, 3])


def test_ack_none_has_nothing_to_acknowledge() -> None:
    site, consumer = filled(2, ack_policy=ACK_NONE)
    site.pull("2")
    message = site.heard()[0]
    state = consumer.state()
    assert (state.floor_consumer_seq, state.floor_stream_seq, state.num_ack_pending) == (2, 2, 0)
    site.ack(message, b"", "in.done")
    assert [m.status for m in site.heard()] == ["503"]


def test_purge_moves_the_floor_but_limits_do_not() -> None:
    site, consumer = filled(6)
    site.stream.configure(max_msgs=4)
    assert consumer.state()[:6] == (0, 0, 0, 0, 0, 0)
    site.pull("1")
    assert statuses(site.heard()) == ["3"]
    site.stream.purge(below=6)
    state = consumer.state()
    assert (state.delivered_stream_seq, state.floor_consumer_seq, state.floor_stream_seq) == (
        5,
        1,
        5,
    )
    assert (state.num_ack_pending, state.num_pending) == (0, 1)


# --- what is delivered ---------------------------------------------------------------------------


def test_deliveries_wait_for_the_sync(tmp_path: Any) -> None:
    site = Site(folder=str(tmp_path / "S"), sync=SYNC_ALWAYS)
    consumer = site.consumer()
    site.pull("9")
    site.reactor.settle()
    site.publish("s.a")
    assert consumer.state().num_ack_pending == 0
    assert site.stream.visible == 0
    assert len(site.heard()) == 1
    assert site.stream.visible == 1


def test_last_per_subject_then_everything_newer() -> None:
    site = Site()
    for n in range(9):
        site.publish(f"s.{n % 3}", b"%d" % n)
    consumer = site.consumer(last_per_subject=True, filters=("s.0", "s.2"))
    state = consumer.state()
    assert (state.delivered_stream_seq, state.floor_stream_seq, state.num_pending) == (6, 6, 2)
    site.publish("s.1")
    site.publish("s.2")
    site.pull("1")
    (first,) = site.heard()
    assert (first.number(1), first.number(4)) == (7, 2)
    kept = consumer.snapshot()
    site.stream.delete_message(9, False)
    site.pull("5")
    assert statuses(site.heard()) == ["11"]
    consumer.close("")
    site.api_subjects.remove(consumer)
    again = site.consumer(last_per_subject=True, filters=("s.0", "s.2"))
    again.restore(kept)
    site.pull("5")
    assert statuses(site.heard()) == ["11"]


def test_headers_only() -> None:
    site = Site()
    site.publish("s.a", b"hello")
    site.publish("s.a", b"", headers=block("A: b"))
    site.consumer(headers_only=True)
    site.pull("2")
    assert [(m.headers, m.payload) for m in site.heard()] == [
        (b"NATS/1.0\r\nNats-Msg-Size: 5\r\n\r\n", b""),
        (b"NATS/1.0\r\nA: b\r\nNats-Msg-Size: 0\r\n\r\n", b""),
    ]


def test_filters_may_change() -> None:
    site, consumer = filled(0, filters=("s.a",))
    for subject in "abcabc":
        site.publish(f"s.{subject}")
    site.pull("9")
    assert statuses(site.heard()) == ["1", "4"]
    consumer.configure(ack_policy=2, filters=("s.*",))
    assert statuses(site.heard()) == ["5", "6"]


def test_replay_keeps_the_original_pace() -> None:
    site = Site()
    for _ in range(3):
        site.publish("s.a")
        site.after(5 * SECOND)
    site.consumer(replay_original=True)
    site.pull("9")
    seconds = []
    for second in range(12):
        seconds += [second for _ in site.heard()]
        site.after(SECOND)
    assert seconds == [0, 5, 10]
    site.publish("s.a")
    assert len(site.heard()) == 1
