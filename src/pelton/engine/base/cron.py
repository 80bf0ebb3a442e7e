"""Times of scheduled messages: `@at <time>`, `@every <duration>`, and cron patterns of six fields
(second, minute, hour, day of month, month, day of week) in a time zone.

The caller passes the time. A field is a list of `*`, `?`, numbers, names and ranges with steps;
when both days are restricted, a match of either is enough. Times that a change of the clocks skips
or repeats follow Go's calendar.
"""

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

from pelton.api.times import format_time, parse_time
from pelton.core.base.durations import parse_duration

SECOND = 1_000_000_000
NEVER_NS = 1 << 62
_NAMED = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_KEPT = 1000  # patterns
_YEARS = 5  # a pattern without a match in so many years is refused
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"[+-]?[0-9]+")


class TimetableError(ValueError):
    """The text is no valid pattern."""


class ZoneError(ValueError):
    """The time zone does not exist."""


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a name from the time zone database. ZoneError."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ZoneError(name) from None


class Due(Struct, frozen=True):
    """A due time and its text in the protocol; `repeats`: the schedule has a later time."""

    ns: int
    text: str
    repeats: bool


_LETTERS_MOST = 1000
_DIGITS_MOST = 19


def due(pattern: str, zone: tzinfo | None, after_ns: int, now_ns: int) -> Due:
    """Return when a schedule that was created or last ran at `after_ns` is due next.

    A schedule that has missed several times by `now_ns` is due once, and then from `now_ns` on.
    TimetableError.
    """
    if len(pattern) > _LETTERS_MOST:
        raise TimetableError("the pattern is too long")
    if pattern.startswith("@at "):
        if zone is not None:
            raise TimetableError("a fixed time has its own zone")
        try:
            ns = parse_time(pattern[4:])
        except ValueError as error:
            raise TimetableError(str(error)) from None
        return Due(min(ns, NEVER_NS), format_time(ns), False)
    if pattern.startswith("@every "):
        if zone is not None:
            raise TimetableError("an interval has no zone")
        every_ns = parse_duration(pattern[7:])
        if every_ns is None or every_ns < SECOND:
            raise TimetableError("an interval is a second or more")
        ns = _rounded(after_ns) + every_ns
        if ns < now_ns:
            ns = _rounded(now_ns) + every_ns
        return Due(min(ns, NEVER_NS), format_time(ns), True)
    cron = cron_of(_NAMED.get(pattern, pattern), zone or UTC)
    seconds = cron.next(after_ns // SECOND)
    if seconds * SECOND < now_ns:
        seconds = cron.next(_rounded(now_ns) // SECOND)
    return Due(seconds * SECOND, cron.text(seconds), True)


def _rounded(ns: int) -> int:
    return (ns + SECOND // 2) // SECOND * SECOND


@lru_cache(_KEPT)
def cron_of(pattern: str, zone: tzinfo) -> "Cron":
    """Return a pattern, which is parsed once while it is in use. TimetableError."""
    return Cron(pattern, zone)


class Cron:
    """One pattern in one time zone."""

    def __init__(self, pattern: str, zone: tzinfo) -> None:
        """Parse a pattern. TimetableError: the pattern is not valid."""
        fields = pattern.split()
        if len(fields) != 6:
            raise TimetableError(f"a pattern has 6 fields, not {len(fields)}")
        self._zone = zone
        self._second, _ = _field(fields[0], 0, 59)
        self._minute, _ = _field(fields[1], 0, 59)
        self._hour, _ = _field(fields[2], 0, 23)
        self._day, any_day = _field(fields[3], 1, 31)
        self._month, _ = _field(fields[4], 1, 12, _MONTHS)
        self._weekday, any_weekday = _field(fields[5], 0, 6, _DAYS, base=0)
        self._both_days = any_day or any_weekday
        sets = (self._second, self._minute, self._hour, self._day, self._month, self._weekday)
        if not all(sets) or not any(self._has_day(2000, month) for month in self._month):
            raise TimetableError("the pattern has no next time")
        # what the last search found: no time between `after` and `found` matches; `found` is 0 when
        # no time in the years from that of `after` on does
        self._searched: tuple[int, int] | None = None

    def next(self, after: int) -> int:
        """Return the first time after `after`, in seconds. TimetableError: there is none in the
        next years.
        """
        if self._searched is not None:
            start, found = self._searched
            if start <= after < found:
                return found
            if not found and start <= after and self._year(start) == self._year(after):
                raise TimetableError("the pattern has no next time")
        self._searched = after, 0
        found = self._search(after)
        self._searched = after, found
        return found

    def _search(self, after: int) -> int:
        at = after + 1
        cut = False  # whether the fields below this one were set to their lowest value
        last_year = self._year(after) + _YEARS
        while True:
            local = self._local(at)
            if local.year > last_year:
                raise TimetableError("the pattern has no next time")
            start = at
            at, cut = self._step(at, local, cut)
            if at == start:
                return at

    def _step(self, at: int, local: datetime, cut: bool) -> tuple[int, bool]:
        """Move on by one step of the first field that does not match."""
        if local.month not in self._month or not self._has_day(local.year, local.month, local.day):
            first = local.replace(day=1)
            if not cut:
                first = first.replace(hour=0, minute=0, second=0)
            return self._moved(first, months=1), True
        if not self._is_day(local):
            start = local if cut else local.replace(hour=0, minute=0, second=0)
            at = self._moved(start, days=self._days_to_go(local))
            if self._offset(at) != (local.utcoffset() or timedelta()).total_seconds():
                at = self._moved(start, days=1)
            return at, True
        if local.hour not in self._hour:
            if not cut:
                at = self._instant(local.replace(minute=0, second=0))
            return self._ahead(at, 3600, local.hour, self._hour, 24), True
        if local.minute not in self._minute:
            at = at if cut else at - at % 60
            return self._ahead(at, 60, local.minute, self._minute, 60), True
        if local.second not in self._second:
            return self._ahead(at, 1, local.second, self._second, 60), True
        return at, cut

    def _ahead(self, at: int, unit: int, now: int, allowed: frozenset[int], end: int) -> int:
        """Move on to the next allowed value of a field, or to the end of the field above: one by
        one where the clocks change on the way.
        """
        following = min((each for each in allowed if each > now), default=end)
        target = at + (following - now) * unit
        return target if self._offset(target) == self._offset(at) else at + unit

    def _days_to_go(self, local: datetime) -> int:
        """Return the days from a day to the next one that matches, or to the next month."""
        days = 1
        while local.day + days <= monthrange(local.year, local.month)[1] and not self._is_day(
            local + timedelta(days=days)
        ):
            days += 1
        return days

    def text(self, at: int) -> str:
        """Return a time in the zone as the protocol writes it."""
        local = self._local(at)
        minutes = int((local.utcoffset() or timedelta()).total_seconds()) // 60
        body = local.strftime("%m-%dT%H:%M:%S")
        if local.utcoffset() == timedelta():
            return f"{local.year:04d}-{body}Z"
        sign = "-" if minutes < 0 else "+"
        return f"{local.year:04d}-{body}{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"

    def _is_day(self, local: datetime) -> bool:
        day, weekday = local.day in self._day, local.isoweekday() % 7 in self._weekday
        return day and weekday if self._both_days else day or weekday

    def _has_day(self, year: int, month: int, first: int = 1) -> bool:
        """Whether the month may have a day that matches, from its day `first` on."""
        if not self._both_days:
            return True
        return any(first <= day <= monthrange(year, month)[1] for day in self._day)

    def _year(self, after: int) -> int:
        return self._local(after + 1).year

    def _local(self, at: int) -> datetime:
        return (_EPOCH + timedelta(seconds=at)).astimezone(self._zone)

    def _moved(self, local: datetime, months: int = 0, days: int = 0) -> int:
        """Return the time so many months or days later, at the same time of day. Days beyond a
        month's end run over into the next month.
        """
        year, month = divmod(local.year * 12 + local.month - 1 + months, 12)
        first = local.replace(year=year, month=month + 1, day=1)
        return self._instant(first + timedelta(days=local.day - 1 + days))

    def _instant(self, local: datetime) -> int:
        """Return the instant of a time of day. When the time of day is repeated or skipped, the
        offset before the change decides.
        """
        wall = (local.replace(tzinfo=UTC) - _EPOCH) // timedelta(seconds=1)
        guess = wall - self._offset(wall)
        return wall - self._offset(guess)

    def _offset(self, at: int) -> int:
        return int((self._local(at).utcoffset() or timedelta()).total_seconds())


def _field(
    text: str, low: int, high: int, names: list[str] | None = None, base: int = 1
) -> tuple[frozenset[int], bool]:
    """Return the values of a field, and whether the field is open (`*`)."""
    values: set[int] = set()
    anything = False
    for part in text.split(","):
        if not part:
            continue
        found, is_open = _range(part, low, high, names or [], base)
        values.update(found)
        anything |= is_open
    return frozenset(values), anything


def _range(part: str, low: int, high: int, names: list[str], base: int) -> tuple[range, bool]:
    span, *steps = part.split("/")
    ends = span.split("-")
    is_open = ends[0] in ("*", "?")
    if is_open:
        first, last = low, high
    else:
        if len(ends) > 2:
            raise TimetableError(f"too many hyphens: {part}")
        first = _value(ends[0], names, base)
        last = _value(ends[1], names, base) if len(ends) == 2 else first
    step = 1
    if steps:
        if len(steps) > 1:
            raise TimetableError(f"too many slashes: {part}")
        step = _value(steps[0], [], 0)
        if len(ends) == 1:
            last = high
        is_open = is_open and step <= 1
    if first < low or last > high or first > last or step == 0:
        raise TimetableError(f"the number is out of range: {part}")
    return range(first, last + 1, step), is_open


def _value(text: str, names: list[str], base: int) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + base
    if len(text) > _DIGITS_MOST or not _NUMBER.fullmatch(text) or int(text) < 0:
        raise TimetableError(f"not a number: {text}")
    return int(text)
