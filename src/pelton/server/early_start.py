"""The early start of a server: it serves clients while the rest of it is loading.

    main thread     accept, INFO, CONNECT, PING, SUB    recovery, publishes     handover:
                    publishes wait                      and requests            asyncio's loop
    other thread    import the engine                   asyncio, uvloop, ...

A publish may be for a stream that is not recovered yet, so the server does not read from its connection
until it is known which streams exist: no message is lost, refused, or answered with "no responders".
The modules that the main thread needs meanwhile are imported before, so that the threads do not wait
for each other. Timers work in this time, nothing else of asyncio does.

Only a server with plain settings starts early: settings whose absence a client can't notice meanwhile.
"""

import os
import select
import sys
import threading  # here, because the importing thread counts as the main thread
import time
from collections.abc import Callable

from pelton.core.broker.event_loop import EventLoop
from pelton.core.broker.session import Sessions
from pelton.server.settings import Settings

# The switch interval of the threads: clients wait for the loading thread up to this time.
SWITCH_SECONDS = 0.0005
# How long the loading thread waits after a part for the main thread, which may have requests that
# waited for the part.
YIELD_SECONDS = 0.1

Part = tuple[Callable[[], object], Callable[[], object]]
"""Loads modules, in the other thread; begins to use them, in the main thread."""

# Settings that may have any value in a server that starts early; the others must have their
# defaults. A new setting is not in this list unless it works without the loaded parts.
PLAIN = frozenset(
    {
        "host",
        "port",
        "server_name",
        "config_file",
        "config_digest",
        "http_host",
        "http_port",
        "jetstream",
        "store_dir",
        "sync_interval_ns",
        "max_memory",
        "max_file",
        "jetstream_limits",
        "batch_limits",
        "domain",
        "strict",
        "debug",
        "trace",
        "logtime",
        "logtime_utc",
        "log_file",
        "log_format",
        "log_size_limit",
        "log_max_num",
        "trace_verbose",
        "trace_headers",
        "max_traced_msg_len",
        "connect_error_reports",
        "reconnect_error_reports",
        "pid_file",
        "ports_file_dir",
        "max_payload",
        "max_control_line",
        "max_pending",
        "max_connections",
        "max_subscriptions",
        "max_subscription_memory",
        "max_output_memory",
        "max_sub_tokens",
        "no_fast_producer_stall",
        "max_closed_clients",
        "ping_interval_ns",
        "ping_max",
        "write_deadline_ns",
        "write_timeout",
        "lame_duck_duration_ns",
        "lame_duck_grace_period_ns",
    }
)


def may_open_early(settings: Settings) -> bool:
    """Whether all settings permit an early start."""
    usual = Settings()
    return all(
        getattr(settings, name) == getattr(usual, name)
        for name in Settings.__struct_fields__
        if name not in PLAIN
    )


class Timer:
    """A call at a time."""

    __slots__ = ("call", "due")

    def __init__(self, due: float, call: Callable[[], None]) -> None:
        """`due` is a time of time.monotonic()."""
        self.due = due
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Do not make the call."""
        self.call = None


class EarlyStart:
    """Runs the core's turns without asyncio while modules load."""

    def __init__(self, event_loop: EventLoop, sessions: Sessions) -> None:
        """Serves a server whose sockets listen already."""
        self._event_loop = event_loop
        self._sessions = sessions
        self._soon: list[Callable[[], None]] = []
        self._timers: list[Timer] = []
        self._problem: BaseException | None = None
        self._idle = threading.Event()  # the main thread has nothing to do

    def call_soon(self, call: Callable[[], None]) -> None:
        """Make the call in the next round."""
        self._soon.append(call)

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Make the call after so many seconds, if `serve` still runs then."""
        timer = Timer(time.monotonic() + seconds, call)
        self._timers.append(timer)
        return timer

    def serve(self, *parts: Part) -> None:
        """Serve clients while another thread loads one part after the other; raises their
        exceptions.

        The event loop accepts connections (EventLoop.listen). Publishes wait until a part calls
        ``sessions.go_on()``.
        """
        self._sessions.hold()
        usual = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        loaded = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        ready = select.epoll()
        try:
            for descriptor in (loaded, self._event_loop.fileno()):
                ready.register(descriptor, select.EPOLLIN)
            loading = threading.Thread(target=self._load, args=(parts, loaded), daemon=True)
            loading.start()
            try:
                self._rounds(ready, loaded, [begin for _, begin in parts])
            finally:
                loading.join()  # a process that ends must not be importing
                os.close(loaded)
        finally:
            ready.close()
            sys.setswitchinterval(usual)
        if self._problem is not None:
            raise self._problem
        self._call_all()

    def _rounds(self, ready: select.epoll, loaded: int, begins: list[Callable[[], object]]) -> None:
        while True:
            wait_seconds = self._wait_seconds()
            if wait_seconds:
                self._idle.set()
            events = ready.poll(wait_seconds)
            self._call_all()
            for descriptor, _ in events:
                if descriptor != loaded:
                    self._event_loop.poll_once()
                    continue
                for _ in range(os.eventfd_read(loaded)):
                    if self._problem is not None or not begins:
                        return
                    begins.pop(0)()
                    self._event_loop.kick()

    def _wait_seconds(self) -> float:
        if self._soon:
            return 0
        due = min((timer.due for timer in self._timers), default=None)
        return -1 if due is None else max(due - time.monotonic(), 0)

    def _call_all(self) -> None:
        """Make the calls that are due."""
        if self._timers:
            now = time.monotonic()
            due = [timer for timer in self._timers if timer.due <= now]
            self._timers = [timer for timer in self._timers if timer.due > now and timer.call]
            self._soon += [timer.call for timer in due if timer.call is not None]
        calls, self._soon = self._soon, []
        for call in calls:
            call()

    def _load(self, parts: tuple[Part, ...], loaded: int) -> None:
        try:
            for load, _ in parts:
                load()
                self._idle.clear()
                os.eventfd_write(loaded, 1)
                self._idle.wait(YIELD_SECONDS)
        except BaseException as problem:  # raised again in the main thread
            self._problem = problem
        os.eventfd_write(loaded, 1)
