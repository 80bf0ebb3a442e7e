"""Stream configuration: defaults, validation, what an update may change, and what this server does
not support.

Pure functions over `StreamConfig`. The order of the checks is the protocol's, since it decides
which error a client sees. The caller checks subject overlap with other streams and the limits of
the account.
"""

import msgspec

from pelton.api import errors_generated as errors
from pelton.api.calls import StreamConfigRequest
from pelton.api.streams import (
    REQUIRED_LEVEL_KEY,
    Placement,
    Republish,
    StreamConfig,
    StreamConsumerLimits,
)
from pelton.api.subjects import valid_name
from pelton.api.times import format_duration
from pelton.core.protocol.subjects import collide
from pelton.engine.base import transforms
from pelton.engine.base.settings import (
    DEFAULT_DUPLICATE_WINDOW_NS,
    MAX_DESCRIPTION_LENGTH,
    MAX_ITEMS,
    MAX_METADATA_BYTES,
    MAX_NAME_LENGTH,
    MAX_SEQUENCE,
    MIN_WINDOW_NS,
    NO_CAPS,
    SECOND,
    StreamCaps,
)
from pelton.engine.base.steps import Steps, finish
from pelton.engine.base.subject_checks import check_size, check_stream_subjects, is_valid
from pelton.engine.sources import checks

VERSION_KEY = "_nats.ver"
LEVEL_KEY = "_nats.level"
_SERVER_KEYS = (REQUIRED_LEVEL_KEY, VERSION_KEY, LEVEL_KEY)
_MAX_REPLICAS = 5
_SUBJECTS_STEP = 500  # checks of more subjects are a step of their own
_UNLIMITED_FIELDS = (
    "max_msgs",
    "max_msgs_per_subject",
    "max_bytes",
    "max_msg_size",
    "max_consumers",
)

Invalid = errors.StreamInvalidConfigError


def from_request(request: StreamConfigRequest) -> StreamConfig:
    """Return the configuration of a request as a new object."""
    values = {name: getattr(request, name) for name in StreamConfig.__struct_fields__}
    return StreamConfig(**values)


def checked(
    config: StreamConfig,
    *,
    pedantic: bool = False,
    find: checks.Find = lambda _: None,
    caps: StreamCaps = NO_CAPS,
) -> StreamConfig:
    """Return the configuration with the defaults filled in. ApiError: it is not allowed.

    `find` returns the configuration of another stream, for the checks of a mirror or a source.
    """
    return finish(checking(config, pedantic=pedantic, find=find, caps=caps))


def checking(
    config: StreamConfig,
    *,
    pedantic: bool = False,
    find: checks.Find = lambda _: None,
    caps: StreamCaps = NO_CAPS,
) -> Steps[StreamConfig]:
    """As `checked`, in steps. `checked_again` then reads what may have changed between them."""
    config = msgspec.structs.replace(config)
    check_size(config.subjects, "subject")
    checks.check_size_of(config)
    if config.placement is not None and len(config.placement.tags) > MAX_ITEMS:
        raise Invalid(f"too many placement tags, maximum allowed is {MAX_ITEMS}")
    config.metadata = users_metadata(config.metadata)
    config.metadata[REQUIRED_LEVEL_KEY] = str(required_level(config))
    _check_texts(config)
    _default_limits(config, pedantic)
    _check_times(config, pedantic, caps.duplicate_window_ns)
    _check_features(config, pedantic)
    if config.mirror is not None:
        yield from checks.check_mirror(config, config.mirror)
    yield from checks.check_sources(config)
    checks.check_neighbours(config, find, pedantic=pedantic)
    if not config.subjects and config.mirror is None and not config.sources:
        config.subjects = [config.name]
    if len(config.subjects) > _SUBJECTS_STEP:
        yield
    check_stream_subjects(config.subjects, no_ack=config.no_ack)
    _check_caps(config, caps)
    _check_transforms(config, pedantic)
    if config.placement == Placement():
        config.placement = None
    if config.placement is not None and config.placement.preferred:
        raise Invalid("preferred server not permitted in placement")
    if config.first_seq > MAX_SEQUENCE:
        raise Invalid(f"first sequence is too high, maximum allowed is {MAX_SEQUENCE}")
    return config


