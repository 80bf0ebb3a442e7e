"""The entries of streams and consumers in an account, and how the API shows them.

An entry joins the configuration, the compiled object that implements it, and the files. Entries
make no decisions.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pelton.api.codec import encode, encode_part
from pelton.api.consumers import (
    ConsumerConfig,
    ConsumerInfo,
    PriorityGroupState,
    SequenceInfo,
)
from pelton.api.dialects.names import dialect_of
from pelton.api.streams import (
    ClusterInfo,
    LostStreamData,
    StreamConfig,
    StreamInfo,
    StreamState,
)
from pelton.core.consumer.ack_journal import AckJournal
from pelton.core.consumer.consumer import ACK_ALL, ACK_EXPLICIT, ACK_FLOW, ACK_NONE, Consumer
from pelton.core.log import queries
from pelton.core.stream.direct_get import Answers
from pelton.core.stream.interest import InterestRetention
from pelton.core.stream.stream import Stream
from pelton.engine.base.settings import Settings
from pelton.engine.base.steps import Steps
from pelton.engine.base.timers import Alarm
from pelton.engine.config.consumer_config import filters_of, sample_percent
from pelton.engine.config.stream_config import with_version
from pelton.engine.files.files import FORMAT, ConsumerFile, StreamFile, StreamFiles
from pelton.engine.rules import RuleSet

if TYPE_CHECKING:
    from pelton.engine.account.disk_recovery import DiskFailure
    from pelton.engine.sources.positions import Positions
    from pelton.engine.sources.upstreams import Upstreams

_ACK_POLICIES = {
    "none": ACK_NONE,
    "all": ACK_ALL,
    "explicit": ACK_EXPLICIT,
    "flow_control": ACK_FLOW,
}
HOLES_STEP = 300  # ranges of deleted sequences,
DELETED_STEP = 2_000  # deleted sequences, and
SUBJECTS_STEP = 500  # subjects,
SOURCES_STEP = 100  # and sources of one step
LOST_LIMIT = 10_000
"""How many lost sequences a response names."""
_PRIORITY_POLICIES = {None: 0, "none": 0, "overflow": 1, "pinned_client": 2, "prioritized": 3}


class ListedConfig:
    """The configuration in a list, encoded once until it changes."""

    __slots__ = ("_config", "_written")

    def __init__(self) -> None:
        """Nothing is encoded yet."""
        self._config: StreamConfig | ConsumerConfig | None = None
        self._written = msgspec.Raw()

    def written(self, config: StreamConfig | ConsumerConfig) -> Any:
        """Return the encoded configuration, which a message takes in its place."""
        if config is not self._config:
            self._config, self._written = config, msgspec.Raw(encode(config))
        return self._written


class ConsumerEntry(msgspec.Struct, eq=False):
    """One consumer."""

    name: str
    config: ConsumerConfig
    created_ns: int
    start_seq: int  # the first sequence by the deliver policy, at the creation
    core: Consumer
    persistent: bool  # configuration and state are on disk
    unused: Alarm  # ends the consumer after its inactive threshold
    resume: Alarm  # the end of its pause
    listed: ListedConfig = msgspec.field(default_factory=ListedConfig)

    @property
    def internal(self) -> bool:
        """Whether another stream reads through this consumer; such a consumer counts towards no
        limit.
        """
        return self.config.direct or self.config.sourcing

    @property
    def paused_until_ns(self) -> int:
        """The time at which the pause ends or has ended; 0: there is none."""
        return max(self.config.pause_until or 0, 0)

    def file(self) -> ConsumerFile:
        """Return the configuration file of the consumer."""
        return ConsumerFile(
            format=FORMAT,
            created=self.created_ns,
            name=self.name,
            start_seq=self.start_seq,
            config=self.config,
        )


class StreamEntry(msgspec.Struct, eq=False):
    """One stream."""

    config: StreamConfig
    created_ns: int
    core: Stream
    files: StreamFiles | None  # None: in memory
    consumers: dict[str, ConsumerEntry] = msgspec.field(default_factory=dict)
    offline: dict[str, str] = msgspec.field(
        default_factory=dict
    )  # consumers that cannot be opened, and why
    lost_reported: int = 0  # how many entries of the log's `lost` were reported
    notes_reported: int = 0  # how many entries of the log's `notes` were reported
    incomplete: bool = False  # its consumers are not recovered yet: its rules store nothing
    expire_at_ns: int = 0  # when expire() is due
    disk_failure: "DiskFailure | None" = None  # set while the disk fails
    unread_since_ns: int = 0  # when reads began to fail; 0: they work
    unread_at_ns: int = 0  # when a read last failed
    rewrites: dict[str, Callable[[], None]] = msgspec.field(
        default_factory=dict
    )  # files whose last write failed: the calls that write them again
    rewrite_at_ns: int = 0
    reported_failures: set[str] = msgspec.field(
        default_factory=set
    )  # actions whose failure was reported and that have not succeeded since
    rules: RuleSet | None = None
    rules_at_ns: int = 0  # when the rules of the stream are due
    answers: Answers | None = None  # created at the first direct get
    upstreams: "Upstreams | None" = None  # the upstreams, for a stream that follows other streams
    upstreams_at_ns: int = 0  # when the upstreams are due
    positions: "Positions | None" = None  # of a recovered stream until its upstreams start
    journal: AckJournal | None = None  # the ack journal of the consumers; None: in memory
    save_at_ns: int = 0  # when consumer states may be written again
    # consumers with unsaved states, in the order of the changes
    changed: dict[ConsumerEntry, None] = msgspec.field(default_factory=dict)
    listed: ListedConfig = msgspec.field(default_factory=ListedConfig)
    internal_consumers: int = 0  # how many consumers are internal
    direct_consumers: int = 0  # how many consumers are hidden from the API
    # names of the other ones in order; None: a consumer came or went since a list was asked for
    _public_names: list[str] | None = None

    def add_consumer(self, entry: ConsumerEntry) -> None:
        """Take a consumer in."""
        self.consumers[entry.name] = entry
        self.internal_consumers += entry.internal
        self.direct_consumers += entry.config.direct
        self._public_names = None

    def drop_consumer(self, entry: ConsumerEntry) -> None:
        """Give a consumer up."""
        del self.consumers[entry.name]
        self.changed.pop(entry, None)
        self.internal_consumers -= entry.internal
        self.direct_consumers -= entry.config.direct
        self._public_names = None

    def public_names(self) -> list[str]:
        """Return the names of the consumers that a list shows, in order; sorted once for all its pages."""
        if self._public_names is None:
            self._public_names = sorted(
                name for name, entry in self.consumers.items() if not entry.config.direct
            )
        return self._public_names

    def file(self) -> StreamFile:
        """Return the configuration file of the stream."""
        return StreamFile(format=FORMAT, created=self.created_ns, config=self.config)


def configure_stream(core: Stream, config: StreamConfig) -> None:
    """Pass the configuration to the compiled stream."""
    core.configure(
        max_msgs=config.max_msgs,
        max_bytes=config.max_bytes,
        # with TTLs the rule applies max_age, since it knows the messages that never expire
        max_age_ns=0 if config.allow_msg_ttl else config.max_age,
        max_msgs_per_subject=config.max_msgs_per_subject,
        max_msg_size=config.max_msg_size,
        discard_new=config.discard == "new",
        discard_new_per_subject=config.discard_new_per_subject,
        duplicate_window_ns=config.duplicate_window,
        no_ack=config.no_ack,
        sealed=config.sealed,
        retention=None if config.retention == "limits" else InterestRetention,
        selective=config.retention == "interest",
        dialect=dialect_of(config.metadata),
    )
    core.log.compress = config.compression == "s2"


def configure_consumer(core: Consumer, config: ConsumerConfig, stream: StreamConfig) -> None:
    """Pass the configuration to the compiled consumer."""
    core.configure(
        ack_policy=_ACK_POLICIES[config.ack_policy],
        ack_wait_ns=config.ack_wait,
        backoff_ns=tuple(config.backoff),
        max_deliver=config.max_deliver,
        max_ack_pending=config.max_ack_pending,
        max_waiting=config.max_waiting,
        max_batch=config.max_batch,
        max_expires_ns=config.max_expires,
        max_bytes=config.max_bytes,
        filters=filters_of(config),
        last_per_subject=(
            config.deliver_policy == "last_per_subject" and stream.max_msgs_per_subject != 1
        ),
        headers_only=config.headers_only,
        rate_limit_bps=config.rate_limit_bps,
        replay_original=config.replay_policy == "original",
        deliver_subject=config.deliver_subject,
        deliver_group=config.deliver_group,
        idle_heartbeat_ns=config.idle_heartbeat,
        flow_control=config.flow_control,
        sample_percent=sample_percent(config),
        priority_policy=_PRIORITY_POLICIES[config.priority_policy],
        priority_groups=tuple(config.priority_groups),
        priority_timeout_ns=config.priority_timeout,
    )


def stream_state(entry: StreamEntry) -> StreamState:
    """Return the counts of a stream for the API."""
    log = entry.core.log
    state = StreamState(
        messages=log.msgs,
        bytes=log.bytes,
        first_seq=log.first_seq,
        first_ts=log.first_ts_ns if log.msgs else 0,
        last_seq=log.last_seq,
        last_ts=log.last_ts_ns,
        num_subjects=log.subject_count,
        num_deleted=log.deleted_count(),
        consumer_count=len(entry.consumers) - entry.direct_consumers,
    )
    if log.last_seq == 0:
        state.first_seq = 0
    elif not log.msgs:
        state.first_seq = log.last_seq + 1
    if log.lost:
        state.lost = lost_data(log.lost)
    return state


def lost_data(lost: list[tuple[int, int, str]]) -> LostStreamData:
    """Return the lowest LOST_LIMIT lost sequences; the log line has their number."""
    msgs: list[int] = []
    for first, count, _ in sorted(lost):
        if len(msgs) >= LOST_LIMIT:
            break
        msgs.extend(range(first, first + min(count, LOST_LIMIT - len(msgs))))
    return LostStreamData(msgs=msgs)


def deleted_sequences(entry: StreamEntry) -> Steps[Any]:
    """Return every sequence between the first and the last that has no message, encoded in steps."""
    pieces: list[bytes] = []
    numbers: list[int] = []
    at = 0
    while holes := queries.deleted(entry.core.log, at, HOLES_STEP):
        for first, count in holes:
            at = first + count
            for low in range(first, at, DELETED_STEP):
                numbers.extend(range(low, min(low + DELETED_STEP, at)))
                if len(numbers) >= DELETED_STEP:
                    pieces.append(encode_part(numbers)[1:-1])
                    numbers = []
                    yield
        yield
    if numbers:
        pieces.append(encode_part(numbers)[1:-1])
    return msgspec.Raw(b"[%b]" % b",".join(pieces)) if pieces else []


def subjects_of(
    entry: StreamEntry, pattern: str, offset: int, limit: int
) -> Steps[tuple[int, Any]]:
    """Return how many subjects match, and the counts of a page of them, encoded in steps."""
    page = queries.SubjectsPage(entry.core.log, pattern, offset, limit)
    while page.sort():
        yield
    pieces = []
    while (counts := page.take(SUBJECTS_STEP)) is not None:
        if counts:
            pieces.append(encode_part(counts)[1:-1])
        yield
    return page.total, msgspec.Raw(b"{%b}" % b",".join(pieces)) if pieces else {}


def stream_info(
    entry: StreamEntry, settings: Settings, now_ns: int, *, versioned: bool = True
) -> StreamInfo:
    """Return a stream as the API shows it; lists show it without the server's version."""
    config = entry.config
    shown: Any = None
    if versioned:
        metadata = with_version(config.metadata, settings.server_version, settings.api_level)
        shown = msgspec.structs.replace(config, metadata=metadata)
    else:
        shown = entry.listed.written(config)
    info = StreamInfo(
        config=shown,
        created=entry.created_ns,
        state=stream_state(entry),
        domain=settings.domain,
        ts=now_ns,
    )
    if entry.upstreams is not None:
        infos = entry.upstreams.infos(now_ns)
        if entry.config.mirror is not None:
            info.mirror = infos[0]
        else:
            info.sources = infos
    return info


