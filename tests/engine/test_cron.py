"""Due times of schedules: cron compared with counting every second, changes of the clock, invalid
patterns.
"""

from calendar import monthrange
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pelton.engine.base.cron import Cron, TimetableError, ZoneError, due, zone_of
from tests.ways import length

SECOND = 1_000_000_000
START = int(datetime(2026, 11, 20, 21, 10, 45, tzinfo=UTC).timestamp())


def stamp(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    some = st.lists(number, min_size=1, max_size=3).map(lambda ns: ",".join(map(str, ns)))
    spans = st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}")
    steps = st.tuples(number, st.integers(1, 20)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    opened = st.integers(1, 20).map(lambda step: f"*/{step}")
    return st.just("*") | st.just("*") | some | spans | steps | opened


def allowed(text: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        start = low if first == "*" else int(first)
        if dash:
            end = int(last)
        else:
            end = high if first == "*" or step else start
        found.update(range(start, end + 1, int(step or 1)))
    return found


BOUNDS = ((0, 59), (0, 59), (0, 23))


@given(
    fields=st.tuples(*(field(*bounds) for bounds in BOUNDS)),
    after=st.integers(START, START + 400 * 86400),
)
@settings(max_examples=length(25, 60), deadline=None)
def test_a_time_of_day_is_the_first_that_matches(fields: tuple[str, ...], after: int) -> None:
    found = Cron(f"{' '.join(fields)} * * *", UTC).next(after)
    sets = [allowed(text, *bounds) for text, bounds in zip(fields, BOUNDS, strict=True)]
    at = after + 1
    while True:
        moment = datetime.fromtimestamp(at, UTC)
        if all(
            value in values
            for value, values in zip((moment.second, moment.minute, moment.hour), sets, strict=True)
        ):
            break
        at += 1
    assert found == at


@given(
    day=field(1, 31),
    month=field(1, 12),
    weekday=field(0, 6),
    after=st.integers(START, START + 400 * 86400),
)
@settings(max_examples=length(20, 100), deadline=None)
def test_a_day_is_the_first_that_matches(day: str, month: str, weekday: str, after: int) -> None:
    days, months, weekdays = allowed(day, 1, 31), allowed(month, 1, 12), allowed(weekday, 0, 6)

    def is_open(text: str) -> bool:
        return text in ("*", "*/1")

    def matches(moment: datetime) -> bool:
        either = (moment.day in days, moment.isoweekday() % 7 in weekdays)
        chosen = all(either) if is_open(day) or is_open(weekday) else any(either)
        return moment.month in months and chosen

    moment = datetime.fromtimestamp(after, UTC).replace(hour=0, minute=0, second=0)
    moment += timedelta(days=1)
    end = moment + timedelta(days=5 * 365)
    while not matches(moment) and moment < end:
        moment += timedelta(days=1)
    try:
        found = Cron(f"0 0 0 {day} {month} {weekday}", UTC).next(after)
    except TimetableError:
        assert moment >= end
    else:
        assert found == int(moment.timestamp())


ZONED = [
    ("0 30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T02:30:00+02:00"),
    ("0 0 9 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T09:00:00+02:00"),
    ("0 30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T02:30:00+02:00"),
    ("0 0 0 1 1 *", "America/New_York", "2026-11-20T00:00:00Z", "2027-01-01T00:00:00-05:00"),
    ("0 0 * * * *", "Asia/Kolkata", "2026-11-20T00:00:00Z", "2026-11-20T06:00:00+05:30"),
]


@pytest.mark.parametrize(("pattern", "zone", "after", "wanted"), ZONED)
def test_a_pattern_follows_the_clocks_of_its_zone(
    pattern: str, zone: str, after: str, wanted: str
) -> None:
    cron = Cron(pattern, ZoneInfo(zone))
    assert cron.text(cron.next(stamp(after))) == wanted


DUE = [
    ("@at 2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", False),
    ("@at 2026-12-31T23:00:00.5+01:00", "2026-12-31T22:00:00.5Z", False),
    ("@every 5s", "2026-11-20T21:10:50Z", True),
    ("@every 1.5s", "2026-11-20T21:10:46.5Z", True),
    ("@hourly", "2026-11-20T22:00:00Z", True),
    ("@daily", "2026-11-21T00:00:00Z", True),
    ("@midnight", "2026-11-21T00:00:00Z", True),
    ("@weekly", "2026-11-22T00:00:00Z", True),
    ("@monthly", "2026-12-01T00:00:00Z", True),
    ("@yearly", "2027-01-01T00:00:00Z", True),
    ("@annually", "2027-01-01T00:00:00Z", True),
    ("0 0 0 ? nov SUN-tue", "2026-11-22T00:00:00Z", True),
    ("*/20 * * * * *", "2026-11-20T21:11:00Z", True),
]


@pytest.mark.parametrize(("pattern", "text", "repeats"), DUE)
def test_a_pattern_is_due(pattern: str, text: str, repeats: bool) -> None:
    found = due(pattern, None, START * SECOND + 1, START * SECOND + 1)
    assert (found.text, found.repeats) == (text, repeats)


def test_what_was_missed_comes_once() -> None:
    now = START * SECOND + 300_000_000
    assert due("@every 7s", None, now - 100 * SECOND, now).ns == START * SECOND + 7 * SECOND
    assert due("*/10 * * * * *", None, now - 100 * SECOND, now).ns == (START + 5) * SECOND


BAD = ["", "x", "@at x", "@at 2026-01-01", "@every 0s", "@every 999ms", "@every x", "@sometimes"]
BAD += ["* * * * *", "60 * * * * *", "* * * 0 * *", "* * * * 13 *", "* * * * * 7", "5-1 * * * * *"]
BAD += ["*/0 * * * * *", "1-2-3 * * * * *", "1/2/3 * * * * *", "-1 * * * * *", "0 0 0 30 2 *"]


@pytest.mark.parametrize("pattern", BAD)
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(TimetableError):
        due(pattern, None, START * SECOND, START * SECOND)


@pytest.mark.parametrize("name", ["", "Nowhere/None", "Europe", "../etc/passwd", "/etc/localtime"])
def test_what_is_no_zone(name: str) -> None:
    with pytest.raises(ZoneError):
        zone_of(name)


@pytest.mark.parametrize("pattern", ["@at 2026-01-01T00:00:00Z", "@every 5s"])
def test_only_patterns_have_a_zone(pattern: str) -> None:
    with pytest.raises(TimetableError):
        due(pattern, zone_of("Europe/Berlin"), START * SECOND, START * SECOND)


class Counted(Cron):
    """Counts the steps of its searches."""

    steps = 0

    def _step(self, at: int, local: datetime, cut: bool) -> tuple[int, bool]:
        self.steps += 1
        return super()._step(at, local, cut)


@pytest.mark.parametrize(
    "pattern", ["0 0 0 30 2 *", "0 0 0 31 2,4,6,9,11 *", ", * * * * *", "0 0 0 , * *"]
)
def test_a_pattern_that_is_never_due_is_refused_without_a_search(pattern: str) -> None:
    with pytest.raises(TimetableError):
        Counted(pattern, UTC)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.parametrize(
    "pattern", ["0 0 0 29 2 *", "59 59 23 31 12 *", "7 7 7 * * 3", "0 0 12 31 * 1"]
)
def test_a_search_takes_few_steps_and_is_made_once(pattern: str, zone: str) -> None:
    cron = Counted(pattern, zone_of(zone))
    found = cron.next(START)
    assert cron.steps <= 150
    before = cron.steps
    assert {cron.next(START + n) for n in range(0, found - START, (found - START) // 50 + 1)} == {
        found
    }
    assert cron.steps == before


def test_a_search_that_found_nothing_is_not_repeated_in_the_same_year() -> None:
    cron = Counted("0 0 0 29 2 *", UTC)
    start = stamp("2096-03-01T00:00:00+00:00")  # 2100 is not a leap year
    with pytest.raises(TimetableError):
        cron.next(start)
    before = cron.steps
    with pytest.raises(TimetableError):
        cron.next(start + 86400)
    assert cron.steps == before
    assert cron.next(stamp("2100-01-01T00:00:00+00:00")) == stamp("2104-02-29T00:00:00+00:00")


moments = st.integers(START, START + 800 * 86400)
some_days = st.sampled_from(["*", "1", "31", "29,30", "*/7", "5-9"])
some_months = st.sampled_from(["*", "2", "2,9", "*/3", "12"])
some_weekdays = st.sampled_from(["*", "1", "0,6", "2-4"])


@given(some_days, some_months, some_weekdays, st.lists(moments, min_size=2, max_size=4))
@example("31", "2", "*", [START, START])
@example("31", "2,9", "*", [START, START])
@settings(max_examples=length(40, 200), deadline=None)
def test_earlier_searches_do_not_change_the_result(
    day: str, month: str, weekday: str, asked: list[int]
) -> None:
    """One object that answers many questions, beside a new one for each, and a count of days."""
    pattern = f"0 0 12 {day} {month} {weekday}"
    days, months = allowed(day, 1, 31), allowed(month, 1, 12)
    weekdays = allowed(weekday, 0, 6)
    if weekday == "*" and min(days) > max(monthrange(2000, month)[1] for month in months):
        with pytest.raises(TimetableError, match="no next time"):
            Cron(pattern, UTC)
        return
    kept = Cron(pattern, UTC)
    either = day != "*" and weekday != "*"
    for after in asked:
        found = kept.next(after)
        assert found == Cron(pattern, UTC).next(after)
        at = after - after % 86400 + 12 * 3600
        while True:
            moment = datetime.fromtimestamp(at, UTC)
            fits = (moment.day in days, moment.isoweekday() % 7 in weekdays)
            if at > after and moment.month in months and (any(fits) if either else all(fits)):
                break
            at += 86400
        assert found == at
