"""Objects that say what to write when an ``async`` is forgotten, or stands where none belongs.

Python itself names the protocol that an object lacks, and not the other one that it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING


class AsyncOnly:
    """Base of objects for ``async with``."""

    __slots__ = ()
    if not TYPE_CHECKING:  # checkers say it themselves

        def __enter__(self) -> None:
            """Say that ``async`` is missing."""
            raise TypeError(f"{type(self).__name__} is for asyncio: write `async with`, not `with`")

        def __exit__(self, *_: object) -> None:
            """Python asks for it before it calls ``__enter__``."""


class BlockingOnly:
    """Base of objects for ``with``."""

    __slots__ = ()
    if not TYPE_CHECKING:

        async def __aenter__(self) -> None:
            """Say that ``async`` does not belong here."""
            raise TypeError(
                f"{type(self).__name__} is for blocking code: write `with`, not `async with`"
            )

        async def __aexit__(self, *_: object) -> None:
            """Python asks for it before it calls ``__aenter__``."""


class AsyncItems:
    """Base of objects for ``async for``."""

    __slots__ = ()
    if not TYPE_CHECKING:

        def __iter__(self) -> None:
            """Say that ``async`` is missing."""
            raise TypeError(f"{type(self).__name__} is for asyncio: write `async for`, not `for`")


class BlockingItems:
    """Base of objects for ``for``."""

    __slots__ = ()
    if not TYPE_CHECKING:

        def __aiter__(self) -> None:
            """Say that ``async`` does not belong here."""
            raise TypeError(
                f"{type(self).__name__} is for blocking code: write `for`, not `async for`"
            )
