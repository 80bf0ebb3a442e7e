"""What calls wait for, and what owns a subscription. Knows no transport."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pelton.errors import PeltonError, PermissionsViolationError

    from .interest import Interest
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

    _waiting: tuple[Any, ...] = ()
    """The waiting calls, in the half that has to wake them: each ``wake`` is called once."""

    def _stir(self) -> None:
        """Wake the waiting calls, because the object has changed."""
        waiting, self._waiting = self._waiting, ()
        for each in waiting:
            each.wake()

    def _on_lost(self, error: PeltonError) -> None:
        """The connection broke, or the client was closed."""

    def _on_refused(self, complaint: PermissionsViolationError) -> None:
        """The server does not permit an operation, which may concern this object."""
