"""The engine: the accounts of a server, their recovery, their timers and their shutdown.

The server's shell owns sockets and the event loop: it calls `tick` when a deadline has come, and
`close` at the end. The engine has no clock: the reactor and the callers give the time.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.api.calls import AccountLimits
from penstock.core.base.disk import Disk
from penstock.core.base.quota import NO_LIMIT
from penstock.core.broker.reactor import Connection, Reactor
from penstock.core.broker.router import Router
from penstock.core.log import maintenance
from penstock.engine import consumers, disk_recovery, limits, stream_reopening, streams
from penstock.engine.account import JetStreamAccount, RestoreUsage
from penstock.engine.batches import OpenBatches
from penstock.engine.catalog import StreamEntry
from penstock.engine.dispatch import Dispatcher
from penstock.engine.settings import MILLISECOND, SECOND, ServerLimits, Settings
from penstock.engine.stream_opening import StreamOpening
from penstock.vault import Vault

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


class Engine:
    """The control plane of one server."""

    def __init__(
        self,
        reactor: Reactor,
        disk: Disk,
        store: str,
        *,
        settings: Settings,
        random: "Random",
        report: Callable[[str], None],
        vault: Vault | None = None,
    ) -> None:
        """`store` is the folder that all is kept in; `report` gets a line for the operator; `vault`
        has the keys of a store that is encrypted. There is no account yet: see `add`.
        """
        self._vault = vault
        self._reactor = reactor
        self._disk = disk
        self._store = store
        self._settings = settings
        self._random = random
        self._report = report
        self._memory = limits.server_usage(settings.max_memory)
        self._storage = limits.server_usage(
            -1 if settings.storage_by_disk else settings.max_storage
        )
        self._batches = OpenBatches(settings.batch)
        self._transit = RestoreUsage()
        self.accounts: dict[str, JetStreamAccount] = {}
        self._all: list[JetStreamAccount] = []  # the same, for sums over all of them
        self._dispatchers: dict[str, Dispatcher] = {}
        self.may_open: Callable[[str], bool] = lambda log_folder: True  # or the disk is not ready
        self.waiting = False  # the last open_more() had nothing that may be opened
        self._openings: dict[str, StreamOpening] = {}  # of accounts whose streams are not all there
        self._sooner: Callable[[int], None] | None = None
        self._sync_interval_ns = settings.sync_interval_ns or ASYNC_INTERVAL_NS
        self._save_at_ns = 0
        self._idle_at_ns = 0
        self._rules_at_ns = 0
        self._sync_at_ns = 0
        self._maintain_at_ns = 0

    def add(
        self, name: str, router: Router, account_limits: dict[str, AccountLimits] | None = None
    ) -> JetStreamAccount:
        """An account, not yet served; `account_limits`: see `JetStreamAccount`. ValueError: it is there."""
        if name in self.accounts:
            raise ValueError(f"account {name} is there already")
        account = JetStreamAccount(
            name,
            router,
            reactor=self._reactor,
            disk=self._disk,
            store=self._store,
            settings=self._settings,
            random=self._random,
            report=self._report,
            limits=account_limits,
            memory=self._memory,
            storage=self._storage,
            batches=self._batches,
            transit=self._transit,
            everyone=self._all,
            vault=self._vault,
        )
        limits.apply(account)
        self.accounts[name] = account
        self._all.append(account)
        if self._sooner is not None:
            self._call_sooner(account, self._sooner)
        return account

    def start(self, name: str | None = None) -> None:
        """Recover every stream and consumer, serve the API; of one account, or of all. OSError: the
        store can't be used.
        """
        for account in self._all if name is None else [self.accounts[name]]:
            self.begin(account.name)
            self.finish(account.name)

    def begin(self, name: str) -> None:
        """Serve an account: what needs a stream waits until that is recovered, see `open_more`.
        OSError: the store can't be used.
        """
        account = self.accounts[name]
        self._dispatchers[name] = Dispatcher(account)
        opening = StreamOpening(account, lambda folder: self.may_open(folder))
        if not opening.total:
            opening.finish()
        if not opening.done:
            self._openings[name] = opening

    def open_more(self) -> bool:
        """Recover a little more of the accounts that were begun, as little as a segment, and rather
        what somebody waits for; whether there is more to do. Let the reactor have a turn afterwards.
        """
        if not self._openings:
            return False
        awaited = (name for name, opening in self._openings.items() if opening.awaited)
        name = next(awaited, next(iter(self._openings)))
        opening = self._openings.pop(name)
        self._openings[name] = opening  # behind the others: each has its turn
        self.waiting = not opening.step()
        if opening.done:
            del self._openings[name]
        return bool(self._openings)

    def finish(self, name: str) -> None:
        """Recover the rest of an account's streams now."""
        opening = self._openings.pop(name, None)
        if opening is not None:
            opening.finish()

    def opening(self) -> tuple[int, int, str]:
        """Streams that are recovered, streams there were at the start, of the accounts where this
        is not over; and where it is, for the operator. Zeros and empty: all are recovered.
        """
        openings = self._openings.values()
        total = sum(each.total for each in openings)
        return (
            total - sum(each.left for each in openings),
            total,
            "; ".join(each.told() for each in openings),
        )

    def remove(self, name: str) -> None:
        """Serve an account no longer; what it has stays on the disk."""
        account = self.accounts.pop(name)
        self._all.remove(account)
        self._dispatchers.pop(name, None)
        opening = self._openings.pop(name, None)
        if opening is not None:
            opening.close()
        streams.close(account)
        account.leave()

    def change_limits(self, name: str, account_limits: dict[str, AccountLimits]) -> None:
        """An account may use more or less from now on."""
        account = self.accounts[name]
        account.limits = account_limits
        limits.apply(account)

    def take(
        self,
        name: str,
        source: Connection | None,
        subject: str,
        reply: str,
        headers: bytes,
        body: bytes,
    ) -> bool:
        """A request to the API of an account that came another way than by its subject; False:
        nobody serves it.
        """
        opening = self._openings.get(name)
        if opening is not None and opening.take(source, subject, reply, headers, body):
            return True
        dispatcher = self._dispatchers.get(name)
        return dispatcher is not None and dispatcher.take(source, subject, reply, headers, body)

    def tick(self, now_ns: int) -> int:
        """Do what is due; when to call again (ns). Let the reactor have a turn afterwards.

        0: not needed until a turn changes something (an API request, a delivery). Between two calls
        a consumer's deadline may move forward: see `call_when_sooner`, or ask `next_deadline_ns`
        after a turn.
        """
        self._reactor.now_ns = now_ns
        save, idle = now_ns >= self._save_at_ns, now_ns >= self._idle_at_ns
        if save:
            self._save_at_ns = now_ns + SAVE_INTERVAL_NS
        if idle:
            self._idle_at_ns = now_ns + IDLE_INTERVAL_NS
        for account in self._all:
            _ring(account, now_ns)
            if save:
                for stream in list(account.unsaved):
                    self._save(account, stream, now_ns)
            if idle:
                if account.leftovers:
                    with contextlib.suppress(OSError):  # it is tried again
                        streams.clear_leftovers(account)
                for transfer in list(account.transfers):
                    transfer.tick(now_ns)
                _expire(account, now_ns)
                if account.offline:
                    stream_reopening.retry(account, now_ns)
        if now_ns >= self._rules_at_ns:
            self._rules_at_ns = self._run_rules(now_ns)
        if now_ns >= self._maintain_at_ns:
            busy = any(_maintain(account) for account in self._all)
            self._maintain_at_ns = now_ns + (MAINTAIN_AGAIN_NS if busy else MAINTAIN_INTERVAL_NS)
        if now_ns >= self._sync_at_ns:
            self._sync_at_ns = now_ns + self._sync_interval_ns
            self._sync()
        return self.next_deadline_ns()

    def next_deadline_ns(self) -> int:
        """When `tick` has something to do; 0: not needed."""
        soon = 0
        for account in self._all:
            owes = account.owes_removals or account.leftovers
            if not (account.streams or account.transfers or account.reopens or owes):
                continue
            soon = soon or min(self._save_at_ns, self._idle_at_ns, self._rules_at_ns)
            for due_ns in (account.timers.next_ns(), account.alarms.next_ns()):
                if due_ns:
                    soon = min(soon, due_ns)
        return soon

    @property
    def busy(self) -> bool:
        """Whether there is any stream."""
        return any(account.streams or account.reopens for account in self._all)

    def call_when_sooner(self, call: Callable[[int], None]) -> None:
        """`call` gets a deadline (ns) that comes before what `tick` said; from within a turn."""
        self._sooner = call
        for account in self._all:
            self._call_sooner(account, call)

    def _call_sooner(self, account: JetStreamAccount, call: Callable[[int], None]) -> None:
        account.timers.sooner = call
        account.alarms.sooner = call

    def raise_limits(self, max_memory: int, max_storage: int, each: ServerLimits) -> None:
        """Let all streams together hold more than before; `each`: what one stream or consumer that
        is made or changed from now on may be.
        """
        self._settings = replace(
            self._settings, max_memory=max_memory, max_storage=max_storage, limits=each
        )
        for account in self._all:
            account.settings = self._settings
        for usage, most in ((self._memory, max_memory), (self._storage, max_storage)):
            if usage.limit != NO_LIMIT:
                usage.limit = most

    def close(self) -> None:
        """Stop cleanly: consumer states and logs are on disk afterwards.

        Whoever asks meanwhile, or has waited for a stream, hears that nobody is there: never that
        there is no such stream, for it is there again with the next start.
        """
        for opening in self._openings.values():
            opening.close()
        self._openings.clear()
        for account in self._all:
            account.leave()
        for account in self._all:
            streams.close(account)
        self._dispatchers.clear()

    def _sync(self) -> None:
        for account in self._all:
            for stream in account.streams.values():
                if stream.files is not None:
                    stream.core.sync_soon()

    def _run_rules(self, now_ns: int) -> int:
        """Let rules do what is due; when to look again."""
        next_ns = now_ns + IDLE_INTERVAL_NS
        for account in self._all:
            for stream in list(account.streams.values()):
                if stream.rules is None:
                    continue
                if now_ns >= stream.rules_at_ns:
                    try:
                        stream.rules_at_ns = stream.rules.tick(now_ns) or NEVER_NS
                        stream.reported_failures.discard("a timed task of its rules")
                    except OSError as error:
                        stream.rules_at_ns = now_ns + RETRY_INTERVAL_NS
                        disk_recovery.report_once(
                            account, stream, "a timed task of its rules", error
                        )
                next_ns = min(next_ns, stream.rules_at_ns)
        return max(next_ns, now_ns + RULES_STEP_NS)

    def _save(self, account: JetStreamAccount, stream: StreamEntry, now_ns: int) -> None:
        if stream.files is not None and now_ns >= stream.save_at_ns:
            consumers.save_states(account, stream, durable=False)
            # large states less often, so that the disk is not kept busy with them
            times = 1 + stream.files.states.saved_bytes // SAVE_BYTES
            stream.save_at_ns = now_ns + times * SAVE_INTERVAL_NS


