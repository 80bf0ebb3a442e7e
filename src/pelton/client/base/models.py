"""The JSON messages of JetStream in the client; the rest of the client imports them from here.

They extend those of ``pelton.api``: fields that are durations and times take the forms that users
write (``client/base/durations.py``), and defaults suit a consumer of a user. ``pelton.api`` defines the
fields and their order on the wire.
"""

import dataclasses
from typing import (
    TYPE_CHECKING,
    Annotated,
    Generic,
    NamedTuple,
    TypedDict,
    TypeVar,
    Unpack,
    get_type_hints,
)

from msgspec import field

from pelton.api import AccountInfo, Placement, PubAck, Republish, StreamState, SubjectTransform
from pelton.api import ConsumerConfig as WireConsumerConfig
from pelton.api import ConsumerInfo as WireConsumerInfo
from pelton.api import StreamConfig as WireStreamConfig
from pelton.api import StreamConsumerLimits as WireStreamConsumerLimits
from pelton.api import StreamInfo as WireStreamInfo
from pelton.api import StreamSource as WireStreamSource
from pelton.api import calls as wire
from pelton.api.fields import (
    FLATTEN,
    OMIT,
    AckPolicy,
    Compression,
    DeliverPolicy,
    Discard,
    PersistMode,
    PriorityPolicy,
    ReplayPolicy,
    Retention,
    Storage,
)
from pelton.api.streams import ExternalStream, StreamSourceConsumer
from pelton.api.subjects import AckSubject as Metadata
from pelton.api.times import format_duration

from .durations import Duration, Moment, Nanoseconds, Span, Time, settle
from .message import Headers

__all__ = [
    "AccountInfo",
    "ConsumerConfig",
    "ConsumerInfo",
    "ConsumerPause",
    "ExternalStream",
    "Listing",
    "Metadata",
    "Placement",
    "PubAck",
    "Republish",
    "StoredMessage",
    "StreamConfig",
    "StreamConsumerLimits",
    "StreamInfo",
    "StreamSource",
    "StreamSourceConsumer",
    "StreamState",
    "SubjectTransform",
]

T = TypeVar("T", bound=type)
Item = TypeVar("Item")

_NONE = Nanoseconds(0)


def _readable(kind: T) -> T:
    """Show in the signature of a class the types that its fields accept, without the wire's
    annotations.
    """
    # pelton.api encodes by these; the annotations are replaced below by those that callers read.
    type.__setattr__(kind, "wire_hints", get_type_hints(kind, include_extras=True))
    plain = get_type_hints(kind)
    shown: dict[object, object] = {Nanoseconds: Duration, list[Nanoseconds]: list[Duration]}
    moments = {"opt_start_time", "pause_until"}
    kind.__annotations__ = {
        name: Moment | None if name in moments else shown.get(hint, hint)
        for name, hint in plain.items()
    }
    return kind


@_readable
class StreamSource(WireStreamSource, kw_only=True):
    """The origin of a mirror, or one origin of a sourcing stream.

    Example::

        StreamConfig(name="COPY", mirror=StreamSource(name="ORDERS", opt_start_seq=1000))

    name: the stream to copy.
    opt_start_seq: copy from this sequence on.
    opt_start_time: copy from this time on: a datetime with its zone, RFC 3339 text, or
        nanoseconds since 1970.
    filter_subject: copy only messages of this subject, which may have wildcards.
    subject_transforms: copy with other subjects.
    external: the stream belongs to another account or domain.
    consumer: an existing durable consumer to copy with.
    """

    opt_start_time: Annotated[Time | None, OMIT] = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            name: str = "",
            opt_start_seq: int = 0,
            opt_start_time: Moment | None = None,
            filter_subject: str = "",
            subject_transforms: list[SubjectTransform] = ...,
            external: ExternalStream | None = None,
            consumer: StreamSourceConsumer | None = None,
        ) -> None:
            """Check the fields: ValueError, TypeError."""

    def __post_init__(self) -> None:
        """Check the moment: ValueError."""
        settle(self, moments=("opt_start_time",))


