"""The clock that cannot jump, fed with readings of a wall clock and of one that only counts."""

from hypothesis import given
from hypothesis import strategies as st

from pelton.core.base.clock import SteadyClock, SystemClock

SECOND = 1_000_000_000
YEAR = 365 * 86_400 * SECOND
START = 1_700_000_000 * SECOND


def run(clock: SteadyClock, seconds: int, ahead_ns: int, since: int) -> int:
    """Let time pass in steps of 100 ms, with the wall clock so far ahead; the time at the end."""
    for tenth in range(since * 10 + 1, (since + seconds) * 10 + 1):
        elapsed = tenth * SECOND // 10
        clock.read(START + elapsed + ahead_ns, SECOND + elapsed)
    return clock.now()


def test_the_first_reading_sets_the_time() -> None:
    clock = SteadyClock()
    assert clock.read(START, SECOND) == START == clock.now()
    assert clock.offset_ns() == 0


def test_it_follows_a_wall_clock_that_does_not_jump() -> None:
    clock = SteadyClock()
    clock.read(START, SECOND)
    assert run(clock, 10, 0, 0) == START + 10 * SECOND


def test_a_jump_of_twenty_years_and_back_moves_it_by_an_eighth_of_the_time() -> None:
    clock = SteadyClock()
    clock.read(START, SECOND)
    assert run(clock, 80, 20 * YEAR, 0) == START + 90 * SECOND
    assert clock.offset_ns() == 20 * YEAR - 10 * SECOND
    assert run(clock, 80, 0, 80) == START + 160 * SECOND
    assert clock.offset_ns() == 0


def test_a_step_back_makes_it_slow_and_never_stops_it() -> None:
    clock = SteadyClock()
    clock.read(START, SECOND)
    assert run(clock, 80, -10 * SECOND, 0) == START + 70 * SECOND
    assert run(clock, 80, -YEAR, 80) == START + 140 * SECOND


@given(
    readings=st.lists(
        st.tuples(st.integers(0, 1 << 62), st.integers(-5, 10 * SECOND)), min_size=1, max_size=50
    )
)
def test_it_never_goes_back_nor_faster_than_nine_eighths(readings: list[tuple[int, int]]) -> None:
    clock, steady = SteadyClock(), 10 * SECOND
    before = clock.read(START, steady)
    newest = steady
    for wall_ns, step in readings:
        steady = max(steady + step, 1)
        now = clock.read(wall_ns, steady)
        passed = max(steady - newest, 0)
        newest = max(newest, steady)
        assert passed - passed // 8 <= now - before <= passed + passed // 8
        before = now


def test_the_machines_clock_advances() -> None:
    clock = SystemClock()
    first = clock.now()
    assert first > START
    assert clock.now() >= first
