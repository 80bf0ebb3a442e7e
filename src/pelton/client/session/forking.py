"""Clients in a process that was forked: they are closed there, and their connections stay the parent's.

A child that went on with them would send into the middle of what the parent sends, and take its answers.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .session import Session

FORKED = "this process was forked, and the connection is the parent's: connect again here"

_living: weakref.WeakSet[Session] = weakref.WeakSet()


def remember(client: Session) -> None:
    """Close this client in processes that are forked from now on."""
    _living.add(client)


def _leave_to_parent() -> None:
    for client in list(_living):
        client._leave_to_parent(FORKED)
    _living.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_leave_to_parent)
