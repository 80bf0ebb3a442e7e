"""Streams: configuration, state, info.

Field order is the order on the wire, and wire names are the attribute names. Types only: the engine
decides which values are allowed and how defaults apply. All fields of API level 4 are here, also fields of
features that a server may not have. The defaults here are the zero values of the wire, not the
defaults of a stream.
"""

from typing import Annotated, ClassVar

from msgspec import Struct, field

from pelton.api.errors import ErrorBody
from pelton.api.fields import (
    OMIT,
    Compression,
    Discard,
    Duration,
    Int,
    Int32,
    Int64,
    PersistMode,
    Retention,
    Storage,
    Time,
    Uint64,
)

SERVERS_OWN = "_nats."
"""The prefix of the metadata that servers add to streams and consumers."""
REQUIRED_LEVEL_KEY = f"{SERVERS_OWN}req.level"
"""The metadata with the API level that a server must have for the configuration."""


class Placement(Struct, kw_only=True):
    """Where a stream should be placed in a cluster; a single server ignores it.

    Example::

        Placement(cluster="eu", tags=["ssd"])
    """

    cluster: Annotated[str, OMIT] = ""
    tags: Annotated[list[str], OMIT] = field(default_factory=list)
    preferred: Annotated[str, OMIT] = ""


class SubjectTransform(Struct, kw_only=True):
    """Subjects that match `src` become `dest`.

    Example::

        SubjectTransform(src="orders.*", dest="{{Partition(4,1)}}.orders.{{Wildcard(1)}}")
    """

    src: str = ""
    dest: str = ""


class ExternalStream(Struct, kw_only=True):
    """How to reach a stream of another account or domain.

    Example::

        StreamSource(name="ORDERS", external=ExternalStream(api="$JS.hub.API"))
    """

    api: str = ""
    deliver: str = ""


class StreamSourceConsumer(Struct, kw_only=True):
    """An existing durable consumer that a mirror or source uses.

    Example::

        StreamSource(name="ORDERS", consumer=StreamSourceConsumer(name="copy", deliver_subject="copies"))
    """

    name: Annotated[str, OMIT] = ""
    deliver_subject: Annotated[str, OMIT] = ""


class StreamSource(Struct, kw_only=True):
    """The origin of a mirror, or one origin of a stream with sources."""

    by_pointer: ClassVar[bool] = True  # changes the name of a list of them in errors
    name: str = ""
    opt_start_seq: Annotated[Uint64, OMIT] = 0
    opt_start_time: Annotated[Time | None, OMIT] = None
    filter_subject: Annotated[str, OMIT] = ""
    subject_transforms: Annotated[list[SubjectTransform], OMIT] = field(default_factory=list)
    external: Annotated[ExternalStream | None, OMIT] = None
    consumer: Annotated[StreamSourceConsumer | None, OMIT] = None


class Republish(Struct, kw_only=True):
    """Stored messages are published again under another subject.

    Example::

        Republish(src="orders.>", dest="stored.orders.>", headers_only=True)
    """

    src: Annotated[str, OMIT] = ""
    dest: str = ""
    headers_only: Annotated[bool, OMIT] = False


class StreamConsumerLimits(Struct, kw_only=True):
    """Defaults and limits for the consumers of a stream."""

    inactive_threshold: Annotated[Duration, OMIT] = 0
    max_ack_pending: Annotated[Int, OMIT] = 0


