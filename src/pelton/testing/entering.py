"""What ``server`` and ``server_blocking`` return: a client and its server for one block.

Each says what to write when it is used in another way.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import TracebackType

    from pelton.client import sync
    from pelton.client.aio.connection import Client

ASYNCIO = "`async with pelton.testing.server() as nc`"
BLOCKING = "`with pelton.testing.server_blocking() as nc`"


class ServerBlock(AbstractAsyncContextManager["Client"]):
    """A connected asyncio client, for ``async with``."""

    def __init__(self, inner: AbstractAsyncContextManager[Client]) -> None:
        """Starts nothing before the block."""
        self._inner = inner

    async def __aenter__(self) -> Client:
        """Start the server and connect."""
        return await self._inner.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Close the client and stop the server."""
        return await self._inner.__aexit__(kind, error, trace)

    if not TYPE_CHECKING:  # checkers say it themselves

        def __enter__(self) -> NoReturn:
            """Say that ``async`` or ``_blocking`` is missing."""
            raise TypeError(f"server() is for asyncio: write {ASYNCIO}, or {BLOCKING}")

        def __exit__(self, *_: object) -> None:
            """Python asks for it before it calls ``__enter__``."""

        def __getattr__(self, name: str) -> NoReturn:
            """Say that the client comes with the block."""
            raise AttributeError(f"server() is no client, but gives one: write {ASYNCIO}")


class BlockingServerBlock(AbstractContextManager["sync.Client"]):
    """A connected blocking client, for ``with``."""

    def __init__(self, inner: AbstractContextManager[sync.Client]) -> None:
        """Starts nothing before the block."""
        self._inner = inner

    def __enter__(self) -> sync.Client:
        """Start the server and connect."""
        return self._inner.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Close the client and stop the server."""
        return self._inner.__exit__(kind, error, trace)

    if not TYPE_CHECKING:

        async def __aenter__(self) -> NoReturn:
            """Say which of the two functions is for asyncio."""
            raise TypeError(
                f"server_blocking() is for blocking code: write {BLOCKING}, or {ASYNCIO}"
            )

        async def __aexit__(self, *_: object) -> None:
            """Python asks for it before it calls ``__aenter__``."""

        def __getattr__(self, name: str) -> NoReturn:
            """Say that the client comes with the block."""
            raise AttributeError(f"server_blocking() is no client, but gives one: write {BLOCKING}")
