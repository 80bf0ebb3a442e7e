"""The JSON messages of JetStream that the client uses, by the names the client uses for them.

The structs keep the wire's names and units (durations in ns). Fields that a newer server adds are ignored.
"""

from __future__ import annotations

from typing import Any

import msgspec


class StreamConfig(msgspec.Struct, kw_only=True, omit_defaults=True):
    name: str
    description: str = ""
    subjects: list[str] | None = None
    retention: str = "limits"
    max_consumers: int = 0
    max_msgs: int = 0
    max_bytes: int = 0
    max_age: int = 0
    max_msgs_per_subject: int = 0
    max_msg_size: int = 0
    discard: str = "old"
    storage: str = "file"
    num_replicas: int = 0
    no_ack: bool = False
    duplicate_window: int = 0
    placement: dict[str, Any] | None = None
    mirror: dict[str, Any] | None = None
    sources: list[dict[str, Any]] | None = None
    compression: str = "none"
    first_seq: int = 0
    subject_transform: dict[str, Any] | None = None
    republish: dict[str, Any] | None = None
    allow_direct: bool = False
    mirror_direct: bool = False
    discard_new_per_subject: bool = False
    sealed: bool = False
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    consumer_limits: dict[str, Any] | None = None
    allow_msg_ttl: bool = False
    subject_delete_marker_ttl: int = 0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    persist_mode: str = ""
    allow_batched: bool = False
    metadata: dict[str, str] | None = None


class StreamState(msgspec.Struct, kw_only=True):
    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    first_ts: str = ""
    last_seq: int = 0
    last_ts: str = ""
    num_subjects: int = 0
    subjects: dict[str, int] | None = None
    num_deleted: int = 0
    deleted: list[int] | None = None
    consumer_count: int = 0


class StreamInfo(msgspec.Struct, kw_only=True):
    config: StreamConfig
    created: str = ""
    state: StreamState = msgspec.field(default_factory=StreamState)
    did_create: bool = False
    ts: str = ""
    total: int = 0
    offset: int = 0
    limit: int = 0


class ConsumerConfig(msgspec.Struct, kw_only=True, omit_defaults=True):
    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: str = "all"
    opt_start_seq: int = 0
    opt_start_time: str | None = None
    ack_policy: str = msgspec.field(default="none")
    ack_wait: int = 0
    max_deliver: int = 0
    backoff: list[int] | None = None
    filter_subject: str = ""
    filter_subjects: list[str] | None = None
    replay_policy: str = "instant"
    rate_limit_bps: int = 0
    sample_freq: str = ""
    max_waiting: int = 0
    max_ack_pending: int = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: int = 0
    max_expires: int = 0
    max_bytes: int = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: int = 0
    inactive_threshold: int = 0
    num_replicas: int = 0
    mem_storage: bool = False
    metadata: dict[str, str] | None = None


class SequencePair(msgspec.Struct, kw_only=True):
    consumer_seq: int = 0
    stream_seq: int = 0
    last_active: str | None = None


class ConsumerInfo(msgspec.Struct, kw_only=True):
    stream_name: str
    name: str
    created: str = ""
    config: ConsumerConfig | None = None
    delivered: SequencePair = msgspec.field(default_factory=SequencePair)
    ack_floor: SequencePair = msgspec.field(default_factory=SequencePair)
    num_ack_pending: int = 0
    num_redelivered: int = 0
    num_waiting: int = 0
    num_pending: int = 0
    push_bound: bool = False


class AccountInfo(msgspec.Struct, kw_only=True):
    memory: int = 0
    storage: int = 0
    streams: int = 0
    consumers: int = 0
    limits: dict[str, Any] = msgspec.field(default_factory=dict)
    api: dict[str, Any] = msgspec.field(default_factory=dict)
    domain: str = ""


class PubAck(msgspec.Struct, kw_only=True):
    stream: str
    seq: int
    duplicate: bool = False
    domain: str = ""
    val: str = ""
