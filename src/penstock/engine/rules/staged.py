"""The checks of an atomic batch at its commit: each message against the stream as the batch's
earlier ones would leave it.

The same stages as for a single publish (`penstock.core.refusals`), with what only holds within a
batch between them, in the protocol's order for batches. Nothing is stored here, and no message
knows of later ones.

A rule that needs the last message of a subject finds those of the batch in `draft.notes["staged"]`:
subject -> the latest draft on it, with the payload and headers it will be stored with.
"""

from typing import TYPE_CHECKING, Any, Final

from penstock.core.draft import Draft
from penstock.core.expect import scan, value
from penstock.core.refusals import (
    STAGE_COUNT,
    STAGE_COUNTER,
    STAGE_ROLLUP,
    STAGE_SCHEDULE,
    STAGE_TTL,
    STAGE_TTL_VALUE,
    parse_ttl,
)
from penstock.engine.rules.base import Verdict

if TYPE_CHECKING:
    from penstock.engine.entries import StreamEntry

COUNTER: Final = 1  # bits of expect.scan()["rare"]
TTL: Final = 2
SCHEDULE: Final = 4
ROLLUP: Final = 8
HEADER_MAX_BYTES = 65535
RECORD_MAX_BYTES = 32 * 1024 * 1024
STAGED = "staged"
_CONSTANT = 400, 10164, "wrong last sequence"


def number(text: bytes) -> int:
    """A header's decimal number; -1 when it is none."""
    return int(text) if text.isdigit() and len(text) < 20 else -1


class Staged:
    """One batch on its way into one stream."""

    def __init__(self, entry: "StreamEntry") -> None:
        """Nothing is staged."""
        self._config = entry.config
        self._core = entry.core
        self._rules = entry.core.rules
        self._every = entry.core.every
        self._subjects: dict[str, Draft] = {}
        self._counts: dict[str, int] = {}
        self._expected: dict[str, int] = {}
        self._ids: set[bytes] = set()
        self._count = 0
        self._bytes = 0

    def check(self, draft: Draft) -> Verdict:
        """Why the next message can't be stored; None: it can, and counts for those after it."""
        draft.notes[STAGED] = self._subjects
        headers = draft.headers
        found = scan(headers)
        verdict = self._check_size(draft, found)
        if verdict is None and (found["rare"] & (COUNTER | TTL) or found["stream"] is not None):
            verdict = self._check_features(draft, found)
        if verdict is None and found["message_id"] is not None:
            verdict = self._check_id(found["message_id"])
        if verdict is None and self._every:
            verdict = self._ask(STAGE_COUNT, draft)
            if draft.headers is not headers:
                headers = draft.headers
                found = scan(headers)
        if verdict is None:
            verdict = self._check_sequences(draft, found)
        if verdict is None and found["rare"] & SCHEDULE:
            verdict = self._ask(STAGE_SCHEDULE, draft)
            if draft.headers is not headers:
                found = scan(draft.headers)
        if verdict is None and found["rare"] & ROLLUP:
            verdict = self._check_rollup(draft)
        return self._take(draft) if verdict is None else verdict

    def _ask(self, stage: int, draft: Draft) -> Verdict:
        assert self._rules is not None
        return self._rules.ask(stage, draft)

    def _check_size(self, draft: Draft, found: dict[str, Any]) -> Verdict:
        size = len(draft.subject) + len(draft.headers) + len(draft.payload)
        if found["last_id"] is not None:
            return 400, 10177, "atomic publish unsupported header used: Nats-Expected-Last-Msg-Id"
        if self._config.storage == "file" and size + 34 > RECORD_MAX_BYTES:
            return 503, 10077, "message too large"
        if len(draft.headers) > HEADER_MAX_BYTES:
            return 400, 10097, "header size exceeds maximum allowed of 64k"
        return None

    def _check_features(self, draft: Draft, found: dict[str, Any]) -> Verdict:
        rare = found["rare"]
        verdict = self._ask(STAGE_COUNTER, draft) if rare & COUNTER else None
        if verdict is not None:
            return verdict
        if found["stream"] is not None and found["stream"] != self._core.name.encode():
            return 400, 10060, "expected stream does not match"
        if not rare & TTL:
            return None
        if not self._config.allow_msg_ttl:
            ttl = value(draft.headers, b"Nats-TTL") or b""
            if parse_ttl(ttl.decode("utf-8", "replace")) is None:
                return 400, 10166, "per-message TTL is disabled"
        return self._ask(STAGE_TTL, draft) or self._ask(STAGE_TTL_VALUE, draft)

    def _check_id(self, message_id: bytes) -> Verdict:
        if message_id in self._ids or self._core.duplicate_of(message_id):
            return 400, 10201, "atomic publish batch contains duplicate message id"
        self._ids.add(message_id)
        return None

    def _check_sequences(self, draft: Draft, found: dict[str, Any]) -> Verdict:
        last = found["last_sequence"]
        if last is not None:
            actual = self._core.log.last_seq + self._count
            if number(last) != actual:
                return 400, 10071, f"wrong last sequence: {actual}"
            if self._count:
                return _CONSTANT
        wanted = found["subject_sequence"]
        if wanted is None:
            if found["subject"] is None:
                return None
            return 400, 10193, "missing sequence for expected last sequence per subject"
        subject = (found["subject"] or b"").decode("utf-8", "surrogateescape") or draft.subject
        if subject in self._subjects:
            return _CONSTANT
        if subject not in self._expected:
            message = self._core.log.last_of(subject)
            self._expected[subject] = message.seq if message is not None else 0
        actual = self._expected[subject]
        return None if number(wanted) == actual else (400, 10071, f"wrong last sequence: {actual}")

    def _check_rollup(self, draft: Draft) -> Verdict:
        verdict = self._ask(STAGE_ROLLUP, draft)
        if verdict is not None:
            return verdict
        wanted = (value(draft.headers, b"Nats-Rollup") or b"").lower()
        if wanted == b"sub" and draft.subject in self._subjects:
            return 500, 10111, "batch rollup sub invalid"
        if wanted == b"all" and self._subjects:
            return 500, 10111, "batch rollup all invalid"
        return None

    def _take(self, draft: Draft) -> Verdict:
        """Count it, and see whether a stream that discards new messages has room for all."""
        config, log = self._config, self._core.log
        subject = draft.subject
        self._subjects[subject] = draft
        self._count += 1
        if config.discard != "new":
            return None
        self._counts[subject] = self._counts.get(subject, 0) + 1
        size = len(subject.encode("utf-8", "surrogateescape"))
        size += len(draft.headers) + len(draft.payload)
        self._bytes += size + (16 if log.memory else 34 if draft.headers else 30)
        if 0 < config.max_msgs < log.msgs + self._count:
            return 503, 10077, "maximum messages exceeded"
        if 0 < config.max_bytes < log.bytes + self._bytes:
            return 503, 10077, "maximum bytes exceeded"
        most = config.max_msgs_per_subject
        if not config.discard_new_per_subject or value(draft.headers, b"Nats-Rollup"):
            return None
        if log.subject_state(subject)[0] + self._counts[subject] > most:
            return 503, 10077, "maximum messages per subject exceeded"
        return None
