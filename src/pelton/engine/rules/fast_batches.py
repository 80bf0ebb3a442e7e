"""Fast-ingest batches (`allow_batched`): the server answers once per many messages.

`core/stream/fast_batch` does the work per message; this module decides which streams have
fast-ingest batches, and ends batches whose publisher is silent.
"""

from typing import TYPE_CHECKING

from pelton.core.stream.fast_batch import OpenFastBatches
from pelton.engine.base.settings import SECOND
from pelton.engine.rules.base import Rule

if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount
    from pelton.engine.account.catalog import StreamEntry

LOOK_INTERVAL_NS = SECOND
"""The wait between two checks; a batch that has timed out accepts no messages even before the
check.
"""


def feature(account: "JetStreamAccount", entry: "StreamEntry") -> Rule | None:
    """Return the rule for streams with `allow_batched`; open batches stay when such a stream is
    updated.
    """
    if not entry.config.allow_batched:
        return None
    former = entry.rules.rules if entry.rules is not None else []
    kept = [rule for rule in former if isinstance(rule, FastBatches)]
    return kept[0] if kept else FastBatches(account, entry)


class FastBatches(Rule):
    """The fast-ingest batches of one stream."""

    def __init__(self, account: "JetStreamAccount", entry: "StreamEntry") -> None:
        """Start to accept fast-ingest batches."""
        batches = account.batches
        self._core = entry.core
        self.batches = OpenFastBatches(
            entry.core.path,
            batches.fast,
            limit=batches.fast_per_stream,
            timeout_ns=batches.limits.timeout_ns,
        )
        entry.core.path.use_fast_batches(self.batches)

    def tick(self, now_ns: int) -> int:
        """Give up batches whose publisher is silent for too long; return the time of the next call."""
        self.batches.expire(now_ns)
        return now_ns + LOOK_INTERVAL_NS

    def close(self, *, for_good: bool) -> None:
        """Drop the open batches without an answer."""
        self.batches.close()
        self._core.path.use_fast_batches(None)
