"""Consumer configuration: defaults, validation, what an update may change, and what this server can
not do.

Pure functions over `ConsumerConfig` and the configuration of its stream. The order of the checks is
the protocol's. Names against API subjects, existing consumers and counts are the caller's.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from penstock.api import errors_generated as errors
from penstock.api.consumers import ConsumerConfig
from penstock.api.streams import StreamConfig
from penstock.api.subjects import valid_name
from penstock.core.subjects import matches, subset
from penstock.engine.settings import (
    DEFAULT_ACK_WAIT_NS,
    DEFAULT_INACTIVE_THRESHOLD_NS,
    DEFAULT_MAX_ACK_PENDING,
    DEFAULT_MAX_WAITING,
    MAX_DESCRIPTION_LENGTH,
    MAX_METADATA_BYTES,
    MAX_NAME_LENGTH,
    MILLISECOND,
    MIN_WINDOW_NS,
    NO_CAPS,
    SECOND,
    Caps,
)
from penstock.engine.stream_config import LEVEL_KEY, REQUIRED_LEVEL_KEY, VERSION_KEY, metadata_size
from penstock.engine.subject_rules import is_literal, is_valid

_SERVER_KEYS = (REQUIRED_LEVEL_KEY, VERSION_KEY, LEVEL_KEY)
_GROUP_NAME = re.compile(r"[a-zA-Z0-9/_=-]{1,16}", re.ASCII)
_NOT_NEGATIVE = (
    "max_waiting",
    "max_batch",
    "max_expires",
    "max_bytes",
    "idle_heartbeat",
    "inactive_threshold",
    "priority_timeout",
)
_PINNED_TIMEOUT_NS = 120 * SECOND
_POLICY_WORDS = {
    "all": "deliver all",
    "last": "deliver last",
    "new": "deliver new",
    "last_per_subject": "deliver last per subject",
}


@dataclass(frozen=True)
class Gap:
    """What the data path does not carry out: refused, so that nobody relies on it."""

    name: str
    asked: Callable[[ConsumerConfig], object]  # truthy: the configuration asks for it


UNSUPPORTED = (
    Gap("ack policy flow_control", lambda config: config.ack_policy == "flow_control"),
    Gap("an internal consumer (direct)", lambda config: config.direct),
    Gap("an internal consumer (sourcing)", lambda config: config.sourcing),
    Gap("pause_until", lambda config: config.pause_until is not None),
    Gap("a priority policy", lambda config: config.priority_policy or config.priority_groups),
    Gap("ack sampling (sample_freq)", lambda config: config.sample_freq.strip("0%")),
)

Invalid = errors.StreamInvalidConfigError


def with_defaults(
    config: ConsumerConfig,
    stream: StreamConfig,
    *,
    pedantic: bool = False,
    present: ConsumerConfig | None = None,
    caps: Caps = NO_CAPS,
) -> ConsumerConfig:
    """The same configuration with the defaults filled in; ApiError where pedantic callers want
    none.
    """
    config = msgspec.structs.replace(config)
    for name in _NOT_NEGATIVE:
        if getattr(config, name) < 0:
            if pedantic:
                raise errors.PedanticError(f"{name} must not be negative")
            setattr(config, name, 0)
    if config.max_deliver == 0 or config.max_deliver < -1:
        config.max_deliver = -1
    if config.ack_policy == "flow_control" and config.deliver_subject:
        config.flow_control = True
        config.idle_heartbeat = config.idle_heartbeat or SECOND
    if config.backoff:
        if pedantic and config.ack_wait != config.backoff[0]:
            raise errors.PedanticError("first backoff value has to equal batch AckWait")
        if config.backoff[0] >= 0:
            config.ack_wait = config.backoff[0]
    elif config.ack_wait == 0 and config.ack_policy in ("explicit", "all"):
        config.ack_wait = DEFAULT_ACK_WAIT_NS
    if not config.deliver_subject and config.max_waiting == 0:
        config.max_waiting = DEFAULT_MAX_WAITING
    _default_max_ack_pending(config, stream, caps)
    if not config.deliver_subject and config.max_batch == 0 and caps.max_request_batch > 0:
        if pedantic:
            what = "max_request_batch must be set if it's JetStream limits are set"
            raise errors.PedanticError(what)
        config.max_batch = caps.max_request_batch
    if config.inactive_threshold == 0:
        config.inactive_threshold = stream.consumer_limits.inactive_threshold
        if config.inactive_threshold <= 0:
            ephemeral = not (present or config).durable_name
            config.inactive_threshold = DEFAULT_INACTIVE_THRESHOLD_NS if ephemeral else 0
    if config.priority_policy == "none":
        config.priority_policy = None
    if config.priority_policy == "pinned_client" and config.priority_timeout == 0:
        config.priority_timeout = _PINNED_TIMEOUT_NS
    config.metadata = {k: v for k, v in config.metadata.items() if k not in _SERVER_KEYS}
    config.metadata[REQUIRED_LEVEL_KEY] = str(required_level(config))
    return config


def check(config: ConsumerConfig, stream: StreamConfig, caps: Caps = NO_CAPS) -> None:
    """ApiError for what is not allowed; the configuration has its defaults."""
    _check_texts(config)
    _check_replicas(config, stream)
    _check_deliver_policy(config)
    _check_acks(config)
    _check_filters(config)
    if config.sample_freq:
        _check_sampling(config.sample_freq)
    if config.deliver_subject:
        _check_push(config, stream)
    else:
        _check_pull(config)
        if 0 < caps.max_request_batch < config.max_batch:
            raise errors.ConsumerMaxRequestBatchExceededError(caps.max_request_batch)
    for most in caps.max_ack_pending:
        if config.max_ack_pending > most:
            raise errors.ConsumerMaxPendingAckExcessError(most)
    _check_limits(config, stream)
    _check_priority(config)
    if config.direct and config.durable_name:
        raise errors.ConsumerDirectRequiresEphemeralError()


def check_replicas_supported(config: ConsumerConfig) -> None:
    """10074: a single server has no replicas; asked before the stream is looked up."""
    if config.num_replicas > 1:
        raise errors.StreamReplicasNotSupportedError()


def check_supported(config: ConsumerConfig) -> None:
    """10052 for a configuration that this server would accept but not carry out."""
    for gap in UNSUPPORTED:
        if gap.asked(config):
            raise Invalid(f"{gap.name} is not supported by this server version")


def check_update(old: ConsumerConfig, new: ConsumerConfig, *, bound: bool) -> None:
    """ApiError for what can not change. `bound`: somebody listens on the old deliver subject."""
    refused = errors.ConsumerCreateError
    for name, what in (
        ("deliver_policy", "deliver policy"),
        ("opt_start_seq", "start sequence"),
        ("opt_start_time", "start time"),
        ("ack_policy", "ack policy"),
        ("replay_policy", "replay policy"),
        ("idle_heartbeat", "heart beats"),
        ("flow_control", "flow control"),
    ):
        if getattr(new, name) != getattr(old, name):
            raise refused(f"{what} can not be updated")
    if new.deliver_subject != old.deliver_subject:
        if not old.deliver_subject:
            raise refused("can not update pull consumer to push based")
        if not new.deliver_subject:
            raise refused("can not update push consumer to pull based")
        if bound:
            raise errors.ConsumerNameExistError()
    if new.max_waiting != old.max_waiting:
        raise refused("max waiting can not be updated")
    if new.mem_storage != old.mem_storage:
        raise refused("storage type can not be updated")


def same(one: ConsumerConfig, other: ConsumerConfig) -> bool:
    """Whether two configurations ask for the same; what a server adds to the metadata does not
    count.
    """
    return _comparable(one) == _comparable(other)


def filters_of(config: ConsumerConfig) -> tuple[str, ...]:
    """The subjects to deliver; empty: all."""
    if config.filter_subject:
        return (config.filter_subject,)
    return tuple(config.filter_subjects)


def required_level(config: ConsumerConfig) -> int:
    """The lowest API level whose servers can run this consumer."""
    if config.ack_policy == "flow_control":
        return 4
    return 1 if config.pause_until is not None or config.priority_policy else 0


def _comparable(config: ConsumerConfig) -> ConsumerConfig:
    metadata = {k: v for k, v in config.metadata.items() if k not in _SERVER_KEYS}
    return msgspec.structs.replace(config, metadata=metadata)


def _default_max_ack_pending(config: ConsumerConfig, stream: StreamConfig, caps: Caps) -> None:
    if config.max_ack_pending < -1:
        config.max_ack_pending = -1
    if config.max_ack_pending != 0:
        return
    limit = stream.consumer_limits.max_ack_pending
    if limit > 0:
        config.max_ack_pending = limit
    elif config.ack_policy != "none":
        config.max_ack_pending = min((DEFAULT_MAX_ACK_PENDING, *caps.max_ack_pending))


def _check_texts(config: ConsumerConfig) -> None:
    for what, name in (("durable name", config.durable_name), ("name", config.name)):
        if name and not valid_name(name):
            raise Invalid(f"consumer {what} can not contain '.', '*', '>', '\\', '/'")
        if len(name.encode(errors="surrogateescape")) > MAX_NAME_LENGTH:
            raise errors.ConsumerNameTooLongError(MAX_NAME_LENGTH)
    if len(config.description.encode(errors="surrogateescape")) > MAX_DESCRIPTION_LENGTH:
        raise errors.ConsumerDescriptionTooLongError(MAX_DESCRIPTION_LENGTH)
    if metadata_size(config.metadata) > MAX_METADATA_BYTES:
        raise errors.ConsumerMetadataLengthError(f"{MAX_METADATA_BYTES // 1024}KB")


def _check_replicas(config: ConsumerConfig, stream: StreamConfig) -> None:
    if config.num_replicas < 0:
        raise errors.ReplicasCountCannotBeNegativeError()
    if config.num_replicas > stream.num_replicas:
        raise errors.ConsumerReplicasExceedsStreamError()


def _check_deliver_policy(config: ConsumerConfig) -> None:
    head = "consumer delivery policy is"
    policy, tail = config.deliver_policy, ""
    if policy in _POLICY_WORDS:
        head = f"{head} {_POLICY_WORDS[policy]}, but optional"
        if config.opt_start_seq:
            tail = "start sequence is also set"
        elif config.opt_start_time is not None:
            tail = "start time is also set"
        elif policy == "last_per_subject" and not filters_of(config):
            tail = "filter subject is not set"
    elif policy == "by_start_sequence":
        head = f"{head} deliver by start sequence, but optional"
        if not config.opt_start_seq:
            tail = "start sequence is not set"
        elif config.opt_start_time is not None:
            tail = "start time is also set"
    else:
        head = f"{head} deliver by start time, but optional"
        if config.opt_start_time is None:
            tail = "start time is not set"
        elif config.opt_start_seq:
            tail = "start start sequence is also set"  # the protocol says it twice
    if tail:
        raise errors.ConsumerInvalidPolicyError(f"{head} {tail}")


def _check_acks(config: ConsumerConfig) -> None:
    if config.ack_wait < 0:
        raise errors.ConsumerAckWaitNegativeError()
    if any(value < 0 for value in config.backoff):
        raise errors.ConsumerBackOffNegativeError()
    if config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        raise errors.ConsumerMaxDeliverBackoffError()
    if config.ack_policy == "flow_control":
        _check_flow_control_acks(config)


def _check_flow_control_acks(config: ConsumerConfig) -> None:
    if not config.deliver_subject:
        raise errors.ConsumerAckFCRequiresPushError()
    if not config.flow_control:
        raise errors.ConsumerAckFCRequiresFCError()
    if config.idle_heartbeat != SECOND:
        raise Invalid("flow control ack policy requires an idle heartbeat of 1s")
    if config.max_ack_pending <= 0:
        raise errors.ConsumerAckFCRequiresMaxAckPendingError()
    if config.ack_wait or config.backoff:
        raise errors.ConsumerAckFCRequiresNoAckWaitError()
    if config.max_deliver != -1:
        raise errors.ConsumerAckFCRequiresNoMaxDeliverError()


def _check_filters(config: ConsumerConfig) -> None:
    if config.filter_subject and config.filter_subjects:
        raise errors.ConsumerDuplicateFilterSubjectsError()
    if config.filter_subject and not is_valid(config.filter_subject):
        raise Invalid("invalid subject")
    for index, subject in enumerate(config.filter_subjects):
        if not subject:
            raise errors.ConsumerEmptyFilterError()
        if not is_valid(subject):
            raise Invalid("invalid subject")
        for earlier in config.filter_subjects[:index]:
            if subset(subject, earlier) or subset(earlier, subject):
                raise errors.ConsumerOverlappingSubjectFiltersError()


def _check_sampling(frequency: str) -> None:
    text = frequency.removesuffix("%")
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        what = f'strconv.Atoi: parsing "{text}": invalid syntax'
        raise errors.ConsumerInvalidSamplingError(what)
    if int(text) < 0:
        raise errors.ConsumerInvalidSamplingError("<nil>")


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    if not is_valid(config.deliver_subject):
        raise errors.ConsumerInvalidDeliverSubjectError()
    if not is_literal(config.deliver_subject):
        raise errors.ConsumerDeliverToWildcardsError()
    if any(matches(config.deliver_subject, subject) for subject in stream.subjects):
        raise errors.ConsumerDeliverCycleError()
    if config.max_waiting:
        raise errors.ConsumerPushMaxWaitingError()
    if config.max_ack_pending > 0 and config.ack_policy == "none":
        raise errors.ConsumerMaxPendingAckPolicyRequiredError()
    if 0 < config.idle_heartbeat < MIN_WINDOW_NS:
        raise errors.ConsumerSmallHeartbeatError()
    if config.flow_control and not config.idle_heartbeat:
        raise errors.ConsumerWithFlowControlNeedsHeartbeatsError()


def _check_pull(config: ConsumerConfig) -> None:
    if config.rate_limit_bps:
        raise errors.ConsumerPullWithRateLimitError()
    if config.idle_heartbeat:
        raise errors.ConsumerHBRequiresPushError()
    if config.flow_control:
        raise errors.ConsumerFCRequiresPushError()
    if config.direct:
        raise errors.ConsumerDirectRequiresPushError()
    if 0 < config.max_expires < MILLISECOND:
        raise errors.ConsumerMaxRequestExpiresTooSmallError()


def _check_limits(config: ConsumerConfig, stream: StreamConfig) -> None:
    limits = stream.consumer_limits
    if limits.inactive_threshold > 0 and config.inactive_threshold > limits.inactive_threshold:
        raise errors.ConsumerInactiveThresholdExcessError(
            f"{limits.inactive_threshold / SECOND:g}s"
        )
    cap = limits.max_ack_pending
    if 0 < cap < config.max_ack_pending:
        raise errors.ConsumerMaxPendingAckExcessError(cap)


def _check_priority(config: ConsumerConfig) -> None:
    if config.priority_policy is None:
        if config.priority_groups:
            raise errors.ConsumerPriorityGroupWithPolicyNoneError()
        if config.priority_timeout:
            raise errors.ConsumerPinnedTTLWithoutPriorityPolicyNoneError()
        return
    if config.deliver_subject:
        raise errors.ConsumerPushWithPriorityGroupError()
    if not config.priority_groups:
        raise errors.ConsumerPriorityPolicyWithoutGroupError()
    for group in config.priority_groups:
        if not group:
            raise errors.ConsumerEmptyGroupNameError()
        if not _GROUP_NAME.fullmatch(group):
            raise errors.ConsumerInvalidGroupNameError()
