"""``pelton counter``, ``errors`` and ``rtt``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pelton import StreamConfig
from pelton.sync import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cli.conftest import Ran
    from tests.peers import ServerProcess

    Run = Callable[..., Ran]


@pytest.fixture
def counters(peer: ServerProcess, unique: str) -> Iterator[str]:
    """A stream of counters, and one that sums them up."""
    with connect(peer.url) as client:
        js = client.jetstream()
        js.create_stream(
            StreamConfig(
                name=unique, subjects=[f"{unique}.>"], allow_msg_counter=True, allow_direct=True
            )
        )
        yield unique
        js.delete_stream(unique)


def test_counting(at: Run, counters: str) -> None:
    one, two = f"{counters}.a", f"{counters}.b"
    assert at("counter", "incr", one).out == "1\n"
    assert at("counter", "increment", one, 10).out == "11\n"
    assert at("counter", "incr", one, -5).out == "6\n"
    assert at("counter", "decr", one, "2").out == "4\n"
    assert at("counter", "incr", one, "+1", "--id", "x").out == "5\n"
    assert at("counter", "incr", one, "+1", "--id", "x").out == "5\n"
    assert at("counter", "get", one).out == "5\n"
    assert at("ctr", "get", one, "--stream", counters, "--json").json == {
        "subject": one,
        "value": "5",
    }
    assert at("counter", "incr", two, "1" + "0" * 5000).out == f"1{'0' * 5000}\n"
    found = at("counter", "view", one, "--json").json
    assert (found["value"], found["increment"], found["sources"]) == ("5", "1", {})
    assert "Value: 5\n" in at("counter", "view", one).out
    assert at("counter", "ls", "--stream", counters, "--names").out == f"{one}\n{two}\n"
    listed = at("counter", "ls", f"{counters}.*", "--json").json
    assert listed == [one, two]
    assert one in at("counter", "ls", f"{counters}.a").out


def test_a_sum_shows_its_sources(at: Run, peer: ServerProcess, counters: str) -> None:
    from pelton import StreamSource

    total = f"{counters}SUM"
    with connect(peer.url) as client:
        js = client.jetstream()
        js.create_stream(
            StreamConfig(
                name=total,
                sources=[StreamSource(name=counters)],
                allow_msg_counter=True,
                allow_direct=True,
            )
        )
        try:
            at("counter", "incr", f"{counters}.a", 3)
            message = js.ordered_consumer(total).next()
            assert message is not None
            assert message.subject == f"{counters}.a"
            found = at("counter", "view", f"{counters}.a", "--stream", total, "--json").json
            assert found["sources"] == {counters: {f"{counters}.a": "3"}}
            shown = at("counter", "view", f"{counters}.a", "--stream", total).out
            assert f"{counters} {counters}.a: 3\n" in shown
        finally:
            js.delete_stream(total)


def test_mistakes_are_told_in_one_line(at: Run, counters: str) -> None:
    for status, words, says in (
        (2, ("incr", f"{counters}.a", "1.5"), "is not a whole number"),
        (2, ("incr", f"{counters}.a", "--stram"), "is not a whole number"),
        (2, ("ls",), "give a SUBJECT or --stream"),
        (1, ("get", f"{counters}.none"), "nothing was added"),
        (1, ("get", f"{counters}X.a"), f"no stream has the subject {counters}X.a"),
    ):
        ran = at("counter", *words)
        assert (ran.status, ran.out) == (status, ""), words
        assert says in ran.err
        assert ran.err.count("\n") == 1


def test_errors_are_looked_up(cli: Run) -> None:
    assert cli("errors", "lookup", 10059, "--json").json == {
        "err_code": 10059,
        "code": 404,
        "name": "StreamNotFound",
        "description": "stream not found",
    }
    assert "Description: stream not found\n" in cli("errors", "lookup", 10059).out
    assert cli("errors", "lookup", 1).err == "pelton: JetStream has no error 1\n"
    everything = cli("errors", "ls", "--json").json
    assert len(everything) > 150
    assert [each["err_code"] for each in everything] == sorted(
        {each["err_code"] for each in everything}
    )
    some = cli("errors", "ls", "wrong last").out
    assert "10071" in some
    assert "10059" not in some


def test_the_round_trip_is_measured(at: Run, peer: ServerProcess) -> None:
    (found,) = at("rtt", 3, "--json").json
    (result,) = found["results"]
    assert set(result) == {"time", "address", "rtt", "url"}
    assert 0 < found["min_ns"] <= result["rtt"] <= found["max_ns"]
    assert found["url"].endswith(f":{peer.port}")
    assert "Pings: 5\n" in at("rtt").out