@_readable
class StreamConsumerLimits(WireStreamConsumerLimits, kw_only=True):
    """Defaults and limits for the consumers of a stream.

    Example::

        StreamConfig(name="ORDERS", consumer_limits=StreamConsumerLimits(max_ack_pending=1000))

    inactive_threshold: how long a consumer may be unused until it is removed (a duration).
    max_ack_pending: messages of a consumer that are delivered and not acknowledged, at most.
    """

    inactive_threshold: Annotated[Span, OMIT] = _NONE

    if TYPE_CHECKING:

        def __init__(self, *, inactive_threshold: Duration = 0, max_ack_pending: int = 0) -> None:
            """Check the fields: ValueError, TypeError."""

    def __post_init__(self) -> None:
        """Check the duration: ValueError, TypeError."""
        settle(self, ("inactive_threshold",))


class StreamFields(TypedDict, total=False):
    """The fields of a StreamConfig but its name, as keywords of ``create_stream``."""

    description: str
    subjects: list[str]
    retention: Retention
    max_consumers: int
    max_msgs: int
    max_bytes: int
    max_age: Duration
    max_msgs_per_subject: int
    max_msg_size: int
    discard: Discard
    storage: Storage
    num_replicas: int
    no_ack: bool
    duplicate_window: Duration
    placement: Placement | None
    mirror: StreamSource | None
    sources: list[StreamSource]
    compression: Compression
    first_seq: int
    subject_transform: SubjectTransform | None
    republish: Republish | None
    allow_direct: bool
    mirror_direct: bool
    discard_new_per_subject: bool
    sealed: bool
    deny_delete: bool
    deny_purge: bool
    allow_rollup_hdrs: bool
    consumer_limits: StreamConsumerLimits
    allow_msg_ttl: bool
    subject_delete_marker_ttl: Duration
    allow_msg_counter: bool
    allow_atomic: bool
    allow_msg_schedules: bool
    persist_mode: PersistMode | None
    allow_batched: bool
    metadata: dict[str, str]


@_readable
class StreamConfig(WireStreamConfig, kw_only=True):
    """The configuration of a stream. Only ``name`` is needed; 0 and "" leave the choice to the server.

    Example::

        js.create_stream(StreamConfig(name="READINGS", subjects=["readings.>"], max_age="168h", max_bytes=10**9))

    Durations are seconds, a timedelta or text ("30s", "1h30m", "7d"); a config shows them as the
    integers of the wire, nanoseconds. Invalid durations raise ValueError or TypeError.

    name: letters, digits, - and _; no dots, blanks or wildcards.
    description: what the stream is for.
    subjects: the subjects to store, which may have wildcards; empty: the stream's name.
    retention: when messages are removed. "limits": by the limits below. "interest": when every
        consumer has acknowledged them. "workqueue": when one has.
    max_consumers: consumers at most; 0 or -1 for no limit.
    max_msgs: messages to keep at most; 0 or -1 for no limit.
    max_bytes: bytes to keep at most; 0 or -1 for no limit.
    max_age: how long to keep a message (a duration); 0 for ever.
    max_msgs_per_subject: messages of one subject to keep at most; 0 or -1 for no limit.
    max_msg_size: bytes of one message, headers included, at most; 0 or -1 for no limit.
    discard: what a full stream does. "old": remove the oldest. "new": refuse the new message.
    storage: "file" or "memory".
    num_replicas: copies in a cluster, 1 to 5; 0 is 1.
    no_ack: publishes are not acknowledged.
    duplicate_window: how long message ids are remembered (a duration); 0: two minutes.
    placement: where in a cluster the stream should live.
    mirror: the stream that this one copies; then it has no subjects.
    sources: streams whose messages are copied into this one.
    compression: "none" or "s2", on the disk.
    first_seq: the sequence of the first message.
    subject_transform: store messages with another subject.
    republish: publish stored messages again with another subject.
    allow_direct: clients can read single messages without the stream's leader.
    mirror_direct: a mirror answers such reads of its origin, too.
    discard_new_per_subject: with discard "new", refuse by max_msgs_per_subject, too.
    sealed: no message can be stored or removed any more; for updates only.
    deny_delete: no message can be deleted through the API; cannot be taken back.
    deny_purge: the stream cannot be purged; cannot be taken back.
    allow_rollup_hdrs: a message may replace all earlier ones (Nats-Rollup).
    consumer_limits: defaults and limits for the stream's consumers.
    allow_msg_ttl: a message may have its own lifetime (publish with ttl).
    subject_delete_marker_ttl: how long a marker stays when max_age removes a subject's last message
        (a duration); 0: no markers.
    allow_msg_counter: the stream's subjects are counters.
    allow_atomic: atomic batches (JetStream.atomic_batch).
    allow_msg_schedules: messages may be published later, or repeatedly.
    persist_mode: "async": acknowledge before the message is on the disk.
    allow_batched: fast-ingest batches (JetStream.fast_batch).
    metadata: any names and values.
    """

    max_age: Span = _NONE
    duplicate_window: Annotated[Span, OMIT] = _NONE
    mirror: Annotated[StreamSource | None, OMIT] = None
    sources: Annotated[list[StreamSource], OMIT] = field(  # type: ignore[assignment]  # narrower
        default_factory=list
    )
    consumer_limits: StreamConsumerLimits = field(default_factory=StreamConsumerLimits)
    subject_delete_marker_ttl: Annotated[Span, OMIT] = _NONE

    if TYPE_CHECKING:

        def __init__(self, *, name: str = "", **fields: Unpack[StreamFields]) -> None:
            """Check the fields: ValueError, TypeError."""

    def __post_init__(self) -> None:
        """Check the durations: ValueError, TypeError."""
        settle(self, ("max_age", "duplicate_window", "subject_delete_marker_ttl"))


