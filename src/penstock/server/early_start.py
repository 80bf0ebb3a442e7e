"""The early start of a server: it serves clients while the rest of it is loading.

    main thread     accept, INFO, PING, SUB     CONNECT                  handover: asyncio's loop,
                    publishes wait                                       recovery, then the publishes
    other thread    import msgspec, ...         asyncio, uvloop, the engine, ...

A publish may be for a stream that is not recovered yet, so the server does not read from its connection
until the streams are open: no message is lost, refused, or answered with "no responders". The modules
that the main thread needs meanwhile are imported before, so that the threads do not wait for each
other.

Only a server with plain settings starts early: settings whose absence a client can't notice meanwhile.
"""

import os
import select
import sys
import threading  # here, because the importing thread counts as the main thread
from collections.abc import Callable

from penstock.core.broker.event_loop import EventLoop
from penstock.core.broker.session import Sessions
from penstock.server.fast_dataclass import field_names
from penstock.server.settings import Settings

# The switch interval of the threads: clients wait for the loading thread up to this time.
SWITCH_SECONDS = 0.0005
_ALL = 2  # number of parts to load

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
        for name in field_names(Settings)
        if name not in PLAIN
    )


class EarlyStart:
    """Runs the core's turns without asyncio while modules load."""

    def __init__(self, event_loop: EventLoop, sessions: Sessions) -> None:
        """Serves a server whose sockets listen already."""
        self._event_loop = event_loop
        self._sessions = sessions
        self._soon: list[Callable[[], None]] = []
        self._problem: BaseException | None = None
        self._loaded = 0  # number of loaded parts, written by the other thread

    def call_soon(self, call: Callable[[], None]) -> None:
        """The `call_soon` of EventLoop.start: make the call in the next round."""
        self._soon.append(call)

    def serve(self, for_connect: Callable[[], None], load: Callable[[], None]) -> None:
        """Serve clients while another thread runs for_connect() and then load(); raises their
        exceptions.

        The event loop accepts connections (EventLoop.listen). A CONNECT waits until for_connect()
        has returned, publishes wait until the caller calls ``sessions.go_on()``.
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
        os.close(loaded)  # the other thread has ended
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
        except BaseException as problem:  # raised again in the main thread
            self._problem = problem
            os.eventfd_write(loaded, _ALL)
