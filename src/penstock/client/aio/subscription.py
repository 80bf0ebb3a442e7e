"""A subscription of the asyncio client: iterated, or handled by a callback."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from penstock.errors import SlowConsumer

from ..arguments import waits
from ..message import callback_failed
from ..steps import Until
from ..subscribing import Subscribed
from .messages import Message
from .running import Entered, run
from .waiting import until

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable

    from ..durations import Duration
    from .connection import Callback, Client


class Subscription(Entered, Subscribed[Message]):
    """Messages of one subject.

    A callback that is a plain function is called as messages arrive; a coroutine function is awaited for
    one message after the other. ``on_error`` gets an exception of the callback as CallbackFailed, and
    ConnectionClosed when the client is lost.

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
        self._callback = callback
        self._inline = callback is not None and not waits(callback)
        self._worker: asyncio.Task[Any] | None = None
        if callback is not None and not self._inline:
            self._worker = client.spawn(self._work(), finishes=True)

    # -- called by the client ----------------------------------------------------------------------

    def _hand_over(self, message: Message) -> None:
        assert self._callback is not None
        try:
            self._callback(message)
        except Exception as error:
            self.client.report(callback_failed(message, error))

    def end(self) -> None:
        """No message follows. When the client was lost, ``on_error`` reports it for a callback."""
        if self._callback is not None and self.interest.failure:
            self.client.report(self.interest.lost())
        super().end()

    def _drop(self) -> None:
        super()._drop()
        if self._callback is not None and self.dropped == self._reported + 1:
            self.client.report(SlowConsumer(self.subject, 1))

    # -- taking ------------------------------------------------------------------------------------

    async def next(self, timeout: Duration | None = None) -> Message:
        """The next message; raises as ``taking``."""
        if self._queue or self.has_news():
            return self._take()
        return await run(self.client, self.taking(timeout))

    def __aiter__(self) -> Subscription:
        """Messages until the subscription ends."""
        return self

    async def __anext__(self) -> Message:
        """The next message; the iteration ends with the subscription.

        Raises ConnectionClosed when the client was lost, SlowConsumer once after messages were dropped.
        """
        if not self._queue:
            await until(self.client, Until(self, self.has_news, math.inf))
            if self._over():
                raise StopAsyncIteration
        return self._take()

    async def _work(self) -> None:
        assert self._callback is not None
        while True:
            await until(self.client, Until(self, self._has_work, math.inf))
            if not self._queue:
                return  # ``end`` has reported why
            message = self._take(tell=False)  # ``_drop`` reports drops
            try:
                await cast("Awaitable[object]", self._callback(message))
            except Exception as error:
                self.client.report(callback_failed(message, error))
            if not self._queue:
                self._reported = self.dropped

    def _has_work(self) -> bool:
        return bool(self._queue) or self._ended

    # -- ending ------------------------------------------------------------------------------------

    async def drain(self, timeout: Duration | None = None) -> None:
        """Unsubscribe, but receive messages that are still on their way.

        With a callback, wait until all of them are handled; without one, they can be taken afterwards.
        """
        await run(self.client, self.draining(timeout))
        await self._all_handled()

    async def _end_drained(self) -> None:
        """For the client, which has unsubscribed and flushed: end, and wait for the callback."""
        self.client.connection.forget(self.interest)
        self.end()
        await self._all_handled()

    async def _all_handled(self) -> None:
        if self._worker is not None:
            await self._worker
