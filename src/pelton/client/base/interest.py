"""One subscription of a connection, as the server counts it."""

from __future__ import annotations

from typing import Any

from pelton.errors import ConnectionClosedError


class Interest:
    """One subscription in the connection; ``owner`` belongs to the half."""

    __slots__ = ("delivered", "draining", "failure", "max_msgs", "owner", "queue", "sid", "subject")

    def __init__(self, sid: int, subject: str, queue: str, owner: Any) -> None:
        """``queue`` is "" for a plain subscription."""
        self.sid = sid
        self.subject = subject
        self.queue = queue
        self.owner = owner
        self.delivered = 0
        self.max_msgs = 0  # 0: no limit
        self.draining = False
        self.failure = ""
        """Why the client was lost while this subscription was open; "" otherwise."""

    def check(self) -> None:
        """Raise ConnectionClosedError when the client was lost while this subscription was open.

        A subscription that its owner ended, or whose client the owner closed, has no failure.
        """
        if self.failure:
            raise self.lost()

    def lost(self) -> ConnectionClosedError:
        """The error of a subscription that has a ``failure``."""
        return ConnectionClosedError(
            f"the subscription to {self.subject!r} has ended: {self.failure}", self.subject
        )
