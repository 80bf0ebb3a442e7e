"""Schedules: stored messages that make their stream publish other messages at given times.

::

    subject of the schedule     reports.daily
    Nats-Schedule               @at 2030-01-01T00:00:00Z | @every 30s | 0 0 8 * * 1-5 | @daily
    Nats-Schedule-Target        the subject of the messages that the stream produces

A subject has one schedule: a new one replaces it. The stream needs ``allow_msg_schedules``, and takes
both subjects.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from pelton.api.times import format_duration, format_time

from .base.arguments import check_literal, check_texts
from .base.durations import Duration, Moment, to_moment, to_nanoseconds

if TYPE_CHECKING:
    from .base.message import Headers
    from .base.models import StoredMessage

PATTERN = "Nats-Schedule"
TARGET = "Nats-Schedule-Target"
SOURCE = "Nats-Schedule-Source"
TIME_ZONE = "Nats-Schedule-Time-Zone"
TTL = "Nats-Schedule-TTL"
ROLLUP = "Nats-Schedule-Rollup"
SECOND = 1_000_000_000
SUBJECTS_OF_A_GET = 500
"""Schedules that one direct get asks for: servers find at most 1024 subjects."""
_CRON = re.compile(
    r"@(?:yearly|annually|monthly|weekly|daily|midnight|hourly)|\S+(?: +\S+){5}", re.ASCII
)


class Schedule(NamedTuple):
    """A schedule that a stream holds.

    Example::

        js.schedule("plans.tea", b"tea", target="due.tea", cron="@daily")
        for schedule in js.iter_schedules("PLANS"):
            print(schedule.subject, schedule.pattern, schedule.target)
    """

    subject: str
    """The subject of the schedule itself."""
    seq: int
    pattern: str
    """``@at <time>``, ``@every <duration>``, or a cron pattern of six fields."""
    target: str
    """The subject of the messages that the stream produces."""
    source: str
    """The subject whose last message is the body of what is produced; "" for ``data``."""
    time_zone: str
    ttl: str
    """How long produced messages are kept; "" for as long as the stream keeps messages."""
    data: bytes
    headers: Headers
    """All headers of the schedule."""


def pattern_of(
    at: Moment | None,
    every: Duration | None,
    cron: str | None,
    delay: Duration | None,
    now_ns: int,
) -> str:
    """The text of the one time that is given; ValueError for none, several or an invalid one."""
    if sum(each is not None for each in (at, every, cron, delay)) != 1:
        raise ValueError("give one of at, every, cron and delay")
    if cron is not None:
        check_texts(cron=cron)
        if _CRON.fullmatch(cron) is None:
            raise ValueError(
                f"not a cron pattern: {cron!r}: expected six fields, of which the first is "
                f"seconds, or a name such as @daily"
            )
        return cron
    if every is not None:
        interval_ns = to_nanoseconds(every, "every")
        if interval_ns < SECOND:
            raise ValueError(f"every is at least a second, got {every!r}")
        return f"@every {format_duration(interval_ns)}"
    moment = now_ns + to_nanoseconds(delay, "delay") if delay is not None else to_moment(at, "at")
    assert moment is not None
    return f"@at {format_time(moment)}"


def schedule_headers(
    subject: str,
    target: str,
    pattern: str,
    *,
    source: str | None,
    time_zone: str | None,
    ttl: Duration | None,
    rollup: bool,
) -> dict[str, str]:
    """The headers of a schedule; ValueError, InvalidSubjectError for what no stream takes."""
    check_texts(target=target, source=source, time_zone=time_zone)
    check_literal(target)
    if target == subject:
        raise ValueError("the target is the subject of the schedule: choose another one")
    if source is not None:
        check_literal(source)
        if source in (subject, target):
            raise ValueError("the source is another subject than the schedule's and the target's")
    if time_zone is not None and pattern.startswith(("@at ", "@every ")):
        raise ValueError("time_zone is for cron patterns only")
    headers = {PATTERN: pattern, TARGET: target}
    if source is not None:
        headers[SOURCE] = source
    if time_zone is not None:
        headers[TIME_ZONE] = time_zone
    if ttl is not None:
        headers[TTL] = format_duration(to_nanoseconds(ttl, "ttl"))
    if rollup:
        headers[ROLLUP] = "sub"
    return headers


def schedule_of(message: StoredMessage) -> Schedule | None:
    """The schedule in a stored message; None when it is another message."""

    def first(name: str) -> str:
        return message.headers.get(name, "")

    if not first(PATTERN):
        return None
    return Schedule(
        message.subject,
        message.seq,
        first(PATTERN),
        first(TARGET),
        first(SOURCE),
        first(TIME_ZONE),
        first(TTL),
        message.data,
        message.headers,
    )
