"""Log lines about a machine's clock that differs from the server's; ages by a clock that cannot jump."""

from pathlib import Path

from pelton.core.base.clock import SteadyClock
from pelton.server.clock_watch import ClockWatch
from tests.engine.house import House

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
YEAR = 365 * 24 * HOUR


def lines(watch: ClockWatch, hours: int, offset_ns: int, begin_ns: int = 0) -> list[str]:
    """The lines of all looks within these hours."""
    times = range(begin_ns, begin_ns + hours * HOUR, 10 * SECOND)
    return [line for now in times if (line := watch.look(now, offset_ns))]


def test_a_jump_is_reported_once_an_hour_and_its_end_once() -> None:
    watch = ClockWatch()
    assert lines(watch, 1, 9 * SECOND) == []
    found = lines(watch, 3, 20 * YEAR, HOUR)
    assert len(found) == 3
    assert found[0].startswith("The machine's clock is 175200h0m0s ahead of the server's")
    assert lines(watch, 2, 0, 4 * HOUR) == ["The machine's clock and the server's agree again"]


def test_another_jump_is_reported_at_once() -> None:
    watch = ClockWatch()
    assert len(lines(watch, 1, 60 * SECOND)) == 1
    assert "behind the server's" in watch.look(HOUR // 2, -60 * SECOND)
    assert watch.look(HOUR // 2 + SECOND, -59 * SECOND) == ""


def test_max_age_does_not_follow_a_wall_clock_that_jumps(tmp_path: Path) -> None:
    start, steady = 1_700_000_000 * SECOND, SECOND
    clock = SteadyClock()
    clock.read(start, steady)
    house = House(tmp_path, clock=clock)
    house.stream("S", subjects=["s"], max_age=HOUR, allow_msg_ttl=True)
    house.stream("T", subjects=["t"], max_age=HOUR)

    def messages(wall_ns: int, steady_ns: int) -> list[int]:
        house.engine.tick_all(clock.read(wall_ns, steady_ns))
        house.server.reactor.turn()
        return [house.ok(f"STREAM.INFO.{name}")["state"]["messages"] for name in "ST"]

    for subject in ("s", "t"):
        house.publish(subject)
    ahead = start + 20 * YEAR
    assert messages(ahead + 600 * SECOND, steady + 600 * SECOND) == [1, 1]
    for subject in ("s", "t"):
        house.publish(subject)  # these get the server's time as well
    assert messages(start + 1200 * SECOND, steady + 1200 * SECOND) == [2, 2]
    # 675 s and 525 s passed for the server
    assert messages(start + HOUR - SECOND, steady + HOUR - SECOND) == [2, 2]
    assert messages(start + HOUR + SECOND, steady + HOUR + SECOND) == [1, 1]
    assert messages(start + 2 * HOUR, steady + 2 * HOUR) == [0, 0]
