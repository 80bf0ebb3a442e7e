"""What a stream promises a publisher about duplicates, replacements in a full stream, and times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.core.streams import block
from tests.engine.house import SECOND, House

if TYPE_CHECKING:
    from pathlib import Path

WINDOW = 2 * SECOND


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "store")


def pass_silently(house: House, ns: int) -> None:
    """Time without a tick of the engine, whose timer forgets old message ids, too."""
    house.server.clock.advance(ns)
    house.server.reactor.turn()


def identified(house: House, number: int, subject: str = "s") -> Any:
    return house.publish(subject, b"x", block(f"Nats-Msg-Id: {number}"))


def test_the_duplicate_window_ends_when_it_is_over(house: House) -> None:
    house.stream(subjects=["s"], duplicate_window=WINDOW)
    assert "duplicate" not in identified(house, 1)
    pass_silently(house, WINDOW - 1)
    assert identified(house, 1)["duplicate"]
    pass_silently(house, 1)
    assert identified(house, 1) == {"stream": "S", "seq": 2}


def test_message_ids_are_forgotten_without_a_publish(house: House) -> None:
    house.stream(subjects=["s"], duplicate_window=WINDOW)
    stream = house.account.streams["S"].core
    for number in range(100):
        identified(house, number)
    assert stream.expire() > house.server.clock.now()  # when the first id is over
    house.pass_time(WINDOW + SECOND)
    assert stream.expire() == 0


def test_a_mirror_has_each_message_of_an_id_that_was_used_again(house: House) -> None:
    """The origin, whose window was shorter, has accepted both."""
    house.stream("O", subjects=["s"], duplicate_window=WINDOW)
    house.stream("M", mirror={"name": "O"}, duplicate_window=60 * SECOND)
    house.stream("C", sources=[{"name": "O"}], duplicate_window=60 * SECOND)
    identified(house, 1)
    house.pass_time(WINDOW + SECOND)
    assert identified(house, 1)["seq"] == 2
    house.pass_time(SECOND)
    assert house.ok("STREAM.INFO.M")["state"]["messages"] == 2
    assert house.ok("STREAM.INFO.C")["state"]["messages"] == 1


def test_the_id_of_a_message_that_no_consumer_takes(house: House) -> None:
    house.stream(subjects=["s"], retention="interest", duplicate_window=WINDOW)
    assert identified(house, 1)["seq"] == 1
    assert identified(house, 1) == {"stream": "S", "seq": 1, "duplicate": True}
    assert house.ok("STREAM.INFO.S")["state"]["messages"] == 0


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_full_stream_takes_a_replacement_that_is_not_larger(house: House, storage: str) -> None:
    house.stream(
        subjects=["s.>"], discard="new", max_bytes=300, max_msgs_per_subject=1, storage=storage
    )
    assert house.publish("s.a", b"y" * 50)["seq"] == 1
    room = 300 - house.ok("STREAM.INFO.S")["state"]["bytes"]
    empty = house.account.streams["S"].core.log.size_of(1) - 50
    assert house.publish("s.b", b"y" * (room - empty))["seq"] == 2
    assert house.ok("STREAM.INFO.S")["state"]["bytes"] == 300
    assert house.publish("s.a", b"y" * 51)["error"]["description"] == "maximum bytes exceeded"
    assert house.publish("s.c", b"")["error"]["description"] == "maximum bytes exceeded"
    assert house.publish("s.a", b"z" * 50)["seq"] == 3
    assert house.ok("STREAM.INFO.S")["state"]["bytes"] == 300


def test_times_of_messages_never_go_back(house: House) -> None:
    house.stream(subjects=["s"])
    house.publish("s")
    house.server.clock.rewind(house.server.clock.now() - 5 * SECOND)
    house.server.reactor.turn()
    house.publish("s")
    house.account.streams["S"].core.publish("s", b"")
    log = house.account.streams["S"].core.log
    assert log.get(1).ts_ns == log.get(2).ts_ns == log.get(3).ts_ns
