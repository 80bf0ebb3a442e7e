"""The steps of the client, carried out by hand: no transport, time as the test says."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.client.base.message import BaseMessage
from pelton.client.base.steps import Attach, Left, Owner, Ready, Request, Step, Until
from pelton.client.jetstream.pulling import Pulling
from pelton.client.jetstream.streams import Streams
from pelton.client.protocol.events import Event
from pelton.client.protocol.options import Options
from pelton.client.session.session import Session
from pelton.errors import (
    ConnectionLostError,
    NoRespondersError,
    PeltonTimeoutError,
    PermissionsViolationError,
)


class House(Session[BaseMessage]):
    """A session with a connection that stands, whose server is the test."""

    _stays_open = False
    _much_waits = False

    def __init__(self) -> None:
        self.now = 0.0
        self.reports: list[Exception] = []
        super().__init__(Options(), BaseMessage, lambda: self.now, random.Random(1))
        self._connection.connected_to(self.options.servers[0])
        self.hear(b'INFO {"headers":true,"max_payload":1000,"cluster":"c"}\r\nPONG\r\n')
        self.said()

    def _attach(self, subject: str, owner: Owner, queue: str = "") -> None:
        owner._interest = self._connection.subscribe(subject, queue, owner)

    def _flush_output(self) -> None:
        pass

    def _plan_flush(self) -> None:
        pass

    def _release_socket(self) -> None:
        pass

    def _report(self, error: Exception) -> None:
        self.reports.append(error)

    def _changed(self, event: Event) -> None:
        waiters = getattr(event, "waiters", None)
        if waiters is not None:
            self._tell_lost(ConnectionLostError("gone"), waiters)

    def hear(self, data: bytes) -> None:
        """Bytes come from the server."""
        self._connection.receive_data(data)
        self._process()

    def said(self) -> list[list[bytes]]:
        """The words of the lines that went to the server."""
        return [line.split() for line in self._connection.data_to_send().split(b"\r\n") if line]


def carry_on(house: House, steps: Any, answer: Any = None, error: Any = None) -> Any:
    """Steps up to the next one that waits, or their result."""
    try:
        step: Step = steps.throw(error) if error is not None else steps.send(answer)
        while isinstance(step, Ready | Attach):
            if isinstance(step, Attach):
                house._attach(step.subject, step.owner, step.queue)
            step = steps.send(None)
    except StopIteration as stop:
        return stop.value
    return step


def test_a_request_waits_for_its_own_answer() -> None:
    house = House()
    steps = house._requesting("help", b"x", timeout=3)
    step = carry_on(house, steps)
    assert isinstance(step, Until)
    assert step.seconds == 3
    sub, pub, _ = house.said()
    assert (sub[0], pub[:2]) == (b"SUB", [b"PUB", b"help"])
    house.hear(b"MSG %s.9999 1 1\r\nn\r\n" % sub[1][:-2])
    assert not step.done()
    house.hear(b"MSG %s 1 1\r\ny\r\n" % pub[2])
    assert step.done()
    assert carry_on(house, steps, answer=True).data == b"y"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b"HMSG %s 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", NoRespondersError),
        (b"-ERR 'Permissions Violation for Publish to \"help\"'\r\n", PermissionsViolationError),
        (b"", PeltonTimeoutError),
    ],
)
def test_a_request_without_an_answer_says_why(said: bytes, kind: type[Exception]) -> None:
    house = House()
    steps = house._requesting("help", timeout=1)
    step = carry_on(house, steps)
    reply = house.said()[1][2]
    house.hear(said % reply if b"%s" in said else said)
    assert step.done() is bool(said)
    with pytest.raises(kind):
        carry_on(house, steps, answer=step.done())
    others = house._requesting("other")
    other = carry_on(house, others)
    house.hear(b"-ERR 'Permissions Violation for Publish to \"help\"'\r\n")
    assert not other.done()  # it is not about this one
    house._connection.receive_eof()
    house._process()
    assert other.done()
    with pytest.raises(ConnectionLostError, match="'other': gone"):
        carry_on(house, others, answer=True)


def test_every_request_is_told_that_its_answer_may_not_come() -> None:
    """The server refuses the inbox once; a later request must not wait for an answer in vain."""
    house = House()
    for _ in range(2):
        steps = house._requesting("help", timeout=1)
        step = carry_on(house, steps)
        inbox = next(words[1] for words in house.said() if words[0] == b"SUB")
        house.hear(b"-ERR 'Permissions Violation for Subscription to \"%s\"'\r\n" % inbox)
        assert step.done()
        with pytest.raises(PermissionsViolationError):
            carry_on(house, steps, answer=True)


def test_a_publish_is_tried_again_while_a_cluster_chooses_a_leader() -> None:
    house = House()
    steps = Streams(house, domain=None, prefix=None, timeout=2.0)._publishing("s", b"x", timeout=2)
    step = carry_on(house, steps)
    for tries in range(1, 9):  # every quarter of a second
        reply = next(words[2] for words in house.said() if words[:2] == [b"PUB", b"s"])
        house.hear(b"HMSG %s 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n" % reply)
        if tries == 8:
            break
        step = carry_on(house, steps, answer=True)
        assert isinstance(step, Until)
        house.now += step.seconds  # it only lets time pass
        carry_on(house, steps, answer=False)
    with pytest.raises(NoRespondersError):
        carry_on(house, steps, answer=True)


def fetched(house: House, handle: Pulling[BaseMessage], batch: int) -> tuple[Any, Any, bytes]:
    """A fetch that waits: its steps, the step, and the inbox of the handle."""
    steps = handle._fetching(batch, timeout=5)
    step = carry_on(house, steps)
    assert isinstance(step, Until)
    requests = [words for words in house.said() if words[0] == b"PUB"]
    return steps, step, requests[-1][2]


@given(batch=st.integers(1, 5), came=st.integers(0, 5))
def test_a_fetch_that_is_broken_off_keeps_what_came(batch: int, came: int) -> None:
    house = House()
    handle = Pulling(Streams(house, domain=None, prefix=None, timeout=2.0), "S", "c")
    steps, step, inbox = fetched(house, handle, batch)
    for n in range(came):
        house.hear(b"MSG %s 1 $JS.ACK.S.c.1.%d.%d.1.0 1\r\n%d\r\n" % (inbox, n, n, n))
    assert step.done() is (came >= batch)
    with pytest.raises(KeyboardInterrupt):
        carry_on(house, steps, error=KeyboardInterrupt())
    found: list[bytes] = []
    while len(found) < came:
        again = handle._fetching(1, timeout=5)
        found += [message.data for message in carry_on(house, again)]
    assert found == [b"%d" % n for n in range(came)]


def test_a_fetch_ends_when_the_connection_breaks_but_not_with_messages_in_hand() -> None:
    house = House()
    handle = Pulling(Streams(house, domain=None, prefix=None, timeout=2.0), "S", "c")
    steps, step, inbox = fetched(house, handle, 2)
    house.hear(b"MSG %s 1 $JS.ACK.S.c.1.1.1.1.0 1\r\n0\r\n" % inbox)
    assert not step.done()
    house._connection.receive_eof()
    house._process()
    assert step.done()
    (message,) = carry_on(house, steps, answer=True)
    assert message.data == b"0"


def test_who_leaves_an_ordered_reader_lets_it_remove_its_consumer() -> None:
    house = House()
    flow = Streams(house, domain=None, prefix=None, timeout=2.0)._ordering("S")
    step = carry_on(house, flow)
    assert isinstance(step, Request)
    create, _, name = step.subject.rpartition(".")
    assert create == "$JS.API.CONSUMER.CREATE.S"
    assert len(name) == 22  # the client's own: it can remove the consumer if the answer is lost
    info = b'{"stream_name":"S","name":"%s","config":{},"delivered":{},"ack_floor":{}}'
    info %= name.encode()
    step = carry_on(house, flow, answer=info)  # send what asks for messages
    inbox = next(words[2] for words in house.said() if words[0] == b"PUB")
    step = carry_on(house, flow)
    assert isinstance(step, Until)
    house.hear(b"MSG %s 1 $JS.ACK.S.%s.1.1.1.1.0 1\r\n0\r\n" % (inbox, name.encode()))
    message = carry_on(house, flow, answer=True)
    assert message.data == b"0"
    step = carry_on(house, flow, error=Left())
    assert isinstance(step, Request)
    assert step.subject == f"$JS.API.CONSUMER.DELETE.S.{name}"
    with pytest.raises(Left):
        carry_on(house, flow, answer=b'{"success":true}')
