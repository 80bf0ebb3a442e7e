"""Stream configuration: defaults, validation, what an update may change, and what this server can
not do.

Pure functions over `StreamConfig`. The order of the checks is the protocol's, since it decides
which error a client sees. Knows no other stream: subject overlap and account limits are the
caller's.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from penstock.api import errors_generated as errors
from penstock.api.calls import StreamConfigRequest
from penstock.api.streams import Placement, StreamConfig, StreamConsumerLimits, StreamSource
from penstock.api.subjects import valid_name
from penstock.api.times import format_duration
from penstock.engine.settings import (
    DEFAULT_DUPLICATE_WINDOW_NS,
    MAX_DESCRIPTION_LENGTH,
    MAX_METADATA_BYTES,
    MAX_NAME_LENGTH,
    MAX_SEQUENCE,
    MIN_WINDOW_NS,
    NO_CAPS,
    SECOND,
    Caps,
)
from penstock.engine.subject_rules import check_stream_subjects, is_literal, is_valid

REQUIRED_LEVEL_KEY = "_nats.req.level"
VERSION_KEY = "_nats.ver"
LEVEL_KEY = "_nats.level"
_SERVER_KEYS = (REQUIRED_LEVEL_KEY, VERSION_KEY, LEVEL_KEY)
_MAX_REPLICAS = 5
_UNLIMITED_FIELDS = (
    "max_msgs",
    "max_msgs_per_subject",
    "max_bytes",
    "max_msg_size",
    "max_consumers",
)

Invalid = errors.StreamInvalidConfigError


@dataclass(frozen=True)
class Gap:
    """What the data path does not carry out: refused, so that nobody relies on it."""

    name: str
    asked: Callable[[StreamConfig], object]  # truthy: the configuration asks for it


UNSUPPORTED = (
    Gap("retention other than limits", lambda config: config.retention != "limits"),
    Gap("a mirror", lambda config: config.mirror),
    Gap("sources", lambda config: config.sources),
    Gap("a subject transform", lambda config: config.subject_transform),
    Gap("republish", lambda config: config.republish),
    Gap("per-message TTL", lambda config: config.allow_msg_ttl),
    Gap("subject delete markers", lambda config: config.subject_delete_marker_ttl),
    Gap("message counters", lambda config: config.allow_msg_counter),
    Gap("atomic batch publish", lambda config: config.allow_atomic),
    Gap("message schedules", lambda config: config.allow_msg_schedules),
    Gap("batched publish", lambda config: config.allow_batched),
    Gap("async persist mode", lambda config: config.persist_mode == "async"),
)


def from_request(request: StreamConfigRequest) -> StreamConfig:
    """The configuration in a request, as an object of its own."""
    values = {name: getattr(request, name) for name in StreamConfig.__struct_fields__}
    return StreamConfig(**values)


def checked(config: StreamConfig, *, pedantic: bool = False, caps: Caps = NO_CAPS) -> StreamConfig:
    """The same configuration with the defaults filled in; ApiError for what is not allowed."""
    config = msgspec.structs.replace(config)
    _check_texts(config)
    _default_limits(config, pedantic)
    _check_times(config, pedantic, caps.duplicate_window_ns)
    _check_features(config, pedantic)
    if config.mirror is not None:
        _check_mirror(config, config.mirror)
    _check_sources(config)
    if not config.subjects and config.mirror is None and not config.sources:
        config.subjects = [config.name]
    check_stream_subjects(config.subjects, no_ack=config.no_ack)
    if caps.max_bytes_required and config.max_bytes <= 0:
        raise errors.StreamMaxBytesRequiredError()
    if 0 < caps.max_stream_bytes < config.max_bytes:
        raise errors.StreamMaxStreamBytesExceededError()
    _check_transforms(config, pedantic)
    if config.placement is not None:
        if config.placement.preferred:
            raise Invalid("preferred server not permitted in placement")
        if config.placement == Placement():
            config.placement = None
    if config.first_seq > MAX_SEQUENCE:
        raise Invalid(f"first sequence is too high, maximum allowed is {MAX_SEQUENCE}")
    if config.num_replicas > 1:
        raise errors.StreamReplicasNotSupportedError()
    config.metadata = {k: v for k, v in config.metadata.items() if k not in _SERVER_KEYS}
    config.metadata[REQUIRED_LEVEL_KEY] = str(required_level(config))
    return config


def check_create(config: StreamConfig) -> None:
    """What only a new stream is refused for, before all else."""
    if config.sealed:
        raise Invalid("stream configuration for create can not be sealed")
    if config.mirror_direct and config.mirror is None:
        raise Invalid("stream has no mirror but does have mirror direct")


def check_supported(config: StreamConfig) -> None:
    """10052 for a configuration that this server would accept but not carry out."""
    for gap in UNSUPPORTED:
        if gap.asked(config):
            raise Invalid(f"{gap.name} is not supported by this server version")


def check_update(old: StreamConfig, new: StreamConfig) -> StreamConfig:
    """The configuration after the update (both checked); ApiError for what can not change."""
    change = "stream configuration update can not"
    if new.name != old.name:
        raise Invalid("stream configuration name must match original")
    if new.storage != old.storage:
        raise Invalid(f"{change} change storage type")
    if new.retention != old.retention and "workqueue" in (new.retention, old.retention):
        raise Invalid(f"{change} change retention policy to/from workqueue")
    if old.sealed and not new.sealed:
        raise Invalid(f"{change} unseal a sealed stream")
    if old.deny_delete and not new.deny_delete:
        raise Invalid(f"{change} cancel deny message deletes")
    if old.deny_purge and not new.deny_purge:
        raise Invalid(f"{change} cancel deny purge")
    if new.mirror is not None and new.mirror != old.mirror:
        raise errors.StreamMirrorNotUpdatableError()
    if old.allow_msg_ttl and not new.allow_msg_ttl:
        raise Invalid("message TTL status can not be disabled")
    if new.allow_msg_counter != old.allow_msg_counter:
        raise Invalid(f"{change} change message counter setting")
    if old.allow_msg_schedules and not new.allow_msg_schedules:
        raise Invalid("message schedules can not be disabled")
    if (new.persist_mode or "default") != (old.persist_mode or "default"):
        raise Invalid(f"{change} change persist mode")
    if new.sealed:
        # a sealed stream keeps what it holds
        new = msgspec.structs.replace(
            new,
            max_age=0,
            discard="new",
            deny_delete=True,
            deny_purge=True,
            allow_rollup_hdrs=False,
        )
    return new


def same(one: StreamConfig, other: StreamConfig) -> bool:
    """Whether two checked configurations ask for the same; what a server adds to the metadata does
    not count.
    """
    return _comparable(one) == _comparable(other)


def required_level(config: StreamConfig) -> int:
    """The lowest API level whose servers can run this stream."""
    if config.allow_batched:
        return 4
    level = 1 if config.allow_msg_ttl or config.subject_delete_marker_ttl else 0
    if config.allow_msg_counter or config.allow_atomic or config.allow_msg_schedules:
        level = 2
    return 2 if config.persist_mode == "async" else level


def with_version(metadata: dict[str, str], version: str, level: int) -> dict[str, str]:
    """Metadata as responses show it: with the answering server's version and level."""
    return {**metadata, VERSION_KEY: version, LEVEL_KEY: str(level)}


