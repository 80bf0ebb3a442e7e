"""Lame duck mode: the order of what happens, and the gaps between clients."""

import asyncio
import io
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.base.clock import Clock
from pelton.core.broker.reactor import Reactor
from pelton.core.broker.router import Router
from pelton.core.broker.session import Sessions
from pelton.server.lame_duck import LameDuck, gap_seconds
from pelton.server.logs.log import Log
from pelton.server.settings import Settings

SECOND_NS = 1_000_000_000


class House:
    """A reactor with clients that leaves slowly; what happens is noted in order."""

    def __init__(self, clients, **settings):
        self.happened = []
        self.stream = io.StringIO()
        self.reactor = Reactor(Clock(10**18))
        router = Router(self.reactor)
        sessions = Sessions(self.reactor, lambda connection, text: router, router)
        self.clients = [sessions.accept() for _ in range(clients)]
        self.reactor.on_close = lambda connection: self.note("closed", connection.reason)
        self.duck = LameDuck(
            Settings(**settings),
            self.reactor,
            Log(stream=self.stream, stamps=False),
            [lambda: self.note("event"), lambda: self.note("listeners"), lambda: self.note("js")],
            lambda: self.note("told"),
            lambda: self.note("stopped"),
            Random(1),
            self.sleep,
        )

    def note(self, *what):
        self.happened.append(what)

    async def sleep(self, seconds):
        self.note("slept", seconds)

    def run(self):
        asyncio.run(self.duck.run())
        return [what[0] for what in self.happened]


def test_without_clients_it_ends_at_once():
    assert House(0).run() == ["event", "listeners", "js", "stopped"]


def test_clients_are_told_then_waited_for_then_closed_one_by_one():
    house = House(3, lame_duck_duration_ns=13 * SECOND_NS)
    steps = house.run()
    assert steps == [
        *("event", "listeners", "js", "told", "slept"),
        *("closed", "slept", "closed", "slept", "closed", "stopped"),
    ]
    assert house.happened[4] == ("slept", 10.0)
    assert {what[1] for what in house.happened if what[0] == "closed"} == {"Server Shutdown"}
    assert "Entering lame duck mode, stop accepting new clients" in house.stream.getvalue()


def test_a_client_that_went_by_itself_takes_no_time():
    house = House(3)
    gone = house.clients[1]

    async def sleep(seconds):
        if not gone.closed:
            house.reactor.disconnect(gone, "Client Closed")
        house.note("slept", seconds)

    house.duck._sleep = sleep
    steps = house.run()
    assert steps.count("slept") == 2
    assert [what[1] for what in house.happened if what[0] == "closed"] == [
        "Client Closed",
        "Server Shutdown",
        "Server Shutdown",
    ]


@given(st.integers(1, 200), st.integers(1, 100))
def test_gaps_are_half_to_all_of_a_share_and_a_second_at_most(clients, seconds):
    house = House(clients, lame_duck_duration_ns=(10 + seconds) * SECOND_NS)
    house.run()
    gaps = [what[1] for what in house.happened if what[0] == "slept"][1:]
    longest = min(seconds / clients, 1.0)
    assert len(gaps) == clients - 1
    assert all(longest / 2 <= gap <= longest for gap in gaps)
    assert sum(gaps) <= seconds


@pytest.mark.parametrize("duration_ns", [0, -5])
def test_no_time_is_a_second(duration_ns):
    assert gap_seconds(duration_ns, 2) == 0.5
