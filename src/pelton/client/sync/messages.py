"""A received message with the methods of blocking code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.message import BaseMessage
from .running import Blocking

if TYPE_CHECKING:
    from ..plans.jetstream import Headers


class Message(Blocking, BaseMessage):
    """A message with the methods of blocking code.

    An ``ack`` is sent at once; one that soon follows another waits 2 ms for more, except over ``memory://``.
    When the connection breaks meanwhile, the server delivers the message again, as without an ack;
    ``ack_sync`` raises an error.

    ::

        message = subscription.next(timeout=5)
        message.respond(b"got " + message.data)
    """

    __slots__ = ()

    def respond(self, data: bytes, headers: Headers | None = None) -> None:
        """Publish an answer to the requester; ValueError when the message is no request."""
        self._check_answerable()
        self.client.publish(self.reply, data, headers=headers)
