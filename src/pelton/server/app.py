"""The running server: builds the parts, connects them to asyncio's loop, and closes them in order.

    sockets -> Listener -> EventLoop.adopt -> Sessions -> Router -> JetStream
                              |             |connect, closed
                            loop         Clients (greeting, CONNECT, pings)

This module imports only the modules for __init__; `_load` imports the rest, while `EarlyStart` serves
clients. The server listens on a port only when it can serve clients there. One Server runs once; a
reload changes its settings.
"""

import contextlib
import gc
import heapq
import os
import signal
import socket
import time
from collections.abc import Callable
from importlib import import_module

from pelton.core.base.clock import Clock, SteadyClock, SystemClock
from pelton.core.base.disk import Disk
from pelton.core.broker.event_loop import EventLoop
from pelton.core.broker.reactor import Connection
from pelton.core.broker.session import Sessions
from pelton.server.accounts.registry import Accounts
from pelton.server.auth import Authenticator
from pelton.server.clients.clients import Clients
from pelton.server.clients.timer_wheel import NEVER_NS
from pelton.server.commands import SIGNALS, Commands, tell_systemd
from pelton.server.early_start import EarlyStart, may_open_early
from pelton.server.external_auth import ExternalAuth
from pelton.server.files import (
    StoreLock,
    raise_open_files,
    remove_file,
    write_pid_file,
    write_ports_file,
)
from pelton.server.identity import Greeting
from pelton.server.logs.log import Log
from pelton.server.memory import memory_bytes
from pelton.server.observability import Observability
from pelton.server.reload import ReadAgain, Reloads
from pelton.server.reload_handlers import add_rows
from pelton.server.settings import COMPATIBLE_VERSION, FEATURE_FLAGS, Settings
from pelton.server.short_collections import ShortCollections
from pelton.server.store_presync import StorePresync
from pelton.server.transports.acceptors import Acceptors
from pelton.server.transports.listener import Listener
from pelton.server.units import SECOND_NS, join_address, reachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio

    from pelton.server.clock_watch import ClockWatch
    from pelton.server.jetstream import JetStream, TimerLoop
    from pelton.server.leaf.service import LeafService
    from pelton.server.settings.tls import Tls

SPARE_FILES = 128  # descriptors besides those of clients: listeners, logs, segments
FEW_FILES = 10_000
CLOCK_LOOK_NS = 10 * SECOND_NS  # how often the machine's clock is compared with the server's


