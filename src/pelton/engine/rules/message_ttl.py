"""Message TTLs: expiry by Nats-TTL and max_age, and the delete markers of expired messages.

A message with a TTL expires that long after its timestamp; a message with `never` outlives max_age.
When the only message of a subject expires and the stream has a `subject_delete_marker_ttl`, a
marker takes its place: an empty message with a new sequence, whose rollup removes the old message.
A marker expires without another marker.

A heap of deadlines has the time when the next message expires, so that no message is read before.
"""

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pelton.core.base.durations import format_duration
from pelton.core.protocol.publish_headers import value
from pelton.core.stream.draft import Draft
from pelton.core.stream.message_ttl import end_aged, end_due, learn, prune
from pelton.core.stream.refusals import (
    STAGE_STORED,
    STAGE_TTL,
    STAGE_TTL_VALUE,
    not_allowed,
    parse_ttl,
)
from pelton.core.stream.stream import StreamRefused
from pelton.engine.base.settings import MILLISECOND, SECOND
from pelton.engine.rules import header_blocks
from pelton.engine.rules.base import Handler, Rule, Verdict
from pelton.engine.rules.saved_deadlines import SAVE_AFTER, SavedDeadlines

if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount
    from pelton.engine.account.catalog import StreamEntry

HEADER = b"Nats-TTL"
REASON = b"Nats-Marker-Reason"
OPERATION = b"KV-Operation"
PER_TICK = 20_000
"""Messages that one turn handles; the next turn continues."""
STEP_NS = 250 * MILLISECOND
RETRY_NS = 2 * SECOND
_LAST_NS = 1 << 62


def feature(account: "JetStreamAccount", entry: "StreamEntry") -> Rule | None:
    """Return the rule for streams with TTLs; it stays when the configuration changes."""
    if not entry.config.allow_msg_ttl:
        return None
    for rule in entry.rules.rules if entry.rules is not None else ():
        if isinstance(rule, MessageTtl):
            rule.configured()
            return rule
    return MessageTtl(account, entry)


def raised(entry: "StreamEntry", headers: bytes) -> bytes:
    """Return the block with its TTL raised to that of the stream's delete markers.

    With a lower TTL, a message could expire while its subject still has an older marker, and would
    then leave no marker. With one message per subject there is no older marker.
    """
    config = entry.config
    least = config.subject_delete_marker_ttl // SECOND
    if not least or config.max_msgs_per_subject == 1:
        return headers
    text = value(headers, HEADER)
    seconds = parse_ttl(text.decode("utf-8", "replace")) if text else None
    if seconds is None or not 0 < seconds < least:
        return headers
    return header_blocks.added(header_blocks.without(headers, HEADER), HEADER, str(least).encode())