class ConsumerFields(TypedDict, total=False):
    """The fields of a ConsumerConfig but its name, as keywords of ``create_consumer``."""

    durable_name: str
    description: str
    deliver_policy: DeliverPolicy
    opt_start_seq: int
    opt_start_time: Moment | None
    ack_policy: AckPolicy
    ack_wait: Duration
    max_deliver: int
    backoff: list[Duration]
    filter_subject: str
    filter_subjects: list[str]
    replay_policy: ReplayPolicy
    rate_limit_bps: int
    sample_freq: str
    max_waiting: int
    max_ack_pending: int
    flow_control: bool
    headers_only: bool
    max_batch: int
    max_expires: Duration
    max_bytes: int
    deliver_subject: str
    deliver_group: str
    idle_heartbeat: Duration
    inactive_threshold: Duration
    num_replicas: int
    mem_storage: bool
    direct: bool
    sourcing: bool
    metadata: dict[str, str]
    pause_until: Moment | None
    priority_groups: list[str]
    priority_policy: PriorityPolicy | None
    priority_timeout: Duration


@_readable
class ConsumerConfig(WireConsumerConfig, kw_only=True):
    """The configuration of a consumer. No field is needed: the default is a pull consumer of the whole
    stream with explicit acks, which the server removes when it is unused.

    Durations are seconds, a timedelta or text ("30s", "1h30m", "7d"); a config shows them as the
    integers of the wire, nanoseconds. Invalid durations raise ValueError or TypeError. ::

        ConsumerConfig(durable_name="billing", filter_subject="orders.new", ack_wait="30s")

    durable_name: a name with which the consumer stays when it is unused.
    name: a name; that of a durable consumer is the same.
    description: what the consumer is for.
    deliver_policy: where to begin: "all", "last", "new", "by_start_sequence" (opt_start_seq),
        "by_start_time" (opt_start_time), "last_per_subject".
    opt_start_seq: the first sequence to deliver.
    opt_start_time: deliver from this time on: a datetime with its zone, RFC 3339 text, or
        nanoseconds since 1970.
    ack_policy: "explicit" (the default): each message is acknowledged. "all": an ack also covers all
        earlier messages. "none": no acks, no message is delivered again. "flow_control": push
        consumers, acknowledged by flow control.
    ack_wait: how long to wait for an ack before a message is delivered again (a duration); 0: 30 s.
    max_deliver: deliveries of one message at most; 0 or -1 for no limit.
    backoff: how long to wait for an ack after each delivery, in place of ack_wait (durations).
    filter_subject: deliver only messages of this subject, which may have wildcards.
    filter_subjects: the same for several subjects.
    replay_policy: "instant", or "original": at the pace at which the messages were stored.
    rate_limit_bps: bits per second at most, of a push consumer.
    sample_freq: the share of acks that are reported as events, in percent ("30%").
    max_waiting: pull requests that may wait at a time.
    max_ack_pending: messages that are delivered and not acknowledged, at most; -1 for no limit.
    flow_control: a push consumer waits for a slow client.
    headers_only: deliver headers and the size of the payload.
    max_batch: messages of one pull request at most.
    max_expires: how long a pull request may wait at most (a duration).
    max_bytes: bytes of one pull request at most.
    deliver_subject: the subject of a push consumer's deliveries; "" for a pull consumer.
    deliver_group: the queue group that shares a push consumer.
    idle_heartbeat: how often an idle push consumer sends a heartbeat (a duration).
    inactive_threshold: how long the consumer may be unused until it is removed (a duration); 0: five
        seconds, and never for a durable consumer.
    num_replicas: copies in a cluster; 0: as many as the stream has.
    mem_storage: keep the consumer's state in memory.
    direct: for the server's own mirrors and sources.
    sourcing: for the server's own mirrors and sources.
    metadata: any names and values.
    pause_until: deliver nothing before this time, given as opt_start_time.
    priority_groups: the group of clients that pull with priorities; one at present.
    priority_policy: "overflow", "pinned_client" or "prioritized".
    priority_timeout: how long a pinned client may be silent (a duration).
    """

    opt_start_time: Annotated[Time | None, OMIT] = None
    ack_policy: AckPolicy = "explicit"
    ack_wait: Annotated[Span, OMIT] = _NONE
    backoff: Annotated[list[Span], OMIT] = field(  # type: ignore[assignment]  # narrower
        default_factory=list
    )
    max_expires: Annotated[Span, OMIT] = _NONE
    idle_heartbeat: Annotated[Span, OMIT] = _NONE
    inactive_threshold: Annotated[Span, OMIT] = _NONE
    pause_until: Annotated[Time | None, OMIT] = None
    priority_timeout: Annotated[Span, OMIT] = _NONE

    if TYPE_CHECKING:

        def __init__(self, *, name: str = "", **fields: Unpack[ConsumerFields]) -> None:
            """Check the fields: ValueError, TypeError."""

    def __post_init__(self) -> None:
        """Check the durations and moments: ValueError, TypeError."""
        settle(
            self,
            (
                "ack_wait",
                "backoff",
                "max_expires",
                "idle_heartbeat",
                "inactive_threshold",
                "priority_timeout",
            ),
            ("opt_start_time", "pause_until"),
        )


