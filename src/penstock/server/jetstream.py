"""JetStream in a running server: opens the store, drives the engine's timers, reports on it.

Knows nothing of the API's calls or of the log: those are the engine's and the core's.
"""

import asyncio
import json
import os
import time
from random import Random
from typing import TYPE_CHECKING, Any

from penstock.api.calls import ClientInfo
from penstock.api.codec import encode
from penstock.core.disk import Disk
from penstock.core.hub import Connection
from penstock.core.router import CallbackSink, Router
from penstock.core.turn import Turn
from penstock.engine import Engine
from penstock.engine import Settings as EngineSettings
from penstock.engine.entries import StreamEntry, consumer_info, stream_info
from penstock.engine.limits import account_info
from penstock.engine.settings import BatchLimits, ServerLimits
from penstock.server.clients import Client
from penstock.server.errors import StartError
from penstock.server.files import StoreLock
from penstock.server.identity import API_LEVEL
from penstock.server.log import Log
from penstock.server.settings import COMPATIBLE_VERSION, Settings
from penstock.server.units import SECOND_NS, format_size

if TYPE_CHECKING:
    from penstock.server.remote import Remote

BUSY_TICK_NS = SECOND_NS // 20  # how often the engine is asked at least, once there is a stream
IDLE_TICK_NS = SECOND_NS // 4  # and without one: a new stream's timers start this late at most
_OWN_SUBJECTS = ("$KV.", "$OBJ.")  # reached by the prefix of a domain, too
SLACK_NS = SECOND_NS // 1000  # what is this close to the timer waits for it
USABLE_SHARE = 0.75  # of memory and disk, when the settings name no limit


