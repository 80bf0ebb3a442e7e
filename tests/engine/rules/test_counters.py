"""Counters: sums of any length, broken counters, and sums of other streams' counters."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.protocol.publish_headers import value
from pelton.engine.rules import counters
from tests.core.streams import block
from tests.engine.house import House
from tests.ways import length


def count(house: House, subject: str, number: str, *more: str) -> dict[str, object]:
    found: dict[str, object] = house.publish(subject, b"", block(f"Nats-Incr: {number}", *more))
    return found


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.integers(-(10**30), 10**30), st.booleans()), max_size=20
    )
)
@settings(max_examples=length(20, 40), deadline=None)
def test_a_counter_is_a_sum(
    steps: list[tuple[int, int, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    house = House(tmp_path_factory.mktemp("house"))
    house.stream(subjects=["s.>"], allow_msg_counter=True, allow_rollup_hdrs=True)
    sums = [0, 0, 0]
    for seq, (which, number, restart) in enumerate(steps, 1):
        if restart:
            house = house.crash()
        sums[which] += number
        ack = count(house, f"s.{which}", f"{number:+d}")
        assert ack == {"stream": "S", "seq": seq, "val": str(sums[which])}
        stored = house.engine.accounts["$G"].streams["S"].core.log.get(seq)
        assert stored.payload == b'{"val":"%d"}' % sums[which]
        assert value(stored.headers, b"Nats-Incr") == b"%+d" % number


def test_a_sum_may_be_longer_than_python_prints(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.>"], allow_msg_counter=True)
    assert count(house, "s.a", "9" * 20_000)["val"] == "9" * 20_000
    assert count(house, "s.a", "1")["val"] == "1" + "0" * 20_000
    assert count(house, "s.a", "-1" + "0" * 20_000)["val"] == "0"
    assert count(house, "s.a", "-" + "7" * 9_001)["val"] == "-" + "7" * 9_001


REFUSED = [
    ("s.a", b"", [], 10169),
    ("s.a", b"", ["Nats-Incr:"], 10169),
    ("s.a", b"", ["Nats-Incr: x"], 10171),
    ("s.a", b"", ["Nats-Incr: 1.5"], 10171),
    ("s.a", b"x", ["Nats-Incr: 1"], 10170),
    ("s.a", b"", ["Nats-Incr: 1", "Nats-Rollup: sub"], 10171),
    ("s.a", b"", ["Nats-Incr: 1", "Nats-Expected-Last-Sequence: 0"], 10171),
    ("s.a", b"", ["Nats-Incr: 1", "Nats-Expected-Stream: S"], 10171),
    ("s.broken", b"", ["Nats-Incr: 1"], 10172),
    ("s.listed", b"", ["Nats-Incr: 1"], 10172),
    ("s.sources", b"", ["Nats-Incr: 1"], 10172),
    ("t.a", b"", ["Nats-Incr: 1"], 10168),
    ("t.a", b"", ["Nats-Incr: x"], 10171),
]


@pytest.mark.parametrize(("subject", "payload", "lines", "code"), REFUSED)
def test_what_is_refused(
    subject: str, payload: bytes, lines: list[str], code: int, tmp_path: Path
) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.>"], allow_msg_counter=True)
    house.stream("T", subjects=["t.>"])
    core = house.engine.accounts["$G"].streams["S"].core
    core.path.store("s.broken", b"no")
    core.path.store("s.listed", b"[]")
    core.path.store("s.sources", b'{"val":"1"}', block("Nats-Counter-Sources: {]"))
    headers = block(*lines) if lines else b""
    assert house.publish(subject, payload, headers)["error"]["err_code"] == code
    assert core.log.last_seq == 3


def test_counters_of_other_streams_are_gathered(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.>"], allow_msg_counter=True)
    entry = house.engine.accounts["$G"].streams["S"]

    def take(origin: str, subject: str, total: int) -> None:
        headers = block("Nats-Incr: 1", f"Nats-Stream-Source: {origin} 1 > > {subject}")
        headers, payload = counters.gathered(entry, "s.a", headers, b'{"val":"%d"}' % total)
        entry.core.path.store("s.a", payload, headers)

    take("ONE", "x", 5)
    take("TWO", "y<", 7)
    take("ONE", "x", 4)
    assert count(house, "s.a", "10")["val"] == "21"
    last = entry.core.log.get(4)
    assert last.payload == b'{"val":"21"}'
    told = value(last.headers, b"Nats-Counter-Sources")
    assert told == b'{"ONE":{"x":"4"},"TWO":{"y\\u003c":"7"}}'
    third = entry.core.log.get(3)
    assert value(third.headers, b"Nats-Incr") == b"-1"
    assert json.loads(third.payload) == {"val": "11"}
    with pytest.raises(counters.BrokenCounterError):
        counters.gathered(entry, "s.a", block("Nats-Incr: 1"), b"x")
