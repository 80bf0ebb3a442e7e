"""``pelton explain``: each cause is made with a server, and told."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from pelton import ConsumerConfig, StreamConfig
from pelton.sync import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.sync import JetStream
    from tests.peers import ServerProcess

    from .conftest import Ran

HOUR = 3600


@pytest.fixture
def js(peer: ServerProcess) -> Iterator[JetStream]:
    with connect(peer.url) as client:
        yield client.jetstream()


@pytest.fixture
def stream(js: JetStream, unique: str) -> str:
    js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
    for number in range(4):
        js.publish(f"{unique}.{'b' if number == 1 else 'a'}", b"%d" % number)
    return unique


def make(js: JetStream, stream: str, **fields: Any) -> None:
    fields = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": HOUR} | fields
    js.create_consumer(stream, ConsumerConfig(**fields))


@pytest.mark.parametrize(
    ("fields", "seq", "kind"),
    [
        ({"filter_subject": "{}.a"}, 2, "filter"),
        ({"filter_subjects": ["{}.a", "{}.c"]}, 2, "filter"),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 3}, 2, "start"),
        ({"deliver_policy": "new"}, 4, "start"),
        ({"deliver_policy": "last"}, 3, "start"),
        ({"deliver_policy": "last", "filter_subject": "{}.b"}, 2, "not_delivered"),
        ({"deliver_policy": "last_per_subject", "filter_subject": "{}.>"}, 1, "start"),
        ({"deliver_policy": "last_per_subject", "filter_subject": "{}.>"}, 2, "not_delivered"),
        ({}, 9, "not_stored"),
        ({}, None, "no_request"),
        ({"deliver_subject": "nobody.{}"}, None, "no_interest"),
        ({"pause_until": time.time_ns() + HOUR * 10**9}, 1, "paused"),
    ],
)
def test_a_cause_that_a_configuration_makes(
    at: Callable[..., Ran],
    js: JetStream,
    stream: str,
    fields: dict[str, Any],
    seq: int | None,
    kind: str,
) -> None:
    named = {
        name: [each.format(stream) for each in value]
        if isinstance(value, list)
        else value.format(stream)
        if isinstance(value, str)
        else value
        for name, value in fields.items()
    }
    make(js, stream, **named)
    ran = at("explain", stream, "c", *([] if seq is None else [seq]), "-j")
    assert kind in [each["kind"] for each in ran.json["reasons"]], ran.out


def kinds(at: Callable[..., Ran], *arguments: object) -> list[str]:
    return [each["kind"] for each in at("explain", *arguments, "-j").json["reasons"]]


def test_what_deliveries_and_acks_make(at: Callable[..., Ran], js: JetStream, stream: str) -> None:
    make(js, stream, max_ack_pending=2)
    first, second = js.consumer(stream, "c").fetch(2)
    assert "delivered" in kinds(at, stream, "c", 1)
    assert {"not_delivered", "max_ack_pending"} <= set(kinds(at, stream, "c", 3))
    first.ack_sync()
    assert kinds(at, stream, "c", 1) == ["acknowledged"]
    second.ack_sync()
    assert kinds(at, stream, "c", 2) == ["acknowledged"]
    js.delete_message(stream, 3)
    assert kinds(at, stream, "c", 3) == ["removed"]
    text = at("explain", stream, "c", 3).out
    assert text.startswith("removed: message 3 is not there")


@pytest.mark.parametrize("most", [1, 2])
def test_a_message_that_had_all_its_deliveries(
    at: Callable[..., Ran], js: JetStream, peer: ServerProcess, stream: str, most: int
) -> None:
    """Pelton knows which messages are given up; with one delivery only, and elsewhere, it may be so."""
    make(js, stream, max_deliver=most, ack_wait=0.1, filter_subject=f"{stream}.b")
    pull = js.consumer(stream, "c")
    for _ in range(most):
        assert len(pull.fetch(1, timeout=30)) == 1
    js.publish(f"{stream}.b", b"")
    (fifth,) = pull.fetch(1, timeout=30)
    fifth.ack_sync()
    exact = peer.kind == "pelton" and most > 1
    limit = "1 delivery" if most == 1 else "2 deliveries"
    wanted = (
        f"was delivered {most} times, which is max" if exact else f"given up after {limit} (max"
    )
    while wanted not in (text := at("explain", stream, "c", 2).out):
        assert text.startswith(("delivered: ", "max_deliver: "))  # until the ack wait is over
    assert text.startswith("max_deliver: " if exact else ("delivered: ", "acknowledged: "))
    if exact:
        assert kinds(at, stream, "c", 5) == ["acknowledged"]


def test_a_consumer_without_acks_delivers_once(
    at: Callable[..., Ran], js: JetStream, stream: str
) -> None:
    make(js, stream, ack_policy="none", ack_wait=0)
    assert len(js.consumer(stream, "c").fetch(1)) == 1
    assert kinds(at, stream, "c", 1) == ["delivered_once"]


def test_a_work_queue_says_that_an_ack_removed_it(
    at: Callable[..., Ran], js: JetStream, unique: str
) -> None:
    js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"], retention="workqueue"))
    js.publish(f"{unique}.a", b"")
    make(js, unique)
    (message,) = js.consumer(unique, "c").fetch(1)
    message.ack_sync()
    assert kinds(at, unique, "c", 1) == ["acknowledged"]


def test_what_is_not_there_is_one_line(at: Callable[..., Ran], stream: str) -> None:
    for arguments in ((stream, "nobody"), ("NOSTREAM", "c")):
        ran = at("explain", *arguments)
        assert (ran.status, ran.err.count("\n")) == (1, 1)
