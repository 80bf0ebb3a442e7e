"""One account with JetStream: its subjects, streams, limits and counters. API calls read and change
this state.

`engine/lifecycles` has the lifecycles of streams and consumers. Nothing here is global: a server has one
JetStreamAccount per account, over one reactor and one disk.
"""

import errno
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from pelton.api import errors_generated as errors
from pelton.api.calls import AccountLimits, ClientInfo, PullRequest
from pelton.api.codec import JsonError
from pelton.api.streams import StreamConfig
from pelton.api.whole import decode_whole
from pelton.core.base.disk import Disk
from pelton.core.base.quota import Quota
from pelton.core.broker.reactor import Connection, Reactor
from pelton.core.broker.router import Router
from pelton.core.consumer.api_subjects import ApiSubjects
from pelton.core.consumer.consumer import Consumer
from pelton.engine.account.advisories import Advisories
from pelton.engine.account.catalog import ConsumerEntry, StreamEntry
from pelton.engine.account.stream_subjects import StreamSubjects
from pelton.engine.base.batches import OpenBatches
from pelton.engine.base.hashes import short_hash
from pelton.engine.base.settings import SECOND, Settings
from pelton.engine.base.steps import Steps, finish
from pelton.engine.base.timers import Alarm, Timers
from pelton.engine.files.files import AccountFiles, StreamFiles
from pelton.engine.files.waiting_files import WaitingFiles
from pelton.nuid import DIGITS, Nuid
from pelton.vault import Vault

if TYPE_CHECKING:
    from random import Random

    from pelton.engine.lifecycles.templates import Templates
    from pelton.engine.sources.links import Link
    from pelton.engine.sources.local import LocalUpstream

UNLIMITED = {"": AccountLimits()}
ApiCallback = Callable[[Connection | None, str, str, bytes, bytes], bool]


FIRST_RETRY_NS = SECOND


class Openable(Protocol):
    """A stream that is not open yet (engine/lifecycles/stream_opening)."""

    config: StreamConfig

    def begin(self, account: "JetStreamAccount") -> Generator[None, None, StreamEntry]:
        """Return the opening of the stream, the same generator at each call. Raises OSError."""

    def end(self) -> None:
        """Give the opening up."""


