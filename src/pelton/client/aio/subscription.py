"""A subscription of the asyncio client: iterated, or handled by a callback."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

from ..base.arguments import waits
from ..base.message import callback_failed
from ..session.subscribing import Subscribed
from .workers import Workers

if TYPE_CHECKING:
    from ..base.durations import Duration
    from .backend import Callback
    from .connection import Client
    from .messages import Message


class Subscription(Subscribed):
    """Messages of one subject.

    A callback that is a plain function is called as messages arrive; a coroutine function is awaited for
    one message after the other. ``on_error`` gets an exception of the callback as CallbackFailedError, and
    ConnectionClosedError when the client is lost.

    ::

        async with await nc.subscribe("news.>", queue="readers") as subscription:
            async for message in subscription:
                print(message.subject, message.data)
    """

    client: Client

    def __init__(
        self, client: Client, callback: Callback | None, messages_max: int, bytes_max: int
    ) -> None:
        """``client.attach`` sets ``interest``."""
        super().__init__(client, messages_max, bytes_max)
        if callback is not None:
            begin = (
                self._begin if waits(callback) else None
            )  # a function gets what was never queued
            self._pool = Workers(client, self).pool(
                callback, self._queue, begin=begin, settle=self._settle
            )

    # -- called by the client ----------------------------------------------------------------------

    def _on_end(self) -> None:
        """No message follows. When the client was lost, ``on_error`` reports it for a callback."""
        # No call of the user would raise it.
        if self._pool is not None and self._interest.failure:
            self.client._report(self._interest.lost())
        super()._on_end()
        if self._pool is not None:
            self._pool.close()

    # -- handling ----------------------------------------------------------------------------------

    def _begin(self, message: Message) -> Message:
        self._handed_over(message)
        return message

    def _settle(self, message: Message, _: object, error: Exception | None) -> None:
        if error is not None:
            self.client._report(callback_failed(message, error))

    # -- taking ------------------------------------------------------------------------------------

    async def next(self, timeout: Duration | None = None) -> Message | None:
        """The next message, or None when none came in ``timeout``.

        Raises ConnectionClosedError when no message can come any more, and once SlowConsumerError when messages were
        dropped since the last call.
        """
        if not self._queue and not self._has_news():
            seconds = self.client._timeout_of(timeout)
            if not await self.client._until(self, self._has_news, seconds):
                return None
        message: Message = self._take()
        return message

    def __aiter__(self) -> Self:
        """Messages until the subscription ends."""
        return self

    async def __anext__(self) -> Message:
        """The next message; the iteration ends with the subscription.

        Raises ConnectionClosedError when the client was lost, SlowConsumerError once after messages were dropped.
        """
        if not self._queue:
            await self.client._until(self, self._has_news, math.inf)
            if self._over():
                raise StopAsyncIteration
        message: Message = self._take()
        return message

    # -- ending ------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """The subscription itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Unsubscribe at the end of the block."""
        if not self._ended and not self.client.closed:
            await self.unsubscribe()

    async def unsubscribe(self, max_msgs: int = 0) -> None:
        """Unsubscribe at once, or with max_msgs after that many messages in all."""
        self._unsubscribe(max_msgs)
        await self.client._send_queued()

    async def drain(self, timeout: Duration | None = None) -> None:
        """Unsubscribe, but receive messages that are still on their way; PeltonTimeoutError.

        With a callback, wait until all of them are handled, but not for the callback that makes this call;
        without one, they can be taken afterwards.
        """
        seconds = self.client._timeout_of(timeout)
        deadline = self.client._clock() + seconds
        self.client._connection.drain(self._interest)
        try:
            # The PONG comes after the last message that the server had sent before it read UNSUB.
            await self.client.flush(seconds)
        finally:
            await self._end_drained(deadline - self.client._clock())

    async def _end_drained(self, seconds: float) -> None:
        """The client has unsubscribed and flushed: end, and wait for the callback; PeltonTimeoutError."""
        self.client._connection.forget(self._interest)
        self._on_end()
        if self._pool is not None:
            await self._pool.workers.finish(seconds)
