"""A server for the length of a test.

::

    async with penstock.testing.server() as nc:
        await nc.publish("greetings", b"hello")

    with penstock.testing.server_blocking() as nc:
        nc.publish("greetings", b"hello")

Each starts a penstock-server as a child process on a free loopback port, with JetStream on a
temporary store, and connects a client to it. Both end with the block. `LocalServer` is the process
alone, for tests that kill it, restart it or read its log.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from penstock.testing.process import LocalServer, StartFailedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from penstock.client import BlockingClient, Client

__all__ = ["LocalServer", "StartFailedError", "server", "server_blocking"]


@asynccontextmanager
async def server(*, options: Sequence[str] = (), store: str | None = None) -> AsyncIterator[Client]:
    """A connected asyncio client and its own server.

    `options` are more options of penstock-server; `store` is a folder to keep (default: a temporary
    one). Raises StartFailedError if the server does not start.
    """
    import asyncio

    from penstock.client import connect

    local = LocalServer(options=options, store=store)
    try:
        while not local.is_ready():
            await asyncio.sleep(LocalServer.POLL_SECONDS)
        async with connect(local.url) as client:
            yield client
    finally:
        await asyncio.to_thread(local.stop)


@contextmanager
def server_blocking(
    *, options: Sequence[str] = (), store: str | None = None
) -> Iterator[BlockingClient]:
    """As `server`, with a blocking client."""
    from penstock.client import connect_blocking

    with LocalServer(options=options, store=store) as local, connect_blocking(local.url) as client:
        yield client