class StreamConfig(Struct, kw_only=True):
    """The configuration of a stream."""

    name: str = ""
    description: Annotated[str, OMIT] = ""
    subjects: Annotated[list[str], OMIT] = field(default_factory=list)
    retention: Retention = "limits"
    max_consumers: Int = 0
    max_msgs: Int64 = 0
    max_bytes: Int64 = 0
    max_age: Duration = 0
    max_msgs_per_subject: Int64 = 0
    max_msg_size: Annotated[Int32, OMIT] = 0
    discard: Discard = "old"
    storage: Storage = "file"
    num_replicas: Int = 0
    no_ack: Annotated[bool, OMIT] = False
    duplicate_window: Annotated[Duration, OMIT] = 0
    placement: Annotated[Placement | None, OMIT] = None
    mirror: Annotated[StreamSource | None, OMIT] = None
    sources: Annotated[list[StreamSource], OMIT] = field(default_factory=list)
    compression: Compression = "none"
    first_seq: Annotated[Uint64, OMIT] = 0
    subject_transform: Annotated[SubjectTransform | None, OMIT] = None
    republish: Annotated[Republish | None, OMIT] = None
    allow_direct: bool = False
    mirror_direct: bool = False
    discard_new_per_subject: Annotated[bool, OMIT] = False
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    consumer_limits: StreamConsumerLimits = field(default_factory=StreamConsumerLimits)
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl: Annotated[Duration, OMIT] = 0
    allow_msg_counter: Annotated[bool, OMIT] = False
    allow_atomic: Annotated[bool, OMIT] = False
    allow_msg_schedules: Annotated[bool, OMIT] = False
    persist_mode: Annotated[PersistMode | None, OMIT] = None
    allow_batched: Annotated[bool, OMIT] = False
    metadata: Annotated[dict[str, str], OMIT] = field(default_factory=dict)


class LostStreamData(Struct, kw_only=True):
    """Messages that damage on the disk has destroyed."""

    msgs: list[Uint64] | None = None
    bytes: Uint64 = 0


class StreamState(Struct, kw_only=True):
    """The content of a stream.

    Example::

        state = js.stream_info("ORDERS").state
        print(state.messages, state.first_seq, state.last_seq)
    """

    messages: Uint64 = 0
    bytes: Uint64 = 0
    first_seq: Uint64 = 0
    first_ts: Time = 0
    last_seq: Uint64 = 0
    last_ts: Time = 0
    num_subjects: Annotated[Int, OMIT] = 0
    subjects: Annotated[dict[str, Uint64], OMIT] = field(default_factory=dict)
    num_deleted: Annotated[Int, OMIT] = 0
    deleted: Annotated[list[Uint64], OMIT] = field(default_factory=list)
    lost: Annotated[LostStreamData | None, OMIT] = None
    consumer_count: Int = 0


class PeerInfo(Struct, kw_only=True):
    """One server of a replica group."""

    name: str = ""
    current: bool = False
    offline: Annotated[bool, OMIT] = False
    active: Duration = 0
    lag: Annotated[Uint64, OMIT] = 0
    peer: str = ""


class ClusterInfo(Struct, kw_only=True):
    """The leader of an asset."""

    name: Annotated[str, OMIT] = ""
    raft_group: Annotated[str, OMIT] = ""
    leader: Annotated[str, OMIT] = ""
    leader_since: Annotated[Time | None, OMIT] = None
    system_account: Annotated[bool, OMIT] = False
    traffic_account: Annotated[str, OMIT] = ""
    replicas: Annotated[list[PeerInfo], OMIT] = field(default_factory=list)


class StreamSourceInfo(Struct, kw_only=True):
    """The progress of a mirror or source; `seq`, of a source: the sequence in its origin of the
    newest copy.
    """

    name: str = ""
    external: Annotated[ExternalStream | None, OMIT] = None
    lag: Uint64 = 0
    seq: Annotated[Uint64, OMIT] = 0
    active: Duration = 0
    error: Annotated[ErrorBody | None, OMIT] = None
    filter_subject: Annotated[str, OMIT] = ""
    subject_transforms: Annotated[list[SubjectTransform], OMIT] = field(default_factory=list)


class StreamAlternate(Struct, kw_only=True):
    """Another stream that holds the same messages."""

    name: str = ""
    domain: Annotated[str, OMIT] = ""
    cluster: str = ""


class StreamInfo(Struct, kw_only=True):
    """A stream's configuration and state."""

    config: StreamConfig = field(default_factory=StreamConfig)
    created: Time = 0
    state: StreamState = field(default_factory=StreamState)
    domain: Annotated[str, OMIT] = ""
    cluster: Annotated[ClusterInfo | None, OMIT] = None
    mirror: Annotated[StreamSourceInfo | None, OMIT] = None
    sources: Annotated[list[StreamSourceInfo], OMIT] = field(default_factory=list)
    alternates: Annotated[list[StreamAlternate], OMIT] = field(default_factory=list)
    ts: Time = 0
