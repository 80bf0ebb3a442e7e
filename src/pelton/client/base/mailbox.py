"""What calls wait for; a subscription, as the server counts it, and what owns it. Knows no transport."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pelton.errors import ConnectionClosedError, PeltonError, PermissionsViolationError

if TYPE_CHECKING:
    from .message import BaseMessage

RETRY_S = 0.25
"""How long to wait before what found no leader is tried again, in seconds."""


class Owner(Protocol):
    """The owner of a subscription."""

    _interest: Interest

    def _on_message(self, message: BaseMessage) -> None:
        """A message arrived."""

    def _on_end(self) -> None:
        """No message follows."""


class Mailbox:
    """An object that calls wait for: a change stirs it, and the waiting calls check again."""

    # In the class and empty: most mailboxes are never waited for, and need no attribute of their own.
    _waiting: tuple[Any, ...] = ()
    """The waiting calls, in the half that has to wake them: each ``wake`` is called once."""

    def _stir(self) -> None:
        """Wake the waiting calls, because the object has changed."""
        # Taken out first: a call that wakes may wait again at once, for the next change.
        waiting, self._waiting = self._waiting, ()
        for each in waiting:
            each.wake()

    def _on_lost(self, error: PeltonError) -> None:
        """The connection broke, or the client was closed."""

    def _on_refused(self, complaint: PermissionsViolationError) -> None:
        """The server does not permit an operation, which may concern this object."""


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
