"""A subscription of the asyncio client: iterated, or handled by a callback."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from typing import TYPE_CHECKING, Any, Self, cast

from penstock.errors import ConnectionClosed, SlowConsumer, Timeout

from .aio_message import Message
from .message import callback_failed

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .aio_client import Callback, Client
    from .connection import Interest
    from .durations import Duration


class Subscription:
    """Messages of one subject.

    A callback that is a plain function is called as messages arrive; a coroutine function is
    awaited, one message after the other. What a callback raises goes to ``on_error`` as
    CallbackFailed; when the client is lost, so does ConnectionClosed.
    """

    def __init__(
        self,
        client: Client,
        callback: Callback | None,
        messages_max: int,
        bytes_max: int,
    ) -> None:
        """``client.attach`` sets ``interest``."""
        self.client = client
        self.interest: Interest
        self.dropped = 0
        """Messages that were dropped because the pending limits were reached."""
        self._reported = 0
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._queue: deque[Message] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._callback = callback
        self._inline = callback is not None and not _waits(callback)
        self._worker: asyncio.Task[Any] | None = None
        if callback is not None and not self._inline:
            self._worker = client.spawn(self._work(), finishes=True)

    @property
    def subject(self) -> str:
        """What was subscribed to."""
        return self.interest.subject

    @property
    def pending(self) -> int:
        """Messages received but not taken yet."""
        return len(self._queue)

    @property
    def delivered(self) -> int:
        """Messages received in all."""
        return self.interest.delivered

    # -- called by the client ----------------------------------------------------------------------

    def receive(self, message: Message) -> None:
        """A message came for this subscription."""
        if self._inline:
            assert self._callback is not None
            try:
                self._callback(message)
            except Exception as error:
                self._failed(message, error)
            return
        size = len(message.data) + len(message.raw_headers)
        if len(self._queue) >= self._messages_max or self._bytes + size > self._bytes_max:
            self._drop()
            return
        self._bytes += size
        self._queue.append(message)
        self._wake()

    def end(self) -> None:
        """No message follows. A callback hears of it through ``on_error`` when the client was lost."""
        self._ended = True
        if self._callback is not None and self.interest.failure:
            self.client.report(self.interest.lost())
        self._wake()

    def _failed(self, message: Message, cause: Exception) -> None:
        self.client.report(callback_failed(message, cause))

    def _drop(self) -> None:
        self.dropped += 1
        if self._callback is not None and self.dropped == self._reported + 1:
            self.client.report(SlowConsumer(self.subject, 1))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- taking ------------------------------------------------------------------------------------

    async def next(self, timeout: Duration | None = None) -> Message:
        """The next message.

        Raises Timeout, ConnectionClosed when no message can come any more, and once SlowConsumer
        when messages were dropped since the last call.
        """
        if not self._queue and not self._ended:
            seconds = self.client.timeout_of(timeout)
            try:
                async with asyncio.timeout(seconds):
                    await self._wait()
            except TimeoutError:
                raise Timeout(f"no message on {self.subject!r} in {seconds} s") from None
        return self._take()

    async def _wait(self) -> None:
        while not self._queue and not self._ended:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def _take(self) -> Message:
        if self._callback is None and self.dropped > self._reported:
            lost, self._reported = self.dropped - self._reported, self.dropped
            raise SlowConsumer(self.subject, lost)
        if not self._queue:
            self.interest.check()
            raise ConnectionClosed(f"the subscription to {self.subject!r} has ended", self.subject)
        message = self._queue.popleft()
        self._bytes -= len(message.data) + len(message.raw_headers)
        assert isinstance(message, Message)
        return message

    def __aiter__(self) -> Subscription:
        """Messages until the subscription ends."""
        return self

    async def __anext__(self) -> Message:
        """The next message; ends with the subscription. ConnectionClosed when the client was lost,
        SlowConsumer once after messages were dropped.
        """
        if not self._queue:
            await self._wait()
            if not self._queue:
                self.interest.check()
                raise StopAsyncIteration
        return self._take()

    async def _work(self) -> None:
        assert self._callback is not None
        while True:
            await self._wait()
            if not self._queue:
                return  # ``end`` has told why
            message = self._take()
            try:
                await cast("Awaitable[object]", self._callback(message))
            except Exception as error:
                self._failed(message, error)
            if not self._queue:
                self._reported = self.dropped

    async def __aenter__(self) -> Self:
        """The subscription itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Unsubscribe; the consumer of a push subscription stays."""
        if not self._ended:
            await self.unsubscribe()

    # -- ending ------------------------------------------------------------------------------------

    async def unsubscribe(self, max_msgs: int = 0) -> None:
        """No more messages; with max_msgs: after that many in all."""
        connection = self.client.connection
        connection.unsubscribe(self.interest, max_msgs)
        self.client.plan_flush()
        if self.interest.sid not in connection.interests:
            self.end()

    async def drain(self) -> None:
        """Unsubscribe, but take what is still on its way; with a callback: until all of it is
        handled.

        Without a callback the messages can be taken afterwards.
        """
        connection = self.client.connection
        connection.drain(self.interest)
        try:
            await self.client.flush()
        finally:
            connection.forget(self.interest)
            self.end()
        if self._worker is not None:
            await self._worker


def _waits(callback: Callback) -> bool:
    """Whether it is a coroutine function, or an object that is called as one."""
    call = getattr(callback, "__call__", None)  # noqa: B004  # asks for the method, not whether
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(call)