class JetStream:
    """The engine of one server and everything that it needs from outside."""

    def __init__(
        self, settings: Settings, store: StoreLock, turn: Turn, router: Router, log: Log, name: str
    ) -> None:
        """The store folder is locked already; name is the server's."""
        self._settings = settings
        self._store = store
        self._turn = turn
        self._router = router
        self._log = log
        self._timer: asyncio.TimerHandle | None = None
        self._due_ns = 0  # when the timer rings
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine_settings = EngineSettings(
            server_name=name,
            server_version=COMPATIBLE_VERSION,
            api_level=API_LEVEL,
            domain=settings.domain,
            strict=settings.strict,
            sync_interval_ns=settings.sync_interval_ns,
            max_memory=self._max_memory(),
            max_storage=self._max_storage(),
            storage_by_disk=settings.max_file < 0,
            limits=ServerLimits(**settings.jetstream_limits),
            batch=BatchLimits(**{key: n for key, n in settings.batch_limits.items() if n}),
        )
        self._engine = Engine(
            turn,
            router,
            Disk(),
            store.folder,
            settings=self._engine_settings,
            random=Random(os.urandom(16)),
            report=log.warn,
        )
        self._engine.account.describe = self._client
        self._remotes: list[Remote] = []
        if settings.remotes:
            self._make_remotes()

    def _make_remotes(self) -> None:
        from penstock.server.remote import Remote  # with TLS, which few servers need

        for each in self._settings.remotes:
            remote = Remote(each, self._turn, self._log, Random(os.urandom(16)))
            self._remotes.append(remote)
            self._engine.account.remotes[remote.prefix] = remote

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Recover what the store holds and serve it; StartError when the store can't be used."""
        settings, log = self._settings, self._log
        log.info("Starting JetStream")
        log.info("---------------- JETSTREAM ----------------")
        if settings.domain:
            log.info(f"  Domain:          {settings.domain}")
        log.info(f"  Strict:          {str(settings.strict).lower()}")
        log.info(f"  Max Memory:      {format_size(self._max_memory())}")
        log.info(f"  Max Storage:     {format_size(self._max_storage())}")
        log.info(f'  Store Directory: "{os.path.join(self._store.folder, "jetstream")}"')
        log.info(f"  Sync Interval:   {self._sync()}")
        log.info(f"  API Level:       {API_LEVEL}")
        log.info("-------------------------------------------")
        if not settings.store_dir:
            log.warn("Temporary storage directory used, data could be lost on system reboot")
        started = time.perf_counter()
        self._turn.now_ns = self._turn.clock.now()
        try:
            self._engine.start()
        except OSError as problem:
            raise StartError(
                f"can't start JetStream in {self._store.folder}: {problem}; choose another with -sd"
            ) from None
        log.info(f"Took {(time.perf_counter() - started) * 1000:.3f}ms to start JetStream")
        if settings.domain:
            prefix = f"$JS.{settings.domain}.API."
            self._router.attach_prefix(prefix, CallbackSink(self._from_domain))
            self._router.announcers.append(lambda: [f"{prefix}>".encode()])
        self._loop = loop
        for remote in self._remotes:
            remote.open(loop)
        self._engine.call_when_sooner(self._sooner)
        self._tick()

    def _from_domain(
        self, source: Connection | None, subject: str, reply: str, headers: bytes, payload: bytes
    ) -> bool:
        """A request to `$JS.<domain>.API.` is one to `$JS.API.`; this is its domain."""
        call = subject.partition(".API.")[2]
        if call.startswith(_OWN_SUBJECTS):
            return self._router.publish_message(call, payload, reply, headers) > 0
        if call.startswith("CONSUMER.MSG.NEXT."):
            return self._router.publish_message(f"$JS.API.{call}", payload, reply, headers) > 0
        return self._engine.take(source, f"$JS.API.{call}", reply, headers, payload)

    def _client(self, source: Connection) -> ClientInfo:
        info = ClientInfo(
            start=source.start_ns,
            id=source.id,
            acc=self._engine.account.name,
            server=self._engine_settings.server_name,
            kind="Client",
            client_type="nats",
        )
        client = source.session
        if isinstance(client, Client):
            info.host, info.user = client.host, client.user
            info.name, info.lang, info.ver = client.name, client.lang, client.version
        return info

    def _sync(self) -> str:
        ns = self._settings.sync_interval_ns
        return f"{ns / SECOND_NS:g}s" if ns else "always"

    def _sooner(self, due_ns: int) -> None:
        """A consumer wants to be called before the timer rings."""
        if self._loop is None or self._timer is None or due_ns + SLACK_NS >= self._due_ns:
            return
        self._timer.cancel()
        self._due_ns = due_ns
        wait_s = max(due_ns - self._turn.clock.now(), 0) / SECOND_NS
        self._timer = self._loop.call_later(wait_s, self._tick)

    def _tick(self) -> None:
        self._due_ns = 0
        now_ns = self._turn.clock.now()
        due_ns = 0
        try:
            due_ns = self._engine.tick(now_ns)
            self._turn.kick()
        finally:
            if self._loop is not None:
                latest = now_ns + (BUSY_TICK_NS if self._engine.account.streams else IDLE_TICK_NS)
                due_ns = min(due_ns, latest) if due_ns > now_ns else latest
                self._due_ns = due_ns
                self._timer = self._loop.call_later((due_ns - now_ns) / SECOND_NS, self._tick)

    def close(self) -> None:
        """Bring everything to disk and let the store go."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop = None
        for remote in self._remotes:
            remote.close()
        self._engine.close()
        self._store.close()

    # -- reports

    def report(self, streams: bool, consumers: bool, config: bool) -> dict[str, Any]:
        """The fields of /jsz; `detail` has the rows of the streams when they were asked for."""
        account = self._engine.account
        entries = list(account.streams.values())
        info = account_info(account)
        body: dict[str, Any] = {
            "memory": info.memory,
            "storage": info.storage,
            "reserved_memory": info.reserved_memory,
            "reserved_storage": info.reserved_storage,
            "accounts": 1,
            "ha_assets": 0,
            "api": {
                "level": API_LEVEL,
                "total": account.api_total,
                "errors": account.api_errors,
            },
            "config": self._config(),
            "streams": len(entries),
            "consumers": sum(len(entry.consumers) for entry in entries),
            "messages": sum(entry.core.log.msgs for entry in entries),
            "bytes": sum(entry.core.log.bytes for entry in entries),
            "detail": None,
        }
        if streams:
            body["detail"] = [self._row(entry, consumers, config) for entry in entries]
        return body

    def _config(self) -> dict[str, Any]:
        settings = self._settings
        body: dict[str, Any] = {
            "max_memory": self._max_memory(),
            "max_storage": self._max_storage(),
            "store_dir": os.path.join(self._store.folder, "jetstream"),
            "sync_interval": settings.sync_interval_ns,
        }
        if not settings.sync_interval_ns:
            body["sync_always"] = True
        if settings.domain:
            body["domain"] = settings.domain
        if settings.strict:
            body["strict"] = True
        return body

    def _row(self, entry: StreamEntry, consumers: bool, config: bool) -> dict[str, Any]:
        now_ns = self._turn.clock.now()
        info = json.loads(encode(stream_info(entry, self._engine_settings, now_ns)))
        row = {"name": entry.config.name, "created": info["created"]}
        if config:
            row["config"] = info["config"]
        row["state"] = info["state"]
        if consumers:
            details = [
                json.loads(encode(consumer_info(entry, each, self._engine_settings, now_ns)))
                for each in entry.consumers.values()
            ]
            if not config:
                for detail in details:
                    detail.pop("config", None)
            row["consumer_detail"] = details
        return row

    def health(self, stream: str, consumer: str) -> str:
        """What is wrong with a stream or consumer; empty when nothing is."""
        entry = self._engine.account.streams.get(stream)
        if entry is None:
            return f'JetStream stream "{stream}" not found on account "$G"'
        if consumer and consumer not in entry.consumers:
            return (
                f'JetStream consumer "{consumer}" not found for stream "{stream}" on account "$G"'
            )
        return ""

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
