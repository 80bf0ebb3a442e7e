"""JetStream in a running server: opens the store, drives the engine's timers and reports on it.

The engine serves the API, the core keeps the logs.
"""

import os
import time
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from pelton.api import errors_generated as errors
from pelton.api.calls import (
    TYPE_PREFIX,
    AccountInfoResponse,
    AccountLimits,
    ClientInfo,
    Response,
)
from pelton.api.codec import encode
from pelton.api.dialects.names import STREAMS
from pelton.api.dialects.requests import refusal
from pelton.core.base.disk import Disk
from pelton.core.broker.event_loop import EventLoop
from pelton.core.broker.reactor import Connection
from pelton.core.broker.router import CallbackSink, Router
from pelton.core.protocol.api_level import API_LEVEL
from pelton.core.protocol.subjects import collide
from pelton.engine.account.account import JetStreamAccount
from pelton.engine.base.settings import BatchLimits, ServerLimits
from pelton.engine.base.settings import Settings as EngineSettings
from pelton.engine.engine import Engine
from pelton.nuid import Nuid
from pelton.server.accounts.client_info import client_info
from pelton.server.accounts.registry import Accounts, ServerAccount
from pelton.server.errors import StartError
from pelton.server.files import StoreLock
from pelton.server.logs.log import Log
from pelton.server.settings import COMPATIBLE_VERSION, Encryption, Settings
from pelton.server.settings.accounts import JetStreamLimits
from pelton.server.settings.declared import Declared
from pelton.server.store_presync import StorePresync
from pelton.server.units import SECOND_NS, format_size
from pelton.vault import CIPHERS, Vault, VaultError
from pelton.vault import NAMES as CIPHER_NAMES

if TYPE_CHECKING:
    from pelton.engine.account.advisories import Advisories
    from pelton.server.origin_servers import OriginLink

ALWAYS_SHOWN_NS = 120 * SECOND_NS  # shown when every ack waits for an fsync
BUSY_TICK_NS = SECOND_NS // 20  # longest interval between engine ticks while a stream exists
IDLE_TICK_NS = SECOND_NS // 4  # without streams: the longest delay of a new stream's timers
_OWN_SUBJECTS = ("$KV.", "$OBJ.")  # also reachable by a domain's prefix
RECOVERY_SLICE_NS = SECOND_NS // 250  # time of opening streams between two turns for clients
RECOVERY_WAIT_SECONDS = 0.001  # pause when all streams wait for the disk
RECOVERY_TOLD_NS = 5 * SECOND_NS  # interval between log lines about the recovery
SLACK_NS = SECOND_NS // 1000  # a deadline this close to the timer waits for it
_INFO = "$JS.API.INFO"
_ASKED_FIRST = (_INFO, "$JS.ENABLED", "$JS.INFO")  # whether there is JetStream, in each dialect
_NOT_ENABLED = AccountInfoResponse(
    type=f"{TYPE_PREFIX}account_info_response", error=errors.NotEnabledForAccountError().body()
)
_SYSTEM_NOT_ENABLED = Response(
    type=f"{TYPE_PREFIX}system_response", error=errors.NotEnabledForAccountError().body()
)
# Requests of the system account: a server that leads no cluster does not answer them, except for
# ACCOUNT.PURGE, which is a service of the system account.
_SYSTEM_CALLS = {
    "$JS.API.META.LEADER.STEPDOWN",
    "$JS.API.META.RESCUE",
    "$JS.API.SERVER.EVACUATE",
    "$JS.API.SERVER.REMOVE",
}
_SYSTEM_ACCOUNT_CALLS = "$JS.API.ACCOUNT."
_PURGE = "$JS.API.ACCOUNT.PURGE."
USABLE_SHARE = 0.75  # of memory and disk, when the settings have no limit
RESERVE_BYTES = 8 * 1024 * 1024  # half a segment: what a compaction needs at most
RESERVE_PART = 8  # a small disk keeps an eighth


class Timer(Protocol):
    """A call that is not due yet."""

    def cancel(self) -> object:
        """Do not make the call."""


class TimerLoop(Protocol):
    """A loop that makes calls: asyncio's, or that of an early start."""

    def call_soon(self, call: Callable[[], None], /) -> object:
        """Make the call in the next round."""

    def call_later(self, seconds: float, call: Callable[[], None], /) -> Timer:
        """Make the call after so many seconds."""


