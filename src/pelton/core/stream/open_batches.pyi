"""The open atomic batches of one stream."""

from collections.abc import Callable

from pelton.core.stream.fast_batch import Inflight
from pelton.core.stream.publish import AtomicBatchHandler, PublishPath

class OpenAtomicBatches(AtomicBatchHandler):
    """The atomic batches of one stream. The stream passes it every message with a batch id."""

    ttl: bool  # the stream allows message TTLs
    def __init__(
        self,
        path: PublishPath,
        inflight: Inflight,
        held: Inflight,
        *,
        limit: int,
        messages_max: int,
        timeout_ns: int,
        offer: Callable[[bytes], bytes | None],
        opened: Callable[[int], None],
        abandoned: Callable[[str, str], None],
    ) -> None:
        """`inflight`, `held`: open batches of all streams, and their bytes. `limit`: open batches of this stream; `messages_max`: of one batch.

        offer(block) returns a header block that requires an API level without that line, or None: the server does not have the level.
        opened(due_ns) is called when a batch is begun, with the time when it is due. abandoned(id, reason) is called when a batch is abandoned:
        timeout, large, incomplete or unsupported.
        """
    def __len__(self) -> int:
        """Number of open batches."""
    def expire(self, now_ns: int) -> int:
        """Abandon the batches that are due; returns when the next one is due, 0: none is open."""
    def close(self) -> None:
        """Drop all open batches without calling abandoned()."""
