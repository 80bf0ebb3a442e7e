"""Pull consumers against a model, and what each rule says, byte for byte."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.consumer import ACK_ALL, ACK_EXPLICIT, ACK_NONE, Consumer
from penstock.core.snapshot import pack, unpack
from penstock.core.stream import SYNC_ALWAYS

from .streams import Message, Site, block

SECOND = 1_000_000_000
WAIT_NS = 30 * SECOND


class Model:
    """A pull consumer with explicit acks, the obvious way."""

    def __init__(self, filters: tuple[str, ...], max_ack_pending: int, max_deliver: int) -> None:
        self.filters, self.max_ack_pending, self.max_deliver = filters, max_ack_pending, max_deliver
        self.stored: dict[int, str] = {}
        self.last = self.cseq = self.passed = self.now = 0
        self.cursor = 1
        self.pending: dict[int, list[int]] = {}  # seq -> [cseq, deliveries, due]
        self.queue: list[int] = []
        self.requests: list[list[int]] = []
        self.floor = (0, 0)
        self.spent: list[tuple[int, int]] = []
        self.out: list[tuple[int, int, int, int, int]] = []  # request, seq, deliveries, cseq, ahead

    def wanted(self) -> list[int]:
        return [
            seq
            for seq, subject in sorted(self.stored.items())
            if seq >= self.cursor and (not self.filters or subject in self.filters or self.filters[0] in ("s.*", ">"))
        ]

    def leave(self, seq: int) -> None:
        lowest = min(self.pending) == seq
        del self.pending[seq]
        if seq in self.queue:
            self.queue.remove(seq)
        if not self.pending:
            self.floor = (self.cseq, self.passed)
        elif lowest:
            first = min(self.pending)
            self.floor = (self.pending[first][0] - 1, first - 1)

    def remove(self, seq: int) -> None:
        del self.stored[seq]
        if seq in self.pending:
            self.leave(seq)

    def exhaust(self, seq: int) -> None:
        self.spent.append((seq, self.pending[seq][1]))
        self.leave(seq)

    def nak(self, seq: int, delay_ns: int) -> None:
        if seq not in self.pending:
            return
        if delay_ns:
            if seq in self.queue:
                self.queue.remove(seq)
            self.pending[seq][2] = self.now + delay_ns
        elif self.pending[seq][1] >= self.max_deliver > 0:
            self.exhaust(seq)
        elif seq not in self.queue:
            self.queue.append(seq)

    def tick(self) -> None:
        due = [seq for seq in sorted(self.pending) if seq not in self.queue and self.pending[seq][2] <= self.now]
        for seq in due:
            if self.pending[seq][1] >= self.max_deliver > 0:
                self.exhaust(seq)
            else:
                self.queue.append(seq)

    def run(self) -> None:
        while self.requests:
            if self.queue:
                seq = self.queue.pop(0)
                entry = self.pending[seq]
                entry[1] += 1
                entry[2] = self.now + WAIT_NS
            elif len(self.pending) >= self.max_ack_pending or not self.wanted():
                return
            else:
                seq = self.wanted()[0]
                self.cursor, self.passed = seq + 1, seq
                entry = self.pending[seq] = [self.cseq + 1, 1, self.now + WAIT_NS]
            self.cseq += 1
            request = self.requests.pop(0)
            request[1] -= 1
            if request[1]:
                self.requests.append(request)
            self.out.append((request[0], seq, entry[1], self.cseq, len(self.wanted())))


STEP = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from("abc")),
    st.tuples(st.just("pull"), st.integers(1, 4)),
    st.tuples(st.just("ack"), st.integers(0, 30)),
    st.tuples(st.just("nak"), st.integers(0, 30)),
    st.tuples(st.just("later"), st.integers(0, 30)),
    st.tuples(st.just("progress"), st.integers(0, 30)),
    st.tuples(st.just("wait"), st.sampled_from([5, 20, 40])),
    st.tuples(st.just("delete"), st.integers(1, 20)),
    st.tuples(st.just("limit"), st.integers(3, 8)),
    st.tuples(st.just("reload"), st.just(0)),
    st.tuples(st.just("refilter"), st.sampled_from([(), ("s.a",), ("s.b", "s.c"), ("s.*",)])),
)


def perform(site: Site, consumer: Consumer, model: Model, step: tuple[str, Any], got: list[Message], number: int) -> None:
    verb, value = step
    if verb == "publish":
        site.publish(f"s.{value}", b"x")
        model.last += 1
        model.stored[model.last] = f"s.{value}"
    elif verb == "pull":
        site.pull(str(value), f"in.{number}")
        model.requests.append([number, value])
    elif verb in ("ack", "nak", "later", "progress") and got:
        message = got[value % len(got)]
        seq = message.number(1)
        body = {"ack": b"", "nak": b"-NAK", "later": b'-NAK {"delay": 7000000000}', "progress": b"+WPI"}[verb]
        site.ack(message, body)
        if verb == "ack" and seq in model.pending:
            model.leave(seq)
        elif verb == "progress" and seq in model.pending and seq not in model.queue:
            model.pending[seq][2] = model.now + WAIT_NS
        elif verb in ("nak", "later"):
            model.nak(seq, 7 * SECOND if verb == "later" else 0)
    elif verb == "wait":
        site.clock.advance(value * SECOND)
        model.now += value * SECOND
        site.hub.settle()
        consumer.tick()
        model.tick()
    elif verb == "delete" and value in model.stored:
        site.stream.delete_message(value, False)
        model.remove(value)
    elif verb == "limit":
        site.stream.configure(max_msgs=value)
        site.stream.configure()
        for seq in sorted(model.stored)[: max(len(model.stored) - value, 0)]:
            model.remove(seq)


def run_model(steps: list[tuple[str, Any]], filters: tuple[str, ...], max_ack_pending: int, max_deliver: int, sync: int) -> None:
    site = Site() if sync == 0 else Site(sync=sync)
    rules: dict[str, Any] = {"filters": filters, "max_ack_pending": max_ack_pending, "max_deliver": max_deliver}
    consumer = site.consumer(ack_wait_ns=WAIT_NS, **rules)
    model, got, spent = Model(filters, max_ack_pending, max_deliver), list[Message](), list[tuple[int, int]]()
    site.desk.max_deliver_advisory = lambda who, seq, deliveries: spent.append((seq, deliveries))
    for number, step in enumerate(steps):
        if step[0] == "reload" and not model.requests:
            kept = consumer.snapshot()
            site.desk.remove(consumer)
            consumer.close("")
            consumer = site.consumer(ack_wait_ns=WAIT_NS, **rules)
            consumer.restore(kept)
        elif step[0] == "refilter":
            rules["filters"] = model.filters = step[1]
            model.cursor = model.passed + 1
            consumer.configure(ack_policy=ACK_EXPLICIT, ack_wait_ns=WAIT_NS, **rules)
        else:
            perform(site, consumer, model, step, got, number)
        model.run()
        heard = site.heard()
        assert [(m.number(1), m.number(0), m.number(2), m.number(4)) for m in heard] == [t[1:] for t in model.out]
        model.out.clear()
        got += heard
        state = consumer.state()
        assert (state.delivered_consumer_seq, state.delivered_stream_seq) == (model.cseq, model.passed)
        assert (state.floor_consumer_seq, state.floor_stream_seq) == model.floor
        assert (state.num_ack_pending, state.num_pending) == (len(model.pending), len(model.wanted()))
        assert state.num_redelivered == sum(entry[1] > 1 for entry in model.pending.values())
        assert state.num_waiting == len(model.requests)
        assert spent == model.spent


@given(
    st.lists(STEP, max_size=60),
    st.sampled_from([(), ("s.a",), ("s.a", "s.c"), ("s.z",), ("s.*",), (">",)]),
    st.sampled_from([2, 5, 1000]),
    st.sampled_from([-1, 1, 2]),
    st.sampled_from([0, SYNC_ALWAYS]),
)
@settings(max_examples=400, deadline=None)
def test_a_pull_consumer_does_what_the_model_does(
    steps: list[tuple[str, Any]], filters: tuple[str, ...], max_ack_pending: int, max_deliver: int, sync: int
) -> None:
    run_model(steps, filters, max_ack_pending, max_deliver, sync)


@given(
    st.lists(st.tuples(st.sampled_from(["publish", "pull", "turn", "evict"]), st.integers(0, 11)), max_size=80),
    st.sampled_from([0, SYNC_ALWAYS]),
)
@settings(max_examples=150, deadline=None)
def test_each_of_many_consumers_gets_what_it_wants(steps: list[tuple[str, int]], sync: int) -> None:
    site = Site(sync=sync)
    filters = [(), ("s.0",), ("s.1",), ("s.*",), ("s.0", "s.2"), ("s.9",)]
    consumers = [site.consumer(f"C{n}", filters=filters[n % 6], ack_policy=ACK_NONE) for n in range(12)]
    clients = [site.server.client().send("SUB own.%d 1\r\n" % n) for n in range(12)]
    wants, got, stored = [0] * 12, [list[int]() for _ in range(12)], list[str]()
    for verb, n in steps:
        if verb == "publish":
            stored.append(f"s.{n % 3}")
            site.publish(stored[-1])
        elif verb == "pull":
            wants[n] += 1 + n % 3
            site.pull(str(1 + n % 3), f"own.{n}", f"C{n}")
        elif verb == "evict":
            site.stream.configure(max_msgs=max(site.log.msgs - 1, 1))
            site.stream.configure()
        else:
            site.hub.turn()
    lost = {seq for seq in range(1, len(stored) + 1) if site.log.get(seq) is None}
    for n, client in enumerate(clients):
        got[n] = [m.number(1) for m in site.heard(client)]
        rule = filters[n % 6]
        matching = [seq for seq, subject in enumerate(stored, 1) if not rule or subject in rule or rule == ("s.*",)]
        kept = [seq for seq in matching if seq not in lost]
        assert len(got[n]) == len(set(got[n])) <= wants[n]
        assert got[n] == sorted(got[n])
        assert set(got[n]) <= set(matching)
        rest = [seq for seq in kept if seq > max(got[n], default=0)]
        assert [seq for seq in kept if seq < max(got[n], default=0) and seq not in got[n]] == []
        assert consumers[n].state().num_pending == len(rest)
        if rest:
            assert len(got[n]) == wants[n]  # else somebody who asked was forgotten


# --- pull requests -------------------------------------------------------------------------------------------------------


def filled(count: int = 3, **rules: Any) -> tuple[Site, Consumer]:
    site = Site()
    for n in range(count):
        site.publish(f"s.{n}", b"m")
    return site, site.consumer(**rules)


def statuses(messages: list[Message]) -> list[str]:
    return [m.status or str(m.number(1)) for m in messages]


def test_no_wait_ends_at_the_end_of_the_stream() -> None:
    site, _ = filled()
    site.pull('{"batch":5,"no_wait":true}')
    assert statuses(site.heard()) == ["1", "2", "3", "404 No Messages"]
    site.pull('{"batch":5,"no_wait":true}')
    (end,) = site.heard()
    assert (end.headers, end.payload, end.reply, end.subject) == (b"NATS/1.0 404 No Messages\r\n\r\n", b"", "", "in.n")
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
    assert consumer.tick() == site.hub.now_ns + SECOND
    site.after(SECOND)
    (end,) = site.heard()
    assert end.headers == b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 4\r\nNats-Pending-Bytes: %d\r\n\r\n" % (1000 - size)
    assert consumer.state().num_waiting == 0


def test_max_bytes_ends_requests() -> None:
    site, _ = filled(4)
    size = len("s.0") + len("$JS.ACK.S.C.1.1.1.1700000000000000000.3") + 1
    site.pull(f'{{"batch":9,"max_bytes":{2 * size + 5}}}')
    heard = site.heard()
    assert statuses(heard) == ["1", "2", "409 Message Size Exceeds MaxBytes"]
    assert heard[2].headers.endswith(b"\r\nNats-Pending-Messages: 7\r\nNats-Pending-Bytes: 5\r\n\r\n")
    site.pull(f'{{"batch":9,"max_bytes":{size}}}')
    assert statuses(site.heard()) == ["3"]  # exactly used up: no status
    site.pull('{"batch":1,"max_bytes":1000}')
    heard = site.heard()
    assert statuses(heard) == ["4", "409 Batch Completed"]
    assert heard[1].headers.endswith(b"Nats-Pending-Messages: 0\r\nNats-Pending-Bytes: %d\r\n\r\n" % (1000 - size))


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
    site.hub.turn()
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
    assert beat.headers == b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
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
    site.desk.remove(consumer)
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
    site.hub.settle()
    sent = consumer.state().num_ack_pending
    assert 0 < sent < 10
    slow.connection.set_blocked(False)
    for _ in range(10):
        slow.raw()
    assert consumer.state().num_ack_pending == 40


# --- acks ----------------------------------------------------------------------------------------------------------------


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
    ("body", "answers"), [(b"", 0), (b"+ACK", 0), (b"-NAK", 1), (b"+WPI", 1), (b"+TERM", 1), (b"what", 1), (b"-NAK x", 1), (b"+ACK ", 1)]
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
    ("delay", "seconds"), [(b"", 0), (b' {"delay":5000000000}', 5), (b" 5s", 5), (b" nonsense", 0), (b" {", 0), (b' {"delay":-1}', 0)]
)
def test_refusal_with_a_delay(delay: bytes, seconds: int) -> None:
    site, _ = filled(1)
    told: list[tuple[object, ...]] = []
    site.desk.nak_advisory = lambda *call: told.append(call[1:])
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
    site.desk.term_advisory = lambda *call: told.append(call[1:])
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
    site.desk.max_deliver_advisory = lambda *call: told.append(call[1:])
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
    site.hub.settle()
    state = consumer.state()
    assert (state.floor_consumer_seq, state.floor_stream_seq, state.num_ack_pending) == (3, 3, 2)
    site.ack(heard[1], b"", "in.done")  # below the floor: answered
    assert len(site.heard()) == 1
    assert consumer.state().floor_stream_seq == 3


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
    assert (state.delivered_stream_seq, state.floor_consumer_seq, state.floor_stream_seq) == (5, 1, 5)
    assert (state.num_ack_pending, state.num_pending) == (0, 1)


# --- what is delivered ---------------------------------------------------------------------------------------------------


def test_deliveries_wait_for_the_sync(tmp_path: Any) -> None:
    site = Site(folder=str(tmp_path / "S"), sync=SYNC_ALWAYS)
    consumer = site.consumer()
    site.pull("9")
    site.hub.settle()
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
    site.desk.remove(consumer)
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


# --- the stored state ----------------------------------------------------------------------------------------------------


@given(st.binary(max_size=120) | st.integers(0, 103).map(lambda at: damaged(at)))
def test_a_damaged_state_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="consumer state"):
        unpack(data)


def damaged(at: int) -> bytes:
    state = bytearray(pack((1, 2, 3, 4, 5, 6, 7), [(2, 1, 4, 1, 1)], []))
    state[at] ^= 1
    return bytes(state)


def test_a_state_beyond_the_stream_is_clamped() -> None:
    site, consumer = filled(2)
    consumer.restore(pack((9, 8, 9, 1, 7, 7, 1), [(2, 5, 1, 2, 1), (8, 9, 1, 1, 1)], []))
    state = consumer.state()
    assert (state.delivered_stream_seq, state.floor_stream_seq, state.num_ack_pending, state.num_pending) == (2, 2, 1, 0)
    assert not consumer.changed
    site.publish("s.x")
    site.pull("1")
    site.after(0)
    assert statuses(site.heard())[0] in ("2", "3")


def test_deadlines_are_told_when_they_come_nearer() -> None:
    site, consumer = filled(2)
    told: list[int] = []
    consumer.deadline_changed = lambda who, ns: told.append(ns - site.hub.now_ns)
    assert consumer.tick() == 0
    site.pull('{"batch":2,"expires":60000000000}')
    site.hub.settle()
    assert told == [60 * SECOND, WAIT_NS]
    site.pull('{"batch":1,"expires":5000000000}')
    site.pull('{"batch":1,"expires":6000000000}')
    site.hub.settle()
    assert told[2:] == [5 * SECOND]


def test_unused_consumers_say_since_when() -> None:
    site, consumer = filled(1)
    start = site.hub.now_ns
    assert consumer.idle_since_ns() == start
    site.clock.advance(SECOND)
    site.hub.settle()
    site.pull("1")
    (message,) = site.heard()
    assert consumer.idle_since_ns() == 0  # its ack wait runs
    site.ack(message)
    site.hub.settle()
    assert consumer.idle_since_ns() == start + SECOND
    site.pull('{"expires":1000000000}')
    site.hub.settle()
    assert consumer.idle_since_ns() == 0
