"""The configuration of a bucket, and the configuration of its stream that it stands for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypedDict

from msgspec.structs import replace

from pelton.api import keyvalue as wire
from pelton.api.streams import SERVERS_OWN
from pelton.errors import BadBucketError, InvalidBucketNameError

from ..base.durations import Duration, Nanoseconds, to_nanoseconds
from ..base.models import (
    Placement,
    Republish,
    StreamConfig,
    StreamInfo,
    StreamSource,
    SubjectTransform,
    bucket_summary,
)

NO_LIMIT = -1
SECOND_NS = 1_000_000_000


def check_bucket(name: str) -> None:
    """Raise InvalidBucketNameError unless a bucket may have this name."""
    if not isinstance(name, str) or not wire.valid_bucket(name):
        raise InvalidBucketNameError(
            f"{name!r} cannot be the name of a bucket: use letters, digits, - and _"
        )


@dataclass(kw_only=True, slots=True)
class KeyValueConfig:
    """The configuration of a bucket. Only ``bucket`` is needed.

    Durations are seconds, a timedelta or text ("30s", "1h30m", "7d"); a config shows them in nanoseconds.
    Raises InvalidBucketNameError, ValueError or TypeError for a value that no server would take::

        KeyValueConfig(bucket="sessions", history=5, ttl="12h", limit_marker_ttl="1m")

    ``create_key_value`` takes the fields as keywords, too: ``create_key_value("sessions", history=5)``.

    bucket: letters, digits, - and _.
    description: what the bucket is for.
    history: how many revisions of each key are kept, 1 to 64.
    ttl: how long a value is kept (a duration); 0 for ever.
    limit_marker_ttl: allows keys with lifetimes of their own (``create`` with ttl), and is how long
        the marker of an expired key stays (a duration, one second at least); 0: not allowed. Needs
        a server from 2.11 on.
    max_value_size: bytes of a value, headers included, at most; 0 or -1 for no limit.
    max_bytes: bytes of the whole bucket at most; 0 or -1 for no limit. A full bucket refuses
        values.
    storage: "file" or "memory".
    replicas: copies in a cluster, 1 to 5.
    compression: compress on the disk.
    placement: where in a cluster the bucket should live.
    republish: publish stored values again with another subject.
    mirror: the bucket that this one copies, its name or a StreamSource; puts go to that bucket.
    sources: buckets whose keys are copied into this one, names or StreamSources.
    allow_atomic: several keys can be written at once (``transaction``). Needs a server from 2.12
        on.
    metadata: any names and values.
    """

    bucket: str
    description: str = ""
    history: int = 1
    ttl: Duration = 0
    limit_marker_ttl: Duration = 0
    max_value_size: int = 0
    max_bytes: int = 0
    storage: Literal["file", "memory"] = "file"
    replicas: int = 1
    compression: bool = False
    placement: Placement | None = None
    republish: Republish | None = None
    mirror: str | StreamSource | None = None
    sources: list[str | StreamSource] = field(default_factory=list)
    allow_atomic: bool = False
    metadata: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the fields."""
        check_bucket(self.bucket)
        if not isinstance(self.history, int) or not 1 <= self.history <= wire.HISTORY_MAX:
            raise ValueError(f"history is 1 to {wire.HISTORY_MAX}, got {self.history!r}")
        if self.mirror is not None and self.sources:
            raise ValueError("give a mirror or sources, not both")
        for name in ("ttl", "limit_marker_ttl"):
            try:
                setattr(self, name, to_nanoseconds(getattr(self, name)))
            except (ValueError, TypeError) as error:
                raise type(error)(f"{name}: {error}") from None
        if 0 < to_nanoseconds(self.limit_marker_ttl) < SECOND_NS:
            raise ValueError("limit_marker_ttl: a marker stays for at least one second")

    def stream_config(self) -> StreamConfig:
        """The configuration of the bucket's stream, as the official clients make it."""
        ttl, marker_ttl = to_nanoseconds(self.ttl), to_nanoseconds(self.limit_marker_ttl)
        # A server refuses a window longer than max_age (ADR-8).
        window = wire.DUPLICATE_WINDOW_NS
        mirror = None if self.mirror is None else _origin(self.mirror)
        return StreamConfig(
            name=wire.stream_of(self.bucket),
            description=self.description,
            subjects=[] if mirror is not None else [f"{wire.prefix_of(self.bucket)}>"],
            max_consumers=NO_LIMIT,
            max_msgs=NO_LIMIT,
            max_bytes=self.max_bytes or NO_LIMIT,
            max_age=ttl,
            max_msgs_per_subject=self.history,
            max_msg_size=self.max_value_size or NO_LIMIT,
            # A full bucket refuses values; it must not lose keys.
            discard="new",
            storage=self.storage,
            num_replicas=self.replicas,
            duplicate_window=Nanoseconds(min(ttl, window) if ttl else window),
            placement=self.placement,
            mirror=mirror,
            sources=[self._source(each) for each in self.sources],
            compression="s2" if self.compression else "none",
            republish=self.republish,
            allow_direct=True,
            # a mirror with other subjects would answer gets of its origin with "not found"
            mirror_direct=mirror is not None and not mirror.subject_transforms,
            # No single revision can be taken out; a purge of a key needs the rollup.
            deny_delete=True,
            allow_rollup_hdrs=True,
            allow_msg_ttl=marker_ttl > 0,
            subject_delete_marker_ttl=marker_ttl,
            allow_atomic=self.allow_atomic,
            metadata=dict(self.metadata),
        )

    def _source(self, given: str | StreamSource) -> StreamSource:
        """A source whose keys become keys of this bucket."""
        source = _origin(given)
        bucket = source.name.removeprefix(wire.STREAM_PREFIX)
        # The bucket of that name in another domain or account has the same subjects.
        if source.subject_transforms or (source.external is not None and bucket == self.bucket):
            return source
        # Subjects contain the name of their bucket: without a transform they are no keys of this one.
        here, there = f"{wire.prefix_of(self.bucket)}>", f"{wire.prefix_of(bucket)}>"
        return replace(source, subject_transforms=[SubjectTransform(src=there, dest=here)])


