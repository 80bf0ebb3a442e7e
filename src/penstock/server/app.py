"""The running server: builds the parts, connects them to asyncio's loop, and takes them down again
in order.

    sockets -> Listener -> turn.adopt -> Sessions -> Router -> JetStream
                              |             |connect, closed
                            loop         Clients (greeting, CONNECT, pings)

What __init__ needs is imported here, all that comes later in _load: until that is done `Opening`
serves the clients that are there already. Knows nothing of how settings were written or what
messages mean. One Server is one life; a reload changes its settings.
"""

import contextlib
import gc
import os
import signal
import socket
import time
from collections.abc import Callable
from importlib import import_module

from penstock.core.clock import SystemClock
from penstock.core.hub import Connection
from penstock.core.session import Sessions
from penstock.core.turn import Turn
from penstock.server.accounts import Accounts
from penstock.server.auth import Gate
from penstock.server.clients import Clients
from penstock.server.doors import Doors, fresh_contexts
from penstock.server.errors import StartError
from penstock.server.files import (
    StoreLock,
    raise_open_files,
    remove_file,
    write_pid_file,
    write_ports_file,
)
from penstock.server.identity import Greeting, new_server_id
from penstock.server.listener import Listener
from penstock.server.log import Log
from penstock.server.opening import Opening, may_open_early
from penstock.server.reload import changes
from penstock.server.settings import COMPATIBLE_VERSION, Settings
from penstock.server.units import SECOND_NS, join_address, reachable
from penstock.server.wheel import NEVER_NS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio

    from penstock.server.http import HttpServer
    from penstock.server.jetstream import JetStream
    from penstock.server.monitor import Facts

Reload = Callable[[], tuple[Settings, list[str]]]

SPARE_FILES = 128  # descriptors besides the clients': listeners, logs, segments
FEW_FILES = 10_000
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


