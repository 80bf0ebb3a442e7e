"""The calls of the client, carried out by hand: no transport, time as the test says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.client.aio.consumers import Consumer
from pelton.client.aio.jetstream import JetStream
from pelton.client.base.models import ConsumerConfig, ConsumerInfo
from pelton.errors import (
    ConnectionLostError,
    NoRespondersError,
    PeltonTimeoutError,
    PermissionsViolationError,
)
from tests.client.by_hand import House, Until, carry_on


def test_a_request_waits_for_its_own_answer() -> None:
    house = House()
    call = house._request("help", b"x", 3)
    step = carry_on(call)
    assert isinstance(step, Until)
    assert step.seconds == 3
    sub, pub, _ = house.said()
    assert (sub[0], pub[:2]) == (b"SUB", [b"PUB", b"help"])
    house.hear(b"MSG %s.9999 1 1\r\nn\r\n" % sub[1][:-2])
    assert not step.done()
    house.hear(b"MSG %s 1 1\r\ny\r\n" % pub[2])
    assert step.done()
    assert carry_on(call, answer=True).data == b"y"


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
    call = house._request("help", b"", 1)
    step = carry_on(call)
    reply = house.said()[1][2]
    house.hear(said % reply if b"%s" in said else said)
    assert step.done() is bool(said)
    with pytest.raises(kind):
        carry_on(call, answer=step.done())
    others = house._request("other", b"", 1)
    other = carry_on(others)
    house.hear(b"-ERR 'Permissions Violation for Publish to \"help\"'\r\n")
    assert not other.done()  # it is not about this one
    house._connection.receive_eof()
    house._process()
    assert other.done()
    with pytest.raises(ConnectionLostError, match="'other': gone"):
        carry_on(others, answer=True)


def test_every_request_is_told_that_its_answer_may_not_come() -> None:
    """The server refuses the inbox once; a later request must not wait for an answer in vain."""
    house = House()
    for _ in range(2):
        call = house._request("help", b"", 1)
        step = carry_on(call)
        inbox = next(words[1] for words in house.said() if words[0] == b"SUB")
        house.hear(b"-ERR 'Permissions Violation for Subscription to \"%s\"'\r\n" % inbox)
        assert step.done()
        with pytest.raises(PermissionsViolationError):
            carry_on(call, answer=True)


def test_a_publish_is_tried_again_while_a_cluster_chooses_a_leader() -> None:
    house = House()
    call = JetStream(house, domain=None, prefix=None, timeout=2.0).publish("s", b"x", timeout=2)
    step = carry_on(call)
    for tries in range(1, 9):  # every quarter of a second
        reply = next(words[2] for words in house.said() if words[:2] == [b"PUB", b"s"])
        house.hear(b"HMSG %s 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n" % reply)
        if tries == 8:
            break
        step = carry_on(call, answer=True)
        assert isinstance(step, Until)
        house.now += step.seconds  # it only lets time pass
        carry_on(call, answer=False)
    with pytest.raises(NoRespondersError):
        carry_on(call, answer=True)


def fetched(house: House, batch: int) -> tuple[Any, Any, int]:
    """A fetch that waits: its call, the step, and its subscription."""
    config = ConsumerConfig(name="c", ack_policy="explicit")
    js = JetStream(house, domain=None, prefix=None, timeout=2.0)
    consumer = Consumer(js, ConsumerInfo(stream_name="S", name="c", config=config))
    call = consumer.fetch(batch, timeout=5)
    step = carry_on(call)
    assert isinstance(step, Until)
    house.said()
    return call, step, max(house._connection.interests)


def given_back(house: House) -> int:
    """How many messages went back to the consumer since the last look."""
    return house._connection.data_to_send().count(b"-NAK")


@given(batch=st.integers(1, 5), came=st.integers(0, 5), late=st.integers(0, 3))
def test_a_fetch_that_is_broken_off_gives_back_what_came(batch: int, came: int, late: int) -> None:
    house = House()
    call, step, sid = fetched(house, batch)
    for n in range(came):
        house.hear(b"MSG s.a %d $JS.ACK.S.c.1.%d.%d.1.0 1\r\nx\r\n" % (sid, n, n))
    assert step.done() is (came >= batch)
    with pytest.raises(KeyboardInterrupt):
        carry_on(call, error=KeyboardInterrupt())
    given_now = given_back(house)
    for n in range(came, came + late):
        house.hear(b"MSG s.a %d $JS.ACK.S.c.1.%d.%d.1.0 1\r\nx\r\n" % (sid, n, n))
    house.hear(b"PONG\r\n")
    assert given_now + given_back(house) == came + late
    assert sid not in house._connection.interests


def test_a_fetch_ends_when_the_connection_breaks_but_not_with_messages_in_hand() -> None:
    house = House()
    call, step, sid = fetched(house, 2)
    house.hear(b"MSG s.a %d $JS.ACK.S.c.1.1.1.1.0 1\r\n0\r\n" % sid)
    assert not step.done()
    house._connection.receive_eof()
    house._process()
    assert step.done()
    (message,) = carry_on(call, answer=True)
    assert message.data == b"0"
