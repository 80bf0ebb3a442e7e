"""Stored messages: direct gets, and the two kinds that mean something to their stream.

Direct gets need no consumer, and any server answers that has a copy of the stream. A page ends at a number of
messages or bytes; the next one begins after its last sequence::

    $JS.API.DIRECT.GET.ORDERS  {"seq":7,"batch":100,"next_by_subj":"orders.>"}
      ◄── message 7 ... 12     headers: Nats-Subject, Nats-Sequence, Nats-Time-Stamp, Nats-Num-Pending
      ◄── 204 EOB              Nats-Num-Pending: how many follow

A counter is a whole number of any size for each subject of a stream with ``allow_msg_counter``::

    publish  Nats-Incr: +3, no payload     ─►  PubAck {"val":"10"}
    stored   {"val":"10"}                      Nats-Counter-Sources: {"EU":{"hits.a":"4"}, ...}

A schedule makes its stream, with ``allow_msg_schedules``, publish other messages at given times. A subject has
one: a new one replaces it. The stream takes both subjects::

    subject of the schedule     reports.daily
    Nats-Schedule               @at 2030-01-01T00:00:00Z | @every 30s | 0 0 8 * * 1-5 | @daily
    Nats-Schedule-Target        the subject of the messages that the stream produces
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pelton.api import calls as wire
from pelton.api.errors import ErrorBody, error_from
from pelton.api.times import format_duration, format_time, parse_instant
from pelton.errors import DirectGetError, ProtocolError

from .base.answers import DIRECT_GETS, unknown
from .base.arguments import check_literal, check_number, check_texts, refuse
from .base.durations import Duration, Moment, to_moment, to_nanoseconds
from .base.message import BaseMessage, Headers
from .base.models import PubAck, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Iterable


END, NOT_FOUND, REFUSED, OK = 204, 404, 408, 0
MESSAGE_NOT_FOUND = 10037
PAGE_MAX = 1000
# The headers that a direct get adds (ADR-31).
_OWN = {
    "Nats-Stream",
    "Nats-Subject",
    "Nats-Sequence",
    "Nats-Time-Stamp",
    "Nats-Num-Pending",
    "Nats-Last-Sequence",
}


def stored_message(message: BaseMessage) -> StoredMessage:
    """The stored message in an answer; raises MessageNotFoundError, DirectGetError, ProtocolError."""
    if message.status != OK:
        raise error_of(message)
    try:
        given = message.headers.lists()
        headers = Headers({name: each for name, each in given.items() if name not in _OWN})
        subject, seq, time = (
            # a message that was stored with such headers has the server's after its own
            given[name][-1]
            for name in ("Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp")
        )
        return StoredMessage(subject, int(seq), message.data, headers, parse_instant(time))
    except (KeyError, ValueError) as error:
        raise ProtocolError(f"not the answer to a direct get: {error!r}") from None


def error_of(message: BaseMessage) -> Exception:
    """The error that an answer with a status stands for."""
    if message.status == NOT_FOUND:
        body = ErrorBody(code=404, err_code=MESSAGE_NOT_FOUND, description="no message found")
        return error_from(body)
    # A server before 2.11 ignores fields that it does not know; without them nothing is left of the request.
    if message.status == REFUSED and message.description == "Empty Request":  # which it is not
        return unknown([DIRECT_GETS])
    return DirectGetError(message.status, message.description)


def single_get(
    seq: int | None,
    last_by_subject: str | None,
    next_by_subject: str | None,
    start_time: Moment | None,
) -> wire.MsgGetRequest:
    """The request for one message; ValueError unless the arguments select one."""
    check_texts(last_by_subject=last_by_subject, next_by_subject=next_by_subject)
    check_number("seq", seq, least=1, optional=True)
    if last_by_subject is not None and (seq, next_by_subject, start_time) != (None, None, None):
        raise ValueError("last_by_subject is given alone")
    if seq is not None and start_time is not None:
        raise ValueError("give seq or start_time, not both")
    if (seq, last_by_subject, next_by_subject, start_time) == (None, None, None, None):
        raise ValueError("give seq, last_by_subject, next_by_subject or start_time")
    return wire.MsgGetRequest(
        seq=seq or 0,
        last_by_subj=last_by_subject or "",
        next_by_subj=next_by_subject or "",
        start_time=to_moment(start_time, "start_time"),
    )


def batch_get(
    batch: int | None,
    seq: int | None,
    subject: str | None,
    start_time: Moment | None,
    max_bytes: int = 0,
) -> wire.MsgGetRequest:
    """The request for messages in order; ValueError, TypeError."""
    check_texts(subject=subject)
    check_number("batch", batch, least=1, optional=True)
    check_number("seq", seq, optional=True)
    check_number("max_bytes", max_bytes)
    if seq is not None and start_time is not None:
        raise ValueError("give seq or start_time, not both")
    return wire.MsgGetRequest(
        seq=(seq or 1) if start_time is None else 0,
        next_by_subj=subject or "",
        start_time=to_moment(start_time, "start_time"),
        max_bytes=max_bytes,
    )


def last_get(
    subjects: str | Iterable[str],
    batch: int | None = None,
    up_to_seq: int | None = None,
    up_to_time: Moment | None = None,
    max_bytes: int = 0,
) -> wire.MsgGetRequest:
    """The request for the last messages of several subjects; ValueError, TypeError."""
    check_number("batch", batch, least=1, optional=True)
    check_number("up_to_seq", up_to_seq, optional=True)
    check_number("max_bytes", max_bytes)
    if up_to_seq is not None and up_to_time is not None:
        raise ValueError("give up_to_seq or up_to_time, not both")
    return wire.MsgGetRequest(
        multi_last=_subjects(subjects),
        up_to_seq=up_to_seq or 0,
        up_to_time=to_moment(up_to_time, "up_to_time"),
        max_bytes=max_bytes,
    )


def advance(request: wire.MsgGetRequest, last_seq: int, end: BaseMessage) -> None:
    """Ask for what is after the last message, of the same state of the stream."""
    request.seq = last_seq + 1
    request.start_time = None
    # All pages shall show the stream as it was for the first one (ADR-31).
    up_to = end.header("Nats-UpTo-Sequence")
    if up_to is not None:
        request.up_to_seq, request.up_to_time = int(up_to), None


def _subjects(subjects: str | Iterable[str]) -> list[str]:
    try:
        found = [subjects] if isinstance(subjects, str) else list(subjects)
    except TypeError:
        refuse("subjects", "text or an iterable of texts", subjects)
    for each in found:
        check_texts(subjects=each)
    if not found or not all(found):
        raise ValueError("give at least one subject, and no empty one")
    return found


INCREMENT = "Nats-Incr"
SOURCES = "Nats-Counter-Sources"
DIGITS_MAX = 30_000
WRONG_STREAM = 10060
_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)


class CounterEntry(NamedTuple):
    """One state of a counter.

    Example::

        counter = js.counter("VOTES")
        counter.increment("votes.yes", 2)
        for entry in counter.history("votes.yes"):
            print(entry.subject, entry.value)
    """

    subject: str
    value: int
    seq: int
    increment: int | None
    """What was added; None when the message does not say it."""
    sources: dict[str, dict[str, int]]
    """By stream and subject: the values of the counters that this one sums up."""
    timestamp_ns: int


class _Body(msgspec.Struct):
    val: str


_body = msgspec.json.Decoder(_Body)
_sources = msgspec.json.Decoder(dict[str, dict[str, str]])


def number_of(text: str) -> int:
    """The number in a text of digits; ProtocolError for another text or too many digits."""
    if len(text) > DIGITS_MAX + 1 or _NUMBER.fullmatch(text) is None:
        raise ProtocolError(f"not a number of a counter: {text[:40]!r}")
    return int(Decimal(text))  # int() refuses more than 4300 digits


def text_of_number(number: int) -> str:
    """The digits of a number with its sign; TypeError, and ValueError for one of too many digits."""
    if isinstance(number, bool) or not isinstance(number, int):
        refuse("by", "a whole number", number)
    # A digit has a little more than 3.32 bits: below, no power has to be computed.
    if number.bit_length() > DIGITS_MAX * 3.32 and abs(number) >= 10**DIGITS_MAX:
        raise ValueError(f"a counter has at most {DIGITS_MAX} digits")
    # With a sign, which Nats-Incr must have (ADR-49); str() would refuse more than 4300 digits.
    return f"{Decimal(number):+f}"


def entry_of(message: StoredMessage) -> CounterEntry:
    """The state in a stored message; ProtocolError when it is no counter's."""
    try:
        value = number_of(_body.decode(message.data).val)
        told = _sources.decode(message.headers[SOURCES]) if SOURCES in message.headers else {}
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"{message.subject!r} is no counter: {error}") from None
    added = message.headers.get(INCREMENT)
    return CounterEntry(
        message.subject,
        value,
        message.seq,
        number_of(added) if added else None,
        {
            stream: {subject: number_of(text) for subject, text in values.items()}
            for stream, values in told.items()
        },
        message.timestamp_ns,
    )


def check_counted(ack: PubAck, subject: str, stream: str) -> None:
    """Raise WrongStreamError when another stream has counted."""
    if ack.stream != stream:
        raise error_from(
            ErrorBody(
                code=400,
                err_code=WRONG_STREAM,
                description=f"{subject!r} belongs to stream {ack.stream!r}, which counted",
            )
        )


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
