"""Consumer configuration: defaults, validation, what an update may change.

Pure functions over `ConsumerConfig` and the configuration of its stream. The order of the checks is
the protocol's. The caller checks names against API subjects, existing consumers and counts.
"""

import re

import msgspec

from pelton.api import errors_generated as errors
from pelton.api.consumers import ConsumerConfig
from pelton.api.streams import REQUIRED_LEVEL_KEY, StreamConfig
from pelton.api.subjects import valid_name
from pelton.api.times import ZERO_NS
from pelton.core.base.durations import format_duration
from pelton.core.protocol.subjects import matches
from pelton.engine.base.settings import (
    DEFAULT_ACK_WAIT_NS,
    DEFAULT_INACTIVE_THRESHOLD_NS,
    DEFAULT_MAX_ACK_PENDING,
    DEFAULT_MAX_WAITING,
    MAX_DESCRIPTION_LENGTH,
    MAX_ITEMS,
    MAX_METADATA_BYTES,
    MILLISECOND,
    MIN_WINDOW_NS,
    SECOND,
)
from pelton.engine.base.subject_checks import check_size, is_literal, is_valid, nested
from pelton.engine.config.stream_config import metadata_size, users_metadata

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
_INT64_DIGITS = 19
_PINNED_TIMEOUT_NS = 120 * SECOND
_POLICY_WORDS = {
    "all": "deliver all",
    "last": "deliver last",
    "new": "deliver new",
    "last_per_subject": "deliver last per subject",
}


class ConsumerCaps(msgspec.Struct, frozen=True):
    """The limits that a server and an account set for every consumer; 0: no limit."""

    server_max_ack_pending: int = 0
    account_max_ack_pending: int = 0
    max_batch: int = 0

    def max_ack_pending(self) -> tuple[int, ...]:
        """The limits of max_ack_pending that are set, in the order of the checks."""
        both = (self.server_max_ack_pending, self.account_max_ack_pending)
        return tuple(limit for limit in both if limit > 0)


NO_CAPS = ConsumerCaps()


Invalid = errors.StreamInvalidConfigError


def with_defaults(
    config: ConsumerConfig,
    stream: StreamConfig,
    *,
    pedantic: bool = False,
    caps: ConsumerCaps = NO_CAPS,
) -> ConsumerConfig:
    """Return the configuration with the defaults filled in. ApiError: a pedantic request relies on
    one.
    """
    _check_sizes(config)
    config = msgspec.structs.replace(config)
    if config.max_deliver == 0 or config.max_deliver < -1:
        if pedantic and config.max_deliver < -1:
            raise errors.PedanticError("max_deliver must be set to -1")
        config.max_deliver = -1
    if config.max_ack_pending < -1:
        if pedantic:
            raise errors.PedanticError("max_ack_pending must be set to -1")
        config.max_ack_pending = -1
    for name in _NOT_NEGATIVE:
        if getattr(config, name) < 0:
            if pedantic:
                raise errors.PedanticError(f"{name} must not be negative")
            setattr(config, name, 0)
    if not config.deliver_subject and config.max_waiting == 0:
        config.max_waiting = DEFAULT_MAX_WAITING
    if config.ack_wait == 0 and config.ack_policy in ("explicit", "all"):
        config.ack_wait = DEFAULT_ACK_WAIT_NS
    if config.backoff:
        if pedantic and config.ack_wait != config.backoff[0]:
            raise errors.PedanticError("first backoff value has to equal batch AckWait")
        config.ack_wait = config.backoff[0]
    _limit_defaults(config, stream, caps, pedantic)
    if config.priority_policy == "none":
        config.priority_policy = None
    if config.priority_policy == "pinned_client" and config.priority_timeout == 0:
        config.priority_timeout = _PINNED_TIMEOUT_NS
    if config.ack_policy == "flow_control" and not pedantic:
        config.flow_control = True
        config.idle_heartbeat = SECOND
    config.metadata = users_metadata(config.metadata)
    set_required_level(config)
    return config


def set_required_level(config: ConsumerConfig) -> None:
    """Write the API level that the consumer needs into its metadata."""
    config.metadata = {**config.metadata, REQUIRED_LEVEL_KEY: str(required_level(config))}


def settle_threshold(config: ConsumerConfig, *, durable: bool) -> None:
    """Give an ephemeral consumer an inactive threshold, which it always has.

    An update never makes an ephemeral consumer durable, or a durable one ephemeral.
    """
    if config.inactive_threshold <= 0 and not durable:
        config.inactive_threshold = DEFAULT_INACTIVE_THRESHOLD_NS


def sample_percent(config: ConsumerConfig) -> int:
    """Return the percentage of acks that are sampled for metrics."""
    return min(int(config.sample_freq.removesuffix("%").lstrip("+-0") or "0"), 100)