class MessageTtl(Rule):
    """The deadlines of one stream's messages."""

    def __init__(self, account: "JetStreamAccount", entry: "StreamEntry") -> None:
        """Read the saved deadlines from the disk, and the deadlines of later messages from the messages."""
        self._entry = entry
        self._core = entry.core
        self._report = account.report
        # its note: how many messages never expire
        self._saved = SavedDeadlines(account, entry, "agenda")
        self._deadlines = self._saved.deadlines
        # below this sequence, every message that is older than max_age was handled
        self._aged_to = 0
        start = self._saved.read_from
        self._saved.note += learn(self._deadlines, self._core.log, start)
        if self._core.log.last_seq - start >= SAVE_AFTER:
            with contextlib.suppress(OSError):  # save_if_worth() tries again later
                self._saved.save()

    def handlers(self) -> Mapping[int, Handler]:
        """The TTL is checked late, so that earlier checks refuse a message first."""
        return {
            STAGE_TTL: lambda _: None,
            STAGE_TTL_VALUE: self._check,
            STAGE_STORED: self._stored,
        }

    def configured(self) -> None:
        """Called when the configuration has changed: more messages may be older than max_age."""
        self._aged_to = 0

    # --- publishing

    def _check(self, draft: Draft) -> Verdict:
        text = value(draft.headers, HEADER) or b""
        seconds = parse_ttl(text.decode("utf-8", "replace"))
        if seconds is None:
            return not_allowed(STAGE_TTL_VALUE, text)
        headers = raised(self._entry, draft.headers)
        if headers is not draft.headers:
            draft.change(headers=headers)
        return None

    def _stored(self, draft: Draft) -> Verdict:
        text = value(draft.headers, HEADER)
        if text:
            seconds = parse_ttl(text.decode("utf-8", "replace")) or 0
            if seconds < 0:
                self._saved.note += 1
            elif seconds:
                due_ns = min(self._core.log.last_ts_ns + seconds * SECOND, _LAST_NS)
                self._deadlines.add(due_ns, draft.seq)
                self._entry.rules_at_ns = min(self._entry.rules_at_ns, due_ns)
        return None

    # --- expiry

    def expire(self, now_ns: int) -> bool:
        """Remove expired messages, at most as many as one turn handles."""
        return self._end(now_ns) == now_ns

    def tick(self, now_ns: int) -> int:
        """Remove the expired messages; return the time of the next call."""
        log = self._core.log
        try:
            due_ns = self._end(now_ns)
            if len(self._deadlines) > 2 * log.msgs + 4096:
                prune(self._deadlines, log)
            self._saved.save_if_worth()
        except OSError as error:
            self._report(
                f"stream {self._entry.config.name} cannot remove expired messages and retries: {error}"
            )
            return now_ns + RETRY_NS
        return due_ns

    def _end(self, now_ns: int) -> int:
        config = self._entry.config
        markers = config.subject_delete_marker_ttl > 0
        aged_ns = self._end_aged(now_ns, markers) if config.max_age and not config.sealed else 0
        looked, last = end_due(self._deadlines, self._core, PER_TICK, markers)
        for seq in last:
            if not self._leave_marker(seq):
                self._deadlines.add(now_ns + RETRY_NS, seq)
        if looked == PER_TICK or aged_ns == now_ns:
            return now_ns
        due = [ns for ns in (self._deadlines.next_ns(), aged_ns) if ns]
        return max(min(due), now_ns + STEP_NS) if due else 0

    def _end_aged(self, now_ns: int, markers: bool) -> int:
        max_age_ns = self._entry.config.max_age
        log = self._core.log
        if not markers and not self._saved.note:
            first = log.at_time(max(now_ns - max_age_ns, 0) + 1)
            if first > log.first_seq:
                self._core.purge(below=first)
            return (log.first_ts_ns or now_ns) + max_age_ns
        self._aged_to, due_ns, last = end_aged(
            self._core, max(self._aged_to, log.first_seq), max_age_ns, PER_TICK, markers
        )
        for seq in last:
            if not self._leave_marker(seq):
                self._aged_to = min(self._aged_to, seq)
                due_ns = now_ns + RETRY_NS
        return due_ns or now_ns + max_age_ns

    def _leave_marker(self, seq: int) -> bool:
        """Replace the only message of its subject by a marker; False: the marker could not be
        stored.
        """
        message = self._core.log.get(seq)
        if message is None:
            return True
        if value(message.headers, REASON) or value(message.headers, OPERATION) == b"PURGE":
            self._core.delete_message(seq, False)
            return True
        seconds = self._entry.config.subject_delete_marker_ttl // SECOND
        headers = header_blocks.block(
            (REASON, b"MaxAge"),
            (HEADER, format_duration(seconds * SECOND).encode()),
            (b"Nats-Rollup", b"sub"),
        )
        if self._entry.config.sealed:
            return True
        try:
            self._core.path.store(message.subject, b"", headers)
        except StreamRefused:
            return False
        return True

    def close(self, *, for_good: bool) -> None:
        """Save the deadlines, so that the next opening need not read the messages."""
        if not for_good:
            prune(self._deadlines, self._core.log)
            self._saved.close()
