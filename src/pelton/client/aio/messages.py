"""A received message with the methods of asyncio code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.message import BaseMessage
from .running import Awaited

if TYPE_CHECKING:
    from ..plans.jetstream import Headers


class Message(Awaited, BaseMessage):
    """A message of an asyncio client.

    Example::

        message = await consumer.next()
        print(message.subject, message.data, message.header("Kind"), message.metadata.stream_seq)
        await message.ack()  # or nak("5s"), term("unreadable"), in_progress()
    """

    __slots__ = ()

    async def respond(self, data: bytes, headers: Headers | None = None) -> None:
        """Publish an answer to the requester; ValueError when the message is no request."""
        self._check_answerable()
        await self.client.publish(self.reply, data, headers=headers)
