"""Servers of this process that clients reach without a port, by URLs such as ``memory://orders``.

A server in the process registers a function that opens a connection (``penstock.embedded``). The client
knows no server: it looks up the name when it connects, so a lost connection is opened again as any other.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

SCHEME = "memory"

_lock = threading.Lock()
_doors: dict[str, Callable[[bool], socket.socket]] = {}


def offer(name: str, door: Callable[[bool], socket.socket]) -> None:
    """Let clients of this process connect by ``memory://name``.

    ``door(waits)`` returns the client's end of a new connection, or raises OSError; ``waits``: a
    blocking client asks, whose thread waits for answers. ValueError: the name is taken.
    """
    with _lock:
        if name in _doors:
            raise ValueError(f"a server of this process has the name {name!r}; choose another")
        _doors[name] = door


def withdraw(name: str) -> None:
    """Refuse new connections; nothing happens when the name is not offered."""
    with _lock:
        _doors.pop(name, None)


def open_socket(name: str, *, waits: bool) -> socket.socket:
    """The client's end of a new connection, of a blocking client if it ``waits``; raises OSError."""
    door = _doors.get(name)
    if door is None:
        raise ConnectionRefusedError(
            f"this process has no server {SCHEME}://{name}: it has stopped, or runs in another process"
        )
    return door(waits)
