"""A received message with the verbs of asyncio code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .message import ACK, IN_PROGRESS, TERM, BaseMessage, nak_body

if TYPE_CHECKING:
    from .aio_client import Client
    from .durations import Duration
    from .jetstream import Headers


class Message(BaseMessage):
    """A message of an asyncio client."""

    __slots__ = ()

    @property
    def _client(self) -> Client:
        client: Client = self.interest.owner.client
        return client

    async def respond(self, data: bytes, headers: Headers | None = None) -> None:
        """Publish an answer to whoever asked; ValueError when nobody did."""
        if not self.reply:
            raise ValueError("the message has no reply subject")
        await self._client.publish(self.reply, data, headers=headers)

    async def ack(self) -> None:
        """The message is done."""
        await self._answer(ACK)
        self.acked = True

    async def ack_sync(self, timeout: Duration | None = None) -> None:
        """The message is done, and the server has taken note; Timeout, NoResponders."""
        self.check_acknowledgeable()
        await self._client.request(self.reply, ACK, timeout=timeout)
        self.acked = True

    async def nak(self, delay: Duration | None = None) -> None:
        """Deliver the message again, at once or after ``delay`` seconds."""
        await self._answer(nak_body(delay))
        self.acked = True

    async def term(self, reason: str = "") -> None:
        """Never deliver the message again."""
        await self._answer(TERM + (b" " + reason.encode() if reason else b""))
        self.acked = True

    async def in_progress(self) -> None:
        """Start the ack wait over: the message is still being worked on."""
        await self._answer(IN_PROGRESS)

    async def _answer(self, body: bytes) -> None:
        self.check_acknowledgeable()
        await self._client.publish(self.reply, body)
