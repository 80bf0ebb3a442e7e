"""Writes full of requests: what one turn does is counted, and each request is answered in order.

Work is counted in calls of Python and C functions, as in test_heavy_requests. A turn of the reactor is one step of
queued requests here (`budget.most`), so its work is that of the longest step.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from pelton.engine.sources.local import ComingUpstream
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


LONG_MOST = (
    40_000  # calls of functions in a step of a request with 1,000 sources: some milliseconds
)


def named(word: str) -> list[dict[str, Any]]:
    return [{"name": f"{word}{n}", "filter_subject": f"a.{n}"} for n in range(1000)]


def of_one(word: str) -> list[dict[str, Any]]:
    return [{"name": "O", "filter_subject": f"{word}.{n}"} for n in range(1000)]


def renamed(word: str) -> list[dict[str, Any]]:
    return [
        {"name": f"{word}{n}", "subject_transforms": [{"src": f"{word}.{n}", "dest": f"b.{n}"}]}
        for n in range(1000)
    ]


def external(word: str) -> list[dict[str, Any]]:
    return [{"name": f"{word}{n}", "external": {"api": f"far.{n}.API"}} for n in range(1000)]


def in_one(word: str) -> list[dict[str, Any]]:
    dest = ".".join(["{{partition(3,1,2)}}"] * 4)
    return [
        {
            "name": "O",
            "subject_transforms": [{"src": f"{word}.{n}.*.*", "dest": dest} for n in range(1000)],
        }
    ]


def turns_of(house: House, call: str, body: dict[str, Any]) -> tuple[list[int], Any]:
    """Return the calls of functions in each turn of a request, and the answer; all turns after it, too."""
    payload = json.dumps(body).encode()
    request = b"PUB $JS.API.%s _I.1 %d\r\n%s\r\n" % (call.encode(), len(payload), payload)
    reactor = house.server.reactor
    work = [calls_of(lambda: house.server.sessions.feed(house.client.connection, request))]
    more = True

    def turn() -> None:
        nonlocal more
        more = reactor.turn()

    while more:
        work.append(calls_of(turn))
    events = house.client.parser.feed(house.client.connection.take())
    (answer,) = [json.loads(bytes(event[5])) for event in events if len(event) == 6]  # type: ignore[call-overload] # the payload of a message
    assert "error" not in answer, answer
    return work, answer


@pytest.mark.parametrize("make", [named, of_one, renamed, external, in_one])
def test_a_thousand_sources_or_transforms_are_taken_in_short_steps(
    house: House, make: Callable[[str], list[dict[str, Any]]]
) -> None:
    house.stream("O", subjects=["a.>", "x.>", "y.>"], storage="memory")
    house.server.reactor.budget.most = 1
    base = {"name": "F", "storage": "memory"}
    for call, body in (
        ("STREAM.CREATE.F", {**base, "sources": make("x")}),
        ("STREAM.UPDATE.F", {**base, "sources": make("y")}),
        ("STREAM.INFO.F", {}),
        ("STREAM.LIST", {}),
    ):
        work, answer = turns_of(house, call, body)
        assert max(work) < LONG_MOST, (call, sorted(work)[-5:])
        shown = answer["streams"][0] if "streams" in answer else answer
        assert [each["name"] for each in shown["sources"]] == [
            each["name"] for each in make("y")
        ] or "CREATE" in call
        assert len(shown["config"]["sources"]) == len(make("y"))
    followed = house.account.streams["F"].upstreams
    assert followed is not None
    assert not any(isinstance(each, ComingUpstream) for each in followed.upstreams)
    work = []
    for call in ("STREAM.DELETE.O", "STREAM.DELETE.F"):
        work += turns_of(house, call, {})[0]
    assert max(work) < LONG_MOST


def test_an_origin_with_a_thousand_followers_starts_them_in_short_steps(house: House) -> None:
    house.stream("F", storage="memory", sources=of_one("x"))
    house.server.reactor.budget.most = 1
    work, _ = turns_of(
        house, "STREAM.CREATE.O", {"name": "O", "storage": "memory", "subjects": ["x.>"]}
    )
    assert max(work) < LONG_MOST
    for number in range(1000):
        house.send(f"x.{number}")
    house.server.reactor.settle(10_000)
    assert house.account.streams["F"].core.log.msgs == 1000


def test_other_clients_see_one_change_after_the_other(house: House) -> None:
    """A stream is changed and looked at by others while the sources of an update are made."""
    house.stream("O", subjects=["x.>", "y.>"], storage="memory")
    house.stream("F", storage="memory", sources=of_one("x"))
    house.server.reactor.settle(10_000)
    house.server.reactor.budget.most = 1
    base = {"name": "F", "storage": "memory"}
    clients = [house.server.client() for _ in range(3)]
    for number, (call, body) in enumerate(
        [
            ("STREAM.UPDATE.F", {**base, "sources": of_one("y")}),
            ("STREAM.UPDATE.F", {**base, "sources": of_one("x")[:300]}),
            ("STREAM.INFO.F", {}),
        ]
    ):
        payload = json.dumps(body).encode()
        inbox = f"_C.{number}"
        head = f"SUB {inbox} 1\r\nPUB $JS.API.{call} {inbox} {len(payload)}\r\n".encode()
        house.server.sessions.feed(clients[number].connection, head + payload + b"\r\n")
    house.server.reactor.settle(10_000)
    counts = []
    for client in clients:
        events = client.parser.feed(client.connection.take())
        (event,) = [each for each in events if len(each) == 6 and str(each[1])[:3] == "_C."]
        counts.append(len(json.loads(bytes(event[5]))["config"]["sources"]))  # type: ignore[call-overload] # the payload of a message
    assert counts[:2] == [1000, 300]
    assert counts[2] in (1000, 300)
    for number in range(1000):
        house.send(f"x.{number}")
        house.send(f"y.{number}")
    house.server.reactor.settle(10_000)
    final = house.ok("STREAM.INFO.F")
    assert len(final["config"]["sources"]) == len(final["sources"])
    log = house.account.streams["F"].core.log
    assert log.msgs == len(final["sources"])


@pytest.mark.parametrize("turns", [1, 5, 12, 30])
def test_a_stream_may_go_while_its_sources_are_made(house: House, turns: int) -> None:
    house.stream("O", subjects=["x.>", "y.>"])
    house.stream("F", sources=of_one("x"))
    house.server.reactor.settle(10_000)
    house.send("x.7")
    house.send("x.900")
    house.server.reactor.settle(10_000)
    house.server.reactor.budget.most = 1
    payload = json.dumps({"name": "F", "sources": of_one("x")[1:] + of_one("y")[:1]}).encode()
    request = b"PUB $JS.API.STREAM.UPDATE.F _I.1 %d\r\n%s\r\n" % (len(payload), payload)
    house.server.sessions.feed(house.client.connection, request)
    for _ in range(turns):
        house.server.reactor.turn()
    again = house.restart()
    again.server.reactor.settle(10_000)
    for subject in ("x.7", "x.900", "x.1"):
        again.send(subject)
    again.server.reactor.settle(10_000)
    assert again.account.streams["F"].core.log.msgs == 5  # none is copied twice
    assert not again.reports
