"""Message schedules: a schedule is a stored message that makes the stream publish other messages at
given times.

A schedule is valid while its message is the last one of its subject. A produced message has the
body of the schedule (or of the last message of another subject) and the headers of the schedule
without the schedule's own; it names the schedule and the time of the next message. Times that
passed while the server was down produce one message. A schedule that is due only once is removed by
its message.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pelton.api import ApiError
from pelton.api import errors_generated as errors
from pelton.api.times import parse_time
from pelton.core.log import queries
from pelton.core.log.log import StoredMessage
from pelton.core.protocol.publish_headers import value
from pelton.core.stream.draft import Draft
from pelton.core.stream.message_ttl import marked, prune
from pelton.core.stream.refusals import STAGE_SCHEDULE, STAGE_STORED, STAGED, parse_ttl
from pelton.core.stream.rollup import roll_up
from pelton.core.stream.stream import StreamRefused
from pelton.engine.base.cron import Due, TimetableError, ZoneError, due, zone_of
from pelton.engine.base.settings import MILLISECOND, SECOND
from pelton.engine.base.subject_checks import any_collision
from pelton.engine.base.transforms import publishable
from pelton.engine.rules import header_blocks, message_ttl, rollup, subject_transform
from pelton.engine.rules.base import Handler, Rule, Verdict, refusal
from pelton.engine.rules.saved_deadlines import SavedDeadlines

if TYPE_CHECKING:
    from datetime import tzinfo

    from pelton.engine.account.account import JetStreamAccount
    from pelton.engine.account.catalog import StreamEntry

PATTERN = b"Nats-Schedule"
ZONE = b"Nats-Schedule-Time-Zone"
TARGET = b"Nats-Schedule-Target"
SOURCE = b"Nats-Schedule-Source"
TTL = b"Nats-Schedule-TTL"
ROLLUP = b"Nats-Schedule-Rollup"
NEXT = b"Nats-Schedule-Next"
SCHEDULER = b"Nats-Scheduler"
PURGE = b"purge"
PER_TICK = 2_000
STEP_NS = 250 * MILLISECOND
RETRY_NS = 2 * SECOND
_NOT_PRODUCED = (b"Nats-Schedule", b"Nats-Expected-")
_NOT_PRODUCED_NAMES = (b"Nats-Msg-Id", b"Nats-TTL", b"Nats-Rollup")


def feature(account: "JetStreamAccount", entry: "StreamEntry") -> Rule | None:
    """Return the rule for streams with schedules; it stays when the configuration changes."""
    if not entry.config.allow_msg_schedules:
        return None
    for rule in entry.rules.rules if entry.rules is not None else ():
        if isinstance(rule, Schedules):
            return rule
    return Schedules(account, entry)


class Schedules(Rule):
    """The schedules of one stream."""

    def __init__(self, account: "JetStreamAccount", entry: "StreamEntry") -> None:
        """Read the schedules of the stream."""
        self._account = account
        self._entry = entry
        self._core = entry.core
        self._saved = SavedDeadlines(account, entry, "schedules")
        self._recover()

    def handlers(self) -> Mapping[int, Handler]:
        """Check all headers of schedules at one stage."""
        return {STAGE_SCHEDULE: self._check, STAGE_STORED: self._stored}

    # --- publishing

    def _check(self, draft: Draft) -> Verdict:
        try:
            self._check_schedule(draft)
            self._check_cancel(draft)
        except ApiError as error:
            return refusal(error)
        return None

    def _check_schedule(self, draft: Draft) -> None:
        headers = draft.headers
        now_ns = self._account.now_ns
        try:
            made = due_of(headers, now_ns, now_ns)
        except ZoneError:
            raise errors.MessageSchedulesTimeZoneInvalidError() from None
        except TimetableError:
            raise errors.MessageSchedulesPatternInvalidError() from None
        if made is None:
            return
        ttl = _text(headers, TTL)
        if ttl and parse_ttl(ttl) is None:
            raise errors.MessageSchedulesTTLInvalidError()
        if value(headers, ROLLUP) not in (None, b"", b"sub"):
            raise errors.MessageSchedulesRollupInvalidError()
        if ttl and not self._entry.config.allow_msg_ttl:
            raise errors.MessageTTLDisabledError()
        target, source = _text(headers, TARGET), _text(headers, SOURCE)
        if target == draft.subject or not publishable(target):
            raise errors.MessageSchedulesTargetInvalidError()
        if source and (source in (target, draft.subject) or not publishable(source)):
            raise errors.MessageSchedulesSourceInvalidError()
        subjects = self._entry.config.subjects
        if not any_collision([target], subjects):
            raise errors.MessageSchedulesTargetInvalidError()
        if source and not any_collision([source], subjects):
            raise errors.MessageSchedulesSourceInvalidError()
        wanted = (value(headers, rollup.HEADER) or b"").lower()
        if not wanted:
            draft.change(headers=header_blocks.added(headers, rollup.HEADER, rollup.SUBJECT))
        elif wanted != rollup.SUBJECT:
            raise errors.MessageSchedulesRollupInvalidError()

    def _check_cancel(self, draft: Draft) -> None:
        told = value(draft.headers, NEXT)
        scheduler = _text(draft.headers, SCHEDULER)
        if not told:
            if scheduler:
                raise errors.MessageSchedulesSchedulerInvalidError()
            return
        if told != PURGE or scheduler == draft.subject or not publishable(scheduler):
            raise errors.MessageSchedulesSchedulerInvalidError()
        staged = draft.notes.get(STAGED, {}).get(scheduler)  # a message of the same batch
        last = staged or queries.last_of(self._core.log, scheduler)
        if last is not None and not value(last.headers, PATTERN):
            raise errors.MessageSchedulesSchedulerInvalidError()

    def _stored(self, draft: Draft) -> Verdict:
        headers = draft.headers
        if value(headers, NEXT) == PURGE:
            scheduler = _text(headers, SCHEDULER)
            if scheduler and rollup.allowed(self._entry):
                roll_up(self._core, self._core.log.last_seq + 1, scheduler)
        self._plan(draft.seq, headers, self._core.log.last_ts_ns)
        return None

    def _plan(self, seq: int, headers: bytes, stored_ns: int) -> None:
        if not value(headers, PATTERN):
            return
        try:
            made = due_of(headers, stored_ns, stored_ns)
        except (ZoneError, TimetableError):
            return
        if made is not None:
            self._saved.deadlines.add(max(made.ns, 1), seq)
            wake_ns = max(made.ns, self._account.now_ns + STEP_NS)
            self._entry.rules_at_ns = min(self._entry.rules_at_ns, wake_ns)

    # --- producing

    def tick(self, now_ns: int) -> int:
        """Publish the messages that are due; return the time of the next call."""
        deadlines = self._saved.deadlines
        try:
            if self._entry.config.sealed:
                return 0
            overdue: list[tuple[int, int]] = []
            while len(overdue) < PER_TICK and 0 < (after_ns := deadlines.next_ns()) <= now_ns:
                overdue.append((deadlines.take(now_ns, 1)[0], after_ns))
            for seq, after_ns in sorted(overdue):
                self._run(seq, after_ns, now_ns)
            if len(deadlines) > 2 * self._core.log.msgs + 4096:
                prune(deadlines, self._core.log)
            self._saved.save_if_worth()
        except OSError as error:
            name = self._entry.config.name
            self._account.report(
                f"stream {name} cannot publish scheduled messages and retries: {error}"
            )
            return now_ns + RETRY_NS
        due_ns = deadlines.next_ns()
        if due_ns and len(overdue) < PER_TICK:
            return max(due_ns, now_ns + STEP_NS)
        return due_ns

    def _run(self, seq: int, after_ns: int, now_ns: int) -> None:
        message = self._standing(seq)
        if message is None:
            return
        headers = message.headers
        try:
            following = due_of(headers, after_ns, now_ns)
        except (ZoneError, TimetableError):
            return
        target = _text(headers, TARGET)
        if following is None or not target:
            return
        source = _text(headers, SOURCE)
        content = (queries.last_of(self._core.log, source) if source else None) or message
        block = produced(content.headers, message, following)
        target = subject_transform.subject_of(self._entry, target)
        try:
            self._core.path.store(target, content.payload, message_ttl.raised(self._entry, block))
        except StreamRefused:
            self._saved.deadlines.add(now_ns + RETRY_NS, seq)
            return
        if following.repeats:
            self._saved.deadlines.add(following.ns, seq)

    def _standing(self, seq: int) -> StoredMessage | None:
        """Return the message of a schedule, or None when its subject has a later message."""
        message = self._core.log.get(seq)
        if message is None or queries.subject_state(self._core.log, message.subject)[2] != seq:
            return None
        return message

    # --- recovery

    def _recover(self) -> None:
        """Read the saved deadlines, and the schedules in messages that were stored after it was saved."""
        log = self._core.log
        told: dict[str, int] = {}
        fresh = []
        for seq in marked(log, self._saved.read_from, PATTERN):
            message = log.get(seq)
            if message is None:
                continue
            if value(message.headers, PATTERN):
                fresh.append(message)
                told.pop(message.subject, None)
            following = _text(message.headers, NEXT)
            if following and following != "purge":
                told[_text(message.headers, SCHEDULER)] = _time(following)
        for message in fresh:
            if message.subject not in told:
                self._plan(message.seq, message.headers, message.ts_ns)
        # a produced message has the next time of its schedule, which replaces the time in the
        # deadlines
        known = {queries.subject_state(log, subject)[2]: ns for subject, ns in told.items()}
        self._saved.deadlines.keep(lambda _, seq: seq not in known)
        for seq, ns in known.items():
            if seq and ns:
                self._saved.deadlines.add(ns, seq)

    def close(self, *, for_good: bool) -> None:
        """Save the deadlines for the next opening."""
        if not for_good:
            self._saved.close()


def due_of(headers: bytes, after_ns: int, now_ns: int) -> Due | None:
    """Return when the schedule in a header block is due; None: the block has none. ZoneError,
    TimetableError.
    """
    zone: tzinfo | None = None
    name = value(headers, ZONE)
    if name is not None:
        zone = zone_of(name.decode("utf-8", "replace"))
    pattern = _text(headers, PATTERN)
    return due(pattern, zone, after_ns, now_ns) if pattern else None


def produced(headers: bytes, schedule: StoredMessage, following: Due) -> bytes:
    """Return the headers of a produced message. `headers` are those of the message whose body it
    has.
    """
    block = header_blocks.without(
        header_blocks.without_prefix(headers, *_NOT_PRODUCED), *_NOT_PRODUCED_NAMES
    )
    subject = schedule.subject.encode("utf-8", "surrogateescape")
    block = header_blocks.added(block, SCHEDULER, subject)
    block = header_blocks.added(
        block, NEXT, following.text.encode() if following.repeats else PURGE
    )
    for name, given in ((b"Nats-TTL", TTL), (rollup.HEADER, ROLLUP)):
        text = value(schedule.headers, given)
        if text:
            block = header_blocks.added(block, name, text)
    return block


def _text(headers: bytes, name: bytes) -> str:
    return (value(headers, name) or b"").decode("utf-8", "surrogateescape")


def _time(text: str) -> int:
    try:
        return parse_time(text)
    except ValueError:
        return 0
