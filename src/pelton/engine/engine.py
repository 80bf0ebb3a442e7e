"""The engine: the accounts of a server, their recovery, their timers and their shutdown.

The server's shell owns sockets and the event loop: it calls `tick` when a deadline has come, and
`close` at the end. The engine has no clock: the reactor and the callers give the time.
"""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pelton.api.calls import AccountLimits
from pelton.core.base.disk import Disk
from pelton.core.base.quota import NO_LIMIT
from pelton.core.broker.reactor import Connection, Reactor
from pelton.core.broker.request_queue import RequestQueue
from pelton.core.broker.router import Router
from pelton.core.log import maintenance
from pelton.engine.account import disk_recovery, limits
from pelton.engine.account.account import JetStreamAccount, RestoreUsage
from pelton.engine.account.catalog import StreamEntry
from pelton.engine.base.batches import OpenBatches
from pelton.engine.base.settings import MILLISECOND, SECOND, ServerLimits, Settings
from pelton.engine.calls.dispatch import Dispatcher
from pelton.engine.lifecycles import consumers, stream_reopening, streams
from pelton.engine.lifecycles.stream_opening import StreamOpening
from pelton.vault import Vault

if TYPE_CHECKING:
    from random import Random

SAVE_INTERVAL_NS = 100 * MILLISECOND
"""The maximum age of a consumer's state on the disk, while the states of a stream are below
SAVE_BYTES.
"""
SAVE_BYTES = 1 << 20
RETRY_INTERVAL_NS = 5 * SECOND
IDLE_INTERVAL_NS = 250 * MILLISECOND
"""How often max_age is applied."""
RULES_STEP_NS = 5 * MILLISECOND
"""The wait between two steps of a rule whose work is too long for one turn."""
MAINTAIN_INTERVAL_NS = 2 * SECOND
"""The wait between two searches for a segment to compact."""
MAINTAIN_AGAIN_NS = 200 * MILLISECOND
"""The wait after a search that found one: each compaction stops the server for tens of
milliseconds.
"""
ASYNC_INTERVAL_NS = 120 * SECOND
"""The wait between two fsyncs of `persist_mode: async` streams on a server whose acks mean synced.
"""
NEVER_NS = 1 << 62
RESERVE = "reserve"
"""The name of the file in the store folder whose room is given up when the disk is full."""


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
        """Create the engine without an account: see `add`.

        `store` is the folder of all files. `report` gets log lines for the operator. `vault` has
        the keys of an encrypted store.
        """
        self._vault = vault
        self._reactor = reactor
        self._disk = disk
        self._store = store
        self._settings = settings
        self._random = random
        self._report = report
        self._memory = limits.server_quota(settings.max_memory)
        self._storage = limits.server_quota(
            -1 if settings.storage_by_disk else settings.max_storage
        )
        self._batches = OpenBatches(settings.batch)
        self._transit = RestoreUsage()
        self.accounts: dict[str, JetStreamAccount] = {}
        self._all: list[JetStreamAccount] = []  # the accounts as a list, for sums over all of them
        self._dispatchers: dict[str, Dispatcher] = {}
        self._requests = RequestQueue(reactor, lambda error: report(f"internal error: {error!r}"))
        # False: the disk is not ready for this log
        self.may_open: Callable[[str], bool] = lambda log_folder: True
        self.waiting = False  # the last open_more() found no log that may be opened
        # of accounts with streams that are not open yet
        self._openings: dict[str, StreamOpening] = {}
        self._sooner: Callable[[int], None] | None = None
        self._sync_interval_ns = settings.sync_interval_ns or ASYNC_INTERVAL_NS
        self._reserved = settings.reserve_bytes == 0 or settings.frozen
        if not self._reserved:
            disk.keep_reserve(f"{store}/{RESERVE}", settings.reserve_bytes)
        self._save_at_ns = 0
        self._idle_at_ns = 0
        self._rules_at_ns = 0
        self._sync_at_ns = 0
        self._maintain_at_ns = 0

    def add(
        self, name: str, router: Router, account_limits: dict[str, AccountLimits] | None = None
    ) -> JetStreamAccount:
        """Add an account, not yet served. `account_limits`: see `JetStreamAccount`. ValueError: it
        exists.
        """
        if name in self.accounts:
            raise ValueError(f"account {name} already exists")
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
        """Recover all streams and consumers of one account, or of all, and serve the API.

        OSError: the store cannot be used.
        """
        for account in self._all if name is None else [self.accounts[name]]:
            self.begin(account.name)
            self.finish(account.name)

    def begin(self, name: str) -> None:
        """Serve an account: requests that need a stream wait until `open_more` has recovered it.

        OSError: the store cannot be used.
        """
        account = self.accounts[name]
        self._dispatchers[name] = Dispatcher(account, self._requests)
        opening = StreamOpening(account, lambda folder: self.may_open(folder))
        if not opening.total:
            opening.finish()
        if not opening.done:
            self._openings[name] = opening

    def open_more(self) -> bool:
        """Recover one more step, as small as a segment; return whether more is to do.

        Streams with waiting requests come first. Let the reactor have a turn after each call.
        """
        if not self._openings:
            return False
        awaited = (name for name, opening in self._openings.items() if opening.awaited)
        name = next(awaited, next(iter(self._openings)))
        opening = self._openings.pop(name)
        self._openings[name] = opening  # move to the end, so that each account has its turn
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
        """Return (recovered streams, streams at the start, progress for the operator) of the
        accounts whose recovery is in progress; zeros and "" when all streams are recovered.
        """
        openings = self._openings.values()
        total = sum(each.total for each in openings)
        return (
            total - sum(each.left for each in openings),
            total,
            "; ".join(each.progress() for each in openings),
        )

    def remove(self, name: str) -> None:
        """Stop serving an account; its files stay on the disk. Requests that wait are refused."""
        account = self.accounts.pop(name)
        self._all.remove(account)
        dispatcher = self._dispatchers.pop(name, None)
        if dispatcher is not None:
            dispatcher.leave()
        opening = self._openings.pop(name, None)
        if opening is not None:
            opening.close()
        account.waiting_files.commit()
        streams.close(account)
        account.leave()

    def change_limits(self, name: str, account_limits: dict[str, AccountLimits]) -> None:
        """Change the limits of an account."""
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
        """Take a request to the API of an account that did not come by its subject. False: no
        dispatcher serves the account or the call.
        """
        opening = self._openings.get(name)
        if opening is not None and opening.take(source, subject, reply, headers, body):
            return True
        dispatcher = self._dispatchers.get(name)
        return dispatcher is not None and dispatcher.take(source, subject, reply, headers, body)

    def tick(self, now_ns: int) -> int:
        """Do what is due; return the time of the next call (ns). Let the reactor have a turn
        afterwards.

        0: no call is needed until a turn changes something (an API request, a delivery). Between
        two calls a consumer's deadline may move forward: see `call_when_sooner`, or ask
        `next_deadline_ns` after a turn.
        """
        self._reactor.now_ns = now_ns
        if self._settings.frozen:
            return 0
        save, idle = now_ns >= self._save_at_ns, now_ns >= self._idle_at_ns
        if save:
            self._save_at_ns = now_ns + SAVE_INTERVAL_NS
        if idle:
            self._idle_at_ns = now_ns + IDLE_INTERVAL_NS
        if idle and (not self._reserved or self._disk.spent) and self._has_streams():
            self._reserved = self._disk.refill()
        for account in self._all:
            account.waiting_files.commit()
            _ring(account, now_ns)
            account.waiting_files.commit()
            if save:
                for stream in list(account.unsaved):
                    self._save(account, stream, now_ns)
            if idle:
                if account.leftovers:
                    with contextlib.suppress(OSError):  # the next tick tries again
                        streams.clear_leftovers(account)
                for transfer in list(account.transfers):
                    transfer.tick(now_ns)
                _expire(account, now_ns)
                if account.offline:
                    stream_reopening.retry(account, now_ns)
        if now_ns >= self._rules_at_ns:
            self._rules_at_ns = self._run_rules(now_ns)
        if now_ns >= self._maintain_at_ns:
            for account in self._all:
                for stream in account.streams.values():
                    if stream.upstreams is not None:
                        stream.upstreams.look(now_ns)
        if now_ns >= self._maintain_at_ns or (idle and self._disk.spent):
            busy = any(_maintain(account) for account in self._all)
            self._maintain_at_ns = now_ns + (MAINTAIN_AGAIN_NS if busy else MAINTAIN_INTERVAL_NS)
        if now_ns >= self._sync_at_ns:
            done = self._sync()
            self._sync_at_ns = now_ns + (self._sync_interval_ns if done else 0)
        return self.next_deadline_ns()

    def _has_streams(self) -> bool:
        return any(account.streams for account in self._all)

    def next_deadline_ns(self) -> int:
        """Return when `tick` is due; 0: not needed."""
        soon = 0
        for account in self._all:
            unfinished = account.removals_left or account.leftovers
            if not (account.streams or account.transfers or account.reopens or unfinished):
                continue
            soon = soon or min(self._save_at_ns, self._idle_at_ns, self._rules_at_ns)
            for due_ns in (account.timers.next_ns(), account.alarms.next_ns()):
                if due_ns:
                    soon = min(soon, due_ns)
        return soon

    def tick_all(self, now_ns: int) -> None:
        """As `tick`, without the waits between two looks at the same thing: afterwards everything
        that was due at `now_ns` is done. For a clock that is set by hand.
        """
        self._save_at_ns = self._idle_at_ns = self._rules_at_ns = 0
        for account in self._all:
            for stream in account.streams.values():
                stream.expire_at_ns = 0
        self.tick(now_ns)

    def next_event_ns(self) -> int:
        """Return when something is due that clients may notice, such as a redelivery, an expiry, a
        schedule; 0: nothing. Right after `tick_all`.
        """
        soon = NEVER_NS
        for account in self._all:
            for due_ns in (account.timers.next_ns(), account.alarms.next_ns()):
                soon = min(soon, due_ns or NEVER_NS)
            for stream in account.streams.values():
                soon = min(soon, stream.expire_at_ns or NEVER_NS)
                if stream.rules is not None:
                    soon = min(soon, stream.rules_at_ns)
                if stream.upstreams is not None:
                    soon = min(soon, stream.upstreams_at_ns)
                if stream.disk_failure is not None or stream.rewrites or stream.unread_since_ns:
                    soon = min(soon, self._reactor.now_ns + RETRY_INTERVAL_NS)
        return 0 if soon == NEVER_NS else soon

    @property
    def busy(self) -> bool:
        """Whether the engine has a stream, or one to open again."""
        return any(account.streams or account.reopens for account in self._all)

    def call_when_sooner(self, call: Callable[[int], None]) -> None:
        """Register `call`, which gets each deadline (ns) that is earlier than the result of `tick`,
        from within a turn.
        """
        self._sooner = call
        for account in self._all:
            self._call_sooner(account, call)

    def _call_sooner(self, account: JetStreamAccount, call: Callable[[int], None]) -> None:
        account.timers.sooner = call
        account.alarms.sooner = call

    def raise_limits(self, max_memory: int, max_storage: int, each: ServerLimits) -> None:
        """Raise the limits of the server. `each`: the limits of one stream or consumer that is
        created or updated from now on.
        """
        self._settings = replace(
            self._settings, max_memory=max_memory, max_storage=max_storage, limits=each
        )
        for account in self._all:
            account.settings = self._settings
        for quota, most in ((self._memory, max_memory), (self._storage, max_storage)):
            if quota.limit != NO_LIMIT:
                quota.limit = most

    def close(self) -> None:
        """Stop cleanly: consumer states and logs are on the disk afterwards.

        A request during the stop, and one that waits for a stream, gets "no responders", and never
        "stream not found": the next start has the stream again.
        """
        for opening in self._openings.values():
            opening.close()
        self._openings.clear()
        for dispatcher in self._dispatchers.values():
            dispatcher.close()
        for account in self._all:
            account.waiting_files.commit()
            account.leave()
        for account in self._all:
            streams.close(account)
        self._dispatchers.clear()

    def _sync(self) -> bool:
        """Sync what no sync has covered: creates first, some in each call. False: some are left,
        and messages of their streams, which are worth nothing without them.
        """
        left = streams.CREATES_MAX
        done = True
        for account in self._all:
            for stream in account.streams.values():
                if stream.files is None:
                    continue
                if stream.files.unsynced or "" in stream.rewrites:
                    left -= streams.sync_creates(account, stream, left)
                if stream.files.unsynced or "" in stream.rewrites:
                    done = False
                else:
                    stream.core.sync_soon()
        return done

    def _run_rules(self, now_ns: int) -> int:
        """Run the rules that are due; return the time of the next run."""
        next_ns = now_ns + IDLE_INTERVAL_NS
        for account in self._all:
            for stream in list(account.streams.values()):
                if stream.rules is None or stream.incomplete:
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
            # save large states less often, to spare the disk
            times = 1 + stream.files.states.saved_bytes // SAVE_BYTES
            stream.save_at_ns = now_ns + times * SAVE_INTERVAL_NS


