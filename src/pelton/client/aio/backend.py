"""What differs between the halves of the client, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])


def locked(method: F) -> F:
    """The method itself: only the tasks of one loop use a client, and one runs at a time."""
    return method
