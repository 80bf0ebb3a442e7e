"""Pull consumers against a model: one with everything that can happen to it, and many at once."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.consumer.consumer import ACK_EXPLICIT, ACK_NONE, Consumer
from pelton.core.stream.stream import SYNC_ALWAYS
from tests.core.streams import Message, Site
from tests.ways import length

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
        self.spent: list[tuple[int, int]] = []  # as told
        self.given_up: set[int] = set()  # of those: still there, and not acknowledged
        self.out: list[tuple[int, int, int, int, int]] = []  # request, seq, deliveries, cseq, ahead

    def wanted(self) -> list[int]:
        return [
            seq
            for seq, subject in sorted(self.stored.items())
            if seq >= self.cursor
            and (not self.filters or subject in self.filters or self.filters[0] in ("s.*", ">"))
        ]

    def leave(self, seq: int) -> None:
        lowest = min(self.pending) == seq and self.pending[seq][0] == self.floor[0] + 1
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
        self.given_up.discard(seq)
        if seq in self.pending:
            self.leave(seq)

    def exhaust(self, seq: int) -> None:
        self.spent.append((seq, self.pending[seq][1]))
        self.given_up.add(seq)
        floor = self.floor
        self.leave(seq)
        self.floor = floor

    def nak(self, seq: int, delay_ns: int) -> None:
        if seq not in self.pending:
            return
        if delay_ns:
            if seq in self.queue:
                self.queue.remove(seq)
            self.pending[seq][2] = self.now + delay_ns
        elif seq not in self.queue:
            self.queue.append(seq)

    def tick(self) -> None:
        due = [
            seq
            for seq in sorted(self.pending)
            if seq not in self.queue and self.pending[seq][2] <= self.now
        ]
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
                if entry[1] >= self.max_deliver > 0:
                    self.exhaust(seq)
                    continue
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


def perform(
    site: Site,
    consumer: Consumer,
    model: Model,
    step: tuple[str, Any],
    got: list[Message],
    number: int,
) -> None:
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
        body = {
            "ack": b"",
            "nak": b"-NAK",
            "later": b'-NAK {"delay": 7000000000}',
            "progress": b"+WPI",
        }[verb]
        site.ack(message, body)
        if verb == "ack":
            model.given_up.discard(seq)
            if seq in model.pending:
                model.leave(seq)
        elif verb == "progress" and seq in model.pending and seq not in model.queue:
            model.pending[seq][2] = model.now + WAIT_NS
        elif verb in ("nak", "later"):
            model.nak(seq, 7 * SECOND if verb == "later" else 0)
    elif verb == "wait":
        site.clock.advance(value * SECOND)
        model.now += value * SECOND
        site.reactor.settle()
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


def run_model(
    steps: list[tuple[str, Any]],
    filters: tuple[str, ...],
    max_ack_pending: int,
    max_deliver: int,
    sync: int,
) -> None:
    site = Site() if sync == 0 else Site(sync=sync)
    rules: dict[str, Any] = {
        "filters": filters,
        "max_ack_pending": max_ack_pending,
        "max_deliver": max_deliver,
    }
    consumer = site.consumer(ack_wait_ns=WAIT_NS, **rules)
    model, got, spent = (
        Model(filters, max_ack_pending, max_deliver),
        list[Message](),
        list[tuple[int, int]](),
    )
    site.api_subjects.max_deliver_advisory = lambda who, seq, deliveries: spent.append(
        (seq, deliveries)
    )
    for number, step in enumerate(steps):
        if step[0] == "reload" and not model.requests:
            kept = consumer.snapshot()
            site.api_subjects.remove(consumer)
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
        assert [(m.number(1), m.number(0), m.number(2), m.number(4)) for m in heard] == [
            t[1:] for t in model.out
        ]
        model.out.clear()
        got += heard
        state = consumer.state()
        assert (state.delivered_consumer_seq, state.delivered_stream_seq) == (
            model.cseq,
            model.passed,
        )
        assert (state.floor_consumer_seq, state.floor_stream_seq) == model.floor
        assert (state.num_ack_pending, state.num_pending) == (
            len(model.pending),
            len(model.wanted()),
        )
        again = sum(entry[1] > 1 for entry in model.pending.values())
        assert state.num_redelivered == (again + len(model.given_up) if max_deliver != 1 else 0)
        assert state.num_waiting == len(model.requests)
        assert spent == model.spent


@given(
    st.lists(STEP, max_size=60),
    st.sampled_from([(), ("s.a",), ("s.a", "s.c"), ("s.z",), ("s.*",), (">",)]),
    st.sampled_from([2, 5, 1000]),
    st.sampled_from([-1, 1, 2]),
    st.sampled_from([0, SYNC_ALWAYS]),
)
@settings(max_examples=length(50, 400), deadline=None)
def test_a_pull_consumer_does_what_the_model_does(
    steps: list[tuple[str, Any]],
    filters: tuple[str, ...],
    max_ack_pending: int,
    max_deliver: int,
    sync: int,
) -> None:
    run_model(steps, filters, max_ack_pending, max_deliver, sync)


@given(
    st.lists(
        st.tuples(st.sampled_from(["publish", "pull", "turn", "evict"]), st.integers(0, 11)),
        max_size=80,
    ),
    st.sampled_from([0, SYNC_ALWAYS]),
)
@settings(max_examples=length(30, 150), deadline=None)
def test_each_of_many_consumers_gets_what_it_wants(steps: list[tuple[str, int]], sync: int) -> None:
    site = Site(sync=sync)
    filters = [(), ("s.0",), ("s.1",), ("s.*",), ("s.0", "s.2"), ("s.9",)]
    consumers = [
        site.consumer(f"C{n}", filters=filters[n % 6], ack_policy=ACK_NONE) for n in range(12)
    ]
    clients = [site.server.client().send(f"SUB own.{n} 1\r\n") for n in range(12)]
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
            site.reactor.turn()
    lost = {seq for seq in range(1, len(stored) + 1) if site.log.get(seq) is None}
    for n, client in enumerate(clients):
        got[n] = [m.number(1) for m in site.heard(client)]
        rule = filters[n % 6]
        matching = [
            seq
            for seq, subject in enumerate(stored, 1)
            if not rule or subject in rule or rule == ("s.*",)
        ]
        kept = [seq for seq in matching if seq not in lost]
        assert len(got[n]) == len(set(got[n])) <= wants[n]
        assert got[n] == sorted(got[n])
        assert set(got[n]) <= set(matching)
        rest = [seq for seq in kept if seq > max(got[n], default=0)]
        assert [seq for seq in kept if seq < max(got[n], default=0) and seq not in got[n]] == []
        assert consumers[n].state().num_pending == len(rest)
        if rest:
            assert len(got[n]) == wants[n]  # else somebody who asked was forgotten