class JetStream:
    """The engine of one server, and its connections to the rest of the server."""

    def __init__(
        self,
        settings: Settings,
        store: StoreLock,
        event_loop: EventLoop,
        accounts: Accounts,
        log: Log,
        name: str,
        server_id: str = "",
        disk: Disk | None = None,
    ) -> None:
        """The store folder is locked already; name and id are the server's. `disk`: in place of the
        machine's.
        """
        self._settings = settings
        self._store = store
        self._event_loop = event_loop
        self._accounts = accounts
        self._log = log
        self._disk = disk or Disk()
        # Each running fsync holds a file open.
        event_loop.syncs_max = min(event_loop.syncs_max, self._disk.open_files.limit // 2)
        self._timer: Timer | None = None
        self._due_ns = 0  # when the timer fires
        self._loop: TimerLoop | None = None
        self._engine_settings = EngineSettings(
            server_name=name,
            server_version=COMPATIBLE_VERSION,
            api_level=API_LEVEL,
            domain=settings.domain,
            long_acks=settings.features()["js_ack_fc_v2"],
            strict=settings.strict,
            sync_interval_ns=settings.sync_interval_ns,
            max_memory=self._max_memory(),
            max_storage=self._max_storage(),
            storage_by_disk=settings.max_file < 0,
            limits=ServerLimits(**settings.jetstream_limits),
            batch=BatchLimits(**{key: n for key, n in settings.batch_limits.items() if n}),
            reserve_bytes=0 if disk is not None else self._reserve_bytes(),
            server_id=server_id,
            frozen=settings.frozen,
        )
        self._engine = Engine(
            event_loop,
            self._disk,
            store.folder,
            settings=self._engine_settings,
            random=Random(os.urandom(16)),
            report=log.warn,
            vault=_vault(settings.encryption),
        )
        self._refusals: dict[str, CallbackSink] = {}  # by account without JetStream
        self._domains: dict[str, CallbackSink] = {}
        self._system: CallbackSink | None = None  # refuses requests of the system account
        self._audits: Advisories | None = None  # of the system account
        self._started = False
        self._recovering = False  # a recovery step is scheduled
        self._recovery_ns = 0  # when it started
        self._told_ns = 0  # when the log last reported it
        self._remotes: list[OriginLink] = []
        if settings.remotes:
            self._make_remotes()
        self.refresh()
        accounts.on_changed.append(self._changed)
        accounts.on_removed.append(self._removed)

    def _make_remotes(self) -> None:
        from pelton.server.origin_servers import OriginLink  # imports TLS, which few servers use

        for each in self._settings.remotes:
            remote = OriginLink(each, self._event_loop, self._log, Random(os.urandom(16)))
            self._remotes.append(remote)

    @property
    def engine(self) -> Engine:
        """The engine, for a clock that is set by hand."""
        return self._engine

    def recover_now(self) -> None:
        """Recover all streams before the next turn."""
        for account in self.accounts():
            self._engine.finish(account.name)

    # -- accounts

    def accounts(self) -> list[JetStreamAccount]:
        """The accounts with JetStream."""
        return list(self._engine.accounts.values())

    @property
    def folder(self) -> str:
        """The folder with the accounts' folders."""
        return os.path.join(self._store.folder, "jetstream")

    def refresh(self) -> None:
        """Open and close the JetStream of accounts, as their settings say. OSError when the store
        can't be used, StartError when the limits exceed it.
        """
        for account in self._accounts.all():
            self._refresh(account)

    def reloaded(self) -> None:
        """Apply added, changed and removed accounts."""
        for account in self._accounts.all():
            self._changed(account)

    def stored(self) -> list[str]:
        """Accounts with a folder in the store that do not exist in the server (yet)."""
        try:
            names = sorted(os.listdir(self.folder))
        except OSError:
            return []
        return [name for name in names if self._accounts.get(_account_name(name)) is None]

    def _refresh(self, account: ServerAccount) -> None:
        wanted = account.settings.jetstream
        only = account is self._accounts.default and self._accounts.only_default
        if only and self._settings.operator is None and wanted is None:
            wanted = {"": JetStreamLimits()}
        if account is self._accounts.system:
            self._refuse_system(account)
            return
        if wanted is None:
            self._refuse(account)
            return
        limits = _limits(wanted)
        self._check_room(account.name, limits)
        if account.name in self._engine.accounts:
            self._engine.change_limits(account.name, limits)
        else:
            self._add(account, limits)

    def _check_room(self, name: str, limits: dict[str, AccountLimits]) -> None:
        """StartError when the accounts' reservations exceed the server's limits."""
        others = [each.limits for each in self.accounts() if each.name != name]
        tiers = [tier for each in (*others, limits) for tier in each.values()]
        for promised, present, problem in (
            (
                sum(max(tier.max_memory, 0) for tier in tiers),
                self._max_memory(),
                errors.MemoryResourcesExceededError(),
            ),
            (
                sum(max(tier.max_storage, 0) for tier in tiers),
                self._max_storage(),
                errors.StorageResourcesExceededError(),
            ),
        ):
            if promised > present:
                raise StartError(
                    "Can't start JetStream: Error enabling jetstream on configured accounts: "
                    f"{problem}"
                )

    def _changed(self, account: ServerAccount) -> None:
        try:
            self._refresh(account)
        except (OSError, StartError) as problem:
            self._log.error(f"Cannot change JetStream of account {account.name}: {problem}")

    def _removed(self, account: ServerAccount) -> None:
        if account.name in self._engine.accounts:
            self._engine.remove(account.name)
        account.jetstream = None
        self._refusals.pop(account.name, None)
        self._domains.pop(account.name, None)

    def purge(self, name: str) -> str:
        """Remove all streams of an account, or the folder of an account that does not exist.
        Returns "", or the errors of the streams that cannot be removed; the others are.
        """
        account = self._engine.accounts.get(name)
        self._engine.finish(name)
        self._log.info(f"Purge request for account {name}")
        if account is None:
            import shutil

            from pelton.engine.files.files import file_name

            shutil.rmtree(os.path.join(self.folder, file_name(name)), ignore_errors=True)
            return ""
        from pelton.engine.lifecycles import streams

        return "; ".join(streams.delete_all(account))

    def _add(self, account: ServerAccount, limits: dict[str, AccountLimits]) -> None:
        self._unmap_domain(account)
        sink = self._refusals.pop(account.name, None)
        if sink is not None:
            for subject in _ASKED_FIRST:
                account.router.detach(subject, sink)
        made = self._engine.add(account.name, account.router, limits)
        made.advisories.system = self._system_router
        made.describe = lambda source: self._client(source, account)
        made.on_request = lambda *request: self._show(account, *request)
        for remote in self._remotes:
            made.remotes[remote.prefix] = remote
        account.jetstream = made
        if self._started:
            self._serve(account)

    def _serve(self, account: ServerAccount) -> None:
        """Start the recovery of an account and answer its requests."""
        self._engine.begin(account.name)
        self._recover_soon()
        domain = self._settings.domain
        if domain:
            sink = CallbackSink(lambda *message: self._from_domain(account, *message))
            self._domains[account.name] = sink
            account.router.attach_prefix(f"$JS.{domain}.API.", sink, offered=True)

    def _refuse(self, account: ServerAccount) -> None:
        """Close the account's JetStream and answer its INFO requests with an error."""
        if account.name in self._engine.accounts:
            self._engine.remove(account.name)
            account.jetstream = None
            self._unmap_domain(account)
        if account.name in self._refusals or _asks_elsewhere(account):
            return

        def answer(source: object, subject: str, reply: str, *rest: bytes) -> bool:
            if reply:
                early = refusal(STREAMS, "jetstream not enabled for account")
                answer = encode(_NOT_ENABLED) if subject == _INFO else early
                account.router.publish_message(reply, answer)
            return True

        sink = self._refusals[account.name] = CallbackSink(answer)
        for subject in _ASKED_FIRST:
            account.router.attach(subject, sink)
        self._map_domain(account)

    def _unmap_domain(self, account: ServerAccount) -> None:
        domain = self._domains.pop(account.name, None)
        if domain is not None:
            account.router.detach_prefix(domain)

    def _refuse_system(self, account: ServerAccount) -> None:
        """Answer all JetStream requests in the system account with an error."""
        if self._system is not None:
            return

        def answer(source: object, subject: str, reply: str, *rest: bytes) -> bool:
            if subject.startswith(_SYSTEM_ACCOUNT_CALLS):
                return not subject.startswith(_PURGE)
            if subject in _SYSTEM_CALLS:
                return True
            refused = encode(_NOT_ENABLED if subject == _INFO else _SYSTEM_NOT_ENABLED)
            if reply:
                account.router.publish_message(reply, refused)
            self.audit_system(subject, rest[-1], refused, named=subject == _INFO)
            return True

        self._system = CallbackSink(answer)
        account.router.attach_prefix("$JS.API.", self._system)
        self._map_domain(account)

    def _system_router(self) -> Router | None:
        system = self._accounts.system
        return system.router if system is not None else None

    def audit_system(self, subject: str, request: bytes, answer: bytes, *, named: bool) -> None:
        """Publish the audit of a request in the system account. `named`: with an empty client, as
        nats-server does for some calls; otherwise with null.
        """
        router = self._system_router()
        if router is None:
            return
        from pelton.engine.account.advisories import Advisories, ApiAudit

        if self._audits is None:
            self._audits = Advisories(router, Nuid(Random(os.urandom(16))), self._settings.domain)
        if self._audits.audited():
            event = ApiAudit(
                server=self._engine_settings.server_name,
                client=ClientInfo() if named else None,
                subject=subject,
                request=request.decode("utf-8", "surrogateescape"),
                response=answer.decode("utf-8", "surrogateescape"),
            )
            self._audits.api_call(event, self._event_loop.now_ns)

    def _map_domain(self, account: ServerAccount) -> None:
        """Pass requests with this server's domain on to `$JS.API.`, in an account without
        JetStream.
        """
        domain = self._settings.domain
        if not domain:
            return

        def passed(
            source: object, subject: str, reply: str, headers: bytes, payload: bytes
        ) -> bool:
            call = f"$JS.API.{subject.partition('.API.')[2]}"
            return account.router.publish_message(call, payload, reply, headers) > 0

        sink = self._domains[account.name] = CallbackSink(passed)
        account.router.attach_prefix(f"$JS.{domain}.API.", sink)

    def open(self, loop: TimerLoop, presync: StorePresync | None = None) -> None:
        """Start the recovery; each stream is served as soon as it is recovered.

        `presync` syncs the files before they are opened. StartError when the store can't be used.
        """
        if presync is not None:
            self._engine.may_open = presync.done
        settings, log = self._settings, self._log
        log.info("Starting JetStream")
        log.info("---------------- JETSTREAM ----------------")
        if settings.domain:
            log.info(f"  Domain:          {settings.domain}")
        log.info(f"  Strict:          {str(settings.strict).lower()}")
        log.info(f"  Max Memory:      {format_size(self._max_memory())}")
        log.info(f"  Max Storage:     {format_size(self._max_storage())}")
        log.info(f'  Store Directory: "{self.folder}"')
        if settings.encryption.key:
            log.info(f"  Encryption:      {CIPHER_NAMES[CIPHERS[settings.encryption.cipher]]}")
        log.info(f"  Sync Interval:   {self._sync()}")
        log.info(f"  API Level:       {API_LEVEL}")
        log.info("-------------------------------------------")
        if not settings.store_dir:
            log.warn("Temporary storage directory used, data could be lost on system reboot")
        self._loop = loop
        self._event_loop.now_ns = self._event_loop.clock.now()
        try:
            self._started = True
            for made in self._accounts.all():
                if made.name in self._engine.accounts:
                    self._serve(made)
        except OSError as problem:
            raise StartError(
                f"can't start JetStream in {self._store.folder}: {problem}; choose another with -sd"
            ) from None
        if self._accounts.resolve is not None:
            for name in self.stored():
                self._accounts.resolve(_account_name(name))
        for remote in self._remotes:
            remote.open()
        self._engine.call_when_sooner(self._sooner)
        self._tick()

    def move(self, loop: TimerLoop) -> None:
        """Go on with the timers of another loop."""
        self._loop = loop
        if self._timer is not None:
            self._timer.cancel()
        self._tick()
        if self._recovering:
            loop.call_soon(self._recover)

    def _recover_soon(self) -> None:
        if self._recovering or self._loop is None:
            return
        self._recovering = True
        self._recovery_ns = self._told_ns = time.perf_counter_ns()
        self._loop.call_soon(self._recover)

    def _recover(self) -> None:
        """Run some steps of the recovery; clients are served before the next call."""
        if self._loop is None or not self._recovering:
            return
        started_ns = now_ns = time.perf_counter_ns()
        self._event_loop.now_ns = self._event_loop.clock.now()
        more = True
        try:
            while more and now_ns < started_ns + RECOVERY_SLICE_NS:
                more = self._engine.open_more()
                now_ns = time.perf_counter_ns()
                if self._engine.waiting:
                    break
        finally:
            self._event_loop.kick()
            if more and self._engine.waiting:
                self._loop.call_later(RECOVERY_WAIT_SECONDS, self._recover)
            elif more:
                self._loop.call_soon(self._recover)
        if more:
            if now_ns > self._told_ns + RECOVERY_TOLD_NS:
                self._told_ns = now_ns
                self._log.info(f"Recovering streams: {self._engine.opening()[2]}")
            return
        self._recovering = False
        ms = (now_ns - self._recovery_ns) / 1_000_000
        self._log.info(f"Took {ms:.3f}ms to start JetStream")

    def recovering(self) -> str:
        """The part that is still loading, for health checks; "" when the recovery is complete."""
        done, total, _ = self._engine.opening()
        return f"recovering {done} of {total} streams" if total else ""

    def _from_domain(
        self,
        account: ServerAccount,
        source: Connection | None,
        subject: str,
        reply: str,
        headers: bytes,
        payload: bytes,
    ) -> bool:
        """Pass a request to `$JS.<domain>.API.`, with this server's domain, on as one to
        `$JS.API.`.
        """
        call = subject.partition(".API.")[2]
        if call.startswith(_OWN_SUBJECTS):
            return account.router.publish_message(call, payload, reply, headers) > 0
        if call.startswith("CONSUMER.MSG.NEXT."):
            return account.router.publish_message(f"$JS.API.{call}", payload, reply, headers) > 0
        return self._engine.take(account.name, source, f"$JS.API.{call}", reply, headers, payload)

    def _client(self, source: Connection, account: ServerAccount) -> ClientInfo:
        """The client of a request. After an import, it is described as far as the import shares it."""
        server = self._engine_settings.server_name
        if not self._accounts.importers():
            return client_info(source, detailed=True, server=server)
        detailed = self._accounts.shares_who_asks()
        return client_info(source, detailed=detailed, server=server, service=account.name)

    def _show(
        self,
        account: ServerAccount,
        source: Connection | None,
        subject: str,
        headers: bytes,
        payload: bytes,
    ) -> None:
        """Send a copy of a request, without its reply subject, to those who watch the system account.

        Only requests that have a call come here. Others may mean something in the system account.
        """
        system = self._accounts.system
        if system is None or source is None or not system.router.matching(subject):
            return
        info = encode(self._client(source, account))
        rest = headers.partition(b"\r\n")[2] or b"\r\n"
        head = b"NATS/1.0\r\nNats-Request-Info: " + info + b"\r\n" + rest
        system.router.publish_message(subject, payload, "", head)

    def _sooner(self, due_ns: int) -> None:
        """Set the timer earlier for a consumer's deadline."""
        if self._loop is None or self._timer is None or due_ns + SLACK_NS >= self._due_ns:
            return
        self._timer.cancel()
        self._due_ns = due_ns
        wait_s = max(due_ns - self._event_loop.clock.now(), 0) / SECOND_NS
        self._timer = self._loop.call_later(wait_s, self._tick)

    def _sync(self) -> str:
        ns = self._settings.sync_interval_ns
        return f"{ns / SECOND_NS:g}s" if ns else "always"

    def _tick(self) -> None:
        self._due_ns = 0
        now_ns = self._event_loop.clock.now()
        due_ns = 0
        try:
            due_ns = self._engine.tick(now_ns)
            self._event_loop.kick()
        finally:
            if self._loop is not None:
                latest = now_ns + (BUSY_TICK_NS if self._engine.busy else IDLE_TICK_NS)
                due_ns = min(due_ns, latest) if due_ns > now_ns else latest
                self._due_ns = due_ns
                self._timer = self._loop.call_later((due_ns - now_ns) / SECOND_NS, self._tick)

    def close(self) -> None:
        """Sync everything and release the store."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop = None
        for remote in self._remotes:
            remote.close()
        for account in self._accounts.all():
            if account.name in self._domains:
                account.router.detach_prefix(self._domains[account.name])
            if account.name in self._refusals:
                account.router.detach(_INFO, self._refusals[account.name])
            if self._system is not None and account is self._accounts.system:
                account.router.detach_prefix(self._system)
            account.jetstream = None
        self._accounts.on_changed.remove(self._changed)
        self._accounts.on_removed.remove(self._removed)
        self._engine.close()
        self._store.close()

    def declare(self, declared: list[Declared]) -> None:
        """Create or change these streams and consumers. StartError when that fails."""
        from pelton.server.declared import apply

        self.recover_now()
        self._event_loop.now_ns = self._event_loop.clock.now()
        apply(declared, self._account_of, self._log)
        self._event_loop.kick()

    def _account_of(self, name: str) -> JetStreamAccount | None:
        return self._engine.accounts.get(name or self._accounts.default.name)

    def raise_limits(self) -> None:
        """Apply raised limits of memory or disk."""
        limits = ServerLimits(**self._settings.jetstream_limits)
        self._engine.raise_limits(self._max_memory(), self._max_storage(), limits)

    # -- reports

    def configuration(self) -> dict[str, Any]:
        """The configuration of JetStream, in the form of /varz and /jsz."""
        settings = self._settings
        body: dict[str, Any] = {
            "max_memory": self._max_memory(),
            "max_storage": self._max_storage(),
            "store_dir": self.folder,
        }
        # nats-server shows `sync_interval: always` beside an interval, which then has its default.
        body["sync_interval"] = settings.sync_interval_ns or ALWAYS_SHOWN_NS
        if not settings.sync_interval_ns:
            body["sync_always"] = True
        if settings.domain:
            body["domain"] = settings.domain
        if settings.max_memory >= 0 and settings.max_file >= 0:
            body["compress_ok"] = True  # nats-server shows it when the limits are set
        if settings.strict:
            body["strict"] = True
        return body

    def _max_memory(self) -> int:
        if self._settings.max_memory >= 0:
            return self._settings.max_memory
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * USABLE_SHARE)

    def _max_storage(self) -> int:
        if self._settings.max_file >= 0:
            return self._settings.max_file
        try:
            found = os.statvfs(self._store.folder)
        except OSError:
            return 0
        return int(found.f_bavail * found.f_frsize * USABLE_SHARE)

    def _reserve_bytes(self) -> int:
        try:
            found = os.statvfs(self._store.folder)
        except OSError:
            return 0
        return min(RESERVE_BYTES, found.f_blocks * found.f_frsize // RESERVE_PART)


def _account_name(folder: str) -> str:
    """The account of a folder of the store."""
    from urllib.parse import unquote  # here, because only servers with a resolver need it

    return unquote(folder)


def _asks_elsewhere(account: ServerAccount) -> bool:
    """Whether the account imports a service under its JetStream API subjects, so that another
    account answers.
    """
    if not account.settings.imports:
        return False
    from pelton.server.accounts.sharing import local_pattern

    return any(
        wanted.service and collide(local_pattern(wanted), _INFO)
        for wanted in account.settings.imports
    )


def _vault(encryption: Encryption) -> Vault | None:
    """The configured keys. Raises StartError."""
    try:
        return Vault.of(encryption.key, encryption.previous, encryption.cipher, random=os.urandom)
    except VaultError as problem:
        raise StartError(f"Can't start JetStream: {problem}") from None


def _limits(tiers: dict[str, JetStreamLimits]) -> dict[str, AccountLimits]:
    """An account's limits in the form of the engine."""
    return {
        name: AccountLimits(
            max_memory=each.max_memory,
            max_storage=each.max_store,
            max_streams=each.max_streams,
            max_consumers=each.max_consumers,
            max_ack_pending=each.max_ack_pending,
            memory_max_stream_bytes=each.memory_max_stream_bytes,
            storage_max_stream_bytes=each.store_max_stream_bytes,
            max_bytes_required=each.max_bytes_required,
        )
        for name, each in tiers.items()
    }
