"""Schedules: stored messages that make their stream publish other messages at given times.

::

    subject of the schedule     reports.daily
    Nats-Schedule               @at 2030-01-01T00:00:00Z | @every 30s | 0 0 8 * * 1-5 | @daily
    Nats-Schedule-Target        the subject of the messages that the stream produces

A subject has one schedule: a new one replaces it. The stream needs ``allow_msg_schedules``, and takes
both subjects. No I/O here, and no clock.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pelton.api.calls import MsgGetRequest
from pelton.api.times import format_duration, format_time
from pelton.errors import MessageNotFoundError

from ..base.durations import Duration, Moment, to_moment, to_nanoseconds
from ..base.message import BaseMessage
from ..base.steps import call, flow
from ..protocol.subjects import check_literal
from .direct import DirectGets
from .managed import Managed

if TYPE_CHECKING:
    from ..base.models import PubAck
    from ..base.steps import Flow, Steps
    from ..plans.jetstream import Headers, StoredMessage

M = TypeVar("M", bound=BaseMessage)

PATTERN = "Nats-Schedule"
TARGET = "Nats-Schedule-Target"
SOURCE = "Nats-Schedule-Source"
TIME_ZONE = "Nats-Schedule-Time-Zone"
TTL = "Nats-Schedule-TTL"
ROLLUP = "Nats-Schedule-Rollup"
SECOND = 1_000_000_000
SUBJECTS_OF_A_GET = 500
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
    headers: dict[str, list[str]]
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
        if _CRON.fullmatch(cron) is None:
            raise ValueError(
                f"not a cron pattern: {cron!r}: expected six fields, of which the first is "
                f"seconds, or a name such as @daily"
            )
        return cron
    if every is not None:
        interval_ns = to_nanoseconds(every)
        if interval_ns < SECOND:
            raise ValueError(f"every is at least a second, got {every!r}")
        return f"@every {format_duration(interval_ns)}"
    moment = now_ns + to_nanoseconds(delay) if delay is not None else to_moment(at)
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
        headers[TTL] = format_duration(to_nanoseconds(ttl))
    if rollup:
        headers[ROLLUP] = "sub"
    return headers


def schedule_of(message: StoredMessage) -> Schedule | None:
    """The schedule in a stored message; None when it is another message."""

    def first(name: str) -> str:
        return message.headers.get(name, [""])[0]

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


class Scheduling(Managed[M]):
    """The calls of ``js`` about schedules."""

    def _scheduling(
        self: Any,
        subject: str,
        data: bytes = b"",
        *,
        target: str,
        at: Moment | None = None,
        every: Duration | None = None,
        cron: str | None = None,
        delay: Duration | None = None,
        source: str | None = None,
        time_zone: str | None = None,
        ttl: Duration | None = None,
        rollup: bool = False,
        headers: Headers | None = None,
        timeout: Duration | None = None,
    ) -> Steps[PubAck]:
        """Let a stream publish ``data`` to ``target``: once or again and again.

        Give one of ``at`` (a datetime with its zone, RFC 3339 text, nanoseconds), ``delay`` from now
        on, ``every`` (a second or more), and ``cron`` (six fields, seconds first, or @hourly, @daily,
        ... in ``time_zone``, UTC by default). ``subject`` names the schedule and replaces the one that
        it has. ``source``: a subject whose last message is published in place of ``data``. ``ttl``:
        how long the stream keeps what it produces. ``rollup``: each one replaces those before.

        The stream needs ``allow_msg_schedules`` and takes both subjects. Raises ValueError,
        InvalidSubjectError, ApiError when the stream refuses, and the errors of ``publish``.
        """
        pattern = pattern_of(at, every, cron, delay, self.client._now_ns())
        own = schedule_headers(
            subject, target, pattern, source=source, time_zone=time_zone, ttl=ttl, rollup=rollup
        )
        ack: PubAck = yield from self._publishing(
            subject, data, headers={**(headers or {}), **own}, timeout=timeout
        )
        return ack

    schedule = call(_scheduling)

    def _listing_schedules(self, stream: str, subject: str = ">") -> Flow[Schedule]:
        """The schedules of a stream, on subjects that match ``subject``, in any order.

        With ``allow_direct`` a request returns many of them, otherwise one.
        """
        info = yield from self._plans.stream_info(stream, subjects_filter=subject)
        subjects = sorted(info.state.subjects)
        if not info.config.allow_direct:
            for each in subjects:
                found = yield from self._schedule_on(stream, each)
                if found is not None:
                    yield found
            return
        for start in range(0, len(subjects), SUBJECTS_OF_A_GET):
            gets = DirectGets(self.client, self._plans.direct_get(stream), self.timeout)
            request = MsgGetRequest(multi_last=subjects[start : start + SUBJECTS_OF_A_GET])
            yield from gets.pages(request, None, schedule_of)

    iter_schedules = flow(_listing_schedules)

    def _cancelling(self, stream: str, subject: str) -> Steps[bool]:
        """Remove the schedule on a subject; False when there is none.

        Messages that it produced stay.
        """
        check_literal(subject)
        found = yield from self._schedule_on(stream, subject)
        if found is None:
            return False
        yield from self._plans.delete_message(stream, found.seq, erase=False)
        return True

    cancel_schedule = call(_cancelling)

    def _schedule_on(self, stream: str, subject: str) -> Steps[Schedule | None]:
        try:
            message = yield from self._plans.get_message(stream, last_by_subject=subject)
        except MessageNotFoundError:
            return None
        return schedule_of(message)
