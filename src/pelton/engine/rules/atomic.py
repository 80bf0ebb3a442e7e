"""Atomic batches (`allow_atomic`): messages that the server keeps until the commit, then checks and
stores together, or not at all.

`core/stream/open_batches` does the work per message; this module decides which streams have atomic
batches, ends batches whose publisher is silent, and sends the advisories.
"""

from typing import TYPE_CHECKING, Final

from pelton.core.protocol.publish_headers import value
from pelton.core.stream.open_batches import OpenAtomicBatches
from pelton.engine.rules.base import Rule

if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount
    from pelton.engine.account.catalog import StreamEntry

LEVEL: Final = b"Nats-Required-Api-Level"


def feature(account: "JetStreamAccount", entry: "StreamEntry") -> Rule | None:
    """Return the rule for streams with `allow_atomic`; open batches stay when such a stream is
    updated.
    """
    if not entry.config.allow_atomic:
        return None
    former = entry.rules.rules if entry.rules is not None else []
    kept = [rule for rule in former if isinstance(rule, Atomic)]
    rule = kept[0] if kept else Atomic(account, entry)
    rule.batches.ttl = entry.config.allow_msg_ttl
    return rule


class Atomic(Rule):
    """The atomic batches of one stream."""

    def __init__(self, account: "JetStreamAccount", entry: "StreamEntry") -> None:
        """Start to accept atomic batches; none is open."""
        self._account = account
        self._entry = entry
        batches = account.batches
        self.batches = OpenAtomicBatches(
            entry.core.path,
            batches.atomic,
            batches.staged_bytes,
            limit=batches.atomic_per_stream,
            messages_max=batches.limits.max_msgs,
            timeout_ns=batches.limits.timeout_ns,
            offer=self._offer,
            opened=self._opened,
            abandoned=self._abandoned,
        )
        entry.core.path.use_atomic_batches(self.batches)

    def tick(self, now_ns: int) -> int:
        """Give up batches whose publisher is silent for too long; return the time of the next call."""
        return self.batches.expire(now_ns)

    def close(self, *, for_good: bool) -> None:
        """Drop the open batches without an advisory."""
        self.batches.close()
        self._entry.core.path.use_atomic_batches(None)

    def _offer(self, headers: bytes) -> bytes | None:
        """Return the header block without its required level; None when the server does not support
        the level.
        """
        level = value(headers, LEVEL) or b""
        if not _offered(level, self._account.settings.api_level):
            return None
        return without(headers, LEVEL)

    def _opened(self, due_ns: int) -> None:
        self._entry.rules_at_ns = min(self._entry.rules_at_ns, due_ns)

    def _abandoned(self, batch: str, reason: str) -> None:
        name = self._entry.config.name
        self._account.advisories.batch_abandoned(name, batch, reason, self._account.now_ns)


def without(headers: bytes, name: bytes) -> bytes:
    """Return a header block without the lines of one name."""
    lines = headers.split(b"\r\n")
    kept = [line for line in lines if not line.startswith(name + b":")]
    return b"\r\n".join(kept) if len(kept) > 2 + 1 else b""


def _offered(level: bytes, highest: int) -> bool:
    """Return whether the server supports the level that a message requires."""
    digits = level[1:] if level[:1] in (b"-", b"+") else level
    if not digits.isdigit() or len(digits) > 19:
        return False
    return int(digits) <= highest or level.startswith(b"-")