def check(config: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps = NO_CAPS) -> None:
    """Check a configuration that has its defaults. Raises ApiError."""
    _check_names(config)
    _check_replicas(config, stream)
    _check_acks(config)
    if len(config.description.encode(errors="surrogateescape")) > MAX_DESCRIPTION_LENGTH:
        raise errors.ConsumerDescriptionTooLongError(MAX_DESCRIPTION_LENGTH)
    if config.deliver_subject:
        _check_push(config, stream)
    else:
        _check_pull(config, stream, caps)
    _check_limits(config, stream, caps)
    if config.direct and not config.deliver_subject:
        raise errors.ConsumerDirectRequiresPushError()
    if config.direct and config.durable_name:
        raise errors.ConsumerDirectRequiresEphemeralError()
    _check_filters(config)
    _check_deliver_policy(config)
    if config.sample_freq:
        _check_sampling(config.sample_freq)
    if config.flow_control and not config.idle_heartbeat:
        raise errors.ConsumerWithFlowControlNeedsHeartbeatsError()
    if config.durable_name and config.name and config.durable_name != config.name:
        raise errors.ConsumerCreateDurableAndNameMismatchError()
    if metadata_size(config.metadata) > MAX_METADATA_BYTES:
        raise errors.ConsumerMetadataLengthError(f"{MAX_METADATA_BYTES // 1024}KB")
    _check_priority(config)


def check_replicas_supported(config: ConsumerConfig) -> None:
    """Raise 10074 for replicas, which a single server does not have. Asked before the stream is
    looked up.
    """
    if config.num_replicas > 1:
        raise errors.StreamReplicasNotSupportedError()