class KeyValueFields(TypedDict, total=False):
    """The fields of a KeyValueConfig but its name, as keywords of ``create_key_value``."""

    description: str
    history: int
    ttl: Duration
    limit_marker_ttl: Duration
    max_value_size: int
    max_bytes: int
    storage: Literal["file", "memory"]
    replicas: int
    compression: bool
    placement: Placement | None
    republish: Republish | None
    mirror: str | StreamSource | None
    sources: list[str | StreamSource]
    allow_atomic: bool
    metadata: dict[str, str]


def _origin(given: str | StreamSource) -> StreamSource:
    """The stream to copy; its name may be that of the bucket."""
    source = StreamSource(name=given) if isinstance(given, str) else given
    bucket = source.name.removeprefix(wire.STREAM_PREFIX)
    check_bucket(bucket)
    return replace(source, name=wire.stream_of(bucket))


def config_of(stream: StreamConfig) -> KeyValueConfig:
    """The configuration of the bucket that this stream is; BadBucketError for other streams."""
    check_stream(stream)
    return KeyValueConfig(
        bucket=stream.name.removeprefix(wire.STREAM_PREFIX),
        description=stream.description,
        history=stream.max_msgs_per_subject,
        ttl=stream.max_age,
        limit_marker_ttl=stream.subject_delete_marker_ttl,
        max_value_size=stream.max_msg_size,
        max_bytes=stream.max_bytes,
        storage=stream.storage,
        replicas=stream.num_replicas,
        compression=stream.compression == "s2",
        placement=stream.placement,
        republish=stream.republish,
        mirror=stream.mirror,
        sources=list(stream.sources),
        allow_atomic=stream.allow_atomic,
        metadata={
            name: value
            for name, value in stream.metadata.items()
            if not name.startswith(SERVERS_OWN)
        },
    )


