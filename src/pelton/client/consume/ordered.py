"""An ordered consumer: every message of a stream once and in order, through consumers that come and go.

The consumer on the server is ephemeral, without acks, in memory. Consumer sequences must come as 1, 2, 3 ...;
after a gap, or when the consumer is lost, the next one begins after the last message that was taken.

A watch of a bucket is one whose first values are known. They are over when the consumer has delivered as
many messages as waited for it, or reports that none waits. Until then a consumer that replaces a lost one
begins again with the last value of each key, and the watch leaves out what it has had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from pelton.errors import (
    ApiError,
    ConnectionLostError,
    ConsumerDeletedError,
    NoRespondersError,
    PeltonTimeoutError,
    PullError,
)

from ..base.models import ConsumerConfig, ConsumerInfo, Metadata, StreamInfo
from .arrivals import PullIntake
from .intake import NO_SUBJECT, OnMissing
from .pull import CONFLICT, HEARTBEAT, Asking, Sizes, size_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pelton.api.fields import DeliverPolicy

    from ..base.message import BaseMessage
    from ..session.session import Leaving, Session

# Several consumers in a row that end without a message point to a fault that does not pass.
BARREN_MAX = 5
LEADERLESS = (10008, 10009)
"""Error codes of a cluster that must elect a leader first."""
INACTIVE_THRESHOLD_S = 300


class Position:
    """The position of an ordered consumer: the first stream sequence that its user has not got."""

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
        # ADR-17: without acks, with one replica, in memory. Such a consumer costs little, and is made
        # again when it is lost.
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
        # Kept from the first consumer: a stream that is younger than this was made again.
        self._since_ns = self._since_ns or info.created
        self._barren += 1
        self._consumer_seq = 0
        if self._deliver_policy == "new":  # from now on "new" means a fixed sequence
            self.next_seq = info.delivered.stream_seq + 1
            self._deliver_policy = None

    @property
    def made_before(self) -> bool:
        """Whether the stream may have been made again since the first consumer."""
        return bool(self._since_ns)

    def look_at(self, found: StreamInfo) -> bool:
        """Before a consumer is made again: begin at the first message of a stream that was made again.

        Its sequences are not those of the stream before, so after the last one that was taken there may be
        nothing for a long time. Of a stream that was restored, and ends before the position, the next
        message is the one after its end. Returns whether it is another stream.
        """
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
        # This consumer has delivered something, so those before it do not count.
        self._barren = 1
        self.next_seq = stream_seq + 1
        self._deliver_policy = None
        return True

    def recoverable(self, error: Exception) -> bool:
        """Whether a new consumer may go on after this error; not after several that delivered
        nothing.
        """
        # As often as the client connects again: its options limit that.
        if isinstance(error, ConnectionLostError):
            return True
        again = isinstance(
            error, ConsumerDeletedError | NoRespondersError | PullError | PeltonTimeoutError
        ) or (isinstance(error, ApiError) and error.err_code in LEADERLESS)
        # Before the first consumer an error is most likely the user's, such as a wrong stream.
        return again and 0 < self._barren < BARREN_MAX


class OrderedIntake(PullIntake):
    """Messages of an ordered consumer."""

    def __init__(
        self,
        client: Session,
        position: Position,
        consumers: Leaving,
        sizes: Sizes,
        on_missing: OnMissing,
    ) -> None:
        """The upkeep makes the consumer."""
        info = ConsumerInfo(stream_name=position.stream, name="")
        super().__init__(client, NO_SUBJECT, info, Asking(ConsumerConfig(), {}), sizes, on_missing)
        self.position = position
        self._consumers = consumers
        self.created = False
        """Whether there was a consumer."""
        self._later = on_missing
        self.on_missing = "raise"  # a stream that never was is a mistake

    def begin(self) -> None:
        """Subscribe; the first consumer is made by the upkeep."""
        super().begin()
        self.held = self.expected = 0

    def pull(self) -> bool:
        """Request more once there is a consumer."""
        if not self.created:
            if self.doubted is None:
                # The upkeep makes a consumer for one that is in doubt, so it makes the first one, too.
                self.doubt(PullError(0, "the consumer is not created yet"))
            return False
        return super().pull()

    def keep(self, message: BaseMessage) -> None:
        """Add a message to the queue when it is the next one."""
        if self._is_next(message):
            super().keep(message)

    def _is_next(self, message: BaseMessage) -> bool:
        """Whether the message is the next one of the stream; otherwise there is a gap, or it is an old one."""
        tokens = message.reply.split(".")
        if (
            len(tokens) == 9
        ):  # $JS.ACK.<stream>.<consumer>.<deliveries>.<sequences>.<time>.<pending>
            consumer, stream_seq, consumer_seq = tokens[3], int(tokens[5]), int(tokens[6])
        else:
            _, _, _, consumer, _, stream_seq, consumer_seq, *_ = message.metadata
        if self.position.follow(consumer, stream_seq, consumer_seq):
            return True
        # It counted as requested; nobody will take it.
        self.held -= size_of(message) if self.by_bytes else 1
        # A message of the consumer before is only late, and no gap.
        if consumer == self.position.consumer:
            self._gap(consumer_seq)
        return False

    def on_status(self, status: int, message: BaseMessage) -> None:
        """A heartbeat also tells of messages that were lost on their way."""
        if status == HEARTBEAT and self.created:
            # If the last messages before a pause get lost, no later message shows the gap.
            last = message.header("Nats-Last-Consumer") or ""
            # Requests to the consumer before had its sequences.
            current = self._replies.number_of(message.subject) >= self._first
            if current and last.isdigit() and int(last) > self.position.consumer_seq:
                self._gap(int(last))
        super().on_status(status, message)

    def _gap(self, sequence: int) -> None:
        words = f"a gap: expected {self.position.consumer_seq + 1}, got {sequence}"
        # Later messages of this consumer must not be taken: they are delivered again by the next one.
        self.position.forget()
        self.doubt(PullError(CONFLICT, words))

    def restarted(self, info: ConsumerInfo, subject: str, *, renewed: bool) -> None:
        """There is a new consumer, of requests to ``subject``; ``renewed``: the stream was made again."""
        self._subject = subject
        self.position.started(info)
        if self.created:
            why = "the stream was made again" if renewed else str(self.doubted)
            self.events.emit("ordered_consumer_recreated", why, name=info.name)
        self.created = True
        self.on_missing = self._later

    def _return_queue(self) -> None:
        """The next operation begins at the first message that was not taken."""
        if self.queue:
            self.position.rewind(self.queue[0].metadata.stream_seq)
            self.queue.clear()

    def _leave(self) -> None:
        self._consumers.leave()


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
            # The first values came only in part, so the next consumer begins with them again.
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
        # Counted down in ``passes``.
        self._waiting = info.num_pending
        if not info.num_pending and not self.caught_up:
            self.caught_up = True
            # From here on by sequence: what is stored between two consumers must not be missed.
            self.next_seq = max(self.next_seq, begin)
            self._deliver_policy = None

    def follow(self, consumer: str, stream_seq: int, consumer_seq: int) -> bool:
        """Whether a message is the next one; False: create a new consumer."""
        before = self.next_seq
        if not super().follow(consumer, stream_seq, consumer_seq):
            return False
        # last_per_subject begins with old sequences again; the position must not go back with them.
        self.next_seq = max(before, self.next_seq)
        return True

    def passes(self, metadata: Metadata) -> bool:
        """Whether the watch has not had this message; counts it as had."""
        new = metadata.stream_seq > self.had
        self.had = max(self.had, metadata.stream_seq)
        self._waiting -= 1
        # Either is needed: num_pending may have been too high, if values were purged or replaced since,
        # and ``pending`` never falls to 0 while others write.
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
