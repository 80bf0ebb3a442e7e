"""Atomic batches (`allow_atomic`): messages that are kept until the last one says commit, then
checked and stored together, or not at all.

    Nats-Batch-Id: x          every message of the batch
    Nats-Batch-Sequence: 1    counts them without a gap
    Nats-Batch-Commit: 1      the last one; `eob`: the one before was the last, this is not stored

A message that waits is answered with an empty ack, which promises nothing: an open batch is in
memory only, and gone with the server. The checks at the commit are in `rules/staged`, the storing
in `penstock.core.atomic`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.core.acks import json_string
from penstock.core.atomic import store_whole
from penstock.core.draft import Draft
from penstock.core.expect import value
from penstock.core.refusals import HANDLED, STAGE_BATCH
from penstock.core.stream import StreamRefused
from penstock.engine.rules.base import Handler, Rule, Verdict
from penstock.engine.rules.staged import Staged, number

if TYPE_CHECKING:
    from penstock.engine.account import Account
    from penstock.engine.entries import StreamEntry

ID_MAX_BYTES = 64
DRAFT_BYTES = 1024
"""What a waiting message costs besides its bytes, about."""
LEVEL: Final = b"Nats-Required-Api-Level"

_INCOMPLETE = 400, 10176, "atomic publish batch is incomplete"
_TOO_MANY = 429, 10210, "atomic publish too many inflight"


@dataclass(eq=False)
class Batch:
    """One that is open."""

    id: str
    due_ns: int = 0
    last: int = 0  # the highest sequence that came
    bytes: int = 0
    drafts: list[Draft] = field(default_factory=list)


def feature(account: "Account", entry: "StreamEntry") -> Rule | None:
    """For streams that allow it; open batches stay when such a stream is updated."""
    if not entry.config.allow_atomic:
        return None
    former = entry.rules.rules if entry.rules is not None else []
    kept = [rule for rule in former if isinstance(rule, Atomic)]
    return kept[0] if kept else Atomic(account, entry)


class Atomic(Rule):
    """The atomic batches of one stream."""

    def __init__(self, account: "Account", entry: "StreamEntry") -> None:
        """None is open."""
        self._account = account
        self._entry = entry
        self._open: dict[str, Batch] = {}

    def handlers(self) -> Mapping[int, Handler]:
        """A message with a batch id is asked about before anything else is checked."""
        return {STAGE_BATCH: self._arrived}

    def tick(self, now_ns: int) -> int:
        """Give up those that nothing was heard of."""
        for batch in [each for each in self._open.values() if each.due_ns <= now_ns]:
            self._drop(batch, "timeout")
        return min((batch.due_ns for batch in self._open.values()), default=0)

    def close(self) -> None:
        """Open batches end without a word."""
        for batch in list(self._open.values()):
            self._drop(batch)

    def _arrived(self, draft: Draft) -> Verdict:
        batch_id = value(draft.headers, b"Nats-Batch-Id") or b""
        sequence = number(value(draft.headers, b"Nats-Batch-Sequence") or b"")
        if len(batch_id) > ID_MAX_BYTES:
            return 400, 10179, "atomic publish batch ID is invalid"
        if sequence < 0:
            return 400, 10175, "atomic publish sequence is missing"
        commit = value(draft.headers, b"Nats-Batch-Commit")
        size = sequence - 1 if commit == b"eob" else sequence
        found = self._find(batch_id.decode("utf-8", "surrogateescape"), sequence, size)
        if isinstance(found, tuple):
            return found
        return self._take(found, draft, sequence, commit)

    def _find(self, batch_id: str, sequence: int, size: int) -> Batch | tuple[int, int, str]:
        """The open batch, or a new one when this is a first message."""
        counts = self._account.batches
        now_ns = self._account.now_ns
        batch = self._open.get(batch_id)
        if batch is not None and batch.due_ns <= now_ns:
            self._drop(batch, "timeout")
            batch = None
        if batch is not None:
            return batch
        if sequence != 1:
            return self._too_large() if size > counts.limits.max_msgs else _INCOMPLETE
        if len(self._open) >= counts.atomic_per_stream or counts.atomic >= counts.atomic_total:
            return _TOO_MANY
        batch = Batch(batch_id)
        self._open[batch_id] = batch
        counts.atomic += 1
        return batch

    def _take(self, batch: Batch, draft: Draft, sequence: int, commit: bytes | None) -> Verdict:
        counts = self._account.batches
        if commit not in (None, b"1", b"eob"):
            self._drop(batch)
            return 400, 10200, "atomic publish batch commit is invalid"
        level = value(draft.headers, LEVEL)
        if level:
            if not _offered(level, self._account.settings.api_level):
                self._drop(batch, "unsupported")
                return 412, 10185, "JetStream minimum api level required"
            draft.change(headers=without(draft.headers, LEVEL))
        self._keep_open(batch)
        batch.last += 1
        if batch.last != sequence or (sequence == 1 and commit == b"eob"):
            self._drop(batch, "incomplete")
            return _INCOMPLETE
        if commit != b"eob":
            if sequence > counts.limits.max_msgs:
                self._drop(batch, "large")
                return self._too_large()
            size = len(draft.headers) + len(draft.payload) + DRAFT_BYTES
            batch.bytes += size
            counts.staged_bytes += size
            if counts.staged_bytes > counts.limits.max_staged_bytes:
                self._drop(batch, "large")
                return 503, 10023, "insufficient resources"
            batch.drafts.append(draft)
        if commit is None:
            self._entry.core.answer(draft.reply, b"")
            return HANDLED
        self._drop(batch)
        return self._commit(batch, draft.reply, eob=commit == b"eob")

    def _commit(self, batch: Batch, reply: str, *, eob: bool) -> Verdict:
        core = self._entry.core
        staged = Staged(self._entry)
        for draft in batch.drafts:
            verdict = staged.check(draft)
            if verdict is not None:
                return verdict
        if eob:
            last = batch.drafts[-1]
            last.change(headers=last.headers[:-2] + b"Nats-Batch-Commit: 1\r\n\r\n")
        try:
            seq = store_whole(core, batch.drafts)[-1]
        except StreamRefused as refused:
            return refused.code, refused.err_code, refused.description
        extra = f',"batch":{json_string(batch.id)},"count":{len(batch.drafts)}'
        text = core.ack_text(seq, extra.encode("utf-8", "replace"))
        core.answer(reply, text, after_seq=seq)
        return HANDLED

    def _keep_open(self, batch: Batch) -> None:
        batch.due_ns = self._account.now_ns + self._account.batches.limits.timeout_ns
        self._entry.rules_at_ns = min(self._entry.rules_at_ns, batch.due_ns)

    def _drop(self, batch: Batch, reason: str = "") -> None:
        """It is no longer open; with a reason, who listens is told."""
        if self._open.pop(batch.id, None) is None:
            return
        self._account.batches.atomic -= 1
        self._account.batches.staged_bytes -= batch.bytes
        if reason:
            name = self._entry.config.name
            self._account.advisories.batch_abandoned(name, batch.id, reason, self._account.now_ns)

    def _too_large(self) -> tuple[int, int, str]:
        most = self._account.batches.limits.max_msgs
        return 400, 10199, f"atomic publish batch is too large: {most}"


def without(headers: bytes, name: bytes) -> bytes:
    """A header block without the lines of one name."""
    lines = headers.split(b"\r\n")
    kept = [line for line in lines if not line.startswith(name + b":")]
    return b"\r\n".join(kept) if len(kept) > 2 + 1 else b""


def _offered(level: bytes, highest: int) -> bool:
    """Whether a message asks for a level that is there."""
    wanted = number(level[1:] if level[:1] in (b"-", b"+") else level)
    return wanted >= 0 and (wanted <= highest or level.startswith(b"-"))
