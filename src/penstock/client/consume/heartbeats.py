"""The heartbeats of a consumer: how many were missed. Does no I/O; the caller gives the time."""

from __future__ import annotations

import math


class Heartbeats:
    """Watches whether anything arrives from a consumer."""

    def __init__(self) -> None:
        """Watched from ``restart`` on."""
        self.interval_s = math.inf
        """The longest time between two messages or heartbeats of the consumer."""
        self.heard = False
        """Whether anything arrived since the last look."""
        self.due = math.inf
        """The time of the next look."""
        self._silent = 0  # looks in a row that found nothing

    def restart(self, now: float) -> None:
        """The first heartbeat is expected from now on."""
        self.due = now + self.interval_s

    def missed(self, now: float, *, watched: bool) -> int:
        """Look whether anything arrived, and return the number of missed heartbeats.

        ``watched``: whether the server owes heartbeats.
        """
        self.due = now + self.interval_s
        if self.heard or not watched:
            self.heard, self._silent = False, 0
            return 0
        self._silent += 1
        return self._silent - 1

    def missed_again(self, now: float, *, watched: bool) -> int:
        """As ``missed``, while a consumer that has missed heartbeats is looked up: 0 before its time."""
        if self.heard or not watched:
            self.heard, self._silent = False, 0
            return 0
        if self._silent <= 1 or now < self.due:
            return 0
        return self.missed(now, watched=watched)