def check_stream(config: StreamConfig) -> None:
    """Raise BadBucketError unless the stream stores the keys of a bucket."""
    name = config.name.removeprefix(wire.STREAM_PREFIX)
    keeps = config.mirror is not None or f"{wire.prefix_of(name)}>" in config.subjects
    if not config.name.startswith(wire.STREAM_PREFIX) or not keeps:
        raise BadBucketError(
            f"stream {config.name} is no bucket: it does not store {wire.prefix_of(name)}>"
        )
    if not 1 <= config.max_msgs_per_subject <= wire.HISTORY_MAX:
        raise BadBucketError(
            f"stream {config.name} is no bucket: a bucket keeps 1 to {wire.HISTORY_MAX} revisions "
            f"of a key, and its max_msgs_per_subject is {config.max_msgs_per_subject}"
        )


def prefixes(config: StreamConfig, api_prefix: str, own_prefix: str) -> tuple[str, str]:
    """The beginnings of a bucket's subjects: those of stored keys, and those to publish to.

    A mirror holds the subjects of its origin, and what is written goes to the origin.
    ``api_prefix`` is that of the calls, ``own_prefix`` that of the client's own JetStream.
    """
    mirror = config.mirror
    stored = origin = wire.prefix_of(config.name.removeprefix(wire.STREAM_PREFIX))
    # Behind a domain or an import, the subjects of keys are reached through the prefix of the API.
    through = "" if api_prefix == own_prefix else f"{api_prefix}."
    if mirror is not None:
        origin = wire.prefix_of(mirror.name.removeprefix(wire.STREAM_PREFIX))
        # A mirror stores subjects as they are in the origin, unless it transforms them to its own.
        if all(each.dest != f"{stored}>" for each in mirror.subject_transforms):
            stored = origin
        if mirror.external is not None and mirror.external.api:
            through = f"{mirror.external.api}."
    return stored, through + origin


@dataclass(frozen=True, slots=True)
class KeyValueStatus:
    """What a bucket holds, and its configuration.

    Example::

        status = bucket.status()
        print(status)  # config: 2 values, 117 bytes, ttl 1h0m0s, file, history 5
        print(status.bucket, status.values, status.bytes, status.history)

    ``values``: stored revisions and markers of all keys. ``bytes``: their size in the store.
    """

    bucket: str
    values: int
    bytes: int
    config: KeyValueConfig
    stream_info: StreamInfo

    @property
    def history(self) -> int:
        """How many revisions of each key are kept."""
        return self.config.history

    @property
    def ttl(self) -> Nanoseconds:
        """How long a value is kept, in nanoseconds; 0 for ever."""
        return to_nanoseconds(self.config.ttl)

    @property
    def limit_marker_ttl(self) -> Nanoseconds:
        """How long the marker of an expired key stays, in nanoseconds; 0: no lifetimes of keys."""
        return to_nanoseconds(self.config.limit_marker_ttl)

    @property
    def revision(self) -> int:
        """The newest revision; 0 when nothing was ever stored."""
        return self.stream_info.state.last_seq

    def __str__(self) -> str:
        """The bucket in one line: what it holds, and its limits."""
        config = self.stream_info.config
        marks = ["compressed"] if config.compression == "s2" else []
        if config.mirror is not None:
            marks.append(f"mirror of {config.mirror.name.removeprefix(wire.STREAM_PREFIX)}")
        return bucket_summary(
            self.bucket,
            f"{self.values} value{'' if self.values == 1 else 's'}",
            size=self.bytes,
            ttl_ns=self.ttl,
            max_bytes=config.max_bytes,
            storage=config.storage,
            replicas=config.num_replicas,
            marks=(f"history {self.history}", *marks),
        )

    def __repr__(self) -> str:
        """The same; ``config`` and ``stream_info`` have the rest."""
        return f"<KeyValueStatus {self}>"


def status_of(info: StreamInfo) -> KeyValueStatus:
    """The status of the bucket that this stream is; BadBucketError for other streams."""
    config = config_of(info.config)
    return KeyValueStatus(config.bucket, info.state.messages, info.state.bytes, config, info)