def checked_again(
    config: StreamConfig, *, find: checks.Find, caps: StreamCaps = NO_CAPS
) -> StreamConfig:
    """Check a checked configuration again, as far as its defaults, other streams or the limits may
    change the result. ApiError: it is not allowed.
    """
    config = msgspec.structs.replace(config)
    _check_times(config, False, caps.duplicate_window_ns)
    _check_features(config, False)
    checks.check_neighbours(config, find, pedantic=False)
    _check_caps(config, caps)
    return config


def check_neighbours(config: StreamConfig, find: checks.Find, *, pedantic: bool) -> None:
    """Check a checked configuration again against the streams that it names. Raises ApiError."""
    checks.check_neighbours(config, find, pedantic=pedantic)


def check_replicas_supported(config: StreamConfig) -> None:
    """Raise 10074 for replicas, which a single server does not have. A create checks this last, an
    update after it has found the stream.
    """
    if config.num_replicas > 1:
        raise errors.StreamReplicasNotSupportedError()


def check_create(config: StreamConfig) -> None:
    """Check what is refused only in a new stream, before the other checks."""
    if config.sealed:
        raise Invalid("stream configuration for create can not be sealed")
    if config.mirror_direct and config.mirror is None:
        raise Invalid("stream has no mirror but does have mirror direct")


def check_update(old: StreamConfig, new: StreamConfig) -> StreamConfig:
    """Return the configuration after the update; both arguments are checked. ApiError: the change
    is not allowed.
    """
    change = "stream configuration update can not"
    if new.name != old.name:
        raise Invalid("stream configuration name must match original")
    check_replicas_supported(new)
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
        # a sealed stream keeps its messages
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
    """Return whether two checked configurations are equal apart from the metadata that a server
    adds.
    """
    return _comparable(one) == _comparable(other)


def required_level(config: StreamConfig) -> int:
    """Return the lowest API level of a server that can run this stream."""
    if config.allow_batched:
        return 4
    level = 1 if config.allow_msg_ttl or config.subject_delete_marker_ttl else 0
    if config.allow_msg_counter or config.allow_atomic or config.allow_msg_schedules:
        level = 2
    return 2 if config.persist_mode == "async" else level


def users_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """Return the metadata without the keys that servers add."""
    kept = dict(metadata)
    for key in _SERVER_KEYS:
        kept.pop(key, None)
    return kept


def with_version(metadata: dict[str, str], version: str, level: int) -> dict[str, str]:
    """Return the metadata for a response: with the answering server's version and level."""
    return {**metadata, VERSION_KEY: version, LEVEL_KEY: str(level)}


def _check_caps(config: StreamConfig, caps: StreamCaps) -> None:
    if caps.max_bytes_required and config.max_bytes <= 0:
        raise errors.StreamMaxBytesRequiredError()
    if 0 < caps.max_bytes < config.max_bytes:
        raise errors.StreamMaxStreamBytesExceededError()


def _comparable(config: StreamConfig) -> StreamConfig:
    return msgspec.structs.replace(config, metadata=users_metadata(config.metadata))


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
    """Return the bytes of all keys and values."""
    texts = ("".join(metadata), "".join(metadata.values()))
    return sum(len(text.encode(errors="surrogateescape")) for text in texts)


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
    if config.allow_msg_counter:
        _check_counters(config)
    if config.discard_new_per_subject:
        if config.discard != "new":
            raise Invalid("discard new per subject requires discard new policy to be set")
        if config.max_msgs_per_subject <= 0:
            raise Invalid("discard new per subject requires max msgs per subject > 0")
    if config.subject_delete_marker_ttl:
        _check_markers(config, pedantic)
    if config.allow_msg_schedules:
        _check_schedules(config, pedantic)
    if config.persist_mode == "async":
        _check_async(config)
    else:
        config.persist_mode = None
    # a copy: the caller keeps its own object
    limits = config.consumer_limits
    config.consumer_limits = StreamConsumerLimits(
        inactive_threshold=limits.inactive_threshold, max_ack_pending=limits.max_ack_pending
    )


