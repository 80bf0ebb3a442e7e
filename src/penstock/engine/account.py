"""One account: its subjects, its streams, its counters. Everything an API call may touch hangs
here.

Lifecycle of streams is in `engine/streams`, of consumers in `engine/consumers`; they work on an
Account. Nothing here is global: a server with several accounts has several of these over one hub
and one disk.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from penstock.api import errors_generated as errors
from penstock.api.calls import AccountInfo, ApiStats
from penstock.core.consumer import Consumer
from penstock.core.disk import Disk
from penstock.core.hub import Connection, Hub
from penstock.core.jetstream import Desk
from penstock.core.router import Router
from penstock.engine.advisories import Advisories
from penstock.engine.entries import ConsumerEntry, StreamEntry
from penstock.engine.files import AccountFiles
from penstock.engine.settings import Settings
from penstock.engine.timers import Timers
from penstock.nuid import DIGITS, Nuid

if TYPE_CHECKING:
    from random import Random

ApiCallback = Callable[[Connection | None, str, str, bytes, bytes], bool]


class Transfer(Protocol):
    """A backup or a restore that is on its way; works by messages and jobs of the hub."""

    def tick(self, now_ns: int) -> None:
        """Called now and then, for what happens when nothing does."""


class Account:
    """The state of one account. `report` is told, in one line, what an operator should know."""

    def __init__(
        self,
        name: str,
        router: Router,
        *,
        hub: Hub,
        disk: Disk,
        store: str,
        settings: Settings,
        random: "Random",
        report: Callable[[str], None],
    ) -> None:
        """Attaches nothing yet: see `serve`."""
        self.name = name
        self.router = router
        self.hub = hub
        self.disk = disk
        self.settings = settings
        self.files = AccountFiles(disk, store, name)
        self.streams: dict[str, StreamEntry] = {}
        self.ids = Nuid(random)
        self.advisories = Advisories(router, self.ids, settings.domain)
        self.report = report
        self.desk: Desk | None = None
        self.timers: Timers[ConsumerEntry] = Timers()
        self.transfers: list[Transfer] = []  # backups and restores that are on their way
        self.api_total = 0
        self.api_errors = 0
        self._random = random

    @property
    def now_ns(self) -> int:
        """The time of this turn."""
        return self.hub.now_ns

    def serve(self, api: ApiCallback) -> None:
        """Take the account's `$JS.API.` and `$JS.ACK.` subjects."""
        desk = Desk(self.router, api)
        desk.max_deliver_advisory = self._max_deliver
        desk.nak_advisory = self._nak
        desk.term_advisory = self._terminated
        self.desk = desk

    def stream(self, name: str) -> StreamEntry:
        """The stream of this name; 10059."""
        entry = self.streams.get(name)
        if entry is None:
            raise errors.StreamNotFoundError()
        return entry

    def consumer(self, stream: str, name: str) -> tuple[StreamEntry, ConsumerEntry]:
        """A stream and its consumer; 10059, 10014."""
        owner = self.stream(stream)
        entry = owner.consumers.get(name)
        if entry is None:
            raise errors.ConsumerNotFoundError()
        return owner, entry

    def random_name(self) -> str:
        """A name for a consumer that came without one."""
        return "".join(self._random.choices(DIGITS, k=8))

    def info(self) -> AccountInfo:
        """What the account uses."""
        info = AccountInfo(
            streams=len(self.streams),
            consumers=sum(len(entry.consumers) for entry in self.streams.values()),
            domain=self.settings.domain,
            api=ApiStats(
                level=self.settings.api_level, total=self.api_total, errors=self.api_errors
            ),
        )
        for entry in self.streams.values():
            reserved = max(entry.config.max_bytes, 0)
            if entry.config.storage == "memory":
                info.memory += entry.core.log.bytes
                info.reserved_memory += reserved
            else:
                info.storage += entry.core.log.bytes
                info.reserved_storage += reserved
        return info

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