class StreamInfo(WireStreamInfo, kw_only=True):
    """A stream's configuration and state; ``config`` has the values that the server chose.

    Example::

        info = js.stream_info("ORDERS")
        print(info.config.subjects, info.state.messages, info.created)

    config: the stream's StreamConfig.
    created: when the stream was created, nanoseconds since 1970.
    state: the contents of the stream (StreamState): messages, bytes, first_seq, last_seq ...
    domain: the JetStream domain.
    cluster: the servers that hold the stream, in a cluster.
    mirror: the progress of a mirror.
    sources: the progress of each source.
    alternates: other streams that hold the same messages.
    ts: when the server made this answer, nanoseconds since 1970.
    """

    config: StreamConfig = field(default_factory=StreamConfig)


class ConsumerInfo(WireConsumerInfo, kw_only=True):
    """A consumer's configuration and state; ``config`` has the values that the server chose.

    Example::

        info = js.consumer_info("ORDERS", "packing")
        print(info.num_pending, "to deliver,", info.num_ack_pending, "without an ack")

    stream_name: the consumer's stream.
    name: the consumer's name, also when the server chose it.
    created: when the consumer was created, nanoseconds since 1970.
    config: the consumer's ConsumerConfig.
    delivered: the last delivered message (consumer_seq, stream_seq).
    ack_floor: the message up to which all are acknowledged.
    num_ack_pending: messages that are delivered and not acknowledged.
    num_redelivered: messages that were delivered again and are not acknowledged yet.
    num_waiting: pull requests that wait.
    num_pending: messages that are still to be delivered.
    cluster: the servers that hold the consumer, in a cluster.
    push_bound: whether a client receives the messages of a push consumer.
    paused: whether the consumer is paused.
    pause_remaining: the rest of the pause, in nanoseconds.
    ts: when the server made this answer, nanoseconds since 1970.
    priority_groups: the pinned clients.
    """

    config: Annotated[ConsumerConfig | None, OMIT] = None


