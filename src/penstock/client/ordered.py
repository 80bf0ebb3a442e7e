"""A reader that gets every message of a stream once and in order: its consumer, and its restarts.

The consumer is ephemeral, without acks, in memory. Consumer sequences must come as 1, 2, 3 ...; after
a gap, or when the consumer is lost, the reader creates a new one behind the last message that it took.
Knows nothing of transports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import (
    ApiError,
    ConnectionLost,
    ConsumerDeleted,
    NoResponders,
    PullError,
    Timeout,
)

from .models import ConsumerConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.api.fields import DeliverPolicy

    from .models import ConsumerInfo, Metadata

BARREN_MAX = 5
LEADERLESS = (10008, 10009)
"""Error codes of a cluster that must elect a leader first."""
INACTIVE_THRESHOLD_S = 300


class Ordered:
    """The position of an ordered reader."""

    def __init__(
        self,
        stream: str,
        filter_subjects: Iterable[str],
        start_seq: int,
        deliver_policy: DeliverPolicy | None,
        headers_only: bool,
    ) -> None:
        """``deliver_policy`` applies instead of ``start_seq`` until the reader has taken a message."""
        if isinstance(filter_subjects, str):
            filter_subjects = [filter_subjects]
        self.stream = stream
        self.next_seq = start_seq
        """The first stream sequence that the reader has not taken yet."""
        self._filters = list(filter_subjects)
        self._deliver_policy = deliver_policy
        self._headers_only = headers_only
        self._consumer_seq = 0
        self._consumer = ""
        self._barren = 0  # consumers in a row that delivered nothing; 0 also before the first

    def config(self) -> ConsumerConfig:
        """The consumer to create now."""
        policy: DeliverPolicy = "by_start_sequence"
        start = self.next_seq
        if self._deliver_policy is not None:
            policy, start = self._deliver_policy, 0
        return ConsumerConfig(
            deliver_policy=policy,
            opt_start_seq=start,
            ack_policy="none",
            max_deliver=1,
            mem_storage=True,
            num_replicas=1,
            headers_only=self._headers_only,
            inactive_threshold=INACTIVE_THRESHOLD_S,
            filter_subject=self._filters[0] if len(self._filters) == 1 else "",
            filter_subjects=self._filters if len(self._filters) > 1 else [],
        )

    def started(self, info: ConsumerInfo) -> None:
        """The consumer is created."""
        self._consumer = info.name
        self._barren += 1
        self._consumer_seq = 0
        if self._deliver_policy == "new":  # from now on "new" means a fixed sequence
            self.next_seq = info.delivered.stream_seq + 1
            self._deliver_policy = None

    def take(self, metadata: Metadata) -> bool:
        """Whether the message is the next one; False: create a new consumer."""
        if metadata.consumer != self._consumer or metadata.consumer_seq != self._consumer_seq + 1:
            return False
        self._consumer_seq += 1
        self._barren = 1
        self.next_seq = metadata.stream_seq + 1
        self._deliver_policy = None
        return True

    def recoverable(self, error: Exception) -> bool:
        """Whether a new consumer may go on after this error; not after several that delivered
        nothing.
        """
        if isinstance(error, ConnectionLost):
            return True
        again = isinstance(error, ConsumerDeleted | NoResponders | PullError | Timeout) or (
            isinstance(error, ApiError) and error.err_code in LEADERLESS
        )
        return again and 0 < self._barren < BARREN_MAX
