"""Priority groups: the three policies against a model, and what a client sees of each."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.consumer.consumer import Consumer
from tests.core.streams import Message, Site, statuses
from tests.ways import length

SECOND = 1_000_000_000
TTL_NS = 10 * SECOND
OVERFLOW, PINNED, PRIORITIZED = 1, 2, 3


@dataclass
class Request:
    reply: str
    left: int
    priority: int
    client: str
    min_pending: int
    min_ack_pending: int
    grouped: bool


@dataclass
class Model:
    """Which request gets which message, the obvious way."""

    policy: int
    waiting: list[Request] = field(default_factory=list)
    stored: int = 0
    given: int = 0
    unacknowledged: set[int] = field(default_factory=set)
    pin: str = ""
    pins: list[str] = field(default_factory=list)  # every one there was, by its order
    pin_until: int = 0
    now: int = 0
    out: list[tuple[str, str]] = field(default_factory=list)  # reply, sequence or status

    def pull(self, request: Request) -> None:
        if self.policy == PINNED and request.grouped and self.pin and request.client:
            if request.client != self.pin:
                self.out.append((request.reply, "423 Nats-Pin-Id mismatch"))
                return
            self.pin_until = self.now + TTL_NS
        self.waiting.append(request)
        if self.policy == PRIORITIZED:
            self.waiting.sort(key=lambda one: one.priority)
        self.run()

    def run(self) -> None:
        while self.given < self.stored and (request := self.next()) is not None:
            self.given += 1
            self.unacknowledged.add(self.given)
            self.out.append((request.reply, str(self.given)))
            request.left -= 1
            self.waiting.remove(request)
            if request.left > 0:
                self.waiting.append(request)
            if self.policy == PRIORITIZED:
                self.waiting.sort(key=lambda one: one.priority)

    def next(self) -> Request | None:
        passed_over = 0
        while self.waiting:
            request = self.waiting[0]
            if self.policy == PINNED and request.client and request.client != self.pin:
                self.out.append((request.reply, "423 Nats-Wrong-Pin-Id"))
                self.waiting.pop(0)
            elif self.may(request):
                return request
            else:
                self.waiting.append(self.waiting.pop(0))
                passed_over += 1
                if passed_over >= len(self.waiting):
                    return None
        return None

    def may(self, request: Request) -> bool:
        if self.policy == PINNED:
            if not self.pin and request.grouped:
                self.pin = request.client = f"pin {len(self.pins)}"
                self.pins.append(self.pin)
                self.pin_until = self.now + TTL_NS
            return request.client == self.pin
        if self.policy == OVERFLOW and (request.min_pending or request.min_ack_pending):
            enough = 0 < request.min_pending <= self.stored - self.given
            return enough or 0 < request.min_ack_pending <= len(self.unacknowledged)
        return True

    def ack(self, seq: int) -> None:
        self.unacknowledged.discard(seq)

    def wait(self, ns: int) -> None:
        self.now += ns
        if self.pin and self.now >= self.pin_until:
            self.unpin()

    def unpin(self) -> None:
        self.pin = ""
        self.run()


STEP = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 4)),
    st.tuples(
        st.just("pull"),
        st.fixed_dictionaries(
            {
                "batch": st.integers(1, 4),
                "priority": st.integers(0, 9),
                "min_pending": st.integers(0, 4),
                "min_ack_pending": st.integers(0, 4),
                "client": st.sampled_from(["", "", "newest", "older", "made up"]),
                "plain": st.sampled_from([False, False, False, True]),
            }
        ),
    ),
    st.tuples(st.just("ack"), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.sampled_from([3 * SECOND, 11 * SECOND])),
    st.tuples(st.just("unpin"), st.just(0)),
)


class Play:
    """A consumer and its model, given the same."""

    def __init__(self, policy: int) -> None:
        self.site = Site()
        self.consumer: Consumer = self.site.consumer(
            priority_policy=policy,
            priority_groups=("g",),
            priority_timeout_ns=TTL_NS,
            ack_wait_ns=10_000 * SECOND,
        )
        self.model = Model(policy)
        self.got: dict[int, Message] = {}
        self.pins: list[str] = []
        self.site.api_subjects.pin_advisory = self.pinned

    def pinned(self, _: Consumer, group: str, pin: str, reason: str) -> None:
        assert group == "g"
        if pin:
            self.pins.append(pin)
        else:
            assert reason in ("admin", "timeout")

    def pull(self, number: int, wish: dict[str, Any]) -> None:
        reply, policy = f"to.{number}", self.model.policy
        self.site.client.send(f"SUB {reply} {number + 100}\r\n")  # says who gets a message
        if wish["plain"]:
            self.site.pull(str(wish["batch"]), reply)
            self.model.pull(Request(reply, wish["batch"], 10, "", 0, 0, grouped=False))
            return
        body: dict[str, Any] = {"batch": wish["batch"], "group": "g"}
        request = Request(reply, wish["batch"], 0, "", 0, 0, grouped=True)
        if policy == PRIORITIZED:
            body["priority"] = request.priority = wish["priority"]
        elif policy == OVERFLOW:
            body["min_pending"] = request.min_pending = wish["min_pending"]
            body["min_ack_pending"] = request.min_ack_pending = wish["min_ack_pending"]
        elif wish["client"] == "made up":
            body["id"] = request.client = "nobody's"
        elif wish["client"] and self.pins:
            at = 0 if wish["client"] == "older" else len(self.pins) - 1
            body["id"], request.client = self.pins[at], f"pin {at}"
        self.site.pull(json.dumps(body), reply)
        self.model.pull(request)

    def do(self, number: int, verb: str, value: Any) -> None:
        if verb == "publish":
            self.site.client.send("PUB s.a 1\r\nx\r\n" * value)
            self.model.stored += value
            self.model.run()
        elif verb == "pull":
            self.pull(number, value)
        elif verb == "ack" and self.got:
            seq = sorted(self.got)[value % len(self.got)]
            self.site.ack(self.got[seq])
            self.model.ack(seq)
        elif verb == "wait":
            self.site.after(value)
            self.model.wait(value)
        elif verb == "unpin" and self.model.policy == PINNED:
            self.consumer.unpin("g", "admin")
            self.site.reactor.settle()
            self.model.unpin()

    def compare(self) -> None:
        heard = self.site.heard()
        seen = [(self.taker(m), statuses([m])[0]) for m in heard]
        assert seen == self.model.out
        for message, (_, what) in zip(heard, seen, strict=True):
            if not message.status:
                self.got[int(what)] = message
        self.model.out.clear()
        assert self.consumer.state().num_waiting == len(self.model.waiting)
        assert len(self.pins) == len(self.model.pins)
        if self.model.policy == PINNED:
            assert self.consumer.groups is not None
            pin = self.pins[int(self.model.pin[4:])].encode() if self.model.pin else b""
            assert self.consumer.groups.pin == pin

    def taker(self, message: Message) -> str:
        if self.model.policy == PINNED and not message.status:
            assert b"Nats-Pin-Id: " in message.headers
        return f"to.{int(message.sid) - 100}"


@pytest.mark.parametrize("policy", [OVERFLOW, PINNED, PRIORITIZED])
@given(steps=st.lists(STEP, max_size=40))
@settings(max_examples=length(30, 150), deadline=None)
def test_requests_of_groups_are_served_as_in_the_model(policy: int, steps: list[Any]) -> None:
    play = Play(policy)
    for number, (verb, value) in enumerate(steps):
        play.do(number, verb, value)
        play.compare()


def test_the_pin_comes_behind_the_headers_of_a_message() -> None:
    site = Site()
    site.consumer(priority_policy=PINNED, priority_groups=("g",), priority_timeout_ns=TTL_NS)
    site.pull('{"batch":3,"group":"g"}', "in.a")
    site.publish("s.a", b"body", headers=b"NATS/1.0\r\nA: b\r\n\r\n")
    site.publish("s.a", b"plain")
    site.publish("s.a", b"")
    first, second, third = site.heard()
    pin = first.headers.partition(b"Nats-Pin-Id: ")[2].strip()
    assert len(pin) == 22
    assert (first.headers, first.payload) == (
        b"NATS/1.0\r\nA: b\r\nNats-Pin-Id: " + pin + b"\r\n\r\n",
        b"body",
    )
    assert (second.headers, second.payload) == (
        b"NATS/1.0\r\nNats-Pin-Id: " + pin + b"\r\n\r\n",
        b"plain",
    )
    assert third.payload == b""


def test_a_message_that_does_not_fit_takes_the_pin_back() -> None:
    site = Site()
    consumer = site.consumer(
        priority_policy=PINNED, priority_groups=("g",), priority_timeout_ns=TTL_NS
    )
    site.pull('{"batch":1,"group":"g","max_bytes":5}', "in.a")
    site.publish("s.a", b"x" * 100)
    assert statuses(site.heard()) == ["409 Message Size Exceeds MaxBytes"]
    assert consumer.groups is not None
    assert consumer.groups.pin == b""


def test_urgent_requests_do_not_wait_for_a_congested_client() -> None:
    site = Site()
    site.consumer(priority_policy=PRIORITIZED, priority_groups=("g",))
    for priority in (3, 1, 2, 1):
        site.pull(json.dumps({"batch": 1, "group": "g", "priority": priority}), f"in.{priority}")
    site.client.send("PUB s.a 1\r\nx\r\n" * 4)
    assert len(site.heard()) == 4


def test_groups_can_be_changed_and_taken_away() -> None:
    site = Site()
    consumer = site.consumer(priority_policy=PRIORITIZED, priority_groups=("g",))
    site.pull('{"batch":1,"group":"g","priority":5}', "in.five")
    site.pull('{"batch":1,"group":"g","priority":1}', "in.one")
    site.pull('{"batch":1,"group":"h"}', "in.h")
    assert statuses(site.heard()) == ["400 Bad Request - Invalid Priority Group"]
    consumer.configure(ack_policy=2, priority_policy=OVERFLOW, priority_groups=("h",))
    site.pull('{"batch":1,"group":"h","min_pending":9}', "in.h")
    consumer.configure(ack_policy=2)
    site.client.send("PUB s.a 1\r\nx\r\n" * 3)
    assert [m.number(1) for m in site.heard()] == [1, 2, 3]
    site.pull('{"batch":1,"priority":5,"group":"any"}', "in.any")
    site.publish("s.a")
    assert [m.number(1) for m in site.heard()] == [4]
