"""The publish path of a stream: headers, expectations, duplicates, limits, append."""

from pelton.core.stream.refusals import Rules

class StreamRefused(Exception):
    code: int
    err_code: int
    description: str

class FastBatchHandler: ...
class AtomicBatchHandler: ...

class PublishPath:
    """The publish path of one stream. The stream makes it."""

    def use_rules(self, rules: Rules | None, every: bool = False) -> None:
        """Ask these rules from now on; None: refuse headers for rules as a stream with the features off. `every`: about each message
        (STAGE_ARRIVED, STAGE_COUNT), not only those with headers for rules.
        """
    def use_fast_batches(self, handler: FastBatchHandler | None) -> None:
        """Pass the messages of fast-ingest batches to the handler; None: refuse them."""
    def use_atomic_batches(self, handler: AtomicBatchHandler | None) -> None:
        """Pass the messages of atomic batches to the handler; None: refuse them."""
    def store(
        self,
        subject: str,
        payload: bytes,
        headers: bytes = b"",
    ) -> int:
        """Store a message of the server, a marker or that of a schedule, after the limits of discard new only; returns its sequence.

        Rules are asked at STAGE_STORED only. The stream remembers Nats-Msg-Id. Raises StreamRefused (discard new, disk).
        """
    def announce(self, subject: str, payload: bytes, headers: bytes, *, after_seq: int) -> None:
        """Publish a message in the order of the stream's acks, once the stream is durable up to a sequence."""