def check_update(old: ConsumerConfig, new: ConsumerConfig, *, bound: bool) -> None:
    """Raise ApiError for a change that is not allowed. `bound`: the old deliver subject has a
    subscriber.
    """
    refused = errors.ConsumerCreateError
    for name, what in (
        ("deliver_policy", "deliver policy"),
        ("mem_storage", "storage type"),
        ("direct", "direct"),
        ("sourcing", "sourcing"),
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


def same(one: ConsumerConfig, other: ConsumerConfig) -> bool:
    """Return whether two configurations are equal apart from the metadata that a server adds."""
    return _comparable(one) == _comparable(other)


def valid_group(name: str) -> bool:
    """Return whether a priority group may have this name."""
    return bool(_GROUP_NAME.fullmatch(name))


def filters_of(config: ConsumerConfig) -> tuple[str, ...]:
    """Return the subjects to deliver; empty: all."""
    if config.filter_subject:
        return (config.filter_subject,)
    return tuple(config.filter_subjects)


def required_level(config: ConsumerConfig) -> int:
    """Return the lowest API level of a server that can run this consumer."""
    if config.ack_policy == "flow_control":
        return 4
    pauses = config.pause_until not in (None, ZERO_NS)
    return 1 if pauses or config.priority_policy else 0


def _check_sizes(config: ConsumerConfig) -> None:
    """Raise 10052 for lists that are too long, before the other checks read them."""
    check_size([config.filter_subject], "filter subject")
    check_size(config.filter_subjects, "filter subject")
    for what, number in (
        ("backoff times", len(config.backoff)),
        ("priority groups", len(config.priority_groups)),
    ):
        if number > MAX_ITEMS:
            raise Invalid(f"too many {what}, maximum allowed is {MAX_ITEMS}")


def _comparable(config: ConsumerConfig) -> ConsumerConfig:
    return msgspec.structs.replace(config, metadata=users_metadata(config.metadata))


def _limit_defaults(
    config: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps, pedantic: bool
) -> None:
    limits = stream.consumer_limits
    if config.max_ack_pending == 0:
        if pedantic and limits.max_ack_pending > 0:
            raise errors.PedanticError(
                "max_ack_pending must be set if it's configured in stream limits"
            )
        config.max_ack_pending = max(limits.max_ack_pending, 0)
    if config.inactive_threshold == 0:
        if pedantic and limits.inactive_threshold > 0:
            raise errors.PedanticError(
                "inactive_threshold must be set if it's configured in stream limits"
            )
        config.inactive_threshold = max(limits.inactive_threshold, 0)
    if config.max_ack_pending == 0 and config.ack_policy != "none":
        config.max_ack_pending = min(DEFAULT_MAX_ACK_PENDING, *caps.max_ack_pending(), 1 << 62)
    if not config.deliver_subject and config.max_batch == 0 and caps.max_batch > 0:
        if pedantic:
            raise errors.PedanticError(
                "max_request_batch must be set if it's JetStream limits are set"
            )
        config.max_batch = caps.max_batch


def _check_names(config: ConsumerConfig) -> None:
    for what, name in (("name", config.name), ("durable name", config.durable_name)):
        if name and not valid_name(name):
            raise Invalid(f"consumer {what} can not contain '.', '*', '>', '\\', '/'")


def _check_replicas(config: ConsumerConfig, stream: StreamConfig) -> None:
    if config.num_replicas > max(stream.num_replicas, 0):
        raise errors.ConsumerReplicasExceedsStreamError()
    if config.num_replicas < 0:
        raise errors.ReplicasCountCannotBeNegativeError()
    if stream.retention != "limits" and config.num_replicas not in (0, stream.num_replicas):
        raise errors.ConsumerReplicasShouldMatchStreamError()


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
            tail = "start start sequence is also set"  # the protocol has the word twice
    if tail:
        raise errors.ConsumerInvalidPolicyError(f"{head} {tail}")


def _check_acks(config: ConsumerConfig) -> None:
    if any(value < 0 for value in config.backoff):
        raise errors.ConsumerBackOffNegativeError()
    if config.ack_wait < 0:
        raise errors.ConsumerAckWaitNegativeError()
    if config.ack_policy == "flow_control":
        _check_flow_control_acks(config)
    if config.backoff and config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        raise errors.ConsumerMaxDeliverBackoffError()


def _check_flow_control_acks(config: ConsumerConfig) -> None:
    if not config.deliver_subject:
        raise errors.ConsumerAckFCRequiresPushError()
    if not config.flow_control:
        raise errors.ConsumerAckFCRequiresFCError()
    if config.idle_heartbeat != SECOND:
        raise Invalid("flow control ack policy heartbeat needs to be 1s")
    if config.max_ack_pending <= 0:
        raise errors.ConsumerAckFCRequiresMaxAckPendingError()
    if config.ack_wait or config.backoff:
        raise errors.ConsumerAckFCRequiresNoAckWaitError()
    if config.max_deliver > 0:
        raise errors.ConsumerAckFCRequiresNoMaxDeliverError()


def _check_filters(config: ConsumerConfig) -> None:
    if config.filter_subject and config.filter_subjects:
        raise errors.ConsumerDuplicateFilterSubjectsError()
    if config.filter_subject and not is_valid(config.filter_subject):
        raise Invalid("invalid subject")
    filters = config.filter_subjects
    bad = next((at for at, each in enumerate(filters) if not is_valid(each)), len(filters))
    if nested(filters[:bad]):
        raise errors.ConsumerOverlappingSubjectFiltersError()
    if bad < len(filters):
        if not filters[bad]:
            raise errors.ConsumerEmptyFilterError()
        raise Invalid("invalid subject")


def _check_sampling(frequency: str) -> None:
    text = frequency.removesuffix("%")
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        what = f'strconv.Atoi: parsing "{text}": invalid syntax'
        raise errors.ConsumerInvalidSamplingError(what)
    digits = text.lstrip("+-0")
    if len(digits) > _INT64_DIGITS or int(digits or "0") >= 1 << 63:
        what = f'strconv.Atoi: parsing "{text}": value out of range'
        raise errors.ConsumerInvalidSamplingError(what)
    if text[0] == "-" and digits:
        raise errors.ConsumerInvalidSamplingError("<nil>")


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    if not is_literal(config.deliver_subject):
        raise errors.ConsumerDeliverToWildcardsError()
    if not is_valid(config.deliver_subject):
        raise errors.ConsumerInvalidDeliverSubjectError()
    if any(matches(config.deliver_subject, subject) for subject in stream.subjects):
        raise errors.ConsumerDeliverCycleError()
    if config.max_waiting:
        raise errors.ConsumerPushMaxWaitingError()
    if config.max_ack_pending > 0 and config.ack_policy == "none":
        raise errors.ConsumerMaxPendingAckPolicyRequiredError()
    if 0 < config.idle_heartbeat < MIN_WINDOW_NS:
        raise errors.ConsumerSmallHeartbeatError()


def _check_pull(config: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> None:
    if config.ack_policy == "none" and stream.retention == "workqueue":
        raise errors.ConsumerPullRequiresAckError()
    if config.rate_limit_bps:
        raise errors.ConsumerPullWithRateLimitError()
    if config.idle_heartbeat:
        raise errors.ConsumerHBRequiresPushError()
    if config.flow_control:
        raise errors.ConsumerFCRequiresPushError()
    if 0 < config.max_expires < MILLISECOND:
        raise errors.ConsumerMaxRequestExpiresTooSmallError()
    if 0 < caps.max_batch < config.max_batch:
        raise errors.ConsumerMaxRequestBatchExceededError(caps.max_batch)


def _check_limits(config: ConsumerConfig, stream: StreamConfig, caps: ConsumerCaps) -> None:
    limits = stream.consumer_limits
    for cap in (*caps.max_ack_pending(), limits.max_ack_pending):
        if 0 < cap < config.max_ack_pending:
            raise errors.ConsumerMaxPendingAckExcessError(cap)
    if 0 < limits.inactive_threshold < config.inactive_threshold:
        raise errors.ConsumerInactiveThresholdExcessError(
            format_duration(limits.inactive_threshold)
        )


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
        if not valid_group(group):
            raise errors.ConsumerInvalidGroupNameError()
