"""The names of hosts by their addresses, from DNS, in a thread beside the caller."""

from __future__ import annotations

import queue
import socket
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WORKERS = 16
PATIENCE_S = 1.0


def _of_dns(address: str) -> str:
    try:
        return socket.gethostbyaddr(address)[0]
    except (OSError, UnicodeError):
        return address


class HostNames:
    """Each address is asked once; without an answer it stands for its own name."""

    def __init__(self, ask: Callable[[str], str] = _of_dns) -> None:
        """``ask``: the name of an address, or the address."""
        self._ask = ask
        self._known: dict[str, str] = {}
        self._open: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._answered = threading.Condition()
        self._waiting = 0
        self._workers = 0

    def learn(self, addresses: Iterable[str], patience_s: float = PATIENCE_S) -> None:
        """Ask for the new ones, and wait for the answers, but not longer than ``patience_s``.

        An answer that comes later counts from then on.
        """
        new = {each for each in addresses if each} - self._known.keys()
        with self._answered:
            self._waiting += len(new)
        for each in sorted(new):
            self._known[each] = each
            self._open.put(each)
        while self._workers < min(WORKERS, len(new)):
            self._workers += 1
            threading.Thread(target=self._work, daemon=True).start()
        deadline = time.monotonic() + patience_s
        with self._answered:
            while self._waiting and (left := deadline - time.monotonic()) > 0:
                self._answered.wait(left)

    def name(self, address: str) -> str:
        """The name as far as it is known."""
        return self._known.get(address, address)

    def _work(self) -> None:
        while True:
            address = self._open.get()
            found = self._ask(address)
            with self._answered:
                self._known[address] = found
                self._waiting -= 1
                self._answered.notify_all()
