"""Consuming for asyncio: pull, ordered and push consumers, and their operations without end."""

from __future__ import annotations

import asyncio
import math
import weakref
from typing import TYPE_CHECKING, Any, cast

from ..base.arguments import waits
from ..base.durations import Duration, to_seconds
from ..base.forgotten import AsyncItems
from ..base.steps import made
from ..consume.handles import Consuming
from ..consume.operation import Operation, PullOperation
from ..consume.ordering import Ordering
from ..consume.pushed import Pushing, PushOperation
from .messages import Message
from .running import Entered, run
from .waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Self

    from .connection import Client


class _Operation(Entered, AsyncItems, Operation[Message]):
    """The iteration and the handlers of an operation, for asyncio."""

    client: Client

    def _check_callback(
        self, callback: Callable[[Message], object], concurrency: int, auto_extend: bool
    ) -> None:
        if waits(callback):
            return
        if concurrency > 1:
            raise ValueError("only coroutine functions run concurrently: give one as the callback")
        if auto_extend:
            raise ValueError(
                "nothing else runs during a plain function: auto_extend needs a coroutine function"
            )

    def _begin(self) -> None:
        intake, callback, client = self._intake, self._callback, self.client
        self._workers: set[asyncio.Task[Any]] = set()
        self._handling_now = False
        intake.kept = True
        if callback is not None and not waits(callback):
            intake.inline = self._handle_now
        intake.begin()
        client._spawn(run(client, intake.keeping()))
        if callback is None:
            # Nobody can take messages of an operation that was garbage-collected.
            finalizer = weakref.finalize(self, client._connection.abandon, intake._interest.sid)
            finalizer.atexit = False
            if self._auto_extend:
                intake.extend_acks()
        elif intake.inline is None:
            if self._auto_extend is not False:
                intake.extend_acks()
            self._free = list(range(self._concurrency or 1))  # numbers of handlers
            self._hiring = False  # whether a task is about to begin
            if len(self._free) > 1:
                intake.hire = self._hire
            self._hire()

    def _inside(self) -> bool:
        return self._handling_now or asyncio.current_task() in self._workers

    # -- iteration ---------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        """Messages until the operation ends; RuntimeError when it has a callback."""
        return self._iterating()

    async def __anext__(self) -> Message:
        """The next message; raises the error that ended the operation."""
        intake, queue, last = self._intake, self._queue, self._last
        if last is not None:
            self._last = None
            if intake.extension.given:
                intake.extension.given.pop(asyncio.current_task(), None)
            if intake.by_bytes:
                due = intake.took(last)
            else:
                intake.held -= 1
                due = intake.held <= intake.low and intake.pull()
            if due:
                self.client._flush_output()  # a loop that never waits would keep it back
        while not queue:
            if intake.over:
                self._outcome()
                raise StopAsyncIteration
            await until(self.client, intake.takers, intake.has_message, math.inf)
        message: Message = queue.popleft()
        self._last = message
        if intake.extension.on:
            intake.extension.given[asyncio.current_task()] = message
        return message

    # -- handlers ----------------------------------------------------------------------------------

    def _hire(self) -> None:
        """Let one more task handle messages, if there may be more: nobody waits for those that are there.

        It lets the next one do so, if messages are left for it.
        """
        if self._free and not self._hiring:
            self._hiring = True
            worker = self.client._spawn(self._work(self._free.pop()), finishes=True)
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def _work(self, number: int) -> None:
        """Handle one message after the other; of several tasks, at most one waits for messages."""
        intake, queue, callback = self._intake, self._queue, self._callback
        handle = cast("Callable[[Message], Awaitable[object]]", callback)
        handling, auto_ack, flush = intake.handling, self._auto_ack, self.client._flush_output
        hire = intake.hire
        task = asyncio.current_task()
        assert task is not None
        self._hiring = False
        try:
            while True:
                while not queue:
                    if intake.over or (hire is not None and intake.takers._waiting):
                        return
                    await until(self.client, intake.takers, intake.has_message, math.inf)
                message = queue.popleft()
                if queue and hire is not None:
                    hire()
                handling[number] = message
                try:
                    await handle(message)
                    if auto_ack:
                        intake.acks.acknowledge(message)
                except Exception as error:
                    self._failed(message, error)
                except asyncio.CancelledError as error:
                    if task.cancelling():
                        raise
                    self._failed(message, RuntimeError(f"the handler was cancelled: {error!r}"))
                finally:
                    del handling[number]
                if intake.took(message):
                    flush()
        finally:
            self._free.append(number)
            intake.events._stir()

    def _handle_now(self, message: Message) -> None:
        """Call a plain function as messages arrive."""
        assert self._callback is not None
        outer, self._handling_now = self._handling_now, True
        try:
            self._callback(message)
            if self._auto_ack:
                self._intake.acks.acknowledge(message)
        except Exception as error:
            self._failed(message, error)
        finally:
            self._handling_now = outer
        if self._intake.took(message):
            self.client._plan_flush()

    async def run(self, timeout: Duration | None = None) -> None:
        """Wait while the callback handles messages: until the operation has ended, or for ``timeout``.

        Raises the error that ended the operation; RuntimeError without a callback.
        """
        self._check_runs()
        seconds = math.inf if timeout is None else to_seconds(timeout)
        if await until(self.client, self._intake.events, self._is_done, seconds):
            self._outcome()


class ConsumerMessages(_Operation, PullOperation[Message]):
    """Messages of a pull consumer or an ordered consumer without end; made by ``consume``.

    ::

        async with consumer.consume(max_messages=100) as messages:
            async for message in messages:
                await message.ack()

        async with consumer.consume(handle, concurrency=10) as messages:
            await messages.run()  # until another task calls messages.stop()
    """

    client: Client


class PushMessages(_Operation, PushOperation[Message]):
    """Messages of a push consumer without end; made by ``PushConsumer.consume``.

    ::

        async with old.consume(handle, auto_ack=True) as messages:
            await messages.run()  # until a handler calls messages.stop()
    """

    client: Client


class Consumer(Entered, Consuming[Message]):
    """A pull consumer; made by ``JetStream.consumer``.

    ``next``, ``fetch`` and ``consume`` may be used at the same time and by several tasks. ::

        consumer = await js.consumer("ORDERS", "billing")
        message = await consumer.next(timeout=5)
        if message is not None:
            await message.ack()
    """

    client: Client

    consume = made(ConsumerMessages)


class OrderedConsumer(Entered, Ordering[Message]):
    """An ordered consumer; made by ``JetStream.ordered_consumer``. One operation at a time.

    ::

        ordered = js.ordered_consumer("ORDERS", filter_subjects=["orders.new"])
        async with ordered.consume() as messages:
            async for message in messages:
                print(message.metadata.stream_seq)
    """

    client: Client

    consume = made(ConsumerMessages)


class PushConsumer(Entered, Pushing[Message]):
    """A push consumer; made by ``JetStream.push_consumer``.

    ::

        old = await js.push_consumer("ORDERS", "old")
        async with old.consume() as messages:
            async for message in messages:
                await message.ack()
    """

    client: Client

    consume = made(PushMessages)
