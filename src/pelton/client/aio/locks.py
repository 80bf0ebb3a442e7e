"""Locks that asyncio does not need: only the tasks of one loop use a client, and one runs at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    F = TypeVar("F", bound=Callable[..., Any])


def locked(method: F) -> F:
    """The method itself; in blocking code it holds the client's lock while it works."""
    return method


def unlocked(method: F) -> F:
    """The method itself; in blocking code it takes the lock only for moments."""
    return method
