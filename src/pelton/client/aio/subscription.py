"""A subscription of the asyncio client: iterated, or handled by a callback."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, cast

from pelton.errors import SlowConsumerError

from ..base.arguments import waits
from ..base.forgotten import AsyncItems
from ..base.message import callback_failed
from ..session.subscribing import Subscribed
from .messages import Message
from .running import Entered, run
from .waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ..base.durations import Duration
    from .connection import Callback, Client


class Subscription(Entered, AsyncItems, Subscribed[Message]):
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
        self,
        client: Client,
        callback: Callback | None,
        messages_max: int,
        bytes_max: int,
        concurrency: int = 1,
    ) -> None:
        """``client.attach`` sets ``interest``; ``concurrency``: how many messages are handled at a time."""
        super().__init__(client, messages_max, bytes_max)
        self._callback = callback
        self._inline = callback is not None and not waits(callback)
        self._workers: set[asyncio.Task[Any]] = set()
        self._workers_max = 0 if callback is None or self._inline else concurrency
        self._hires = self._workers_max > 1
        self._hiring = False  # whether a task is about to begin
        self._hire()

    def _hire(self) -> None:
        """Let one more task handle messages, if there may be more; it lets the next one do so."""
        if len(self._workers) < self._workers_max and not self._hiring:
            self._hiring = True
            worker = self.client._spawn(self._work(), finishes=True)
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    # -- called by the client ----------------------------------------------------------------------

    def _hand_over(self, message: Message) -> None:
        assert self._callback is not None
        try:
            self._callback(message)
        except Exception as error:
            self.client._report(callback_failed(message, error))

    def _on_end(self) -> None:
        """No message follows. When the client was lost, ``on_error`` reports it for a callback."""
        if self._callback is not None and self._interest.failure:
            self.client._report(self._interest.lost())
        super()._on_end()

    def _drop(self) -> None:
        super()._drop()
        if self._callback is not None and self.dropped == self._reported + 1:
            self.client._report(SlowConsumerError(self.subject, 1))

    # -- taking ------------------------------------------------------------------------------------

    async def next(self, timeout: Duration | None = None) -> Message:
        """The next message; raises as ``taking``."""
        if self._queue or self._has_news():
            return self._take()
        return await run(self.client, self._taking(timeout))

    def __aiter__(self) -> Subscription:
        """Messages until the subscription ends."""
        return self

    async def __anext__(self) -> Message:
        """The next message; the iteration ends with the subscription.

        Raises ConnectionClosedError when the client was lost, SlowConsumerError once after messages were dropped.
        """
        if not self._queue:
            await until(self.client, self, self._has_news, math.inf)
            if self._over():
                raise StopAsyncIteration
        return self._take()

    async def _work(self) -> None:
        """Handle one message after the other; of several tasks, at most one waits for messages."""
        assert self._callback is not None
        self._hiring = False
        while self._queue or not self._waiting or len(self._workers) == 1:
            await until(self.client, self, self._has_work, math.inf)
            if not self._queue:
                return  # ``end`` has reported why
            message = self._take(tell=False)  # ``_drop`` reports drops
            if self._queue:
                self._hire()
            try:
                await cast("Awaitable[object]", self._callback(message))
            except Exception as error:
                self.client._report(callback_failed(message, error))
            except asyncio.CancelledError as error:
                if cancelled():
                    raise
                failed = RuntimeError(f"the callback was cancelled: {error!r}")
                self.client._report(callback_failed(message, failed))
            if not self._queue:
                self._reported = self.dropped

    def _handles(self) -> bool:
        """Whether the callback makes this call."""
        return asyncio.current_task() in self._workers

    def _has_work(self) -> bool:
        return bool(self._queue) or self._ended

    # -- ending ------------------------------------------------------------------------------------

    async def drain(self, timeout: Duration | None = None) -> None:
        """Unsubscribe, but receive messages that are still on their way.

        With a callback, wait until all of them are handled, but not for the callback that makes this call;
        without one, they can be taken afterwards.
        """
        await run(self.client, self._draining(timeout))
        await self._all_handled()

    async def _end_drained(self) -> None:
        """For the client, which has unsubscribed and flushed: end, and wait for the callback."""
        self.client._connection.forget(self._interest)
        self._on_end()
        await self._all_handled()

    async def _all_handled(self) -> None:
        current = asyncio.current_task()
        while others := [each for each in self._workers if each is not current and not each.done()]:
            await asyncio.wait(others)


def cancelled() -> bool:
    """Whether this task was cancelled; otherwise CancelledError is that of what it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
