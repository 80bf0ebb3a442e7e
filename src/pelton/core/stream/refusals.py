"""A stream's answers to headers of features that it has switched off, and the stages of a publish.

A stage is a point in the order in which a publish is checked; the stream asks its rules there when
the message carries such a header. In order: ARRIVED (only streams that ask for each message),
FAST_BATCH, BATCH, COUNTER, TTL, SCHEDULE, ROLLUP, COUNT (each message), TTL_VALUE, STORED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from pelton.core.base.durations import parse_duration
from pelton.core.protocol.publish_headers import value
from pelton.core.protocol.subjects import valid

if TYPE_CHECKING:
    from pelton.core.stream.draft import Draft

STAGE_BATCH: Final = 0
STAGE_COUNTER: Final = 1
STAGE_TTL: Final = 2
STAGE_SCHEDULE: Final = 3
STAGE_ROLLUP: Final = 4
STAGE_TTL_VALUE: Final = 5
STAGE_STORED: Final = 6
STAGE_FAST_BATCH: Final = 7
STAGE_ARRIVED: Final = 8
STAGE_COUNT: Final = 9
STAGED: Final = "staged"
"""In the notes of an atomic batch's draft: the batch's messages before it (core/stream/batch_checks)."""
HANDLED: Final = True
"""A rule's answer at a stage: the rule has processed the message; the stream stores nothing and sends no answer."""

Refusal = tuple[int, int, str]  # code, err_code, description


class Rules(Protocol):
    """The rules of a stream: they decide about messages with headers of rarer features."""

    def ask(self, stage: int, draft: Draft) -> Refusal | bool | None:
        """The verdict at a stage: None continues, a refusal refuses, HANDLED (True): the rule has
        processed the message; the stream stores nothing and sends no answer. The rule may change the draft.
        """


_DIGITS_MOST = 19


def parse_ttl(text: str) -> int | None:
    """Seconds of a Nats-TTL value; -1: `never`; None: not valid (below a second, or not a duration).

    A number of several zeros is valid and means no TTL: 0.
    """
    if text.lower() == "never":
        return -1
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0")
        if len(digits) > _DIGITS_MOST or int(digits or "0") >= 1 << 63:
            return None
        return int(digits or "0") if text != "0" else None
    seconds = (parse_duration(text) or 0) // 1_000_000_000
    return seconds if seconds >= 1 else None


def not_allowed(stage: int, header: bytes, subject: bytes = b"") -> Refusal | None:
    """The refusal at a stage by a stream without the feature; None: continue.

    `header` is the value of the stage's header; for schedules, which have several, the whole block.
    `subject` is the message's.
    """
    if stage == STAGE_BATCH:
        return 400, 10174, "atomic publish is disabled"
    if stage == STAGE_FAST_BATCH:
        return 400, 10205, "batch publish is disabled"
    if stage == STAGE_COUNTER:
        text = header.decode("utf-8", "replace")
        digits = text[1:] if text[:1] in ("+", "-") else text
        if not (digits.isascii() and digits.isdigit()):
            return 400, 10171, "message counter increment is invalid"
        return 400, 10168, "message counters is disabled"
    if stage in (STAGE_TTL, STAGE_TTL_VALUE):
        seconds = parse_ttl(header.decode("utf-8", "replace"))
        if stage == STAGE_TTL:
            return (400, 10166, "per-message TTL is disabled") if seconds else None
        return None if seconds is not None else (400, 10165, "invalid per-message TTL")
    if stage == STAGE_SCHEDULE:
        return _no_schedules(header, subject)
    if stage == STAGE_ROLLUP:
        return 500, 10111, "rollup not permitted"
    return None


def known_zone(name: str) -> bool:
    """Whether the time zone database has the zone."""
    if name == "UTC":
        return True
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # here, because few messages name a zone

    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _no_schedules(block: bytes, subject: bytes) -> Refusal | None:
    disabled = (400, 10188, "message schedules is disabled")
    if value(block, b"Nats-Schedule"):
        return disabled
    if b"\r\nNats-Schedule-Time-Zone:" in block:
        # checked with or without a schedule
        zone = value(block, b"Nats-Schedule-Time-Zone") or b""
        if not known_zone(zone.decode("utf-8", "replace")):
            return disabled
    if not (value(block, b"Nats-Schedule-Next") or value(block, b"Nats-Scheduler")):
        return None
    scheduler = (value(block, b"Nats-Scheduler") or b"").decode("utf-8", "surrogateescape")
    literal = valid(scheduler) and not {"*", ">"}.intersection(scheduler.split("."))
    cancels = value(block, b"Nats-Schedule-Next") == b"purge" and literal
    if cancels and scheduler.encode("utf-8", "surrogateescape") != subject:
        return disabled
    return 400, 10212, "message schedules invalid scheduler"
