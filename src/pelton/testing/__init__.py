"""Servers for tests.

::

    with pelton.testing.broker(clock="manual") as broker:      # in this process, ready at once
        with broker.connect_sync() as nc:
            nc.publish("orders.new", b"42 bolts")
            broker.clock.advance(30)
            broker.assert_published("orders.*", b"42 bolts", times=1)

    async with pelton.testing.server() as nc:                  # only a client, with a server behind it
        await nc.publish("greetings", b"hello")

``LocalServer`` is a pelton-server as a child process, for tests that kill it, restart it or read its
log. ``pelton.testing.plugin`` has fixtures for pytest, which finds it by itself.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Literal, Unpack

from .process import LocalServer, StartFailedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from pelton.client import sync
    from pelton.client.aio.connection import Client
    from pelton.embedded import ServerOptions

    from .brokers import Broker, NoSimulatedDiskError
    from .clock import ClockNotManualError
    from .states import Snapshot

__all__ = [
    "Broker",
    "ClockNotManualError",
    "LocalServer",
    "NoSimulatedDiskError",
    "Snapshot",
    "StartFailedError",
    "broker",
    "server",
    "server_blocking",
]

# Imported at first use: a test that only uses LocalServer does not load the server.
_LATER = {
    "Broker": "brokers",
    "ClockNotManualError": "clock",
    "NoSimulatedDiskError": "brokers",
    "Snapshot": "states",
}


def broker(
    *,
    clock: Literal["system", "manual"] = "system",
    store: str = "memory",
    port: int | None = None,
    name: str = "",
    **options: Unpack[ServerOptions],
) -> Broker:
    """A server in this process, for ``with`` and ``async with``.

    Example::

        with pelton.testing.broker(clock="manual") as broker:
            broker.clock.advance("1h")

    ``clock``: "manual" stands still until ``broker.clock.advance(30)``. ``store``: "memory" is a
    simulated disk, which can fill up and fail; or a folder. ``port``: for clients of other kinds and
    processes; 0: any free one; None: no port. ``options``: ``help(pelton.embedded.ServerOptions)``.

    Raises TypeError for unknown options, ValueError for bad values; its start StartFailedError.
    """
    from .brokers import Broker as Made

    return Made(clock=clock, store=store, port=port, name=name, **options)


def server(
    *, options: Sequence[str] = (), store: str | None = None, process: bool = False
) -> AbstractAsyncContextManager[Client]:
    """A connected asyncio client and its own server, in this process or in one of its own.

    Example::

        async with pelton.testing.server() as nc:
            await nc.publish("news", b"sunny")

    `options` are more options of pelton-server; `store` is a folder to keep (default: none is
    kept). Raises StartFailedError if the server does not start.
    """
    from .entering import ServerBlock

    return ServerBlock(_server(options, store, process))


@asynccontextmanager
async def _server(
    options: Sequence[str], store: str | None, process: bool
) -> AsyncIterator[Client]:
    if not process:
        async with broker(store=store or "memory", arguments=options) as made, made.connect() as nc:
            yield nc
        return
    import asyncio

    from pelton.client.aio import connect

    local = LocalServer(options=options, store=store)
    try:
        while not local.is_ready():
            await asyncio.sleep(LocalServer.POLL_SECONDS)
        async with connect(local.url) as client:
            yield client
    finally:
        await asyncio.to_thread(local.stop)


def server_blocking(
    *, options: Sequence[str] = (), store: str | None = None, process: bool = False
) -> AbstractContextManager[sync.Client]:
    """As `server`, with a blocking client.

    Example::

        with pelton.testing.server_blocking() as nc:
            nc.publish("news", b"sunny")
    """
    from .entering import BlockingServerBlock

    return BlockingServerBlock(_server_blocking(options, store, process))


@contextmanager
def _server_blocking(
    options: Sequence[str], store: str | None, process: bool
) -> Iterator[sync.Client]:
    if not process:
        with (
            broker(store=store or "memory", arguments=options) as made,
            made.connect_sync() as client,
        ):
            yield client
        return
    from pelton.client import sync

    with LocalServer(options=options, store=store) as local, sync.connect(local.url) as client:
        yield client


if not TYPE_CHECKING:  # or checkers would take any name for one of this package

    def __getattr__(name: str) -> object:
        """Import a name at first use."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(f".{_LATER[name]}", __name__), name)
        return found
