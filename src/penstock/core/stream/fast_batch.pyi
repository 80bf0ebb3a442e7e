"""Fast-ingest batches of one stream."""

from penstock.core.stream.stream import FastBatchHandler, Stream

class Inflight:
    """How many batches are open on all streams together."""

    count: int
    limit: int
    def __init__(self, limit: int) -> None: ...

class FastBatch: ...

class OpenFastBatches(FastBatchHandler):
    """The fast-ingest batches of one stream, which gives it every publish whose reply subject ends in ``.$FI``."""

    stream: Stream
    batches: dict[bytes, FastBatch]
    inflight: Inflight
    limit: int  # open batches of this stream
    timeout_ns: int
    def __init__(
        self, stream: Stream, inflight: Inflight, *, limit: int, timeout_ns: int
    ) -> None: ...
    def expire(self, now_ns: int) -> None:
        """Give up batches that were not heard of for `timeout_ns`; nobody is told."""
    def close(self) -> None:
        """Give up all of them."""