class Server:
    """A server on its event loop. ``run`` returns when the server has stopped."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        sockets: list[socket.socket],
        http_sockets: list[socket.socket],
        store: StoreLock | None,
        reload: ReadAgain,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> None:
        """The sockets are bound and the store is locked; reload() reads file and options again.

        A server in another program may have no sockets. `clock` and `disk` take the place of the
        machine's own; with a clock that stands still, `pass_time` runs what is due.
        """
        self.settings = settings
        self._clock = clock or SystemClock()
        self._disk = disk
        self.refuses = False  # connections that come are closed at once: a test's broken network
        self._by_hand = clock is not None and not isinstance(clock, SystemClock)
        self._timers: list[tuple[int, int, Callable[[], None]]] = []  # heap, of a clock set by hand
        self._timer_count = 0
        self.on_ready: Callable[[], object] | None = None
        self.owns_process = False  # True from run() on: signals, systemd, limits are the server's
        self.log = log
        self.loop: asyncio.AbstractEventLoop  # from run() on
        self._looping = False  # whether timers can be set
        self._open = False  # whether publishes and requests are taken already
        self._early_signals: list[int] = []  # signals before the loop could handle them
        self._until_looping: list[tuple[int, Callable[[], None]]] = []  # timers set before run()
        self.start_ns = time.time_ns()
        self.authorities = ExternalAuth(settings)
        self.server_id = self.authorities.server_id
        self.server_name = settings.server_name or self.server_id
        self.host = settings.host
        self.port = sockets[0].getsockname()[1] if sockets else 0
        self.http_port = http_sockets[0].getsockname()[1] if http_sockets else 0
        self.reloads = Reloads(settings, log, reload)
        self.commands = Commands(self)
        self.store = store
        self._sockets = sockets
        self._http_sockets = http_sockets
        self.ports_file = ""
        self._stopped: asyncio.Future[None]
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._sweep_at_ns = NEVER_NS
        self.jetstream: JetStream | None = None
        self._presync: StorePresync | None = None  # syncs the store's files before they are opened
        self.leafs: LeafService | None = None
        self.watching = Observability(self)
        self._build()

    def _build(self) -> None:
        settings = self.settings
        self.event_loop = EventLoop(self._clock, seed=int.from_bytes(os.urandom(8), "little"))
        system, none = settings.system_account, settings.no_system_account
        self.accounts = Accounts(self.event_loop, draw=_draw, system=system, no_system=none)
        self.accounts.call_at = self._call_at
        self.accounts.report = self.log.warn
        self.accounts.server_name = self.server_name
        self.router = self.accounts.default.router
        self.greeting = Greeting(settings, self.server_id, self.server_name, self.host, self.port)
        self.authenticator = Authenticator(settings, self.run_on_loop)
        self.clients = Clients(
            self.event_loop, settings, self.greeting, self.log, self.authenticator, self.accounts
        )
        self.sessions = Sessions(
            self.event_loop, self.clients.connect, self.router, settings.auth_required
        )
        self.clients.admit = self.sessions.admit
        self.clients.recheck = self.sessions.recheck
        self.sessions.on_violation = self.clients.violated
        self.sessions.on_broken = self.clients.broke
        self.sessions.on_guest = self.clients.guest
        self.sessions.on_first_pong = self.clients.ponged
        self.clients.kick = self.event_loop.kick
        self.clients.call_at = self._call_at
        self.clients.sweep_by = self._sweep_by
        self.event_loop.on_close = self.clients.closed
        self.event_loop.on_error = self._failed
        self._opening = EarlyStart(self.event_loop, self.sessions)
        self.event_loop.start(self.sessions, self._opening.call_soon)
        self.apply_limits()
        self.apply_tracing()
        self.acceptors = Acceptors(
            self.settings,
            self.log,
            self.event_loop,
            self.sessions,
            self.clients,
            self.greeting,
            self._sweep_by,
        )
        add_rows(self)
        self.apply_accounts()
        self.accounts.finish_links()
        self.authorities.connect(self)
        self.listener = Listener(self._sockets, self._accepted, self.event_loop, self.log)

    def apply_limits(self) -> None:
        """Hand the limits in the settings to the core."""
        settings = self.settings
        self.event_loop.max_payload = settings.max_payload
        self.event_loop.max_line = settings.max_control_line
        self.event_loop.max_pending = settings.max_pending
        patient = settings.write_timeout == "retry"
        self.event_loop.write_deadline_ns = NEVER_NS if patient else settings.write_deadline_ns
        self.sessions.max_subscriptions = settings.max_subscriptions
        self.sessions.max_sub_tokens = settings.max_sub_tokens
        share = memory_bytes() // 4
        self.event_loop.max_subscription_bytes = settings.max_subscription_memory or share
        self.event_loop.max_output_bytes = settings.max_output_memory or share
        self.event_loop.drop_for_slow = settings.no_fast_producer_stall
        self.sessions.auth_required = settings.auth_required

    def apply_tracing(self) -> None:
        """Switch the trace log on or off, as the settings say."""
        if not self.settings.trace:
            self.event_loop.trace_log = None
            return
        from pelton.server.logs.trace_log import TraceLog

        self.event_loop.trace_log = TraceLog(self.log, self.settings, self.clients.label)

    def apply_accounts(self) -> None:
        """Create, change and remove accounts, as the settings say."""
        settings = self.settings
        if settings.mappings or self.accounts.default.settings.mappings:
            self.accounts.default.settings.mappings = settings.mappings
            self.accounts.update(self.accounts.default.settings)
        if settings.accounts or not self.accounts.only_default:
            self.accounts.apply(settings.accounts)

    # -- life cycle

    def run(self) -> None:
        """Start, serve until a signal stops the server, shut down. StartError when the start fails."""
        self.owns_process = True
        self._announce()
        self._raise_open_files()
        for number in SIGNALS:  # clients are served from here on, so signals must be handled
            signal.signal(number, lambda number, _: self._early_signals.append(number))
        if may_open_early(self.settings):
            self.listener.open()
            self._opening.serve(
                (self._load, self._open_early),
                (self._load_loop, lambda: None),
            )
        else:
            self._load()
            self._load_loop()
        import asyncio

        import uvloop

        self.loop = uvloop.new_event_loop()
        self._stopped = self.loop.create_future()
        self.event_loop.start(self.sessions, self.loop.call_soon)
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(self._loop_failed)
        self.loop.run_until_complete(self._live())
        # A second SIGTERM during the shutdown must not kill the process. The loop stays open for
        # the same reason: closing it restores the default actions of the signals.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    async def serve_here(self) -> None:
        """Start in the running asyncio loop of another program. StartError when the start fails.

        The loop, signals and limits of the process stay the program's. `stopped` ends after stop(),
        and `shut_down` is to be called then.
        """
        import asyncio

        self._announce()
        self.loop = asyncio.get_running_loop()
        self._stopped = self.loop.create_future()
        self.event_loop.start(self.sessions, self.loop.call_soon)
        await self._start()

    async def stopped(self) -> None:
        """Wait until the server was told to stop."""
        await self._stopped

    async def shut_down(self) -> None:
        """Stop serving, sync and release everything."""
        await self._shutdown()

    def _load(self) -> None:
        """Import the modules for publishes and requests, and start the presync of the store.
        Nothing else may happen here.
        """
        if self.store is not None:
            self._presync = StorePresync(self.store.folder)
            import_module("pelton.server.jetstream")
        if self.accounts.system is not None:
            import_module("pelton.server.system.actions")

    def _load_loop(self) -> None:
        """Import the modules for the rest of the start. Nothing else may happen here."""
        names = ["asyncio", "traceback", "uvloop"]
        if self.accounts.system is not None:
            names.append("pelton.server.system.services")
        if self._http_sockets:
            names += ["html", "pelton.server.http", "pelton.server.monitor"]
        for name in names:
            import_module(name)

    def _open_early(self) -> None:
        """Take publishes and requests before asyncio's loop runs."""
        if self.store is not None:
            self.open_jetstream(self._opening)
        self.watching.open()
        self.sessions.go_on()
        self._open = True

    def _raise_open_files(self) -> None:
        wanted = min(self.settings.max_connections, FEW_FILES) + SPARE_FILES
        limit, enough = raise_open_files(wanted)
        if not enough:
            self.log.warn(
                f"The process may open only {limit} files, which limits the number of clients; "
                "raise the limit (ulimit -n)"
            )

    async def _live(self) -> None:
        # All of this runs on the running loop, because uvloop loses a signal that arrives while it
        # does not run.
        await self._start()
        gc.freeze()  # loaded objects stay: exclude them from garbage collection
        gc.enable()
        if self.owns_process:
            ShortCollections().open()
        await self._stopped
        await self._shutdown()

    async def _start(self) -> None:
        if self.owns_process:
            for number in SIGNALS:
                self.loop.add_signal_handler(number, self.commands.trapped, number)
        if self._open and self.jetstream is not None:
            self.jetstream.move(self.loop)
        elif self.store is not None:
            self.open_jetstream()
        if self.settings.leafnodes is not None:
            self.leafs = import_module("pelton.server.leaf.service").open_part(self)
            if self.acceptors.websocket is not None and self.settings.leafnodes.port:
                accept, taken = self.sessions.accept, self.leafs.over_websocket
                self.acceptors.websocket.leaf_accepted = lambda transport, *peer: taken(
                    accept(transport), transport, *peer
                )
        self.loop.add_reader(self.event_loop.fileno(), self.event_loop.poll_once)
        if not self._open:
            self.watching.open()
        self.watching.start()
        await self._listen()
        self.write_files()
        self._looping = True
        for when_ns, call in self._until_looping:
            self._call_at(when_ns, call)
        if not self._open:
            self.sessions.go_on()
        self._sweep()
        self._call_at(self.event_loop.now_ns + CLOCK_LOOK_NS, self._watch_clock)
        if self.port:
            address = join_address(self.host, self.port)
            self.log.info(f"Listening for client connections on {address}")
        self.acceptors.announce_tls()
        self.log.info("Server is ready")
        if self.on_ready is not None:
            self.on_ready()
        for early in self._early_signals:
            self.commands.trapped(signal.Signals(early))
        self.tell_systemd("READY=1")

    async def _listen(self) -> None:
        """Open all ports: the server can serve every client now."""
        if self._http_sockets:
            context = self.acceptors.monitoring_context()
            await self.watching.open_monitoring(self._http_sockets, context)
            shown = join_address(self.settings.http_host or self.host, self.http_port)
            self.log.info(f"Starting {'https' if context else 'http'} monitor on {shown}")
        self.listener.open(self.loop)
        self.acceptors.open(self.loop)
        if self.leafs is not None:
            self.leafs.open(self.loop)

    def open_jetstream(self, loop: "TimerLoop | None" = None) -> None:
        """Recover the store and serve it, with the timers of `loop`, or else of the running loop.
        StartError when that fails.
        """
        from pelton.server.jetstream import JetStream

        assert self.store is not None
        self.jetstream = JetStream(
            self.settings,
            self.store,
            self.event_loop,
            self.accounts,
            self.log,
            self.server_name,
            self.server_id,
            self._disk,
        )
        self.jetstream.open(loop or self.loop, self._presync)
        if self.settings.declared:
            self.jetstream.declare(self.settings.declared)

    def close_jetstream(self) -> None:
        """Sync and close JetStream; later requests get "no responders"."""
        if self.jetstream is None:
            return
        self.log.info("Initiating JetStream Shutdown...")
        self.event_loop.poll_once()
        self.jetstream.close()
        self.jetstream = None
        self.store = None
        self.event_loop.kick()
        self.log.info("JetStream Shutdown")

    def _announce(self) -> None:
        from pelton import __version__

        self.log.info("Starting pelton-server")
        self.log.info(f"  Version:  {COMPATIBLE_VERSION} (pelton {__version__})")
        self.log.info(f"  Name:     {self.server_name}")
        self.log.info(f"  ID:       {self.server_id}")
        if self.settings.feature_flags:
            self._announce_features(self.settings.feature_flags)
        if self.settings.config_file:
            digest = self.settings.config_digest
            self.log.info(f"Using configuration file: {self.settings.config_file} ({digest})")

    def _announce_features(self, wanted: dict[str, bool]) -> None:
        """Log the configured feature flags: the ones that nats-server has, then the others."""
        words = {True: ("opt-out", "enabled"), False: ("disabled", "opt-in")}
        known = [
            f"{name} ({words[FEATURE_FLAGS[name]][on]})"
            for name, on in sorted(wanted.items())
            if name in FEATURE_FLAGS
        ]
        self.log.info("  Feature flags:")
        self.log.info(f"    Configured:    {', '.join(known) or 'none'}")
        if unknown := sorted(wanted.keys() - FEATURE_FLAGS.keys()):
            self.log.info(f"    Unsupported:   {', '.join(unknown)}")

    def write_files(self) -> None:
        """Write the pid file and the ports file, if configured."""
        if self.settings.pid_file:
            write_pid_file(self.settings.pid_file)
        if self.settings.ports_file_dir:
            self.ports_file = write_ports_file(self.settings.ports_file_dir, self.ports())

    def ports(self) -> dict[str, list[str]]:
        """The URLs of the listeners by kind, in the form of the ports file."""
        found: dict[str, list[str]] = {"nats": []}
        if self.port:
            scheme = _scheme(self.settings.tls, self.settings.allow_non_tls)
            found["nats"] = [f"{scheme}://{join_address(reachable(self.host), self.port)}"]
        if self.http_port:
            host = reachable(self.settings.http_host or self.host)
            scheme = "https" if self.settings.https_port else "http"
            found["monitoring"] = [f"{scheme}://{join_address(host, self.http_port)}"]
        found["websocket"] = self.acceptors.urls()
        if self.leafs is not None and self.leafs.port:
            address = join_address(reachable(self.leafs.host), self.leafs.port)
            own = self.settings.leafnodes
            scheme = _scheme(own.tls if own is not None else None)
            found["leafnodes"] = [f"{scheme}://{address}"]
        if self.watching.profile_port:
            address = join_address(reachable(self.host), self.watching.profile_port)
            found["profile"] = [f"http://{address}"]
        return found

    def close_listeners(self) -> None:
        """Accept no further connections."""
        self.listener.close()
        self.acceptors.close_listener()

    async def _shutdown(self) -> None:
        self.log.info("Initiating Shutdown...")
        self.tell_systemd("STOPPING=1")
        self.listener.close()
        if self.leafs is not None:
            self.leafs.close()
        self.acceptors.close()
        self.watching.leaving(lame_duck=False)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self.commands.close()
        self.event_loop.poll_once()
        self.event_loop.end_input()
        self.close_jetstream()
        self.authenticator.close()
        self.loop.remove_reader(self.event_loop.fileno())
        self.event_loop.shutdown()
        await self.watching.close()
        for path in (self.settings.pid_file, self.ports_file):
            if path:
                remove_file(path)
        self.log.info("Server Exiting..")

    def tell_systemd(self, state: str) -> None:
        """Send a state to systemd, when the process is the server's own."""
        if self.owns_process:
            tell_systemd(state)

    # -- connections and timers

    def adopt(self, connected: socket.socket, host: str, port: int) -> None:
        """Take a connected socket as if its client had come to the port; outside of a turn."""
        connected.setblocking(False)
        self._accepted(connected, host, port)
        self.event_loop.kick()

    def _accepted(self, connected: socket.socket, host: str, port: int) -> None:
        if self.refuses:
            connected.close()
            return
        if self.acceptors.take(connected, host, port):
            return
        self.event_loop.now_ns = self.event_loop.clock.now()
        connection = self.event_loop.adopt(connected.fileno())
        connected.detach()
        self._sweep_by(self.clients.greet(connection, host, port).due_ns)

    def run_on_loop(self, call: Callable[[], None]) -> None:
        """Run a call on the event loop's thread, from another thread. Ignored after the loop is
        closed.
        """

        def on_time() -> None:
            self.event_loop.now_ns = self.event_loop.clock.now()
            call()

        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(on_time)

    def _call_at(self, when_ns: int, call: Callable[[], None]) -> None:
        """Run a call at a time of the reactor's clock."""
        if self._by_hand:
            self._timer_count += 1
            heapq.heappush(self._timers, (when_ns, self._timer_count, call))
            return
        if not self._looping:
            self._until_looping.append((when_ns, call))
            return

        def on_time() -> None:
            self.event_loop.now_ns = self.event_loop.clock.now()
            if self.event_loop.now_ns < when_ns:  # asyncio has another clock, in milliseconds
                self._call_at(when_ns, call)
            else:
                call()

        self.loop.call_later(max(when_ns - self.event_loop.clock.now(), 0) / SECOND_NS, on_time)

    def _sweep_by(self, due_ns: int) -> None:
        """Make sure that Clients.sweep runs no later than this time."""
        if due_ns >= self._sweep_at_ns or not self._looping:
            return
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._sweep_at_ns = due_ns
        if self._by_hand:
            return
        delay = max(due_ns - self.event_loop.clock.now(), 0) / SECOND_NS
        self._sweep_timer = self.loop.call_later(delay, self._sweep)

    def _watch_clock(self, watch: "ClockWatch | None" = None) -> None:
        """Log when the machine's clock differs from the server's."""
        if not isinstance(self._clock, SteadyClock):
            return
        if watch is None:
            watch = import_module("pelton.server.clock_watch").ClockWatch()
        now_ns = self._clock.now()
        if line := watch.look(now_ns, self._clock.offset_ns()):
            self.log.warn(line)
        self._call_at(now_ns + CLOCK_LOOK_NS, lambda: self._watch_clock(watch))

    def next_timer_ns(self) -> int:
        """With a clock that is set by hand: when `run_timers` is due."""
        return min(self._sweep_at_ns, self._timers[0][0] if self._timers else NEVER_NS)

    def run_timers(self) -> None:
        """With a clock that is set by hand: run the timers that are due."""
        now_ns = self.event_loop.now_ns = self.event_loop.clock.now()
        while self._timers and self._timers[0][0] <= now_ns:
            heapq.heappop(self._timers)[2]()
        if self._sweep_at_ns <= now_ns:
            self._sweep()

    def _sweep(self) -> None:
        self.event_loop.now_ns = self.event_loop.clock.now()
        self._sweep_at_ns = NEVER_NS
        self._sweep_timer = None
        self._sweep_by(self.clients.sweep(self.event_loop.now_ns))
        self.event_loop.kick()

    @property
    def stopping(self) -> bool:
        """Whether the server was told to stop."""
        return self._stopped.done()

    def stop(self) -> None:
        """Ask run() to shut down and return."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    # -- errors

    def _failed(self, error: BaseException) -> None:
        """Log an exception from a task of the core; the server goes on."""
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

    @property
    def lame_duck(self) -> bool:
        """Whether the server is in lame duck mode."""
        return self.commands.leaving

    def connection(self, cid: int) -> Connection | None:
        """An open connection by its id."""
        return next((c for c in self.event_loop.all_connections() if c.id == cid), None)


def _draw(below: int) -> int:
    """A random number from 0 to below the argument."""
    return int.from_bytes(os.urandom(4), "little") % below


def _scheme(tls: "Tls | None", allow_plain: bool = False) -> str:
    """The scheme of a listener's URL: tls when clients have to use it."""
    return "tls" if tls is not None and (tls.handshake_first or not allow_plain) else "nats"
