"""One run of the server in an asyncio loop of this process, and its memory transport."""

from __future__ import annotations

import asyncio
import itertools
import logging
import shutil
import socket
import tempfile
import threading
from typing import TYPE_CHECKING

from pelton.client.base import addresses
from pelton.server import app
from pelton.server.errors import StartError
from pelton.server.files import lock_store
from pelton.server.transports.listener import open_sockets

from .logs import LoggingLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.core.base.clock import Clock
    from pelton.core.base.disk import Disk
    from pelton.server.files import StoreLock
    from pelton.server.reload import ReadAgain
    from pelton.server.settings import Settings

LOGGER = "pelton.server"
_numbers = itertools.count(1)


class Host:
    """A server from ``start`` to the end of ``stop``, in one loop."""

    def __init__(
        self,
        settings: Settings,
        warnings: list[str],
        *,
        listens: bool,
        reload: ReadAgain,
        name: str = "",
        clock: Clock | None = None,
        disk: Disk | None = None,
        store: StoreLock | None = None,
    ) -> None:
        """Bind the ports and lock the store. Raises StartError.

        ``listens``: whether it has a port for clients. ``name``: of an earlier run, so that clients
        over memory find it again. ``disk`` and ``store``: a disk in place of
        the machine's, and its folder.
        """
        log = LoggingLog(logging.getLogger(LOGGER), trace=settings.trace)
        for warning in warnings:
            log.warn(warning)
        self.name = name or settings.server_name or f"server-{next(_numbers)}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._ended = False
        self._folder = ""  # a temporary store, removed at the end
        self._serving: asyncio.Task[None] | None = None
        try:
            addresses.offer(self.name, self._open)
        except ValueError as problem:
            raise StartError(str(problem)) from None
        sockets: list[socket.socket] = []
        locked: StoreLock | None = None
        try:
            if listens:
                sockets += open_sockets(settings.host, settings.port, "port")
            monitoring = settings.http_port or settings.https_port
            host = settings.http_host or settings.host
            http = open_sockets(host, monitoring, "-m") if monitoring else []
            if settings.jetstream and store is None:
                locked = lock_store(self._store_folder(settings), settings.domain, log.warn)
            again = self._with_folder(reload)
            self.app = app.Server(
                settings, log, sockets, http, store or locked, again, clock=clock, disk=disk
            )
        except BaseException as problem:
            for each in sockets:
                each.close()
            if locked is not None:
                locked.close()
            addresses.withdraw(self.name)
            self._remove()
            if isinstance(problem, ModuleNotFoundError) and problem.name:
                raise StartError(
                    f"the package {problem.name} is not installed: pip install {problem.name}"
                ) from None
            raise

    def _store_folder(self, settings: Settings) -> str:
        if not settings.store_dir:
            self._folder = tempfile.mkdtemp(prefix="pelton-embedded-")
            settings.store_dir = self._folder
        return settings.store_dir

    def _with_folder(self, reload: ReadAgain) -> ReadAgain:
        """A reload that keeps the temporary store."""

        def again() -> tuple[Settings, list[str]]:
            settings, warnings = reload()
            settings.store_dir = self._folder or settings.store_dir
            return settings, warnings

        return again

    def _remove(self) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """The URL of the port; "" without one."""
        return next(iter(self.app.ports()["nats"]), "")

    async def start(self) -> None:
        """Serve. StartError: the store or a port can't be used."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        try:
            await self.app.serve_here()
        except BaseException:
            await self._end()
            raise
        self._serving = self._loop.create_task(self._serve())

    async def _serve(self) -> None:
        await self.app.stopped()
        await self._end()

    async def stop(self) -> None:
        """Stop serving, sync everything, close every connection."""
        if self._serving is not None:
            self.app.stop()
            await asyncio.shield(self._serving)

    async def _end(self) -> None:
        addresses.withdraw(self.name)
        self._ended = True
        try:
            await self.app.shut_down()
        finally:
            if self.app.store is not None:  # a start that failed before the store was opened
                self.app.store.close()
            self._remove()

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the loop's thread: at once, or soon from another thread."""
        assert self._loop is not None
        if threading.get_ident() == self._thread:
            function()
        else:
            self._loop.call_soon_threadsafe(function)

    def _open(self, waits: bool) -> socket.socket:
        """The client's end of a new connection, from any thread."""
        if waits and threading.get_ident() == self._thread:
            raise ConnectionRefusedError(
                f"server {self.name} runs in the event loop of this thread, which a blocking client "
                "would stop: use connect(), or start the server in a thread with `with`"
            )
        if self._loop is None:
            raise ConnectionRefusedError(f"server {self.name} has not started")
        ours, theirs = socket.socketpair()
        try:
            self.call(lambda: self._adopt(ours))
        except RuntimeError:  # the loop is closed
            ours.close()
            theirs.close()
            raise ConnectionRefusedError(f"server {self.name} has stopped") from None
        return theirs

    def _adopt(self, connected: socket.socket) -> None:
        if self._ended:
            connected.close()
        else:
            self.app.adopt(connected, "127.0.0.1", 0)