def _ring(account: JetStreamAccount, now_ns: int) -> None:
    """Call the timers and alarms that are due."""
    while (entry := account.timers.pop(now_ns)) is not None:
        due_ns = entry.core.tick()
        account.timers.set(entry, max(due_ns, now_ns + 1) if due_ns else 0)
    while (alarm := account.alarms.pop(now_ns)) is not None:
        due_ns = alarm.ring(now_ns)
        account.alarms.set(alarm, max(due_ns, now_ns + 1) if due_ns else 0)


def _maintain(account: JetStreamAccount) -> bool:
    """Rewrite one segment that is mostly removed messages or is to be compressed; return whether
    there was one.
    """
    for stream in account.streams.values():
        if stream.files is not None:
            try:
                if maintenance.maintain(stream.core.log):
                    stream.core.settle()  # commit the records of the compaction with this turn
                    stream.reported_failures.discard("compaction")
                    return True
                if _decrypted(stream):
                    account.report(f"stream {stream.config.name} is no longer encrypted")
            except OSError as error:
                disk_recovery.report_once(account, stream, "compaction", error)
    return False


def _decrypted(stream: StreamEntry) -> bool:
    """Put the keys of a stream aside when its last encrypted segment has become plain; return
    whether that was done.
    """
    small = stream.files.small if stream.files is not None else None
    if small is None or not small.decrypting or maintenance.unconverted(stream.core.log):
        return False
    return small.drop_keys()


def _expire(account: JetStreamAccount, now_ns: int) -> None:
    if account.removals_left:
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
