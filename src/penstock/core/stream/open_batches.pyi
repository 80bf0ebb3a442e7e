"""The atomic batches that are open on one stream."""

from collections.abc import Callable

from penstock.core.stream.fast_batch import Inflight
from penstock.core.stream.stream import AtomicBatchHandler, Stream

class OpenAtomicBatches(AtomicBatchHandler):
    """The atomic batches of one stream, which gives it every message with a batch id."""

    stream: Stream
    ttl: bool  # the stream takes messages that end by themselves
    def __init__(
        self,
        stream: Stream,
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
        """`inflight`, `held`: batches open on all streams, and bytes in them. `limit`: batches open here; `messages_max`: of one batch.

        offer(block): a header block that asks for an API level, without that line; None: the level is not there.
        opened(due_ns): a batch was begun that will be due then. abandoned(id, reason): one is given up: timeout, large, incomplete
        or unsupported.
        """
    def __len__(self) -> int:
        """Batches that are open."""
    def expire(self, now_ns: int) -> int:
        """Give up those that nothing was heard of; when the next one is due, 0: none is open."""
    def close(self) -> None:
        """Open batches end without a word."""