def showing_stream(
    entry: StreamEntry, settings: Settings, now_ns: int, *, versioned: bool = True
) -> Steps[StreamInfo]:
    """As `stream_info`; many sources are encoded in steps."""
    many = len(entry.config.sources) > SOURCES_STEP
    if many:
        yield
    info = stream_info(entry, settings, now_ns, versioned=versioned)
    if many:
        info.sources = yield from _encoded(info.sources)
        if versioned:
            sources = yield from _encoded(entry.config.sources)
            info.config = msgspec.structs.replace(info.config, sources=sources)
    return info


def _encoded(messages: Sequence[msgspec.Struct]) -> Steps[Any]:
    parts = []
    for message in messages:
        parts.append(msgspec.Raw(encode(message)))
        if len(parts) % SOURCES_STEP == 0:
            yield
    return parts


def leader(settings: Settings) -> ClusterInfo:
    """Return the cluster info of a single server, which leads everything."""
    return ClusterInfo(leader=settings.server_name)


def consumer_info(
    stream: StreamEntry,
    entry: ConsumerEntry,
    settings: Settings,
    now_ns: int,
    *,
    versioned: bool = True,
) -> ConsumerInfo:
    """Return a consumer as the API shows it; lists show it without the server's version."""
    config = entry.config
    shown: Any = None
    if versioned:
        metadata = with_version(config.metadata, settings.server_version, settings.api_level)
        shown = msgspec.structs.replace(config, metadata=metadata)
    else:
        shown = entry.listed.written(config)
    state = entry.core.state()
    paused_ns = remaining(entry.paused_until_ns, now_ns)
    return ConsumerInfo(
        stream_name=stream.config.name,
        name=entry.name,
        created=entry.created_ns,
        config=shown,
        delivered=SequenceInfo(
            consumer_seq=state.delivered_consumer_seq,
            stream_seq=state.delivered_stream_seq,
            last_active=state.delivered_last_ns or None,
        ),
        ack_floor=SequenceInfo(
            consumer_seq=state.floor_consumer_seq,
            stream_seq=state.floor_stream_seq,
            last_active=state.floor_last_ns or None,
        ),
        num_ack_pending=state.num_ack_pending,
        num_redelivered=0 if config.max_deliver == 1 else state.num_redelivered,
        num_waiting=0 if config.deliver_subject else state.num_waiting,
        num_pending=state.num_pending,
        push_bound=bool(config.deliver_subject) and entry.core.push_bound(),
        paused=paused_ns > 0,
        pause_remaining=paused_ns,
        ts=now_ns,
        priority_groups=_group_states(entry),
    )


def remaining(until_ns: int, now_ns: int) -> int:
    """Return the time until a deadline as a duration of the protocol, which ends at 292 years."""
    return min(max(until_ns - now_ns, 0), (1 << 63) - 1)


def _group_states(entry: ConsumerEntry) -> list[PriorityGroupState]:
    groups = entry.core.groups
    if groups is None:
        return []
    return [
        PriorityGroupState(
            group=entry.config.priority_groups[0],
            pinned_client_id=groups.pin.decode(),
            pinned_ts=groups.pinned_ns,
        )
    ]
