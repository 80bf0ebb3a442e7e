"""The thread that keeps a blocking client alive while no call runs.

::

    calls wait, one of them reads        no call has waited for IDLE_S
    ───────────────────────────────►     keeper reads: answers pings, keeps messages, connects again
                  ▲                                     │
                  └──── a call that waits takes over ◄──┘

The thread refers to the client only for moments, so that a client that the program has dropped is
collected. It ends with the client, and never keeps the process alive.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import TYPE_CHECKING

from .locks import Bell
from .polling import READABLE, new_poll

if TYPE_CHECKING:
    from collections.abc import Callable

    from .sharing import Shared

IDLE_S = 0.5
"""How long the keeper leaves a client alone after a call has read."""
JOIN_S = 1.0
"""How long the end of a client, or of the process, waits for a keeper that works right now."""

_living: weakref.WeakSet[Keeper] = weakref.WeakSet()


class Keeper:
    """Runs ``keep`` of a client again and again."""

    def __init__(self, client: Shared) -> None:
        """``start`` follows."""
        self.bell = Bell()
        """Ends the keeper's wait for bytes."""
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=_keep,
            args=(weakref.ref(client), self.bell, self._over),
            name="pelton-keeper",
            daemon=True,
        )
        weakref.finalize(client, _end, self.bell, self._over).atexit = False

    def start(self) -> None:
        """Start the thread."""
        _living.add(self)
        self._thread.start()

    def nap(self, seconds: float) -> Callable[[], object]:
        """A function that waits for the bell only."""
        bell = self.bell

        def sleep() -> None:
            poll = new_poll()
            poll.register(bell, READABLE)
            poll.poll(max(0.0, seconds) * 1000)
            bell.hear()

        return sleep

    def rouse(self) -> None:
        """Let it look at the client now."""
        self.bell.ring()

    def end(self) -> None:
        """The client is closed."""
        _end(self.bell, self._over)

    def join(self) -> None:
        """Wait a moment until the thread has ended, unless it calls."""
        if self._thread.ident not in (None, threading.get_ident()):
            self._thread.join(JOIN_S)


def _keep(client: weakref.ref[Shared], bell: Bell, over: threading.Event) -> None:
    while not over.is_set():
        there = client()
        if there is None:
            break
        wait = there._serve()
        del there
        wait()
    bell.close()


def _end(bell: Bell, over: threading.Event) -> None:
    over.set()
    bell.ring()


def _end_all() -> None:
    """End all keepers before the process ends: one that is stopped then could keep a guard for ever."""
    living = list(_living)
    for each in living:
        each.end()
    for each in living:
        each.join()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_living.clear)  # their threads are the parent's
