"""Random configurations that a server takes, and pairs of them."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from pelton.api import (
    ConsumerConfig,
    Placement,
    Republish,
    StreamConfig,
    StreamConsumerLimits,
    StreamSource,
    SubjectTransform,
)

SECOND = 1_000_000_000
TEXTS = st.one_of(
    st.sampled_from(["", "yes", "no", "1.5", "null", "a: b", "${x}", "%{if}", "#", "'", '"', "~"]),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12),
)
METADATA = st.dictionaries(
    st.text("abcXYZ.-_ é", min_size=1, max_size=6).filter(lambda key: key[0] != "_"),
    TEXTS,
    max_size=3,
)
LIMITS = st.sampled_from([0, -1, 1, 1000, 65536])
SPANS = st.sampled_from([0, SECOND, 90 * SECOND, 3600 * SECOND, 86_400 * SECOND])


@st.composite
def streams(draw: st.DrawFn, name: str = "S") -> StreamConfig:
    """A stream that a single server takes."""
    config = StreamConfig(
        name=name,
        description=draw(TEXTS),
        subjects=draw(st.sampled_from([[f"{name}.>"], [f"{name}.b", f"{name}.a.*"], [name]])),
        retention=draw(st.sampled_from(["limits", "interest", "workqueue"])),
        max_consumers=draw(LIMITS),
        max_msgs=draw(LIMITS),
        max_bytes=draw(LIMITS),
        max_age=draw(SPANS),
        max_msgs_per_subject=draw(LIMITS),
        max_msg_size=draw(LIMITS),
        discard=draw(st.sampled_from(["old", "new"])),
        storage=draw(st.sampled_from(["file", "memory"])),
        no_ack=draw(st.booleans()),
        compression=draw(st.sampled_from(["none", "s2"])),
        first_seq=draw(st.sampled_from([0, 7])),
        allow_direct=draw(st.booleans()),
        deny_delete=draw(st.booleans()),
        deny_purge=draw(st.booleans()),
        allow_rollup_hdrs=draw(st.booleans()),
        allow_msg_ttl=draw(st.booleans()),
        allow_atomic=draw(st.booleans()),
        metadata=draw(METADATA),
    )
    if draw(st.booleans()):
        config.duplicate_window = min(SECOND * 30, config.max_age or SECOND * 30)
    if config.deny_purge:
        config.allow_rollup_hdrs = False
    if draw(st.booleans()):
        config.consumer_limits = StreamConsumerLimits(
            inactive_threshold=draw(SPANS), max_ack_pending=draw(st.sampled_from([0, 50]))
        )
    if draw(st.booleans()):
        config.republish = Republish(
            src=draw(st.sampled_from(["", f"{name}.>"])),
            dest="out.>",
            headers_only=draw(st.booleans()),
        )
        if config.republish.src == "":
            config.republish.dest = "out.>"
    if draw(st.booleans()):
        config.subject_transform = SubjectTransform(src=f"{name}.>", dest=f"{name}.x.>")
    _features(draw, config)
    return config


def _features(draw: st.DrawFn, config: StreamConfig) -> None:
    if config.max_msgs_per_subject > 0 and config.discard == "new":
        config.discard_new_per_subject = draw(st.booleans())
    if config.retention == "limits" and config.discard == "old" and draw(st.booleans()):
        config.allow_msg_counter = not config.allow_msg_ttl
    if not config.allow_msg_counter and config.discard == "old" and draw(st.booleans()):
        config.allow_msg_schedules = True
    if not config.allow_msg_counter and draw(st.booleans()):
        config.subject_delete_marker_ttl = draw(st.sampled_from([SECOND, 60 * SECOND]))
    if config.storage == "file" and not config.allow_atomic and draw(st.booleans()):
        config.persist_mode = "async"
    follows = config.retention == "limits" and not config.allow_msg_schedules
    if follows and draw(st.integers(0, 3)) == 0:
        config.sources = [
            StreamSource(
                name="ORIGIN",
                filter_subject=draw(st.sampled_from(["", "o.a"])),
                opt_start_seq=draw(st.sampled_from([0, 5])),
            )
        ]
    if draw(st.integers(0, 3)) == 0:
        config.placement = Placement(tags=[])


@st.composite
def consumers(draw: st.DrawFn, stream: StreamConfig, name: str = "C") -> ConsumerConfig:
    """A durable consumer of the stream."""
    limits = stream.consumer_limits
    push = draw(st.booleans()) and stream.retention != "workqueue"
    ack = draw(st.sampled_from(["explicit", "all", "none"]))
    if stream.retention == "workqueue" or (push and limits.max_ack_pending):
        ack = "explicit"
    config = ConsumerConfig(
        durable_name=name,
        name=name,
        description=draw(TEXTS),
        deliver_policy="all"
        if stream.retention == "workqueue"
        else draw(st.sampled_from(["all", "last", "new", "by_start_sequence", "by_start_time"])),
        ack_policy=ack,
        max_deliver=draw(st.sampled_from([0, -1, 5])),
        replay_policy=draw(st.sampled_from(["instant", "original"])),
        sample_freq=draw(st.sampled_from(["", "30%"])),
        headers_only=draw(st.booleans()),
        mem_storage=draw(st.booleans()),
        metadata=draw(METADATA),
    )
    if config.deliver_policy == "by_start_sequence":
        config.opt_start_seq = 12
    if config.deliver_policy == "by_start_time":
        config.opt_start_time = 1_700_000_000 * SECOND + 5
    if ack != "none":
        config.ack_wait = draw(SPANS)
        config.max_ack_pending = draw(st.sampled_from([0, 20]))
        if draw(st.booleans()):
            config.backoff = [SECOND, 5 * SECOND]
    if config.backoff and config.max_deliver == 5:
        config.ack_wait = SECOND
    if limits.inactive_threshold == 0:
        config.inactive_threshold = draw(SPANS)
    filters = st.sampled_from(
        [[], [f"{stream.name}.a.b"], [f"{stream.name}.a.b", f"{stream.name}.b"]]
    )
    chosen = draw(filters)
    if len(chosen) == 1:
        config.filter_subject = chosen[0]
    else:
        config.filter_subjects = chosen
    _delivery(draw, config, push)
    return config


def _delivery(draw: st.DrawFn, config: ConsumerConfig, push: bool) -> None:
    if push:
        config.deliver_subject = "deliver.here"
        config.deliver_group = draw(st.sampled_from(["", "group"]))
        config.rate_limit_bps = draw(st.sampled_from([0, 8000]))
        config.idle_heartbeat = draw(st.sampled_from([0, SECOND]))
        config.flow_control = config.idle_heartbeat > 0 and not config.deliver_group
        if config.deliver_group:
            config.idle_heartbeat = 0
        return
    config.max_waiting = draw(st.sampled_from([0, 10]))
    config.max_batch = draw(st.sampled_from([0, 100]))
    config.max_expires = draw(SPANS)
    config.max_bytes = draw(st.sampled_from([0, 5000]))
    policy = draw(st.sampled_from([None, "overflow", "pinned_client", "prioritized"]))
    if policy is not None and config.ack_policy == "explicit":
        config.priority_policy, config.priority_groups = policy, ["main"]
        if policy == "pinned_client":
            config.priority_timeout = draw(st.sampled_from([0, 30 * SECOND]))


def alike(one: StreamConfig, other: StreamConfig) -> StreamConfig:
    """The second stream with what an update can never change as in the first."""
    fixed = ("storage", "allow_msg_counter", "persist_mode", "first_seq")
    return replace(other, **{name: getattr(one, name) for name in fixed})
