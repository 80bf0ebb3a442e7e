"""One account with JetStream: its subjects, streams, limits and counters, which API calls work on.

`engine/streams` has the lifecycle of streams, `engine/consumers` that of consumers. Nothing here is
global: a server has one JetStreamAccount per account, over one reactor and one disk.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.api import errors_generated as errors
from penstock.api.calls import AccountLimits, ClientInfo, PullRequest
from penstock.api.codec import JsonError
from penstock.api.streams import StreamConfig
from penstock.api.whole import decode_whole
from penstock.core.base.disk import Disk
from penstock.core.base.quota import Usage
from penstock.core.broker.reactor import Connection, Reactor
from penstock.core.broker.router import Router
from penstock.core.consumer.api_subjects import ApiSubjects
from penstock.core.consumer.consumer import Consumer
from penstock.engine.advisories import Advisories
from penstock.engine.batches import OpenBatches
from penstock.engine.catalog import ConsumerEntry, StreamEntry
from penstock.engine.files import AccountFiles, StreamFiles
from penstock.engine.hashes import short_hash
from penstock.engine.settings import SECOND, Settings
from penstock.engine.stream_subjects import StreamSubjects
from penstock.engine.timers import Alarm, Timers
from penstock.nuid import DIGITS, Nuid
from penstock.vault import Vault

if TYPE_CHECKING:
    from random import Random

    from penstock.engine.sources.links import Link
    from penstock.engine.sources.local import LocalUpstream

UNLIMITED = {"": AccountLimits()}
ApiCallback = Callable[[Connection | None, str, str, bytes, bytes], bool]


FIRST_RETRY_NS = SECOND


class Openable(Protocol):
    """A stream on its way to be opened: engine/stream_opening."""

    config: StreamConfig

    def begin(self, account: "JetStreamAccount") -> Generator[None, None, StreamEntry]:
        """Its opening, the same one each time. OSError."""

    def end(self) -> None:
        """It will not be opened."""


class ReopenRetry:
    """The next try to open an offline stream, and its progress."""

    def __init__(self, now_ns: int) -> None:
        """The first try has just failed."""
        self.since_ns = now_ns
        self.wait_ns = FIRST_RETRY_NS
        self.again_ns = now_ns + FIRST_RETRY_NS
        self.pending: Openable | None = None

    def end(self) -> None:
        """What is open of it is given back."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.end()


@dataclass(frozen=True)
class OfflineStream:
    """A stream on the disk that cannot be opened."""

    reason: str
    files: StreamFiles
    retry: ReopenRetry | None = (
        None  # it was the disk: it is opened again, see engine/stream_reopening
    )


class Transfer(Protocol):
    """A backup or a restore that is on its way; works by messages and jobs of the reactor."""

    def tick(self, now_ns: int) -> None:
        """Called now and then, for what happens when nothing does."""

    def close(self) -> None:
        """Give it up, and forget all that it holds."""


@dataclass
class RestoreUsage:
    """What the restores of a server that are on their way take, all accounts together."""

    count: int = 0
    held_bytes: int = 0  # of memory
    working: object = None  # the one that has a decompressed block