def _ring(account: JetStreamAccount, now_ns: int) -> None:
    """Timers and alarms that are due."""
    while (entry := account.timers.pop(now_ns)) is not None:
        due_ns = entry.core.tick()
        account.timers.set(entry, max(due_ns, now_ns + 1) if due_ns else 0)
    while (alarm := account.alarms.pop(now_ns)) is not None:
        due_ns = alarm.ring(now_ns)
        account.alarms.set(alarm, max(due_ns, now_ns + 1) if due_ns else 0)


def _maintain(account: JetStreamAccount) -> bool:
    """Rewrite one segment, of whichever stream has one that is mostly removed messages or is to be
    compressed; whether there was one.
    """
    for stream in account.streams.values():
        if stream.files is not None:
            try:
                if maintenance.maintain(stream.core.log):
                    stream.core.settle()  # what it has to write is written with this turn
                    stream.reported_failures.discard("compaction")
                    return True
                if _decrypted(stream):
                    account.report(f"stream {stream.config.name} is no longer encrypted")
            except OSError as error:
                disk_recovery.report_once(account, stream, "compaction", error)
    return False


def _decrypted(stream: StreamEntry) -> bool:
    """Whether the last of an encrypted stream has just become plain; its keys are put aside."""
    small = stream.files.small if stream.files is not None else None
    if small is None or not small.decrypting or maintenance.unconverted(stream.core.log):
        return False
    return small.drop_keys()