def _check_counters(config: StreamConfig) -> None:
    if config.discard == "new":
        raise Invalid("counter stream cannot use discard new")
    if config.allow_msg_ttl:
        raise Invalid("counter stream cannot use message TTLs")
    if config.allow_msg_schedules:
        raise Invalid("counter stream cannot use message schedules")
    if config.retention != "limits":
        raise Invalid("counter stream can only use limits retention")


def _check_markers(config: StreamConfig, pedantic: bool) -> None:
    ttl = config.subject_delete_marker_ttl
    if ttl < 0:
        raise Invalid("subject delete marker TTL must not be negative")
    if ttl < SECOND:
        raise Invalid("subject delete marker TTL must be at least 1 second")
    if not config.allow_msg_ttl:
        if pedantic:
            raise Invalid("subject delete marker cannot be set if message TTLs are disabled")
        config.allow_msg_ttl = True
    if not config.allow_rollup_hdrs:
        if pedantic:
            raise Invalid("subject delete marker cannot be set if roll-ups are disabled")
        config.allow_rollup_hdrs, config.deny_purge = True, False


def _check_schedules(config: StreamConfig, pedantic: bool) -> None:
    if config.discard == "new":
        raise Invalid("message scheduling cannot use discard new")
    if not config.allow_rollup_hdrs:
        if pedantic:
            raise Invalid("message scheduling cannot be set if roll-ups are disabled")
        config.allow_rollup_hdrs, config.deny_purge = True, False


def _check_async(config: StreamConfig) -> None:
    if config.storage != "file":
        raise Invalid("async persist mode is only supported on file storage")
    if config.num_replicas > 1:
        raise Invalid("async persist mode is not supported on replicated streams")
    if config.allow_atomic:
        raise Invalid("async persist mode is not supported with atomic batch publish")


def _check_transforms(config: StreamConfig, pedantic: bool) -> None:
    transform = config.subject_transform
    if transform is not None:
        if transform.src and not is_valid(transform.src):
            raise errors.StreamTransformInvalidSourceError(f"invalid subject {transform.src}")
        try:
            transforms.check(transform.src, transform.dest)
        except transforms.TransformError as error:
            raise errors.StreamTransformInvalidDestinationError(error) from None
    if config.republish is not None:
        config.republish = _checked_republish(config, config.republish, pedantic)


def _checked_republish(config: StreamConfig, republish: Republish, pedantic: bool) -> Republish:
    if not republish.src:
        if pedantic:
            raise errors.PedanticError("republish source can not be empty")
        republish = msgspec.structs.replace(republish, src=">")
    transform = config.subject_transform
    if (
        republish.src == republish.dest == ">"
        and transform is not None
        and config.subjects == [transform.src]
    ):
        # each message is republished under its transformed subject
        if pedantic:
            raise errors.PedanticError("implicit republish based on subject transform")
        republish = msgspec.structs.replace(republish, src=transform.dest, dest=transform.dest)
    if not republish.dest:
        # the default is `>`, which makes a cycle unless the stream has no subjects
        republish = msgspec.structs.replace(republish, dest=">")
    if any(collide(republish.dest, subject) for subject in config.subjects):
        raise Invalid("stream configuration for republish destination forms a cycle")
    try:
        transforms.parse(republish.src, republish.dest)
    except transforms.TransformError:
        raise Invalid(
            "stream configuration for republish with transform from "
            f"'{republish.src}' to '{republish.dest}' not valid"
        ) from None
    return republish
