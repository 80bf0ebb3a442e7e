"""Consumers: configuration and info.

Field order is the order on the wire, and wire names are the attribute names. Types only, like
`api/streams`; the defaults here are the zero values of the wire, not the defaults of a consumer.
"""

from typing import Annotated

from msgspec import Struct, field

from pelton.api.fields import (
    OMIT,
    AckPolicy,
    DeliverPolicy,
    Duration,
    Int,
    PriorityPolicy,
    ReplayPolicy,
    Time,
    Uint64,
)
from pelton.api.streams import ClusterInfo


class ConsumerConfig(Struct, kw_only=True):
    """The configuration of a consumer."""

    durable_name: Annotated[str, OMIT] = ""
    name: Annotated[str, OMIT] = ""
    description: Annotated[str, OMIT] = ""
    deliver_policy: DeliverPolicy = "all"
    opt_start_seq: Annotated[Uint64, OMIT] = 0
    opt_start_time: Annotated[Time | None, OMIT] = None
    ack_policy: AckPolicy = "none"
    ack_wait: Annotated[Duration, OMIT] = 0
    max_deliver: Annotated[Int, OMIT] = 0
    backoff: Annotated[list[Duration], OMIT] = field(default_factory=list)
    filter_subject: Annotated[str, OMIT] = ""
    filter_subjects: Annotated[list[str], OMIT] = field(default_factory=list)
    replay_policy: ReplayPolicy = "instant"
    rate_limit_bps: Annotated[Uint64, OMIT] = 0
    sample_freq: Annotated[str, OMIT] = ""
    max_waiting: Annotated[Int, OMIT] = 0
    max_ack_pending: Annotated[Int, OMIT] = 0
    flow_control: Annotated[bool, OMIT] = False
    headers_only: Annotated[bool, OMIT] = False
    max_batch: Annotated[Int, OMIT] = 0
    max_expires: Annotated[Duration, OMIT] = 0
    max_bytes: Annotated[Int, OMIT] = 0
    deliver_subject: Annotated[str, OMIT] = ""
    deliver_group: Annotated[str, OMIT] = ""
    idle_heartbeat: Annotated[Duration, OMIT] = 0
    inactive_threshold: Annotated[Duration, OMIT] = 0
    num_replicas: Int = 0
    mem_storage: Annotated[bool, OMIT] = False
    direct: Annotated[bool, OMIT] = False
    sourcing: Annotated[bool, OMIT] = False
    metadata: Annotated[dict[str, str], OMIT] = field(default_factory=dict)
    pause_until: Annotated[Time | None, OMIT] = None
    priority_groups: Annotated[list[str], OMIT] = field(default_factory=list)
    priority_policy: Annotated[PriorityPolicy | None, OMIT] = None
    priority_timeout: Annotated[Duration, OMIT] = 0


class SequenceInfo(Struct, kw_only=True):
    """A position in a consumer: the message's number in the consumer and in the stream."""

    consumer_seq: Uint64 = 0
    stream_seq: Uint64 = 0
    last_active: Annotated[Time | None, OMIT] = None


class PriorityGroupState(Struct, kw_only=True):
    """The pinned client of a priority group."""

    group: str = ""
    pinned_client_id: Annotated[str, OMIT] = ""
    pinned_ts: Time = 0


class ConsumerInfo(Struct, kw_only=True):
    """A consumer's configuration and state."""

    stream_name: str = ""
    name: str = ""
    created: Time = 0
    config: Annotated[ConsumerConfig | None, OMIT] = None
    delivered: SequenceInfo = field(default_factory=SequenceInfo)
    ack_floor: SequenceInfo = field(default_factory=SequenceInfo)
    num_ack_pending: Int = 0
    num_redelivered: Int = 0
    num_waiting: Int = 0
    num_pending: Uint64 = 0
    cluster: Annotated[ClusterInfo | None, OMIT] = None
    push_bound: Annotated[bool, OMIT] = False
    paused: Annotated[bool, OMIT] = False
    pause_remaining: Annotated[Duration, OMIT] = 0
    ts: Time = 0
    priority_groups: Annotated[list[PriorityGroupState], OMIT] = field(default_factory=list)
