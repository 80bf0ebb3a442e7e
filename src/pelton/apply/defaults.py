"""The configuration that a server makes of a request: defaults filled in, so that two can be compared.

The rules are those of nats-server 2.14, which our engine has as well; tests compare with both. A default that
depends on a server's own limits is not known here.
"""

from __future__ import annotations

from msgspec.structs import replace

from pelton.api import ConsumerConfig, Placement, StreamConfig
from pelton.api.streams import SERVERS_OWN

SECOND_NS = 1_000_000_000
_WINDOW_NS = 120 * SECOND_NS
_ACK_WAIT_NS = 30 * SECOND_NS
_PINNED_NS = 120 * SECOND_NS
_EPHEMERAL_NS = 5 * SECOND_NS
_ACK_PENDING = 1000
_WAITING = 512
_UNLIMITED = ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers")


def users_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """Metadata without what servers add."""
    return {key: text for key, text in metadata.items() if not key.startswith(SERVERS_OWN)}


def settled_stream(config: StreamConfig) -> StreamConfig:
    """The configuration of a stream as a server would show it, without the server's own metadata."""
    config = replace(config, metadata=users_metadata(config.metadata))
    for name in _UNLIMITED:
        if getattr(config, name) == 0 or getattr(config, name) < -1:
            setattr(config, name, -1)
    config.num_replicas = config.num_replicas or 1
    copies = config.mirror is not None or bool(config.sources)
    if config.duplicate_window == 0 and not copies:
        age = config.max_age
        config.duplicate_window = min(age, _WINDOW_NS) if age > 0 else _WINDOW_NS
    if not config.subjects and not copies:
        config.subjects = [config.name]
    if config.subject_delete_marker_ttl:
        config.allow_msg_ttl = True
    if (
        config.subject_delete_marker_ttl or config.allow_msg_schedules
    ) and not config.allow_rollup_hdrs:
        config.allow_rollup_hdrs, config.deny_purge = True, False
    if config.persist_mode != "async":
        config.persist_mode = None
    if config.placement == Placement():
        config.placement = None
    _settle_republish(config)
    if config.sealed:
        config.max_age, config.discard = 0, "new"
        config.deny_delete = config.deny_purge = True
        config.allow_rollup_hdrs = False
    return config


def _settle_republish(config: StreamConfig) -> None:
    republish, transform = config.republish, config.subject_transform
    if republish is None:
        return
    republish = replace(republish, src=republish.src or ">", dest=republish.dest)
    if (
        republish.src == republish.dest == ">"
        and transform is not None
        and config.subjects == [transform.src]
    ):
        republish = replace(republish, src=transform.dest, dest=transform.dest)
    config.republish = replace(republish, dest=republish.dest or ">")


def settled_consumer(config: ConsumerConfig, stream: StreamConfig | None) -> ConsumerConfig:
    """The configuration of a consumer as a server would show it; ``stream`` is that of its stream."""
    config = replace(config, metadata=users_metadata(config.metadata))
    config.name = config.name or config.durable_name
    if config.max_deliver == 0 or config.max_deliver < -1:
        config.max_deliver = -1
    config.max_ack_pending = max(config.max_ack_pending, -1)
    if not config.deliver_subject and config.max_waiting == 0:
        config.max_waiting = _WAITING
    if config.ack_wait == 0 and config.ack_policy in ("explicit", "all"):
        config.ack_wait = _ACK_WAIT_NS
    if config.backoff:
        config.ack_wait = config.backoff[0]
    if stream is not None:
        limits = stream.consumer_limits
        config.max_ack_pending = config.max_ack_pending or max(limits.max_ack_pending, 0)
        config.inactive_threshold = config.inactive_threshold or max(limits.inactive_threshold, 0)
    if config.max_ack_pending == 0 and config.ack_policy != "none":
        config.max_ack_pending = _ACK_PENDING
    if config.priority_policy == "none":
        config.priority_policy = None
    if config.priority_policy == "pinned_client" and config.priority_timeout == 0:
        config.priority_timeout = _PINNED_NS
    if config.ack_policy == "flow_control":
        config.flow_control, config.idle_heartbeat = True, SECOND_NS
    if not config.durable_name and config.inactive_threshold == 0:
        config.inactive_threshold = _EPHEMERAL_NS
    return config
