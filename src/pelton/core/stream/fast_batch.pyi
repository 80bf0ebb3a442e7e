"""Fast-ingest batches of one stream."""

from pelton.core.stream.publish import FastBatchHandler, PublishPath

class Inflight:
    """The number of open batches of all streams together."""

    count: int
    limit: int
    def __init__(self, limit: int) -> None: ...

class FastBatch: ...

class OpenFastBatches(FastBatchHandler):
    """The fast-ingest batches of one stream. The stream passes it every publish whose reply subject ends in ``.$FI``."""

    batches: dict[bytes, FastBatch]
    inflight: Inflight
    limit: int  # open batches of this stream
    timeout_ns: int
    def __init__(
        self, path: PublishPath, inflight: Inflight, *, limit: int, timeout_ns: int
    ) -> None: ...
    def expire(self, now_ns: int) -> None:
        """Abandon the batches that got no message for `timeout_ns`; their publishers get no answer."""
    def close(self) -> None:
        """Abandon all batches."""
