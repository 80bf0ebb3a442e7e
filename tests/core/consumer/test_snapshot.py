"""The stored state of a consumer, and what it tells the engine about time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.consumer.snapshot import pack, unpack
from tests.core.streams import filled, statuses

SECOND = 1_000_000_000
WAIT_NS = 30 * SECOND


@given(st.binary(max_size=120) | st.integers(0, 103).map(lambda at: damaged(at)))
def test_a_damaged_state_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="consumer state"):
        unpack(data)


def damaged(at: int) -> bytes:
    state = bytearray(pack((1, 2, 3, 4, 5, 6, 7), [(2, 1, 4, 1, 1)], []))
    state[at] ^= 1
    return bytes(state)


def test_a_state_beyond_the_stream_is_clamped() -> None:
    site, consumer = filled(2)
    consumer.restore(pack((9, 8, 9, 1, 7, 7, 1), [(2, 5, 1, 2, 1), (8, 9, 1, 1, 1)], []))
    state = consumer.state()
    assert (
        state.delivered_stream_seq,
        state.floor_stream_seq,
        state.num_ack_pending,
        state.num_pending,
    ) == (2, 2, 1, 0)
    assert not consumer.changed
    site.publish("s.x")
    site.pull("1")
    site.after(0)
    assert statuses(site.heard())[0] in ("2", "3")


def test_deadlines_are_told_when_they_come_nearer() -> None:
    site, consumer = filled(2)
    told: list[int] = []
    consumer.deadline_changed = lambda who, ns: told.append(ns - site.reactor.now_ns)
    assert consumer.tick() == 0
    site.pull('{"batch":2,"expires":60000000000}')
    site.reactor.settle()
    assert told == [60 * SECOND, WAIT_NS]
    site.pull('{"batch":1,"expires":5000000000}')
    site.pull('{"batch":1,"expires":6000000000}')
    site.reactor.settle()
    assert told[2:] == [5 * SECOND]


def test_unused_consumers_say_since_when() -> None:
    site, consumer = filled(1)
    start = site.reactor.now_ns
    assert consumer.idle_since_ns() == start
    site.clock.advance(SECOND)
    site.reactor.settle()
    site.pull("1")
    (message,) = site.heard()
    assert consumer.idle_since_ns() == 0  # its ack wait runs
    site.ack(message)
    site.reactor.settle()
    assert consumer.idle_since_ns() == start + SECOND
    site.pull('{"expires":1000000000}')
    site.reactor.settle()
    assert consumer.idle_since_ns() == 0
