"""The queue of requests beside a model: whose step is next, what a client that waits may not do, what is refused."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.broker.receivers import CallbackSink
from pelton.core.broker.request_queue import RequestQueue
from tests.core.wires import Server

if TYPE_CHECKING:
    from collections.abc import Generator

    from pelton.core.broker.reactor import Connection

BUDGET = 4


class Town:
    """Two accounts, `a.>` and `b.>`, with a service whose requests take as many steps as they say."""

    def __init__(self, most: int = 10_000) -> None:
        self.server = Server()
        self.server.reactor.budget.most = BUDGET
        self.failures: list[Exception] = []
        self.queue = RequestQueue(self.server.reactor, self.failures.append, most)
        self.steps: list[str] = []  # the request of each step, in order
        self.refused = 0
        self.server.router.attach("ask.*.>", CallbackSink(self._ask))

    def _ask(
        self, source: Connection | None, subject: str, reply: str, headers: bytes, body: bytes
    ) -> bool:
        if not self.queue.submit(subject.split(".")[1], source, self._work(subject, reply, body)):
            self.refused += 1
        return True

    def _work(self, subject: str, reply: str, body: bytes) -> Generator[None, None, None]:
        for left in range(int(body), 0, -1):
            self.steps.append(subject)
            if left > 1:
                yield
        if body == b"0":
            raise ValueError("no steps")
        self.server.router.publish_message(reply, body)


@given(
    st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=6), min_size=1, max_size=6),
    st.data(),
)
def test_each_request_is_answered_in_order_and_in_turns(
    plans: list[list[int]], data: st.DataObject
) -> None:
    """Each client sends all its requests in one write, with a publish and a PING between them."""
    town = Town()
    accounts = [data.draw(st.sampled_from("ab")) for _ in plans]
    clients = [town.server.client() for _ in plans]
    for number, (plan, account, client) in enumerate(zip(plans, accounts, clients, strict=True)):
        lines = f"SUB in.{number}.* 1\r\nSUB own.{number} 2\r\n"
        for place, steps in enumerate(plan):
            lines += f"PUB ask.{account}.{number}.{place} in.{number}.{place} {len(str(steps))}\r\n{steps}\r\n"
            lines += f"PUB own.{number} {len(str(place))}\r\n{place}\r\nPING\r\n"
        client.send(lines)
    turns, before = 0, len(town.steps)
    while town.server.reactor.turn():
        turns += 1
        assert (
            len(town.steps) - before <= 2 * BUDGET
        )  # a request that begins at once, and the queue
        before = len(town.steps)
        assert turns < 1000
    for number, (plan, client) in enumerate(zip(plans, clients, strict=True)):
        heard = [(event[0], *event[1:2]) for event in client.parser.feed(client.connection.take())]
        told = [name for kind, *rest in heard for name in (rest or [kind])]
        answers = [each for each in told if str(each).startswith("in.")]
        assert answers == [f"in.{number}.{place}" for place in range(len(plan))]
        assert sum(str(each) == f"own.{number}" for each in told) == len(plan)
    for number, plan in enumerate(plans):
        for place, steps in enumerate(plan):
            assert town.steps.count(f"ask.{accounts[number]}.{number}.{place}") == steps
    assert not town.failures


def test_accounts_take_turns_at_each_step() -> None:
    """A model: a circle of accounts, each with a circle of its connections."""
    town = Town()
    for name in ("a.0", "a.1", "a.2", "b.0"):
        town.server.client().send(f"PUB ask.{name} 1\r\n9\r\n")
    started = town.steps[:]
    assert started == ["ask.a.0"] * BUDGET  # the first begins at once
    circle = deque([deque(["a.0", "a.1", "a.2"]), deque(["b.0"])])
    left = {"a.0": 9 - BUDGET, "a.1": 9, "a.2": 9, "b.0": 9}
    expected: list[str] = []
    while circle:
        names = circle[0]
        expected.append(f"ask.{names[0]}")
        left[names[0]] -= 1
        if left[names[0]]:
            names.rotate(-1)
            circle.rotate(-1)
            continue
        names.popleft()
        circle.popleft()
        if names:
            circle.append(names)
    town.server.reactor.settle()
    assert town.steps[BUDGET:] == expected


def test_a_client_whose_request_waits_is_not_read_from() -> None:
    town = Town()
    first, second = town.server.client(), town.server.client()
    first.send("PUB ask.a.0 2\r\n40\r\n")
    second.send("PUB ask.b.0 1\r\n1\r\nPING\r\n")
    assert second.connection.stalled
    assert second.connection.take() == b""
    town.server.sessions.feed(second.connection, b"PING\r\n")
    assert second.connection.take() == b""
    assert second.raw() == b"PONG\r\nPONG\r\n"
    assert not second.connection.stalled


def test_a_client_that_only_asks_has_one_run_in_a_turn() -> None:
    """Its next request does not begin before the output of the turn that reads it."""
    town = Town()
    client = town.server.client()
    client.send(f"PUB ask.a.0 1\r\n{BUDGET}\r\n" * 10 + "PING\r\n")
    counts = [len(town.steps)]
    while town.server.reactor.turn():
        counts.append(len(town.steps))
    assert counts[0] == BUDGET  # the first one began at once
    assert {b - a for a, b in itertools.pairwise(counts)} <= {0, BUDGET}
    assert len(town.steps) == 10 * BUDGET
    assert client.connection.take().endswith(b"PONG\r\n")
    for _ in range(2):
        town.server.reactor.turn()
    client.send("PUB ask.a.0 1\r\n1\r\n")
    assert len(town.steps) == 10 * BUDGET + 1  # at once again


def test_what_a_closed_client_has_asked_is_carried_out() -> None:
    town = Town()
    first, second = town.server.client(), town.server.client()
    first.send("PUB ask.a.0 2\r\n40\r\n")
    second.send("PUB ask.b.0 1\r\n3\r\n")
    town.server.sessions.eof(second.connection)
    town.server.reactor.settle()
    assert town.steps.count("ask.b.0") == 3


def test_requests_without_a_client_are_bounded_by_number_and_bytes() -> None:
    town = Town(most=3)
    for number in range(10):
        town.server.router.publish_message(f"ask.a.{number}", b"20")
    assert town.refused == 7
    town.server.router.publish_message("ask.b.0", b"20")
    assert town.refused == 7  # another account has its own room
    assert (town.queue.waiting("a"), town.queue.waiting("b")) == (3, 1)
    town.server.client().send("PUB ask.a.client 1\r\n1\r\n")
    assert town.refused == 7  # a client's request holds the client, and needs no room
    town.server.reactor.settle()
    assert set(town.steps) == {"ask.a.0", "ask.a.1", "ask.a.2", "ask.b.0", "ask.a.client"}
    queue = RequestQueue(town.server.reactor, print, 100, 50)
    taken = [queue.submit("a", None, town._work("ask.a.x", "", b"20"), 20) for _ in range(5)]
    assert taken == [True, True, False, False, False]
    queue.drop("a")


def test_a_request_that_fails_leaves_the_others() -> None:
    town = Town()
    client = town.server.client().send("SUB in 1\r\n")
    for body in (b"9", b"0", b"2"):
        client.send(b"PUB ask.a.0 in 1\r\n" + body + b"\r\n")
    assert [event[5] for event in client.events()] == [b"9", b"2"]
    assert [str(each) for each in town.failures] == ["no steps"]


def test_a_dropped_account_frees_its_clients() -> None:
    town = Town()
    first, second = town.server.client(), town.server.client()
    first.send("PUB ask.a.0 2\r\n40\r\n")
    second.send("PUB ask.a.1 1\r\n3\r\nPING\r\n")
    town.queue.drop("a")
    assert second.raw() == b"PONG\r\n"
    assert first.send("PING\r\n").raw() == b"PONG\r\n"
    assert town.steps == ["ask.a.0"] * BUDGET
    assert town.queue.waiting("a") == 0


@pytest.mark.parametrize("slow", [True, False])
def test_a_connection_pauses_after_slow_operations(slow: bool) -> None:
    """Operations that Python carries out are slow: a connection does so many of them in a turn."""
    server = Server()
    server.reactor.budget.most = BUDGET
    heard: list[bytes] = []
    server.router.attach(
        "slow", CallbackSink(lambda *message: bool(heard.append(message[4])) or True)
    )
    client = server.client().send("SUB in 1\r\n")
    subject = "slow" if slow else "in"
    client.send("".join(f"PUB {subject} 2\r\n{n:02}\r\n" for n in range(20)) + "PING\r\n")
    counts = [len(heard)]
    while server.reactor.turn():
        counts.append(len(heard))
    if slow:
        assert max(b - a for a, b in zip([0, *counts], counts, strict=False)) == BUDGET
        assert heard == [b"%02d" % n for n in range(20)]
    else:
        assert len(counts) <= 2
    assert client.raw().endswith(b"PONG\r\n")
