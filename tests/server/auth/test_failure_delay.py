"""Who fails often waits longer; everybody else does not wait."""

from hypothesis import given
from hypothesis import strategies as st

from pelton.server.auth.failure_delay import (
    ADDRESSES_MAX,
    FREE,
    UNHEARD,
    WAIT_MAX_NS,
    FailureDelay,
    group,
)

SECOND = 1_000_000_000


def test_the_first_ones_are_free_and_later_ones_wait_longer():
    patience = FailureDelay()
    waits = [patience.failed("h", 0) for _ in range(FREE + 6)]
    assert waits[:FREE] == [0] * FREE
    assert waits[FREE:] == sorted(set(waits[FREE:]))
    assert patience.failed("other", 0) == 0


def test_it_is_forgotten():
    patience = FailureDelay()
    for _ in range(FREE + 3):
        patience.failed("h", 0)
    assert patience.failed("h", 100 * SECOND) == 0


def test_too_many_at_a_time_are_not_listened_to():
    patience = FailureDelay()
    for _ in range(FREE + UNHEARD):
        assert not patience.too_many_waiting("h")
        patience.failed("h", 0)
    assert patience.too_many_waiting("h")
    assert not patience.too_many_waiting("other")
    patience.answered("h")
    assert not patience.too_many_waiting("h")


def test_memory_is_bounded():
    patience = FailureDelay()
    for number in range(ADDRESSES_MAX + 100):
        patience.failed(f"10.{number}", 0)
    assert len(patience._addresses) == ADDRESSES_MAX


@given(st.lists(st.tuples(st.integers(0, 3 * SECOND), st.sampled_from("ab")), max_size=60))
def test_nobody_waits_longer_than_the_maximum(steps):
    patience = FailureDelay()
    now = 0
    for pause, host in steps:
        now += pause
        when = patience.failed(host, now)
        assert when == 0 or now < when <= now + WAIT_MAX_NS


def test_a_whole_ipv6_network_is_one_address():
    assert group("2001:db8:1:2:3:4:5:6") == group("2001:db8:1:2::9")
    assert group("::1") == "::1"
    assert group("10.0.0.1") != group("10.0.0.2")
