"""Times and durations in the protocol's forms: RFC 3339 with nanoseconds, and `1h2m3.5s`.

A time is an integer of nanoseconds since 1970 UTC, from ZERO_NS (the beginning of year 1) to LAST_NS.
In a required time 0 means "no time", which the wire writes as year 1 (`format_time`,
`parse_time`). In an optional time each instant is itself (`format_instant`, `parse_instant`).
The caller gives the current time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pelton.core.base.durations import UNITS_NS

if TYPE_CHECKING:
    from collections.abc import Mapping

ZERO_TIME = "0001-01-01T00:00:00Z"
ZERO_NS = -62_135_596_800 * 1_000_000_000
"""The instant that stands for "no time": the beginning of year 1."""
LAST_NS = 253_402_300_800 * 1_000_000_000 - 1
"""The end of year 9999, the last instant that the wire can write."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_NUMBER, _UNITS = r"(\d+\.?\d*|\.\d+)", "ns|us|µs|μs|ms|s|m|h"
_DURATION_PART = re.compile(rf"{_NUMBER}({_UNITS})", re.ASCII)
_LONG_PART = re.compile(rf"{_NUMBER}({_UNITS}|[dDwWMyY])", re.ASCII)
_DAY_NS = 24 * UNITS_NS["h"]
LONG_UNITS_NS = {
    **UNITS_NS,
    **dict.fromkeys("dD", _DAY_NS),
    **dict.fromkeys("wW", 7 * _DAY_NS),
    "M": 30 * _DAY_NS,
    **dict.fromkeys("yY", 365 * _DAY_NS),
}
"""The units of Go's durations, and those that people add: "m" is a minute, "M" a month."""


DURATION_MOST_NS = (1 << 63) - 1
"""The protocol counts nanoseconds in 64 bits: 292 years."""
_LETTERS_MOST = 1000  # a longer text is no duration


class DurationTooLongError(ValueError):
    """A duration is longer than the protocol can count."""


def format_time(ns: int) -> str:
    """Nanoseconds since 1970 as RFC 3339 UTC text, without trailing zeros of the fraction.

    0 is the zero time.
    """
    return format_instant(ns or ZERO_NS)


def format_instant(ns: int) -> str:
    """As `format_time`; 0 is 1970."""
    seconds, fraction = divmod(ns, 1_000_000_000)
    moment = _EPOCH + timedelta(seconds=seconds)
    text = moment.strftime("%m-%dT%H:%M:%S")
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{moment.year:04d}-{text}{digits}Z"


def parse_time(text: str) -> int:
    """RFC 3339 text as nanoseconds since 1970; the zero time, in any zone, is 0.

    ValueError, with the protocol's wording, for anything else.
    """
    ns = parse_instant(text)
    return 0 if ns == ZERO_NS else ns


def parse_instant(text: str) -> int:
    """As `parse_time`; the zero time is ZERO_NS.

    An instant that its zone moves outside of the years 1 to 9999 becomes their first or last one.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(_time_error(text))
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    try:
        # year 0 is a leap year, as year 4 is
        moment = datetime(year or 4, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise ValueError(f'parsing time "{text}": {_out_of_range(error)} out of range') from None
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    if match[8]:
        offset = int(match[9]) * 3600 + int(match[10]) * 60
        seconds -= offset if match[8] == "+" else -offset
    if not year:
        return ZERO_NS
    ns = seconds * 1_000_000_000 + int((match[7] or "0")[:9].ljust(9, "0"))
    return min(max(ns, ZERO_NS), LAST_NS)


def format_duration(ns: int) -> str:
    """Nanoseconds as `1h2m3.5s`, `1.5ms`, `0s`."""
    if ns == 0:
        return "0s"
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    for unit, size in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if ns < size * 1000:
            return f"{sign}{_decimal(ns, size)}{unit}"
    minutes, rest = divmod(ns, UNITS_NS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, UNITS_NS['s'])}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else f"{sign}{text}"


def parse_duration(text: str) -> int:
    """`1h2m3.5s` as nanoseconds; ValueError for anything else, DurationTooLongError for 300 years."""
    return _sum(text, _DURATION_PART, UNITS_NS)


def parse_long_duration(text: str) -> int:
    """`1y2M3w4d5h` as nanoseconds, as people and the `nats` command write it.

    ValueError for anything else, DurationTooLongError for more than the protocol can count.
    Years of 365 and months (M) of 30 days; the parts may come in any order.
    """
    return _sum(text, _LONG_PART, LONG_UNITS_NS)


def _sum(text: str, form: re.Pattern[str], units: Mapping[str, int]) -> int:
    sign, body = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if body == "0":
        return 0
    total, position = 0, 0
    body = body if len(body) <= _LETTERS_MOST else ""
    while part := form.match(body, position):
        whole, _, fraction = part[1].partition(".")
        unit = units[part[2]]
        total += int(whole or "0") * unit
        total += int(fraction or "0") * unit // 10 ** len(fraction)
        position = part.end()
    if position == 0 or position != len(body):
        raise ValueError(f'time: invalid duration "{text[:_LETTERS_MOST]}"')
    if total > DURATION_MOST_NS:
        raise DurationTooLongError(f'"{text}" is too long (maximum 292y)')
    return sign * total


def _decimal(value: int, size: int) -> str:
    whole, rest = divmod(value, size)
    if not rest:
        return str(whole)
    width = len(str(size)) - 1
    return f"{whole}." + f"{rest:0{width}d}".rstrip("0")


def _out_of_range(error: ValueError) -> str:
    for part in ("month", "day", "hour", "minute", "second"):
        if str(error).startswith(part):
            return part
    return "day"


def _time_error(text: str) -> str:
    layout = (
        (r"\d{4}", "2006"),
        ("-", "-"),
        (r"\d\d", "01"),
        ("-", "-"),
        (r"\d\d", "02"),
        ("T", "T"),
        (r"\d\d", "15"),
        (":", ":"),
        (r"\d\d", "04"),
        (":", ":"),
        (r"\d\d", "05"),
        (r"(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)", "Z07:00"),
    )
    head = f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00"'
    rest = text
    for pattern, name in layout:
        match = re.match(pattern, rest, re.ASCII)
        if match is None:
            return f'{head}: cannot parse "{rest}" as "{name}"'
        rest = rest[match.end() :]
    return f'parsing time "{text}": extra text: "{rest}"'