class Server:
    """A server on its loop. ``run`` returns when it was told to stop."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        sockets: list[socket.socket],
        http_sockets: list[socket.socket],
        store: StoreLock | None,
        reload: Reload,
    ) -> None:
        """The sockets listen, the store is locked; reload() reads file and options again."""
        self.settings = settings
        self.log = log
        self.loop: asyncio.AbstractEventLoop  # from run() on
        self._looping = False  # whether timers can be set
        self._until_looping: list[tuple[int, Callable[[], None]]] = []  # timers set before
        self.start_ns = time.time_ns()
        self.server_id = new_server_id()
        self.server_name = settings.server_name or self.server_id
        self.host = settings.host
        self.port = sockets[0].getsockname()[1]
        self.http_port = http_sockets[0].getsockname()[1] if http_sockets else 0
        self._read_again = reload
        self._store = store
        self._sockets = sockets
        self._http_sockets = http_sockets
        self._http: HttpServer | None = None
        self._ports_file = ""
        self._stopped: asyncio.Future[None]
        self._lame_duck: asyncio.Task[None] | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._sweep_at_ns = NEVER_NS
        self.jetstream: JetStream | None = None
        self._facts: Facts | None = None
        self._build()

    def _build(self) -> None:
        settings = self.settings
        self.turn = Turn(SystemClock(), seed=int.from_bytes(os.urandom(8), "little"))
        self.accounts = Accounts(
            self.turn,
            draw=_draw,
            system=settings.system_account,
            no_system=settings.no_system_account,
        )
        self.accounts.call_at = self._call_at
        self.accounts.report = self.log.warn
        self.accounts.server_name = self.server_name
        self.router = self.accounts.default.router
        self.greeting = Greeting(settings, self.server_id, self.server_name, self.host, self.port)
        self.gate = Gate(settings, self._home)
        self.clients = Clients(
            self.turn, self.router, settings, self.greeting, self.log, self.gate, self.accounts
        )
        self.sessions = Sessions(
            self.turn, self.clients.connect, self.router, settings.auth_required
        )
        self.clients.admit = self.sessions.admit
        self.clients.recheck = self.sessions.recheck
        self.sessions.on_violation = self.clients.violated
        self.clients.kick = self.turn.kick
        self.clients.call_at = self._call_at
        self.clients.sweep_by = self._sweep_by
        self.turn.on_close = self.clients.closed
        self.turn.on_error = self._failed
        self._opening = Opening(self.turn, self.sessions)
        self.turn.start(self.sessions, self._opening.call_soon)
        self._apply_limits()
        self.doors = Doors(
            settings,
            self.log,
            self.turn,
            self.sessions,
            self.clients,
            self.greeting,
            self._sweep_by,
        )
        self._apply_accounts()
        self.listener = Listener(self._sockets, self._accepted, self.turn.kick, self.log)

    def _apply_limits(self) -> None:
        settings = self.settings
        self.turn.max_payload = settings.max_payload
        self.turn.max_line = settings.max_control_line
        self.turn.max_pending = settings.max_pending
        self.turn.write_deadline_ns = settings.write_deadline_ns
        self.sessions.max_subscriptions = settings.max_subscriptions
        self.sessions.max_sub_tokens = settings.max_sub_tokens
        self.turn.drop_for_slow = settings.no_fast_producer_stall
        self.sessions.auth_required = settings.auth_required

    def _apply_accounts(self) -> None:
        settings = self.settings
        if settings.mappings or self.accounts.default.settings.mappings:
            self.accounts.default.settings.mappings = settings.mappings
            self.accounts.update(self.accounts.default.settings)
        if settings.accounts or not self.accounts.only_default:
            self.accounts.apply(settings.accounts)

    # -- life

    def run(self) -> None:
        """Start, serve until a signal says stop, shut down. StartError when it can't start."""
        self._announce()
        self._raise_open_files()
        if may_open_early(self.settings):
            self._opening.serve(self._sockets, self.listener.accept, self._load)
        else:
            self._load()
        import asyncio

        import uvloop

        self.loop = uvloop.new_event_loop()
        self._stopped = self.loop.create_future()
        self.turn.start(self.sessions, self.loop.call_soon)
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(self._loop_failed)
        self.loop.run_until_complete(self._live())
        # A second SIGTERM on the way out must not turn a clean exit into a killed one. (The loop
        # stays open for the same reason: closing it gives the signals their default back.)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _load(self) -> None:
        """Import what the rest of the start needs; nothing else may happen here."""
        names = ["asyncio", "traceback", "uvloop"]
        if self._store is not None:
            names.append("penstock.server.jetstream")
        if self._http_sockets:
            names += ["penstock.server.http", "penstock.server.monitor"]
        for name in names:
            import_module(name)

    def _raise_open_files(self) -> None:
        wanted = min(self.settings.max_connections, FEW_FILES) + SPARE_FILES
        limit, enough = raise_open_files(wanted)
        if not enough:
            self.log.warn(
                f"Only {limit} files may be open, so few clients can come; "
                "raise the limit (ulimit -n)"
            )

    async def _live(self) -> None:
        # All on the running loop: uvloop loses a signal that comes while it does not run.
        await self._start()
        gc.freeze()  # what is there now stays: no need to look at it again and again
        gc.enable()
        await self._stopped
        await self._shutdown()

    async def _start(self) -> None:
        actions = (self.stop, self.stop, self._reopen, self._go_lame, self._reload)
        for number, action in zip(SIGNALS, actions, strict=True):
            self.loop.add_signal_handler(number, action)
        if self._http_sockets:
            await self._start_monitoring()
        if self._store is not None:
            from penstock.server.jetstream import JetStream

            self.jetstream = JetStream(
                self.settings, self._store, self.turn, self.accounts, self.log, self.server_name
            )
            self.jetstream.open(self.loop)
        self.loop.add_reader(self.turn.fileno(), self.turn.poll_once)
        self._write_files()
        self.listener.open(self.loop)
        self.doors.open(self.loop)
        self._looping = True
        for when_ns, call in self._until_looping:
            self._call_at(when_ns, call)
        self.sessions.go_on()
        self._sweep()
        self.log.info(f"Listening for client connections on {join_address(self.host, self.port)}")
        self.doors.announce_tls()
        self.log.info("Server is ready")

    def _announce(self) -> None:
        from penstock import __version__

        self.log.info("Starting penstock-server")
        self.log.info(f"  Version:  {COMPATIBLE_VERSION} (penstock {__version__})")
        self.log.info(f"  Name:     {self.server_name}")
        self.log.info(f"  ID:       {self.server_id}")
        if self.settings.config_file:
            self.log.info(f"Using configuration file: {self.settings.config_file}")

    async def _start_monitoring(self) -> None:
        from penstock.server.http import HttpServer
        from penstock.server.monitor import answer

        facts = self.facts()
        self._http = HttpServer(lambda path, query: answer(facts, path, query), self.log.error)
        await self._http.open(self._http_sockets)
        shown = join_address(self.settings.http_host or self.host, self.http_port)
        self.log.info(f"Starting http monitor on {shown}")

    def facts(self) -> "Facts":
        """What monitoring looks at."""
        if self._facts is None:
            from penstock.server.monitor import Facts

            self._facts = Facts(
                settings=self.settings,
                server_id=self.server_id,
                server_name=self.server_name,
                host=self.host,
                port=self.port,
                http_port=self.http_port,
                start_ns=self.start_ns,
                hub=self.turn,
                clients=self.clients,
                accounts=self.accounts.all,
                jetstream=lambda: self.jetstream,
                warn=self.log.warn,
            )
        return self._facts

    def _write_files(self) -> None:
        if self.settings.pid_file:
            write_pid_file(self.settings.pid_file)
        if self.settings.ports_file_dir:
            address = join_address(reachable(self.host), self.port)
            monitored = join_address(
                reachable(self.settings.http_host or self.host), self.http_port
            )
            self._ports_file = write_ports_file(
                self.settings.ports_file_dir,
                {
                    "nats": [f"nats://{address}"],
                    "monitoring": [f"http://{monitored}"] if self.http_port else [],
                    "websocket": self.doors.urls(),
                },
            )

    async def _shutdown(self) -> None:
        self.log.info("Initiating Shutdown...")
        self.listener.close()
        self.doors.close()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if self._lame_duck is not None:
            self._lame_duck.cancel()
        self.turn.poll_once()
        if self.jetstream is not None:
            self.log.info("Initiating JetStream Shutdown...")
            self.jetstream.close()
            self.log.info("JetStream Shutdown")
        self.gate.close()
        self.loop.remove_reader(self.turn.fileno())
        self.turn.shutdown()
        if self._http is not None:
            await self._http.close()
        for path in (self.settings.pid_file, self._ports_file):
            if path:
                remove_file(path)
        self.log.info("Server Exiting..")

    # -- connections and timers

    def _accepted(self, connected: socket.socket, host: str, port: int) -> None:
        if self.doors.take(connected, host, port):
            return
        self.turn.now_ns = self.turn.clock.now()
        connection = self.turn.adopt(connected.fileno())
        connected.detach()
        self.clients.greet(connection, host, port)
        client = connection.session
        self._sweep_by(getattr(client, "due_ns", NEVER_NS))

    def _home(self, call: Callable[[], None]) -> None:
        """Run a call on the loop's thread, from another thread; nothing after the end."""

        def on_time() -> None:
            self.turn.now_ns = self.turn.clock.now()
            call()

        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(on_time)

    def _call_at(self, when_ns: int, call: Callable[[], None]) -> None:
        """Run a call at a time of the hub's clock."""
        if not self._looping:
            self._until_looping.append((when_ns, call))
            return

        def on_time() -> None:
            self.turn.now_ns = self.turn.clock.now()
            call()

        self.loop.call_later(max(when_ns - self.turn.clock.now(), 0) / SECOND_NS, on_time)

    def _sweep_by(self, due_ns: int) -> None:
        """Make sure that clients are looked at when one is due."""
        if due_ns >= self._sweep_at_ns or not self._looping:
            return
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._sweep_at_ns = due_ns
        delay = max(due_ns - self.turn.clock.now(), 0) / SECOND_NS
        self._sweep_timer = self.loop.call_later(delay, self._sweep)

    def _sweep(self) -> None:
        self.turn.now_ns = self.turn.clock.now()
        self._sweep_at_ns = NEVER_NS
        self._sweep_timer = None
        self._sweep_by(self.clients.sweep(self.turn.now_ns))
        self.turn.kick()

    # -- signals

    def stop(self) -> None:
        """Ask run() to shut down and return."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    def _reopen(self) -> None:
        self.log.reopen()
        self.log.info("File log re-opened")

    def _reload(self) -> None:
        try:
            fresh, warnings = self._read_again()
            changed, refused = changes(self.settings, fresh)
            contexts = fresh_contexts(fresh)
        except StartError as problem:
            self.log.error(f"Failed to reload server configuration: {problem}")
            return
        if refused:
            self.log.error(f"Failed to reload server configuration: {'; '.join(refused)}")
            return
        for warning in warnings:
            self.log.warn(warning)
        settings = self.settings
        old_log, old_pid = settings.log_file, settings.pid_file
        for name in changed:
            setattr(settings, name, getattr(fresh, name))
            self.log.info(f"Reloaded: {name.removesuffix('_ns')}")
        settings.config_digest = fresh.config_digest
        if self._facts is not None:
            self._facts.loaded_ns = time.time_ns()
        self._apply_limits()
        self.doors.use(contexts)
        if {"accounts", "mappings"} & set(changed):
            self._apply_accounts()
            if self.jetstream is not None:
                self.jetstream.refresh()
        self.greeting.refresh(settings)
        self.log.configure(
            debug=settings.debug,
            trace=settings.trace,
            stamps=settings.logtime,
            utc=settings.logtime_utc,
            form=settings.log_format,
        )
        if settings.log_file != old_log:
            self.log.move(settings.log_file)
        self._after_reload(changed, old_pid)
        self.log.info("Reloaded server configuration")

    def _after_reload(self, changed: list[str], old_pid: str) -> None:
        try:
            if "pid_file" in changed:
                remove_file(old_pid)
            if "pid_file" in changed or "ports_file_dir" in changed:
                self._write_files()
        except StartError as problem:
            self.log.error(str(problem))
        self.turn.now_ns = self.turn.clock.now()
        self.clients.reloaded(changed)
        self.turn.kick()

    def _go_lame(self) -> None:
        if self._lame_duck is None:
            self._lame_duck = self.loop.create_task(self._leave_slowly())

    async def _leave_slowly(self) -> None:
        """Lame duck: take nobody new, tell the clients, and after a grace period close them one by
        one.
        """
        import asyncio

        settings = self.settings
        self.log.info("Entering lame duck mode, stop accepting new clients")
        self.listener.close()
        self.doors.close_listener()
        self.greeting.refresh(settings, lame_duck=True)
        self.clients.tell_lame_duck()
        self.turn.kick()
        if self.clients.open:
            await asyncio.sleep(settings.lame_duck_grace_period_ns / SECOND_NS)
        waiting = self.turn.all_connections()
        rest = (settings.lame_duck_duration_ns - settings.lame_duck_grace_period_ns) / SECOND_NS
        gap = min(rest / max(len(waiting), 1), 1.0)
        for connection in waiting:
            self.turn.disconnect(connection, "Server Shutdown")
            self.turn.kick()
            await asyncio.sleep(gap)
        self.stop()

    # -- trouble

    def _failed(self, error: BaseException) -> None:
        """An exception out of a task of the core: said, and the server goes on."""
        import traceback

        frames = traceback.extract_tb(error.__traceback__)
        where = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
        self.log.error(f"Internal error: {error!r}{where}")
        if self.log.debug_on:
            for line in traceback.format_exception(error):
                self.log.debug(line.rstrip())

    def _loop_failed(self, loop: object, context: dict[str, object]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            self._failed(error)
        else:
            self.log.error(f"Internal error: {context.get('message')}")

    def connection(self, cid: int) -> Connection | None:
        """An open connection by its id."""
        return next((c for c in self.turn.all_connections() if c.id == cid), None)


def _draw(below: int) -> int:
    """A number from 0 to below this one."""
    return int.from_bytes(os.urandom(4), "little") % below
