"""The server of a broker: in a thread of this process, with a clock and a disk of the test."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from pelton.core.base.clock import Clock, SystemClock
from pelton.core.base.disk import PyDisk
from pelton.embedded.host import Host
from pelton.embedded.loop_thread import LoopThread
from pelton.embedded.options import ServerOptions, make_settings
from pelton.server.errors import StartError
from pelton.server.files import StoreLock

from .process import StartFailedError
from .simulated_disk import SimDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.server.app import Server

T = TypeVar("T")

MEMORY_STORAGE_BYTES = 1 << 40
FOLDER = "/pelton-memory"  # on the simulated disk; the machine has no such folder
NEVER_PINGS = "876000h"  # a client that waits for advance() can't answer


class MemoryStore(StoreLock):
    """The folder on a simulated disk: nobody else can reach it, so nothing is locked."""

    def __init__(self) -> None:
        """Touches no file."""
        self.folder = FOLDER

    def close(self) -> None:
        """Nothing is locked."""


class Runner:
    """One server from ``start`` to ``stop``, and calls into its thread."""

    def __init__(
        self, *, manual: bool, store: str, port: int | None, name: str, options: ServerOptions
    ) -> None:
        """``store``: "memory", or a folder. Raises the errors of ``embedded.Server``."""
        self.clock = Clock(time.time_ns()) if manual else SystemClock()
        self.disk = SimDisk() if store == "memory" else None
        self._manual = manual
        self._listens = port is not None
        self._memory_name = ""  # of the first run, for the later ones
        folder = FOLDER if self.disk is not None else store
        if manual:
            options = {"ping_interval": NEVER_PINGS, **options}
        if self.disk is not None:
            options = {"max_storage": MEMORY_STORAGE_BYTES, **options}
        self._arguments = port, folder, "", name, options
        try:
            make_settings(*self._arguments)
        except StartError as problem:
            raise StartFailedError(str(problem)) from None
        self._host: Host | None = None
        self._thread: LoopThread | None = None

    @property
    def running(self) -> bool:
        """Whether the server runs."""
        return self._host is not None

    @property
    def host(self) -> Host:
        """The running server; RuntimeError when it does not run."""
        if self._host is None:
            raise RuntimeError("the broker does not run: use it in `with` or `async with`")
        return self._host

    def start(self, ready: Callable[[Server], None]) -> None:
        """Start, and call ``ready`` in the thread before clients come. Raises StartFailedError."""
        if self._host is not None:
            raise RuntimeError("the broker runs already")
        try:
            settings, warnings = make_settings(*self._arguments)
            host = Host(
                settings,
                warnings,
                listens=self._listens,
                reload=lambda: make_settings(*self._arguments),
                clock=self.clock if self._manual else None,
                disk=self.new_disk(),
                store=self.lock(),
                name=self._memory_name,
            )
        except StartError as problem:
            raise StartFailedError(str(problem)) from None
        thread = LoopThread(f"pelton {host.name}")

        async def begin() -> None:
            await host.start()
            if host.app.jetstream is not None:
                host.app.jetstream.recover_now()
            ready(host.app)

        try:
            thread.run(begin())
        except StartError as problem:
            thread.stop()
            raise StartFailedError(str(problem)) from None
        except BaseException:
            thread.stop()
            raise
        self._host, self._thread = host, thread
        self._memory_name = host.name

    def new_disk(self) -> PyDisk | None:
        """The simulated disk for the engine; None: the machine's."""
        return PyDisk(self.disk) if self.disk is not None else None

    def lock(self) -> StoreLock | None:
        """The store of a simulated disk; None: the host locks the folder."""
        return MemoryStore() if self.disk is not None else None

    def stop(self) -> None:
        """Stop; nothing happens when it does not run."""
        host, self._host = self._host, None
        thread, self._thread = self._thread, None
        if host is not None and thread is not None:
            if self.disk is not None:
                self.disk.heal()
                self.disk.room = None
            try:
                thread.run(host.stop())
            finally:
                thread.stop()

    def call(self, function: Callable[[Server], T]) -> T:
        """Call a function in the server's thread and return its result, or raise its error."""
        app = self.host.app
        assert self._thread is not None
        return self._thread.call(lambda: function(app))

    def soon(self, seconds: float, function: Callable[[], None]) -> None:
        """In the server's thread: call a function after a while of the machine's clock."""
        assert self._thread is not None
        self._thread.loop.call_later(seconds, function)
