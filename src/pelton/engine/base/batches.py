"""Counts of the batches that publishers have open on all streams of a server, and their limits.

The streams keep the batches themselves (`core/stream/open_batches`, `core/stream/fast_batch`).
"""

from pelton.core.stream.fast_batch import Inflight
from pelton.engine.base.settings import BatchLimits

ATOMIC_PER_STREAM = 50
ATOMIC_TOTAL = 1000
FAST_PER_STREAM = 1000
FAST_TOTAL = 50_000


class OpenBatches:
    """The counts of one server."""

    def __init__(self, limits: BatchLimits) -> None:
        """No batch is open."""
        self.limits = limits
        self.atomic_per_stream = limits.max_inflight_per_stream or ATOMIC_PER_STREAM
        self.fast_per_stream = limits.max_inflight_per_stream or FAST_PER_STREAM
        self.atomic = Inflight(limits.max_inflight_total or ATOMIC_TOTAL)
        self.staged_bytes = Inflight(limits.max_staged_bytes)
        self.fast = Inflight(limits.max_inflight_total or FAST_TOTAL)
