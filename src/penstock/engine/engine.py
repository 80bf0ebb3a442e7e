"""The engine: the accounts of a server, their recovery, their timers, their end.

A shell owns sockets and the loop: it calls `tick` when a deadline has come, then the hub's turn as
usual, and `close` at the end. The engine has no clock: time is what the hub and the callers say.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.api.calls import AccountLimits
from penstock.core.disk import Disk
from penstock.core.hub import Connection, Hub
from penstock.core.router import Router
from penstock.core.usage import NO_LIMIT
from penstock.engine import consumers, limits, streams
from penstock.engine.account import Account
from penstock.engine.dispatch import Dispatcher
from penstock.engine.entries import StreamEntry
from penstock.engine.settings import MILLISECOND, SECOND, Settings

if TYPE_CHECKING:
    from random import Random

SAVE_INTERVAL_NS = 100 * MILLISECOND
"""How old a consumer's state on disk may be, as long as a stream's are below SAVE_BYTES."""
SAVE_BYTES = 1 << 20
RETRY_INTERVAL_NS = 5 * SECOND
IDLE_INTERVAL_NS = 250 * MILLISECOND
"""How exactly max_age keeps time."""
RULES_STEP_NS = 5 * MILLISECOND
"""Between two pieces of a rule's work that is too much for one turn."""
MAINTAIN_INTERVAL_NS = 2 * SECOND
"""Between two looks for a segment that is worth rewriting."""
MAINTAIN_AGAIN_NS = 200 * MILLISECOND
"""And when the last look found one: each stops the server for some tens of milliseconds."""
ASYNC_INTERVAL_NS = 120 * SECOND
"""Where acks mean the disk, streams of persist mode async are on the disk this often."""
NEVER_NS = 1 << 62
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
        random: "Random",
        report: Callable[[str], None],
        account_limits: dict[str, AccountLimits] | None = None,
    ) -> None:
        """`router` is the one account's; `store` the folder that all is kept in; `report` gets a
        line for the operator; `account_limits`: see `Account`.
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
            limits=account_limits,
            memory=limits.server_usage(settings.max_memory),
            storage=limits.server_usage(-1 if settings.storage_by_disk else settings.max_storage),
        )
        limits.apply(self.account)
        self._dispatcher: Dispatcher | None = None
        self._sync_interval_ns = settings.sync_interval_ns or ASYNC_INTERVAL_NS
        self._save_at_ns = 0
        self._idle_at_ns = 0
        self._rules_at_ns = 0
        self._sync_at_ns = 0
        self._maintain_at_ns = 0

    def start(self) -> None:
        """Recover every stream and consumer, serve the API. OSError: the store can't be used."""
        self._dispatcher = Dispatcher(self.account)
        streams.recover(self.account)

    def take(
        self, source: Connection | None, subject: str, reply: str, headers: bytes, body: bytes
    ) -> bool:
        """A request to the API that came another way than by its subject; False: nobody serves it."""
        if self._dispatcher is None:
            return False
        return self._dispatcher.take(source, subject, reply, headers, body)

    def tick(self, now_ns: int) -> int:
        """Do what is due; when to call again (ns). Let the hub have a turn afterwards.

        0: not needed until a turn changes something (an API request, a delivery). Between two calls
        a consumer's deadline may move forward: see `call_when_sooner`, or ask `next_deadline_ns`
        after a turn.
        """
        self._hub.now_ns = now_ns
        account = self.account
        while (entry := account.timers.pop(now_ns)) is not None:
            due_ns = entry.core.tick()
            account.timers.set(entry, max(due_ns, now_ns + 1) if due_ns else 0)
        while (alarm := account.alarms.pop(now_ns)) is not None:
            due_ns = alarm.ring(now_ns)
            account.alarms.set(alarm, max(due_ns, now_ns + 1) if due_ns else 0)
        if now_ns >= self._save_at_ns:
            self._save_at_ns = now_ns + SAVE_INTERVAL_NS
            for stream in list(account.unsaved):
                self._save(stream, now_ns)
        if now_ns >= self._idle_at_ns:
            self._idle_at_ns = now_ns + IDLE_INTERVAL_NS
            for transfer in list(self.account.transfers):
                transfer.tick(now_ns)
            self._expire(now_ns)
        if now_ns >= self._rules_at_ns:
            self._rules_at_ns = self._run_rules(now_ns)
        if now_ns >= self._maintain_at_ns:
            busy = self._maintain()
            self._maintain_at_ns = now_ns + (MAINTAIN_AGAIN_NS if busy else MAINTAIN_INTERVAL_NS)
        if now_ns >= self._sync_at_ns:
            self._sync_at_ns = now_ns + self._sync_interval_ns
            self._sync()
        return self.next_deadline_ns()

    def next_deadline_ns(self) -> int:
        """When `tick` has something to do; 0: not needed."""
        if not self.account.streams and not self.account.transfers:
            return 0
        soon = min(self._save_at_ns, self._idle_at_ns, self._rules_at_ns)
        due = (self.account.timers.next_ns(), self.account.alarms.next_ns())
        return min((soon, *(due_ns for due_ns in due if due_ns)))

    def call_when_sooner(self, call: Callable[[int], None]) -> None:
        """`call` gets a deadline (ns) that comes before what `tick` said; from within a turn."""
        self.account.timers.sooner = call
        self.account.alarms.sooner = call

    def raise_limits(self, max_memory: int, max_storage: int) -> None:
        """Let all streams together hold more than before."""
        account = self.account
        account.settings = replace(account.settings, max_memory=max_memory, max_storage=max_storage)
        for usage, most in ((account.memory, max_memory), (account.storage, max_storage)):
            if usage.whole is not None and usage.whole.limit != NO_LIMIT:
                usage.whole.limit = most

    def close(self) -> None:
        """Stop cleanly: consumer states and logs are on disk afterwards."""
        streams.close(self.account)
        if self.account.desk is not None:
            self.account.desk.close()
        self._dispatcher = None

    def _sync(self) -> None:
        for stream in self.account.streams.values():
            if stream.files is not None:
                stream.core.sync_soon()

    def _maintain(self) -> bool:
        """Rewrite one segment, of whichever stream has one that is mostly removed messages or is to
        be compressed; whether there was one.
        """
        for stream in self.account.streams.values():
            if stream.files is not None:
                try:
                    if stream.core.log.maintain():
                        stream.core.settle()  # what it has to write is written with this turn
                        return True
                except OSError as error:
                    self.account.report(f"stream {stream.config.name}: compaction failed: {error}")
        return False

    def _expire(self, now_ns: int) -> None:
        for stream in self.account.streams.values():
            if len(stream.core.log.lost) > stream.lost_reported:
                streams.report_lost(self.account, stream)
            if stream.supply is not None and now_ns >= stream.supply_at_ns:
                stream.supply_at_ns = NEVER_NS
                due_ns = stream.supply.tick(now_ns) or NEVER_NS
                stream.supply_at_ns = min(due_ns, stream.supply_at_ns)
            if now_ns >= stream.expire_at_ns:
                try:
                    stream.expire_at_ns = stream.core.expire()
                except OSError as error:
                    stream.expire_at_ns = now_ns + RETRY_INTERVAL_NS
                    self.account.report(f"stream {stream.config.name}: expiry failed: {error}")

    def _run_rules(self, now_ns: int) -> int:
        """Let rules do what is due; when to look again."""
        next_ns = now_ns + IDLE_INTERVAL_NS
        for stream in list(self.account.streams.values()):
            if stream.rules is None:
                continue
            if now_ns >= stream.rules_at_ns:
                stream.rules_at_ns = stream.rules.tick(now_ns) or NEVER_NS
            next_ns = min(next_ns, stream.rules_at_ns)
        return max(next_ns, now_ns + RULES_STEP_NS)

    def _save(self, stream: StreamEntry, now_ns: int) -> None:
        if stream.files is not None and now_ns >= stream.save_at_ns:
            consumers.save_states(self.account, stream, durable=False)
            # large states less often, so that the disk is not kept busy with them
            times = 1 + stream.files.states.saved_bytes // SAVE_BYTES
            stream.save_at_ns = now_ns + times * SAVE_INTERVAL_NS