class ReopenRetry:
    """The next try to open an offline stream, and the progress of the try."""

    def __init__(self, now_ns: int) -> None:
        """Called after the first try has failed."""
        self.since_ns = now_ns
        self.wait_ns = FIRST_RETRY_NS
        self.again_ns = now_ns + FIRST_RETRY_NS
        self.pending: Openable | None = None

    def end(self) -> None:
        """Release the parts of the stream that are open."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.end()


class OfflineStream(Struct, frozen=True):
    """A stream on the disk that cannot be opened."""

    reason: str
    files: StreamFiles
    retry: ReopenRetry | None = (
        None  # set after an error of the disk: engine/lifecycles/stream_reopening tries to open the stream again
    )


class Transfer(Protocol):
    """A backup or a restore in progress, driven by messages and jobs of the reactor."""

    def tick(self, now_ns: int) -> None:
        """Called from time to time, so that the transfer notices when nothing arrives."""

    def close(self) -> None:
        """Give the transfer up and release all that it holds."""


class RestoreUsage(Struct):
    """What all restores in progress on a server use, of all accounts."""

    count: int = 0
    held_bytes: int = 0  # bytes of memory
    working: object = None  # the restore that holds a decompressed block


class JetStreamAccount:
    """The state of one account. `report` gets log lines for the operator, one line a call."""

    templates: "Templates | None" = None  # set by the dispatcher

    def __init__(
        self,
        name: str,
        router: Router,
        *,
        reactor: Reactor,
        disk: Disk,
        store: str,
        settings: Settings,
        random: "Random",
        report: Callable[[str], None],
        limits: dict[str, AccountLimits] | None = None,
        memory: Quota | None = None,
        storage: Quota | None = None,
        batches: OpenBatches | None = None,
        transit: RestoreUsage | None = None,
        everyone: "list[JetStreamAccount] | None" = None,
        vault: Vault | None = None,
    ) -> None:
        """Create the state without attaching it to the router: see `serve`.

        `limits` has the limits of each tier, "" stands for all (engine/account/limits). `memory`,
        `storage`, `batches` and `transit` count for the whole server. `everyone` lists all accounts
        of the server.
        """
        self.name = name
        self.router = router
        self.reactor = reactor
        self.disk = disk
        self.settings = settings
        self.files = AccountFiles(disk, store, name, vault)
        self.streams: dict[str, StreamEntry] = {}
        self.revision = 0  # counts creates, updates and deletes of streams
        self.listening = StreamSubjects()  # the subjects of `streams`
        self.offline: dict[str, OfflineStream] = {}  # streams on the disk that cannot be opened
        # origin -> the upstreams of this server that copy the origin or wait for it
        self.followers: dict[str, dict[LocalUpstream, None]] = {}
        self.leftovers: dict[str, StreamFiles] = {}  # of refused creates: name -> files to remove
        self.direct_mirrors: dict[str, list[StreamEntry]] = {}  # origin -> who answers direct gets
        self.remotes: dict[str, Link] = {}  # API prefix -> the link to the server behind it
        self.ids = Nuid(random)
        self.limits = UNLIMITED if limits is None else limits
        self.memory = Quota(whole=memory)
        self.storage = Quota(whole=storage)
        self.advisories = Advisories(router, self.ids, settings.domain, name)
        self.caller: Connection | None = None  # the client of the current call
        self.describe: Callable[[Connection], ClientInfo] = self._client_of
        # told of each API request: source, subject, headers, body
        self.on_request: Callable[[Connection | None, str, bytes, bytes], None] | None = None
        self.batches = batches or OpenBatches(settings.batch)
        self.transit = transit or RestoreUsage()
        self.everyone = [self] if everyone is None else everyone
        self.report = report
        self.carry_out: Callable[[Steps[None]], None] = finish  # the dispatcher does it in turns
        self.api_subjects: ApiSubjects | None = None
        self.timers: Timers[ConsumerEntry] = Timers()
        self.waiting_files = WaitingFiles(reactor, disk)
        self.transfers: list[Transfer] = []  # backups and restores in progress
        self.alarms: Timers[Alarm] = Timers()
        # streams with unsaved consumer states, in the order of the changes
        self.unsaved: dict[StreamEntry, None] = {}
        # whether folders of deleted streams may be left to remove, and the time of the next try
        self.removals_left = False
        self.removals_at_ns = 0
        self.complete = False  # all streams of the store were opened
        self.reserved: dict[tuple[str, str], tuple[int, int]] = {}  # counted by account/limits
        self.api_total = 0
        self.api_errors = 0
        self._random = random
        self._newest_stream_ns = 0

    @property
    def now_ns(self) -> int:
        """The time of this turn."""
        return self.reactor.now_ns

    @property
    def ack_owner(self) -> bytes:
        """The domain and the account as the longer ack subjects have them."""
        return f"{self.settings.domain or '_'}.{short_hash(self.name)}.".encode()

    def serve(self, api: ApiCallback) -> None:
        """Attach to the account's `$JS.API.` and `$JS.ACK.` subjects; `api` gets the API requests."""
        api_subjects = ApiSubjects(self.router, api)
        api_subjects.max_deliver_advisory = self._max_deliver
        api_subjects.nak_advisory = self._nak
        api_subjects.term_advisory = self._terminated
        api_subjects.pin_advisory = self._pin
        api_subjects.ack_metric = self._acknowledged
        api_subjects.explain_pull = explain_pull
        api_subjects.owner = self.ack_owner
        self.api_subjects = api_subjects

    def leave(self) -> None:
        """Detach from the subjects of `serve`, and of templates."""
        if self.templates is not None:
            self.templates.close()
        if self.api_subjects is not None:
            self.router.detach_prefix(self.api_subjects)
            self.api_subjects = None

    def stream(self, name: str) -> StreamEntry:
        """Return the stream of this name. Raises 10059, 10194."""
        entry = self.streams.get(name)
        if entry is None:
            self.check_online(name)
            raise errors.StreamNotFoundError()
        return entry

    @property
    def reopens(self) -> bool:
        """Whether an offline stream waits for another try to open it."""
        return any(offline.retry is not None for offline in self.offline.values())

    def check_room(self) -> None:
        """Make the reserve of the disk, unless it is there. Raise OSError while a full disk has no room
        for it: what is left of the last one is for calls that remove data.
        """
        disk = self.disk
        if disk.reserve_path is not None and not disk.exists(disk.reserve_path):
            disk.refill()
        if disk.spent:
            raise OSError(errno.ENOSPC, "No space left on device")

    def creates_late(self, files: StreamFiles) -> bool:
        """Return whether the files of a new stream, or of a new consumer of it, are synced after the
        answer.
        """
        return self.files.late_creates and files.small.cipher is None

    def check_online(self, name: str) -> None:
        """Raise 10194 when the stream of this name is on the disk and cannot be opened."""
        if name in self.offline:
            raise errors.StreamOfflineReasonError(self.offline[name].reason)

    def config_of(self, stream: str) -> StreamConfig | None:
        """Return the configuration of the stream of this name, or None."""
        entry = self.streams.get(stream)
        return entry.config if entry is not None else None

    def consumer(self, stream: str, name: str) -> tuple[StreamEntry, ConsumerEntry]:
        """Return a stream and its consumer. Raises 10059, 10194, 10014, 10195."""
        owner = self.stream(stream)
        entry = owner.consumers.get(name)
        if entry is None and name in owner.offline:
            raise errors.ConsumerOfflineReasonError(owner.offline[name])
        if entry is None:
            raise errors.ConsumerNotFoundError()
        return owner, entry

    def direct_server(self, name: str) -> StreamEntry | None:
        """Return the stream that answers direct gets of this name, or None."""
        entry = self.streams.get(name)
        if entry is not None and entry.config.allow_direct:
            return entry
        for mirror in self.direct_mirrors.get(name, ()):
            if mirror.upstreams is not None and mirror.upstreams.caught_up:
                return mirror
        return None

    def stream_created_ns(self) -> int:
        """Return the created time of a new stream: the current time, or a later one when the last
        stream is as new. The time identifies the stream, and the clock may stand still.
        """
        self._newest_stream_ns = max(self.now_ns, self._newest_stream_ns + 1)
        return self._newest_stream_ns

    def random_name(self) -> str:
        """Return a name for a consumer that was created without one."""
        return "".join(self._random.choices(DIGITS, k=8))

    def random_below(self, ceiling: int) -> int:
        """Return a random number from 0 up to but not including `ceiling`."""
        return self._random.randrange(ceiling)

    def quota(self, storage: str) -> Quota:
        """Return the quota that counts the bytes of streams with this kind of storage."""
        return self.memory if storage == "memory" else self.storage

    def client_info(self) -> ClientInfo | None:
        """Return the client of the current call; None for a call from inside the server."""
        return None if self.caller is None else self.describe(self.caller)

    def _client_of(self, source: Connection) -> ClientInfo:
        # the connection's own data; a server sets `describe` to add more
        return ClientInfo(
            start=source.start_ns,
            id=source.id,
            acc=self.name,
            server=self.settings.server_name,
            kind="Client",
            client_type="nats",
        )

    def _max_deliver(self, consumer: Consumer, stream_seq: int, deliveries: int) -> None:
        self.advisories.max_deliver(
            consumer.stream.name, consumer.name, stream_seq, deliveries, self.now_ns
        )

    def _nak(self, consumer: Consumer, consumer_seq: int, stream_seq: int, deliveries: int) -> None:
        self.advisories.nak(
            consumer.stream.name,
            consumer.name,
            (consumer_seq, stream_seq),
            deliveries,
            self.now_ns,
        )

    def _terminated(
        self, consumer: Consumer, consumer_seq: int, stream_seq: int, deliveries: int, reason: str
    ) -> None:
        self.advisories.terminated(
            consumer.stream.name,
            consumer.name,
            (consumer_seq, stream_seq),
            deliveries,
            reason,
            self.now_ns,
        )

    def _pin(self, consumer: Consumer, group: str, pin: str, reason: str) -> None:
        stream, name = consumer.stream.name, consumer.name
        if pin:
            self.advisories.pinned(stream, name, group, pin, self.now_ns)
        else:
            self.advisories.unpinned(stream, name, group, reason, self.now_ns)

    def _acknowledged(
        self, consumer: Consumer, consumer_seq: int, stream_seq: int, ack_ns: int, deliveries: int
    ) -> None:
        self.advisories.acknowledged(
            consumer.stream.name,
            consumer.name,
            (consumer_seq, stream_seq),
            (ack_ns, deliveries),
            self.now_ns,
        )


def explain_pull(body: bytes) -> str:
    """Return the fault of a pull request in words."""
    try:
        decode_whole(PullRequest, body.strip())
    except JsonError as error:
        return str(error)
    return "invalid JSON"
