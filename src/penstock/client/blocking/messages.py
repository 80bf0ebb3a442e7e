"""A received message with the verbs of blocking code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..message import BaseMessage
from .running import Blocking

if TYPE_CHECKING:
    from ..jetstream import Headers


class BlockingMessage(Blocking, BaseMessage):
    """A message with the verbs of blocking code.

    When the connection breaks during an ``ack`` the message is delivered again, as one without an
    ack is; ``ack_sync`` tells.
    """

    __slots__ = ()

    def respond(self, data: bytes, headers: Headers | None = None) -> None:
        """Publish an answer to whoever asked; ValueError when nobody did."""
        self.check_answerable()
        self.client.publish(self.reply, data, headers=headers)
