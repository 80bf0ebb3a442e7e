"""Writes full of requests: what one turn does is counted, and each request is answered in order.

Work is counted in calls of Python and C functions, as in test_heavy_requests. A turn of the reactor is one step of
queued requests here (`budget.most`), so its work is that of the longest step.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.counting import calls_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .house import House

CALLS_MOST = 2500  # of functions in a turn: some hundred microseconds
TIMES = 40


def many_streams(house: House) -> None:
    for number in range(300):
        house.stream(f"L{number}", subjects=[f"l.{number}"], storage="memory")


def many_subjects(house: House) -> None:
    house.stream("S", subjects=["s.>"], storage="memory")
    for number in range(6000):
        house.client.send(f"PUB s.{number * 7919 % 6007} 0\r\n\r\n")
    house.client.events()


def many_holes(house: House) -> None:
    house.stream("S", subjects=["s.>"], storage="memory", max_msgs_per_subject=1)
    house.send("s.first")
    for number in range(9000):
        house.client.send(f"PUB s.{number % 10} 0\r\n\r\nPUB s.k{number} 0\r\n\r\n")
    house.client.events()


def many_consumers(house: House) -> None:
    house.stream("S", subjects=["s.>"], storage="memory")
    for number in range(250):
        house.consumer(f"c{number}", durable_name=f"c{number}", ack_policy="explicit")


def nothing(house: House) -> None:
    house.stream("S", subjects=["s.>"], storage="memory")


def shown(answer: Any) -> Any:
    return len(answer.get("streams") or answer.get("consumers") or ()), "error" in answer


@pytest.mark.parametrize(
    ("prepare", "call", "body", "times", "expected"),
    [
        (many_streams, "STREAM.LIST", b"", TIMES, (256, False)),
        (many_streams, "STREAM.NAMES", b"", TIMES, (300, False)),
        (many_consumers, "CONSUMER.LIST.S", b"", TIMES, (250, False)),
        (many_subjects, "STREAM.INFO.S", b'{"subjects_filter":">"}', 5, (0, False)),
        (many_holes, "STREAM.INFO.S", b'{"deleted_details":true}', 5, (0, False)),
        (nothing, "STREAM.CREATE.S", b'{"name":"S","subjects":["s.>"],"storage":"memory"}', TIMES, (0, False)),
        (nothing, "STREAM.CREATE.T", b'{"name":1}', TIMES, (0, True)),
    ],
)  # fmt: skip
def test_a_turn_does_one_short_step(
    house: House,
    prepare: Callable[[House], None],
    call: str,
    body: bytes,
    times: int,
    expected: tuple[int, bool],
) -> None:
    prepare(house)
    reactor = house.server.reactor
    reactor.budget.most = 1
    requests = b"".join(
        b"PUB $JS.API.%s _I.%d %d\r\n%s\r\n" % (call.encode(), number, len(body), body)
        for number in range(times)
    )
    work = [
        calls_of(
            lambda: house.server.sessions.feed(house.client.connection, requests + b"PING\r\n")
        )
    ]
    more = True

    def turn() -> None:
        nonlocal more
        more = reactor.turn()

    while more:
        work.append(calls_of(turn))
    assert max(work) < CALLS_MOST
    assert len(work) >= times
    data = house.client.connection.take()
    assert data.endswith(b"\r\nPONG\r\n")  # behind the answers: the client was not read from before
    answers = [event for event in house.client.parser.feed(data) if len(event) == 6]
    assert [event[1] for event in answers] == [f"_I.{number}" for number in range(times)]
    assert {shown(json.loads(bytes(event[5]))) for event in answers} == {expected}  # type: ignore[call-overload] # the payload of a message


def test_operations_of_a_connection_stay_in_order_behind_requests_that_wait(house: House) -> None:
    """A create finds its publish, a purge does not remove a later message, an info shows an earlier one."""
    many_streams(house)
    house.server.reactor.budget.most = 1
    attacker = house.server.client()
    attacker.send("PUB $JS.API.STREAM.LIST _A.x 0\r\n\r\n" * 20)
    config = b'{"name":"N","subjects":["n"],"storage":"memory"}'
    house.client.send(
        b"PUB $JS.API.STREAM.CREATE.N _I.create %d\r\n%s\r\n" % (len(config), config)
        + b"PUB n _I.one 1\r\na\r\nPUB $JS.API.STREAM.PURGE.N _I.purge 0\r\n\r\n"
        + b"PUB n _I.two 1\r\nb\r\nPUB $JS.API.STREAM.INFO.N _I.info 0\r\n\r\nPING\r\n"
    )
    house.server.reactor.settle(10_000)
    events = house.client.parser.feed(house.client.connection.take())
    found = {str(event[1])[3:]: json.loads(bytes(event[5])) for event in events if len(event) == 6}  # type: ignore[call-overload] # the payload of a message
    assert list(found) == ["create", "one", "purge", "two", "info"]
    assert (found["one"]["seq"], found["two"]["seq"], found["purge"]["purged"]) == (1, 2, 1)
    assert found["info"]["state"]["messages"] == 1


def test_a_list_leaves_out_what_is_deleted_while_it_is_made(house: House) -> None:
    many_streams(house)
    house.server.reactor.budget.most = 1
    house.client.send("PUB $JS.API.STREAM.LIST _I.list 0\r\n\r\n")
    other = house.server.client()
    name = "L99"  # the last in order
    house.server.sessions.feed(
        other.connection, f"PUB $JS.API.STREAM.DELETE.{name} 0\r\n\r\n".encode()
    )
    house.server.reactor.settle()
    found = house.client.parser.feed(house.client.connection.take())
    names = re.findall(rb'"name":"(L\d+)"', bytes(found[0][5]))  # type: ignore[call-overload] # the payload of a message
    assert len(names) in (255, 256)
    assert house.api("STREAM.LIST", {"offset": 256})["total"] == 299


def test_requests_beyond_the_queue_are_refused_and_told(house: House) -> None:
    """They come without a client, as over a leaf node."""
    many_streams(house)
    house.server.reactor.budget.most = 1
    house.client.send("SUB $JS.EVENT.ADVISORY.API.LIMIT_REACHED 9\r\n")
    queue = house.engine._requests
    for number in range(queue.most + 3):
        house.server.router.publish_message("$JS.API.STREAM.LIST", b"", f"_I.{number}")
    events = house.client.parser.feed(house.client.connection.take())
    refused = [json.loads(bytes(event[5])) for event in events if b'"error"' in bytes(event[5])]  # type: ignore[call-overload] # the payload of a message
    assert [each["error"]["err_code"] for each in refused] == [10023] * 3
    told = [
        json.loads(bytes(event[5]))
        for event in events
        if b"LIMIT_REACHED" in str(event[1]).encode()
    ]  # type: ignore[call-overload] # the payload of a message
    assert [each["type"].rpartition(".")[2] for each in told] == ["api_limit_reached"]
    assert sum("queue is full" in line for line in house.reports) == 1
    queue.drop(house.account)


@pytest.mark.parametrize("waiting", [1, 5])
def test_requests_that_wait_when_the_account_loses_jetstream_are_refused(
    house: House, waiting: int
) -> None:
    """Those of clients in today's API and in the dialects, and those that come over leaf nodes."""
    many_streams(house)
    house.server.reactor.budget.most = 1
    listing = house.server.client()
    listing.send("SUB _L 1\r\nPUB $JS.API.STREAM.LIST _L 0\r\n\r\nPING\r\n")
    for number in range(waiting):
        house.server.router.publish_message("$JS.API.STREAM.NAMES", b"", f"_I.leaf.{number}")
    early = "PUB $JS.STREAM.LIST _I.2020 0\r\n\r\nPUB $JS.MSGSETS _I.2019 0\r\n\r\nPING\r\n"
    house.server.sessions.feed(house.client.connection, early.encode())
    house.engine.remove("$G")
    house.server.reactor.settle()
    data = house.client.connection.take()
    assert b"\r\nPONG\r\n" in data
    found = {
        str(event[1])[3:]: bytes(event[5])  # type: ignore[call-overload] # the payload of a message
        for event in house.client.parser.feed(data)
        if len(event) == 6
    }
    assert found.pop("2020") == b"-ERR 'jetstream not enabled for account'"
    assert found.pop("2019") == b""  # read afterwards: no responders
    assert [json.loads(found[f"leaf.{n}"])["error"]["err_code"] for n in range(waiting)] == (
        [10039] * waiting
    )
    kept = listing.connection.take()
    assert b'"err_code":10039' in kept
    assert kept.endswith(b"\r\nPONG\r\n")
