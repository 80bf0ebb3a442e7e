"""A reader that gets every message of a stream once and in order: its consumer, and its restarts.

The consumer is ephemeral, without acks, in memory. Consumer sequences must come as 1, 2, 3 ...; after
a gap, or when the consumer is lost, the reader creates a new one after the last message that it took.
Does not depend on transports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pelton.errors import (
    ApiError,
    ConnectionLostError,
    ConsumerDeletedError,
    NoRespondersError,
    PeltonTimeoutError,
    PermissionsViolationError,
    PullError,
)

from ..base.models import ConsumerConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pelton.api.fields import DeliverPolicy

    from ..base.models import ConsumerInfo, Metadata
    from ..base.steps import Steps
    from ..plans.jetstream import Plans

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
        base: ConsumerConfig | None = None,
    ) -> None:
        """``deliver_policy`` applies instead of ``start_seq`` until the reader has taken a message.

        ``base`` has the other fields of the consumer's configuration.
        """
        if isinstance(filter_subjects, str):
            filter_subjects = [filter_subjects]
        self.stream = stream
        self.next_seq = start_seq
        """The first stream sequence that the reader has not taken yet."""
        self._filters = list(filter_subjects)
        self._deliver_policy = deliver_policy
        self._headers_only = headers_only
        self._base = base or ConsumerConfig(inactive_threshold=INACTIVE_THRESHOLD_S)
        self._consumer_seq = 0
        self._consumer = ""
        self._since_ns = 0  # when the first consumer was made, by the server's clock; 0 for none
        self._barren = 0  # consumers in a row that delivered nothing; 0 also before the first

    def config(self) -> ConsumerConfig:
        """The consumer to create now."""
        policy: DeliverPolicy = "by_start_sequence"
        start, start_time = self.next_seq, None
        if self._deliver_policy is not None:
            policy, start, start_time = self._deliver_policy, 0, self._base.opt_start_time
        return replace(
            self._base,
            deliver_policy=policy,
            opt_start_seq=start,
            opt_start_time=start_time,
            ack_policy="none",
            max_deliver=1,
            mem_storage=True,
            num_replicas=1,
            headers_only=self._headers_only,
            filter_subject=self._filters[0] if len(self._filters) == 1 else "",
            filter_subjects=self._filters if len(self._filters) > 1 else [],
        )

    def started(self, info: ConsumerInfo) -> None:
        """The consumer is created."""
        self._consumer = info.name
        self._since_ns = self._since_ns or info.created
        self._barren += 1
        self._consumer_seq = 0
        if self._deliver_policy == "new":  # from now on "new" means a fixed sequence
            self.next_seq = info.delivered.stream_seq + 1
            self._deliver_policy = None

    def checking(self, plans: Plans) -> Steps[bool]:
        """Before a consumer is made again: begin at the first message of a stream that was made again.

        Its sequences are not those of the stream before, so after the last one that was taken there may be
        nothing for a long time. Of a stream that was restored, and ends before the position, the next
        message is the one after its end. Returns whether it is another stream; raises StreamNotFoundError.
        """
        if not self._since_ns:
            return False
        try:
            found = yield from plans.stream_info(self.stream)
        except PermissionsViolationError:  # the user may read the stream, and not ask about it
            return False
        if found.created <= self._since_ns:
            if found.state.last_seq + 1 < self.next_seq:
                self.rewind(found.state.last_seq + 1)
            return False
        self._since_ns = 0
        self.rewind(1)
        return True

    @property
    def consumer(self) -> str:
        """The name of the current consumer, "" for none."""
        return self._consumer

    @property
    def consumer_seq(self) -> int:
        """The sequence of the last message that the current consumer delivered."""
        return self._consumer_seq

    def forget(self) -> None:
        """Take nothing more of the current consumer."""
        self._consumer = ""

    def rewind(self, seq: int) -> None:
        """Begin the next consumer at this sequence: its message was not taken by the user."""
        self.next_seq = seq
        self._deliver_policy = None

    def take(self, metadata: Metadata) -> bool:
        """Whether the message is the next one; False: create a new consumer."""
        return self.follow(metadata.consumer, metadata.stream_seq, metadata.consumer_seq)

    def follow(self, consumer: str, stream_seq: int, consumer_seq: int) -> bool:
        """``take`` for a message of this consumer with these sequences."""
        if consumer_seq != self._consumer_seq + 1 or consumer != self._consumer:
            return False
        self._consumer_seq = consumer_seq
        self._barren = 1
        self.next_seq = stream_seq + 1
        self._deliver_policy = None
        return True

    def recoverable(self, error: Exception) -> bool:
        """Whether a new consumer may go on after this error; not after several that delivered
        nothing.
        """
        if isinstance(error, ConnectionLostError):
            return True
        again = isinstance(
            error, ConsumerDeletedError | NoRespondersError | PullError | PeltonTimeoutError
        ) or (isinstance(error, ApiError) and error.err_code in LEADERLESS)
        return again and 0 < self._barren < BARREN_MAX
