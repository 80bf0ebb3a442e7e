"""The early start of a server: it serves clients while the rest of it is loading.

    main thread     accept, INFO, PING, SUB     CONNECT                  handover: asyncio's loop,
                    publishes wait                                       recovery, then the publishes
    other thread    import msgspec, ...         asyncio, uvloop, the engine, ...

A publish may be for a stream that is not recovered yet, so the server does not read from its connection
until the streams are open: no message is lost, refused, or answered with "no responders". Everything
that the main thread needs in this time was imported before, so that the threads do not wait for each
other.

Only a plain server starts early: one whose settings use nothing that a client could miss meanwhile.
"""

import os
import select
import sys
import threading  # by the main thread: who imports it first is taken for that
from collections.abc import Callable

from penstock.core.broker.event_loop import EventLoop
from penstock.core.broker.session import Sessions
from penstock.server.fast_dataclass import field_names
from penstock.server.settings import Settings

# How long one thread runs before the other gets its turn: clients wait for as long.
SWITCH_SECONDS = 0.0005
_ALL = 2  # parts to be loaded

# Settings that may have any value in a server that opens early; what is not named must have its
# default. A new setting waits for the complete server unless it is put here.
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
    """Whether nothing is set that has to be there before the first client is."""
    usual = Settings()
    return all(
        getattr(settings, name) == getattr(usual, name)
        for name in field_names(Settings)
        if name not in PLAIN
    )


class EarlyStart:
    """Runs the core's turns without asyncio, for as long as something is loaded."""

    def __init__(self, event_loop: EventLoop, sessions: Sessions) -> None:
        """Of a server that listens already."""
        self._event_loop = event_loop
        self._sessions = sessions
        self._soon: list[Callable[[], None]] = []
        self._problem: BaseException | None = None
        self._loaded = 0  # parts, by the other thread

    def call_soon(self, call: Callable[[], None]) -> None:
        """For EventLoop.start: the call is made in the next round."""
        self._soon.append(call)

    def serve(self, for_connect: Callable[[], None], load: Callable[[], None]) -> None:
        """Serve clients until for_connect() and then load(), in a thread of their own, have
        returned; raises what they raised.

        The event loop takes new connections (EventLoop.listen). A CONNECT is held until for_connect() has
        returned, publishes until the caller says ``sessions.go_on()``.
        """
        self._sessions.hold()
        usual = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        loaded = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        ready = select.epoll()
        try:
            for descriptor in (loaded, self._event_loop.fileno()):
                ready.register(descriptor, select.EPOLLIN)
            threading.Thread(
                target=self._load, args=((for_connect, load), loaded), daemon=True
            ).start()
            self._rounds(ready, loaded)
        finally:
            ready.close()
            sys.setswitchinterval(usual)
        os.close(loaded)  # the other thread is done with it
        for call in self._soon:
            call()
        if self._problem is not None:
            raise self._problem

    def _rounds(self, ready: select.epoll, loaded: int) -> None:
        while True:
            events = ready.poll(0 if self._soon else -1)
            calls, self._soon = self._soon, []
            for call in calls:
                call()
            for descriptor, _ in events:
                if descriptor != loaded:
                    self._event_loop.poll_once()
                    continue
                self._loaded += os.eventfd_read(loaded)
                if self._loaded >= _ALL:
                    return
                self._sessions.take_connects()
                self._event_loop.kick()

    def _load(self, parts: tuple[Callable[[], None], ...], loaded: int) -> None:
        try:
            for load in parts:
                load()
                os.eventfd_write(loaded, 1)
        except BaseException as problem:  # it is raised again, in the main thread
            self._problem = problem
            os.eventfd_write(loaded, _ALL)