def _comparable(config: StreamConfig) -> StreamConfig:
    metadata = {k: v for k, v in config.metadata.items() if k not in _SERVER_KEYS}
    return msgspec.structs.replace(config, metadata=metadata)


def _check_texts(config: StreamConfig) -> None:
    if not valid_name(config.name):
        raise Invalid("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if len(config.name.encode(errors="surrogateescape")) > MAX_NAME_LENGTH:
        raise Invalid(f"stream name is too long, maximum allowed is {MAX_NAME_LENGTH}")
    if len(config.description.encode(errors="surrogateescape")) > MAX_DESCRIPTION_LENGTH:
        raise Invalid(
            f"stream description is too long, maximum allowed is {MAX_DESCRIPTION_LENGTH}"
        )
    if metadata_size(config.metadata) > MAX_METADATA_BYTES:
        raise Invalid(f"stream metadata exceeds maximum size of {MAX_METADATA_BYTES} bytes")


def metadata_size(metadata: dict[str, str]) -> int:
    """Bytes of all keys and values."""
    return sum(
        len(key.encode(errors="surrogateescape")) + len(value.encode(errors="surrogateescape"))
        for key, value in metadata.items()
    )


def _default_limits(config: StreamConfig, pedantic: bool) -> None:
    if config.num_replicas == 0:
        config.num_replicas = 1
    if config.num_replicas > _MAX_REPLICAS:
        raise Invalid(f"maximum replicas is {_MAX_REPLICAS}")
    if config.num_replicas < 0:
        raise errors.ReplicasCountCannotBeNegativeError()
    for name in _UNLIMITED_FIELDS:
        value = getattr(config, name)
        if value < -1 and pedantic:
            raise errors.PedanticError(f"{name} must be set to -1")
        if value == 0 or value < -1:
            setattr(config, name, -1)


def _check_times(config: StreamConfig, pedantic: bool, most_ns: int) -> None:
    if config.max_age < 0:
        raise Invalid("max age can not be negative")
    if 0 < config.max_age < MIN_WINDOW_NS:
        raise Invalid("max age needs to be >= 100ms")
    if config.duplicate_window == 0 and config.mirror is None and not config.sources:
        config.duplicate_window = DEFAULT_DUPLICATE_WINDOW_NS
        if 0 < most_ns < DEFAULT_DUPLICATE_WINDOW_NS:
            if pedantic:
                raise errors.PedanticError("duplicate window limits are higher than current limits")
            config.duplicate_window = most_ns
        if 0 < config.max_age < config.duplicate_window:
            if pedantic:
                raise errors.PedanticError("duplicate window cannot be bigger than max age")
            config.duplicate_window = config.max_age
    if config.duplicate_window < 0:
        raise Invalid("duplicates window can not be negative")
    if config.max_age and config.duplicate_window > config.max_age:
        raise Invalid("duplicates window can not be larger then max age")
    if 0 < most_ns < config.duplicate_window:
        most = format_duration(most_ns)
        raise Invalid(f"duplicates window can not be larger then server limit of {most}")
    if 0 < config.duplicate_window < MIN_WINDOW_NS:
        raise Invalid("duplicates window needs to be >= 100ms")


def _check_features(config: StreamConfig, pedantic: bool) -> None:
    if config.deny_purge and config.allow_rollup_hdrs:
        raise Invalid("roll-ups require the purge permission")
    if config.discard_new_per_subject:
        if config.discard != "new":
            raise Invalid("discard new per subject requires discard new policy to be set")
        if config.max_msgs_per_subject <= 0:
            raise Invalid("discard new per subject requires max msgs per subject > 0")
    _check_markers(config, pedantic)
    if config.allow_msg_counter:
        _check_counters(config)
    if config.allow_msg_schedules:
        _check_schedules(config, pedantic)
    if config.persist_mode == "async":
        if config.storage != "file":
            raise Invalid("async persist mode is only supported on file storage")
        if config.allow_atomic:
            raise Invalid("async persist mode is not supported with atomic batch publish")
    elif config.persist_mode == "default":
        config.persist_mode = None
    # a copy: the caller keeps its own
    limits = config.consumer_limits
    config.consumer_limits = StreamConsumerLimits(
        inactive_threshold=limits.inactive_threshold, max_ack_pending=limits.max_ack_pending
    )


def _check_markers(config: StreamConfig, pedantic: bool) -> None:
    ttl = config.subject_delete_marker_ttl
    if ttl == 0:
        return
    if ttl < 0:
        raise Invalid("subject delete marker TTL must not be negative")
    if ttl < SECOND:
        raise Invalid("subject delete marker TTL must be at least 1 second")
    if config.mirror is not None:
        raise Invalid("subject delete markers forbidden on mirrors")
    if pedantic and not config.allow_msg_ttl:
        raise Invalid("subject delete marker cannot be set if message TTLs are disabled")
    if pedantic and not config.allow_rollup_hdrs:
        raise Invalid("subject delete marker cannot be set if roll-ups are disabled")
    config.allow_msg_ttl = config.allow_rollup_hdrs = True
    config.deny_purge = False


def _check_counters(config: StreamConfig) -> None:
    if config.mirror is not None:
        return  # the mirror checks name it
    if config.discard == "new":
        raise Invalid("counter stream cannot use discard new")
    if config.allow_msg_ttl:
        raise Invalid("counter stream cannot use message TTLs")
    if config.retention != "limits":
        raise Invalid("counter stream can only use limits retention")
    if config.allow_msg_schedules:
        raise Invalid("counter stream cannot use message schedules")


def _check_schedules(config: StreamConfig, pedantic: bool) -> None:
    if config.mirror is not None or config.sources:
        return  # the mirror and source checks name it
    if config.discard == "new":
        raise Invalid("message scheduling cannot use discard new")
    if pedantic and not config.allow_rollup_hdrs:
        raise Invalid("message scheduling cannot be set if roll-ups are disabled")
    config.allow_rollup_hdrs = True
    config.deny_purge = False


def _check_mirror(config: StreamConfig, mirror: StreamSource) -> None:
    if config.first_seq:
        raise errors.MirrorWithFirstSeqError()
    if config.subjects:
        raise errors.MirrorWithSubjectsError()
    if config.sources:
        raise errors.MirrorWithSourcesError()
    if config.allow_msg_counter:
        raise errors.MirrorWithCountersError()
    if config.allow_atomic:
        raise errors.MirrorWithAtomicPublishError()
    if config.allow_batched:
        raise errors.MirrorWithBatchPublishError()
    if config.allow_msg_schedules:
        raise errors.MirrorWithMsgSchedulesError()
    if mirror.filter_subject and mirror.subject_transforms:
        raise errors.MirrorMultipleFiltersNotAllowedError()
    if not valid_name(mirror.name):
        raise errors.MirrorInvalidStreamNameError()


def _check_sources(config: StreamConfig) -> None:
    seen: list[tuple[object, ...]] = []
    for source in config.sources:
        if config.allow_msg_schedules:
            raise errors.SourceWithMsgSchedulesError()
        if not valid_name(source.name):
            raise errors.SourceInvalidStreamNameError()
        identity = (source.name, source.external, source.filter_subject, source.subject_transforms)
        if identity in seen:
            raise errors.SourceDuplicateDetectedError()
        seen.append(identity)
        if source.filter_subject and source.subject_transforms:
            raise errors.SourceMultipleFiltersNotAllowedError()


def _check_transforms(config: StreamConfig, pedantic: bool) -> None:
    transform = config.subject_transform
    if transform is not None and transform.src and not is_valid(transform.src):
        raise errors.StreamTransformInvalidSourceError(f"invalid subject {transform.src}")
    republish = config.republish
    if republish is None:
        return
    if not republish.src:
        if pedantic:
            raise errors.PedanticError("republish source can not be empty")
        config.republish = republish = msgspec.structs.replace(republish, src=">")
    if republish.dest in config.subjects and is_literal(republish.dest):
        raise Invalid("stream configuration for republish destination forms a cycle")