# -- answers ---------------------------------------------------------------------------------------


class StreamInfoResponse(wire.StreamInfoResponse, kw_only=True):
    """The answer of STREAM.INFO, STREAM.CREATE and STREAM.UPDATE."""

    info: Annotated[StreamInfo | None, FLATTEN] = None


class StreamListResponse(wire.StreamListResponse, kw_only=True):
    """The answer of STREAM.LIST."""

    streams: list[StreamInfo] | None = None  # type: ignore[assignment]  # narrower


class ConsumerInfoResponse(wire.ConsumerInfoResponse, kw_only=True):
    """The answer of CONSUMER.INFO and CONSUMER.CREATE."""

    info: Annotated[ConsumerInfo | None, FLATTEN] = None


class ConsumerListResponse(wire.ConsumerListResponse, kw_only=True):
    """The answer of CONSUMER.LIST."""

    consumers: list[ConsumerInfo] | None = field(  # type: ignore[assignment]  # narrower
        default_factory=list
    )


class StoredMessage(NamedTuple):
    """A message that a stream holds.

    Example::

        stored = await js.get_message("ORDERS", 1)
        print(stored.subject, stored.seq, stored.data, stored.timestamp_ns)
    """

    subject: str
    seq: int
    data: bytes
    headers: Headers
    timestamp_ns: int
    """When it was stored, nanoseconds since 1970 UTC."""


class ConsumerPause(NamedTuple):
    """The state of a consumer after ``pause_consumer`` and ``resume_consumer``.

    Example::

        pause = js.pause_consumer("ORDERS", "packing", datetime.now(UTC) + timedelta(hours=1))
        print(pause.paused, pause.pause_remaining_ns)
        js.resume_consumer("ORDERS", "packing")
    """

    paused: bool
    pause_until_ns: int
    """Nanoseconds since 1970 UTC; 0 when it is not paused."""
    pause_remaining_ns: int


@dataclasses.dataclass
class Listing(Generic[Item]):
    """The result of a list call.

    Example::

        listing = await js.stream_listing()
        print(len(listing.found), "streams;", listing.unavailable)

    A server also names streams (and consumers) that it can't describe: they are on its disk and can't be
    opened, or no server that holds them answers.
    """

    found: list[Item] = dataclasses.field(default_factory=list)
    unavailable: dict[str, str] = dataclasses.field(default_factory=dict)
    """Reasons by name, in order of names; "" when the server gave no reason."""

    def add(
        self, page: list[Item] | None, missing: list[str], offline: dict[str, str], total: int
    ) -> bool:
        """Add one page of answers; returns whether it was the last one."""
        self.found += page or []
        for name in missing:
            self.unavailable.setdefault(name, "")
        self.unavailable.update(offline)
        self.unavailable = dict(sorted(self.unavailable.items()))
        return not page or len(self.found) + len(self.unavailable) >= total


def bucket_summary(
    bucket: str,
    *held: str,
    size: int,
    ttl_ns: int,
    max_bytes: int,
    storage: str,
    replicas: int,
    marks: tuple[str, ...] = (),
) -> str:
    """``held``: what it holds; ``marks``: what else is to be told. Limits that it has not are left out."""
    parts = [*held, f"{size} bytes"]
    if max_bytes > 0:
        parts[-1] += f" of {max_bytes}"
    if ttl_ns:
        parts.append(f"ttl {format_duration(ttl_ns)}")
    parts.append(storage)
    if replicas > 1:
        parts.append(f"{replicas} replicas")
    return f"{bucket}: {', '.join((*parts, *marks))}"