class JetStreamAccount:
    """The state of one account. `report` is told, in one line, what an operator should know."""

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
        memory: Usage | None = None,
        storage: Usage | None = None,
        batches: OpenBatches | None = None,
        transit: RestoreUsage | None = None,
        everyone: "list[JetStreamAccount] | None" = None,
        vault: Vault | None = None,
    ) -> None:
        """Attaches nothing yet: see `serve`. `limits`: by tier, "" is all (engine/limits); `memory`,
        `storage`, `batches` and `transit` count for the whole server, `everyone` are all its accounts.
        """
        self.name = name
        self.router = router
        self.reactor = reactor
        self.disk = disk
        self.settings = settings
        self.files = AccountFiles(disk, store, name, vault)
        self.streams: dict[str, StreamEntry] = {}
        self.listening = StreamSubjects()  # the subjects of those
        self.offline: dict[
            str, OfflineStream
        ] = {}  # streams that are on the disk and can't be opened
        # origin -> the upstreams of this server that copy it or wait for it
        self.followers: dict[str, list[LocalUpstream]] = {}
        self.leftovers: dict[str, StreamFiles] = {}  # of refused creates: name -> what is to go
        self.direct_mirrors: dict[str, list[StreamEntry]] = {}  # by the origin that they stand for
        self.remotes: dict[str, Link] = {}  # API prefix -> the way to the server it stands for
        self.ids = Nuid(random)
        self.limits = UNLIMITED if limits is None else limits
        self.memory = Usage(whole=memory)
        self.storage = Usage(whole=storage)
        self.advisories = Advisories(router, self.ids, settings.domain, name)
        self.caller: Connection | None = None  # the connection of the current call
        self.describe: Callable[[Connection], ClientInfo] = self._client_of
        self.batches = batches or OpenBatches(settings.batch)
        self.transit = transit or RestoreUsage()
        self.everyone = [self] if everyone is None else everyone
        self.report = report
        self.api_subjects: ApiSubjects | None = None
        self.timers: Timers[ConsumerEntry] = Timers()
        self.transfers: list[Transfer] = []  # backups and restores that are on their way
        self.alarms: Timers[Alarm] = Timers()
        # that have consumers whose states are to be written, in the order in which they changed
        self.unsaved: dict[StreamEntry, None] = {}
        # whether folders of deleted streams may be left to be removed, and when to try (again)
        self.owes_removals = False
        self.removals_at_ns = 0
        self.api_total = 0
        self.api_errors = 0
        self._random = random

    @property
    def now_ns(self) -> int:
        """The time of this turn."""
        return self.reactor.now_ns

    def serve(self, api: ApiCallback) -> None:
        """Take the account's `$JS.API.` and `$JS.ACK.` subjects."""
        api_subjects = ApiSubjects(self.router, api)
        api_subjects.max_deliver_advisory = self._max_deliver
        api_subjects.nak_advisory = self._nak
        api_subjects.term_advisory = self._terminated
        api_subjects.pin_advisory = self._pin
        api_subjects.ack_metric = self._acknowledged
        api_subjects.explain_pull = explain_pull
        api_subjects.owner = f"{self.settings.domain or '_'}.{short_hash(self.name)}.".encode()
        self.api_subjects = api_subjects

    def leave(self) -> None:
        """Undo `serve`."""
        if self.api_subjects is not None:
            self.router.detach_prefix(self.api_subjects)
            self.api_subjects = None

    def stream(self, name: str) -> StreamEntry:
        """The stream of this name; 10059, 10194."""
        entry = self.streams.get(name)
        if entry is None:
            self.check_online(name)
            raise errors.StreamNotFoundError()
        return entry

    @property
    def reopens(self) -> bool:
        """Whether a stream that is offline will be tried again."""
        return any(offline.retry is not None for offline in self.offline.values())

    def check_online(self, name: str) -> None:
        """10194: there is a stream of this name on the disk, and it can't be opened."""
        if name in self.offline:
            raise errors.StreamOfflineReasonError(self.offline[name].reason)

    def config_of(self, stream: str) -> StreamConfig | None:
        """The configuration of the stream of this name, if there is one."""
        entry = self.streams.get(stream)
        return entry.config if entry is not None else None

    def consumer(self, stream: str, name: str) -> tuple[StreamEntry, ConsumerEntry]:
        """A stream and its consumer; 10059, 10194, 10014, 10195."""
        owner = self.stream(stream)
        entry = owner.consumers.get(name)
        if entry is None and name in owner.offline:
            raise errors.ConsumerOfflineReasonError(owner.offline[name])
        if entry is None:
            raise errors.ConsumerNotFoundError()
        return owner, entry

    def direct_server(self, name: str) -> StreamEntry | None:
        """The stream that answers direct gets of this name, or None."""
        entry = self.streams.get(name)
        if entry is not None and entry.config.allow_direct:
            return entry
        for mirror in self.direct_mirrors.get(name, ()):
            if mirror.upstreams is not None and mirror.upstreams.caught_up:
                return mirror
        return None

    def random_name(self) -> str:
        """A name for a consumer that came without one."""
        return "".join(self._random.choices(DIGITS, k=8))

    def random_below(self, ceiling: int) -> int:
        """A number from 0 to below the ceiling."""
        return self._random.randrange(ceiling)

    def usage(self, storage: str) -> Usage:
        """Where the bytes of a stream with this kind of storage are counted."""
        return self.memory if storage == "memory" else self.storage

    def client_info(self) -> ClientInfo | None:
        """The client of the current call; None for a call from inside the server."""
        return None if self.caller is None else self.describe(self.caller)

    def _client_of(self, source: Connection) -> ClientInfo:
        # what is known without a shell; a server sets `describe` to tell more
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
    """What is wrong with a pull request."""
    try:
        decode_whole(PullRequest, body.strip())
    except JsonError as error:
        return str(error)
    return "invalid JSON"
