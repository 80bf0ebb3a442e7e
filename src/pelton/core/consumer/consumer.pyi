"""A consumer: position, filters, pending messages, redelivery, pull requests, push delivery."""

from collections.abc import Callable
from typing import NamedTuple

from pelton.core.broker.reactor import Task
from pelton.core.consumer.priority_groups import PriorityGroups
from pelton.core.stream.stream import Stream

ACK_NONE: int
ACK_ALL: int
ACK_EXPLICIT: int
ACK_FLOW: int

class ConsumerState(NamedTuple):
    delivered_consumer_seq: int
    delivered_stream_seq: int
    delivered_last_ns: int  # 0: never
    floor_consumer_seq: int
    floor_stream_seq: int
    floor_last_ns: int
    num_ack_pending: int
    num_redelivered: int
    num_waiting: int
    num_pending: int

class Consumer(Task):
    """One consumer of a stream. The engine makes it, and turns the deliver policy into a first sequence."""

    def __init__(
        self, stream: Stream, name: str, *, start_seq: int, dialect: str = "", owner: bytes = b""
    ) -> None:
        """`dialect`: of the ack subjects, "" today's, or "2019", "2020". `owner`: the domain and the account that begin the longer
        ack subjects, "<domain>.<account>."; b"" for the shorter ones.
        """
    name: str
    stream: Stream
    closed: bool
    ack_policy: int
    bound: bool  # push: the deliver subject had a subscriber when last looked up
    deadline_changed: Callable[[Consumer, int], None] | None
    """Called with the consumer and a time in ns when tick() is needed before the time of its last answer (0: none)."""
    def configure(
        self,
        *,
        ack_policy: int,
        ack_wait_ns: int = 30_000_000_000,
        backoff_ns: tuple[int, ...] = (),
        max_deliver: int = -1,
        max_ack_pending: int = 1000,
        max_waiting: int = 512,
        max_batch: int = 0,
        max_expires_ns: int = 0,
        max_bytes: int = 0,
        filters: tuple[str, ...] = (),
        last_per_subject: bool = False,
        headers_only: bool = False,
        rate_limit_bps: int = 0,
        replay_original: bool = False,
        deliver_subject: str = "",
        deliver_group: str = "",
        idle_heartbeat_ns: int = 0,
        flow_control: bool = False,
        sample_percent: int = 0,
        priority_policy: int = 0,
        priority_groups: tuple[str, ...] = (),
        priority_timeout_ns: int = 0,
    ) -> None:
        """Set or change the configuration. deliver_subject "" = pull."""
    def state(self) -> ConsumerState: ...
    def snapshot(self) -> bytes:
        """The stored state (floors, delivered, pending with delivery counts) as a checksummed record; core/consumer/snapshot draws it."""
    def restore(self, data: bytes) -> None:
        """Set the state from a snapshot, limited to the stream's sequences. Raises ValueError for an invalid snapshot."""
    changed: bool  # state differs from the last snapshot(); snapshot() clears it
    on_change: Callable[[], None] | None
    """Called when `changed` becomes true."""
    def unsaved(self) -> None:
        """The last snapshot was not written: mark the state as changed again."""
    on_unbound: Callable[[], None] | None
    """Called when the last subscriber of the deliver subject has gone."""
    groups: PriorityGroups | None
    api_subjects: object | None
    def unpin(self, group: str, reason: str) -> None:
        """Unpin the pinned client: another client gets the messages. The advisory has the reason: admin or timeout."""
    def expire_requests(self, reply: str) -> None:
        """End the pull requests with this reply subject as if their time were over."""
    def reset(self, seq: int) -> int:
        """Start again at a sequence, 0: behind the ack floor; returns the sequence."""
    paused: bool
    def push_bound(self) -> bool: ...
    def tick(self) -> int:
        """Do the work due at the reactor's time (redeliveries, request expiry, heartbeats); when to call again (ns, 0 = not needed)."""
    def idle_since_ns(self) -> int:
        """For inactive_threshold: since when no client uses it (no subscriber; no request and no running ack wait); 0 = in use."""
    def pause(self, paused: bool) -> None:
        """Pause deliveries (requests wait, acks are processed, heartbeats continue), or resume them."""
    def unacknowledged(self) -> list[tuple[int, int, int]]:
        """The messages that wait for an ack: (stream sequence, when it was last delivered or refused in ns, deliveries)."""
    def given_up(self) -> list[tuple[int, int]]:
        """The messages that had all their deliveries without an ack: (stream sequence, deliveries)."""
    def floor(self) -> int:
        """The stream sequence up to which everything is acknowledged."""
    def close(self, reason: str) -> None:
        """End the consumer: waiting pull requests get `409 Consumer Deleted` (or the reason's status), and deliveries stop."""
