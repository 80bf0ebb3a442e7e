"""A received message, with its answers and acks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.errors import NoRespondersError

from ..base.message import ACK, IN_PROGRESS, TERM, BaseMessage, HeadersLike, nak_body
from ..session.requests import Sent

if TYPE_CHECKING:
    from ..base.durations import Duration
    from .connection import Client


class Message(BaseMessage):
    """A received message.

    In blocking code an ack that soon follows another waits 2 ms for more, except over ``memory://``. When the
    connection breaks meanwhile, the server delivers the message again, as without an ack; ``ack_sync`` raises an
    error.

    Example::

        message = await consumer.next()
        print(message.subject, message.data, message.header("Kind"), message.metadata.stream_seq)
        await message.ack()  # or nak("5s"), term("unreadable"), in_progress()
    """

    __slots__ = ()

    @property
    def client(self) -> Client:
        """The client that received it."""
        client: Client = self._interest.owner.client
        return client

    async def respond(self, data: bytes, headers: HeadersLike | None = None) -> None:
        """Publish an answer to the requester; ValueError when the message is no request."""
        if not self.reply:
            raise ValueError("the message has no reply subject")
        await self.client.publish(self.reply, data, headers=headers)

    async def ack(self) -> None:
        """Acknowledge: the message is processed. NotJetStreamMessageError when no consumer delivered it."""
        self._check_acknowledgeable()
        await self.client._send_ack(self.reply, ACK)
        # Afterwards, so that a call that failed can be repeated.
        self.acked = True

    async def nak(self, delay: Duration | None = None) -> None:
        """Deliver the message again, at once or after ``delay``."""
        self._check_acknowledgeable()
        await self.client._send_ack(self.reply, nak_body(delay))
        self.acked = True

    async def term(self, reason: str = "") -> None:
        """Never deliver the message again."""
        self._check_acknowledgeable()
        await self.client._send_ack(self.reply, TERM + (b" " + reason.encode() if reason else b""))
        self.acked = True

    async def in_progress(self) -> None:
        """Restart the ack wait: the client is still processing the message."""
        self._check_acknowledgeable()
        await self.client._send_ack(self.reply, IN_PROGRESS)

    async def ack_sync(self, timeout: Duration | None = None) -> None:
        """Acknowledge, and wait until the server confirms the ack; PeltonTimeoutError, NoRespondersError.

        The ack is sent again when the connection breaks or no confirmation comes, and in a cluster while the
        consumer has no leader.
        """
        self._check_acknowledgeable()
        client = self.client
        seconds = client._timeout_of(timeout)
        try:
            await client._persevere(self.reply, ACK, seconds, again=Sent())
        except NoRespondersError:
            raise NoRespondersError(
                self.reply, "the consumer is gone, or takes no acks, as an ordered one"
            ) from None
        self.acked = True
