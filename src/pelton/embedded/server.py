"""The server as an object of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

from pelton.client import sync
from pelton.client.aio import connect

from .host import Host
from .loop_thread import LoopThread
from .options import ServerOptions, make_settings

if TYPE_CHECKING:
    from pelton.client.aio import Connecting
    from pelton.client.protocol.options import ConnectOptions
    from pelton.server.settings import Settings


class Server:
    """A server with JetStream inside this process.

    Example::

        with pelton.embedded.Server() as server, server.connect_sync() as nc:
            nc.publish("news", b"sunny")

    ``async with Server(...) as server`` serves in the running asyncio loop: whatever blocks the loop
    blocks the server. ``with Server(...) as server`` serves in a thread of its own. Both stop it
    cleanly at the end, with everything on the disk. A stopped server can be started again.
    """

    def __init__(
        self,
        *,
        store: str | None = None,
        port: int | None = None,
        config: str | None = None,
        name: str = "",
        **options: Unpack[ServerOptions],
    ) -> None:
        """Checks the options; the start does everything else.

        ``store``: the folder of the streams, which no other server may use; None: a temporary folder,
        removed at the stop. ``port``: for clients of other processes; 0: any free one; None: no port,
        whatever the configuration says. ``config``: a configuration file of pelton-server; options
        override it. ``name``: the server's name, also in ``memory_url``.

        Raises TypeError for unknown options, ValueError for bad values, and StartError for a bad
        configuration file.
        """
        self._arguments = port, store or "", config or "", name, dict(options)
        self._listens = port is not None
        self._memory_name = ""  # of the first run, for the later ones
        self._settings()
        self._host: Host | None = None
        self._thread: LoopThread | None = None

    def _settings(self) -> tuple[Settings, list[str]]:
        return make_settings(*self._arguments)

    def _new_host(self) -> Host:
        if self._host is not None:
            raise RuntimeError("the server runs already")
        settings, warnings = self._settings()
        host = Host(
            settings,
            warnings,
            listens=self._listens,
            reload=self._settings,
            name=self._memory_name,
        )
        self._memory_name = host.name
        return host

    # -- life

    async def start(self) -> None:
        """Serve in the running loop. StartError: a port is taken, or the store can't be used.

        RuntimeError: it runs already.
        """
        host = self._new_host()
        await host.start()
        self._host = host

    async def stop(self) -> None:
        """Stop; messages and states are on the disk afterwards. Stopping it again has no effect."""
        host, self._host = self._host, None
        if host is not None:
            await host.stop()

    def start_thread(self) -> None:
        """Serve in a thread of its own; the errors of ``start``."""
        host = self._new_host()
        thread = LoopThread(f"pelton {host.name}")
        try:
            thread.run(host.start())
        except BaseException:
            thread.stop()
            raise
        self._host, self._thread = host, thread

    def stop_thread(self) -> None:
        """As ``stop``, for a server that ``start_thread`` has started."""
        host, self._host = self._host, None
        thread, self._thread = self._thread, None
        if host is not None and thread is not None:
            try:
                thread.run(host.stop())
            finally:
                thread.stop()

    async def __aenter__(self) -> Self:
        """Start in the running loop."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    def __enter__(self) -> Self:
        """Start in a thread."""
        self.start_thread()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop_thread()

    # -- access

    def _running(self) -> Host:
        if self._host is None:
            raise RuntimeError("the server does not run: use it in `with` or `async with`")
        return self._host

    @property
    def running(self) -> bool:
        """Whether the server was started and not stopped."""
        return self._host is not None

    @property
    def url(self) -> str:
        """The URL of the port for clients of any kind; "" without a port."""
        return self._running().url

    @property
    def memory_url(self) -> str:
        """The URL for this package's clients in this process, which need no port."""
        return f"memory://{self._running().name}"

    @property
    def port(self) -> int:
        """The port for clients; 0 without one."""
        return self._running().app.port

    @property
    def name(self) -> str:
        """The server's name."""
        return self._running().app.server_name

    def connect(self, **options: Unpack[ConnectOptions]) -> Connecting:
        """An asyncio client over memory: the result of ``pelton.client.connect``."""
        return connect(self.memory_url, **options)

    def connect_sync(self, **options: Unpack[ConnectOptions]) -> sync.Client:
        """A blocking client over memory, for a server in a thread, or in another thread's loop.

        Raises the errors of ``pelton.sync.connect``; ConnectError in the thread of the
        server's own loop, which would wait for itself.
        """
        return sync.connect(self.memory_url, **options)