def _expire(account: JetStreamAccount, now_ns: int) -> None:
    if account.owes_removals:
        disk_recovery.retry_removals(account, now_ns)
    for stream in account.streams.values():
        if len(stream.core.log.lost) != stream.lost_reported:
            streams.report_lost(account, stream)
        if stream.core.failure or stream.disk_failure is not None:
            disk_recovery.retry_writes(account, stream, now_ns)
        if stream.rewrites:
            disk_recovery.retry_config_files(account, stream, now_ns)
        if stream.core.unread or stream.unread_since_ns:
            disk_recovery.retry_reads(account, stream, now_ns)
        if stream.upstreams is not None and now_ns >= stream.upstreams_at_ns:
            stream.upstreams_at_ns = NEVER_NS
            try:
                due_ns = stream.upstreams.tick(now_ns) or NEVER_NS
                stream.reported_failures.discard("reading its sources")
            except OSError as error:
                due_ns = now_ns + RETRY_INTERVAL_NS
                disk_recovery.report_once(account, stream, "reading its sources", error)
            stream.upstreams_at_ns = min(due_ns, stream.upstreams_at_ns)
        if now_ns >= stream.expire_at_ns:
            try:
                stream.expire_at_ns = stream.core.expire()
                stream.reported_failures.discard("removing expired messages")
            except OSError as error:
                stream.expire_at_ns = now_ns + RETRY_INTERVAL_NS
                disk_recovery.report_once(account, stream, "removing expired messages", error)
