"""The messages of a watch, and its position in its bucket's stream.

The values that a watch begins with are over when the consumer has delivered as many messages as waited
for it, or reports that none waits. Until then a consumer that replaces a lost one begins again with the
last value of each key, and the watch leaves out what it has had; later, it begins after the last entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .ordered import OrderedIntake, Position
from .pull import Sizes

if TYPE_CHECKING:
    from pelton.api.fields import DeliverPolicy

    from ..base.message import BaseMessage
    from ..base.models import ConsumerConfig, ConsumerInfo, Metadata
    from ..session.session import Leaving, Session


class WatchPosition(Position):
    """The position of a watch in its bucket's stream."""

    def __init__(
        self,
        stream: str,
        subjects: list[str],
        policy: DeliverPolicy | None,
        start_seq: int,
        *,
        headers_only: bool,
    ) -> None:
        """``policy`` applies until the initial values are over, else ``start_seq``."""
        super().__init__(stream, subjects, start_seq, policy, headers_only)
        self.starts = 0
        """The number of consumers so far."""
        self.caught_up = policy == "new"
        """Whether the initial values are over."""
        self.went_back = False
        """Whether the stream ends before the messages that the watch has had."""
        self.had = start_seq - 1
        """The last sequence that the watch has had."""
        self.subjects = subjects
        self._policy = policy
        self._waiting = 0  # initial messages that the consumer has not delivered yet

    def config(self) -> ConsumerConfig:
        """The consumer to create now."""
        if not self.caught_up and self._policy == "last_per_subject":
            self._deliver_policy = self._policy
        return super().config()

    def rewind(self, seq: int) -> None:
        """Begin the next consumer at this sequence: the stream was made again, or ends before the position."""
        self.went_back = self.went_back or seq < self.next_seq
        self.had = min(self.had, seq - 1)
        super().rewind(seq)

    def started(self, info: ConsumerInfo) -> None:
        """The consumer is created."""
        begin = info.delivered.stream_seq + 1
        by_sequence = self._deliver_policy is None
        super().started(info)
        # A server before 2.10 begins at the stream's end when the sequence is after it.
        if self.starts and by_sequence and begin < self.next_seq:
            self.went_back = True
        self.starts += 1
        self._waiting = info.num_pending
        if not info.num_pending and not self.caught_up:
            self.caught_up = True
            self.next_seq = max(self.next_seq, begin)
            self._deliver_policy = None

    def follow(self, consumer: str, stream_seq: int, consumer_seq: int) -> bool:
        """Whether a message is the next one; False: create a new consumer."""
        before = self.next_seq
        if not super().follow(consumer, stream_seq, consumer_seq):
            return False
        self.next_seq = max(before, self.next_seq)
        return True

    def passes(self, metadata: Metadata) -> bool:
        """Whether the watch has not had this message; counts it as had."""
        new = metadata.stream_seq > self.had
        self.had = max(self.had, metadata.stream_seq)
        self._waiting -= 1
        if metadata.pending == 0 or self._waiting <= 0:
            self.caught_up = True
        return new


class Arrived(NamedTuple):
    """A message of a watch, and whether it came after those that the watch began with."""

    message: Any
    is_update: bool


class WatchIntake(OrderedIntake):
    """The messages of a watch: each revision once, however often consumers begin anew."""

    position: WatchPosition

    def __init__(self, client: Session, position: WatchPosition, consumers: Leaving) -> None:
        """A bucket that is gone is the end of the watch."""
        super().__init__(client, position, consumers, Sizes(expires=30.0, heartbeat=5.0), "raise")

    def keep(self, message: BaseMessage) -> None:
        """Add a message to the queue when it is the next one, and the watch has not had it."""
        if not self._is_next(message):
            return
        is_update = self.position.caught_up
        if self.position.passes(message.metadata):
            self.queue.append(Arrived(message, is_update))
        else:
            self.took(message)
        self.takers._stir()  # also because the first messages may be over

    def _return_queue(self) -> None:
        self.queue.clear()
