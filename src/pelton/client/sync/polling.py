"""Waiting for sockets: ``poll`` of the system, or ``select`` where there is no such call, as on Windows."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import HasFileno

IN, OUT, ERR, HUP = 1, 4, 8, 16  # as everywhere
READABLE = IN | HUP | ERR
WRITABLE = OUT | HUP | ERR


class SelectPoll:
    """``select.poll`` by ``select.select``."""

    def __init__(self) -> None:
        """Without descriptors."""
        self._events: dict[int, int] = {}

    def register(self, waited: HasFileno, events: int) -> None:
        """Wait for these events from now on."""
        self._events[waited.fileno()] = events

    modify = register

    def unregister(self, waited: HasFileno) -> None:
        """Wait for it no more."""
        del self._events[waited.fileno()]

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        """The descriptors that are ready, and their events; OSError when one is closed."""
        readers = [number for number, events in self._events.items() if events & IN]
        writers = [number for number, events in self._events.items() if events & OUT]
        # A connection that was refused is in the third list on Windows.
        found = select.select(readers, writers, writers, milliseconds / 1000)
        ready: dict[int, int] = {}
        for numbers, event in zip(found, (IN, OUT, ERR), strict=True):
            for number in numbers:
                ready[number] = ready.get(number, 0) | event
        return list(ready.items())


def new_poll() -> Any:
    """An object with the methods of ``select.poll``."""
    return select.poll() if hasattr(select, "poll") else SelectPoll()
