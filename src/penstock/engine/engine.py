"""The engine: the accounts of a server, their recovery, their timers, their end.

A shell owns sockets and the loop: it calls `tick` when a deadline has come, then the hub's turn as
usual, and `close` at the end. The engine has no clock: time is what the hub and the callers say.
"""

from collections.abc import Callable
from random import Random

from penstock.core.disk import Disk
from penstock.core.hub import Hub
from penstock.core.router import Router
from penstock.engine import consumers, streams
from penstock.engine.account import Account
from penstock.engine.dispatch import Dispatcher
from penstock.engine.entries import ConsumerEntry, StreamEntry
from penstock.engine.settings import MILLISECOND, Settings

CONSUMER_INTERVAL_NS = 50 * MILLISECOND
"""How exactly redeliveries, request expiry and heartbeats keep time."""
SAVE_INTERVAL_NS = 100 * MILLISECOND
"""How old a consumer's state on disk may be."""
STREAM_INTERVAL_NS = 250 * MILLISECOND
"""How exactly max_age keeps time."""
ACCOUNT = "$G"


class Engine:
    """The control plane of one server."""

    def __init__(
        self,
        hub: Hub,
        router: Router,
        disk: Disk,
        store: str,
        *,
        settings: Settings,
        random: Random,
        report: Callable[[str], None],
    ) -> None:
        """`router` is the one account's; `store` the folder that all is kept in; `report` gets a
        line for the operator.
        """
        self._hub = hub
        self.account = Account(
            ACCOUNT,
            router,
            hub=hub,
            disk=disk,
            store=store,
            settings=settings,
            random=random,
            report=report,
        )
        self._dispatcher: Dispatcher | None = None
        self._sync_interval_ns = settings.sync_interval_ns
        self._save_at_ns = 0
        self._sync_at_ns = 0

    def start(self) -> None:
        """Recover every stream and consumer, serve the API. OSError: the store can't be used."""
        self._dispatcher = Dispatcher(self.account)
        streams.recover(self.account)

    def tick(self, now_ns: int) -> int:
        """Do what is due; when to call again (ns). Let the hub have a turn afterwards.

        Consumers are looked at every CONSUMER_INTERVAL_NS or sooner when one of them has a
        deadline; with no stream at all, 0: not needed until there is one (call again after a turn
        in which API requests came).
        """
        self._hub.now_ns = now_ns
        wake = 0
        for stream in list(self.account.streams.values()):
            wake = _sooner(wake, self._tick_stream(stream, now_ns))
        if now_ns >= self._save_at_ns:
            self._save_at_ns = now_ns + SAVE_INTERVAL_NS
            for stream in self.account.streams.values():
                for entry in list(stream.consumers.values()):
                    consumers.save_state(self.account, stream, entry, durable=False)
        if self._sync_interval_ns and now_ns >= self._sync_at_ns:
            self._sync_at_ns = now_ns + self._sync_interval_ns
            self._sync()
        return wake

    def close(self) -> None:
        """Stop cleanly: consumer states and logs are on disk afterwards."""
        streams.close(self.account)

    def _sync(self) -> None:
        for stream in self.account.streams.values():
            if stream.files is not None:
                try:
                    stream.core.log.fsync()
                except OSError as error:
                    self.account.report(f"stream {stream.config.name}: fsync failed: {error}")

    def _tick_stream(self, stream: StreamEntry, now_ns: int) -> int:
        if now_ns >= stream.expire_at_ns:
            due = stream.core.expire()
            stream.expire_at_ns = max(due, now_ns + STREAM_INTERVAL_NS)
        wake = stream.expire_at_ns
        for entry in list(stream.consumers.values()):
            wake = _sooner(wake, self._tick_consumer(stream, entry, now_ns))
        return wake

    def _tick_consumer(self, stream: StreamEntry, entry: ConsumerEntry, now_ns: int) -> int:
        due = entry.core.tick()
        threshold = entry.config.inactive_threshold
        if threshold > 0:
            idle_ns = entry.core.idle_since_ns()
            if idle_ns and now_ns - idle_ns >= threshold:
                consumers.delete(self.account, stream, entry)
                return 0
        latest = now_ns + CONSUMER_INTERVAL_NS
        return min(due, latest) if due > now_ns else latest


def _sooner(one: int, other: int) -> int:
    """The earlier of two deadlines; 0 is none."""
    if not one or not other:
        return one or other
    return min(one, other)
