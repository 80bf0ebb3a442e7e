"""Servers of this process that clients reach without a port, by URLs such as ``memory://orders``.

A server in the process registers a function that opens a connection (``pelton.embedded``). The client
knows no server: it looks up the name when it connects, so a lost connection is opened again as any other.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

SCHEME = "memory"

_lock = threading.Lock()
_doors: dict[str, tuple[int, Callable[[bool], socket.socket]]] = {}  # with the process id


def offer(name: str, door: Callable[[bool], socket.socket]) -> None:
    """Let clients of this process connect by ``memory://name``.

    ``door(waits)`` returns the client's end of a new connection, or raises OSError; ``waits``: a
    blocking client asks, whose thread waits for answers. ValueError: the name is taken.
    """
    with _lock:
        if name in _doors and _doors[name][0] == os.getpid():
            raise ValueError(f"a server of this process has the name {name!r}; choose another")
        _doors[name] = os.getpid(), door


def withdraw(name: str) -> None:
    """Refuse new connections; nothing happens when the name is not offered."""
    with _lock:
        _doors.pop(name, None)


def open_socket(name: str, *, waits: bool) -> socket.socket:
    """The client's end of a new connection, of a blocking client if it ``waits``; raises OSError."""
    process, door = _doors.get(name, (0, None))
    if door is None or process != os.getpid():
        raise ConnectionRefusedError(
            f"this process has no server {SCHEME}://{name}: it has stopped, or runs in another process"
        )
    return door(waits)
