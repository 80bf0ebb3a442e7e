"""Operations that consume without end: iterated over, or handled by a callback."""

from __future__ import annotations

import functools
import math
import weakref
from typing import TYPE_CHECKING

from pelton.errors import CallbackFailedError, PeltonError, PeltonTimeoutError

from ..base.arguments import check_functions, check_number
from ..base.durations import Duration, to_seconds
from ..base.message import BaseMessage, nak_body
from .locks import locked
from .workers import Workers, caller

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Self

    from ..consume.events import ConsumerEvent
    from ..consume.intake import Intake
    from .messages import Message
    from .upkeep import Upkeep


class Operation:
    """Messages of a consumer without end; begins when it is made."""

    def __init__(
        self,
        upkeep: Upkeep,
        callback: Callable[[Message], object] | None,
        *,
        concurrency: int | None = None,
        auto_ack: bool = False,
        auto_extend: bool | None = None,
        nak_delay: Duration | None = None,
        on_status: Callable[[ConsumerEvent], object] | None = None,
    ) -> None:
        """Made by ``consume``. ValueError or TypeError for options that contradict each other."""
        self.client = upkeep.client
        """The client that it belongs to."""
        self._upkeep = upkeep
        self._intake = intake = upkeep.intake
        self._queue = intake.queue
        self._last: BaseMessage | None = None  # the message that an iteration handles
        self._auto_ack = auto_ack
        self._workers = Workers(self.client, intake.events, upkeep.wait)
        self._has_callback = callback is not None
        try:
            check_functions(callback=callback, on_status=on_status)
            check_number("concurrency", concurrency, optional=True)
            self._nak = nak_body(nak_delay, "nak_delay")
            if callback is None and (concurrency is not None or auto_ack):
                raise ValueError("concurrency and auto_ack need a callback")
            if concurrency is not None and concurrency < 1:
                raise ValueError(f"at least one handler runs at a time, got {concurrency}")
            extends = bool(auto_extend)
            if callback is not None:
                pool = self._workers.pool(
                    callback, intake.queue, settle=self._settle, limit=concurrency
                )
                extends = pool.extends(auto_extend)
                intake.handling = pool.running
                if pool.inline:
                    intake.inline = pool.handle
                else:
                    intake.hire = pool.notify
            self._close_at_the_end(intake)
            if on_status is not None:
                intake.events.callback = functools.partial(self.client._tell, on_status)
            upkeep.start(extends=extends)
        except BaseException:
            # An ordered consumer runs one operation at a time: one that could not begin must not occupy it.
            if intake.freed is not None:
                intake.freed()
            raise
        if callback is None or not intake.kept:
            # Nobody can take messages of an operation that was garbage-collected.
            abandon = self.client._connection.abandon
            weakref.finalize(self, abandon, intake._interest.sid).atexit = False

    def _close_at_the_end(self, intake: Intake) -> None:
        """When the intake has ended, its handlers end, too. It does not keep this object alive."""
        workers, before = weakref.ref(self._workers), intake.freed

        def freed() -> None:
            if (there := workers()) is not None:
                there.close()
            if before is not None:
                before()

        intake.freed = freed

    async def __aenter__(self) -> Self:
        """The operation itself."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stop; running handlers finish, unless an exception left the block."""
        intake = self._intake
        intake.stop()
        # A handler that ends its own operation cannot wait for itself.
        intake_only = kind is not None or self._is_inside()
        done = intake.is_finished if intake_only else self.is_done
        await self._upkeep.wait(intake.events, done, math.inf)

    # -- state -------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """The number of buffered messages."""
        return len(self._queue)

    @property
    def ended(self) -> bool:
        """Whether no message follows."""
        return self._intake.over and not self._queue

    def is_done(self) -> bool:
        """Whether the subscription is ended and no message is left for a handler."""
        intake = self._intake
        handled = not self._has_callback or not (intake.handling or intake.queue)
        return intake.finished and handled

    def _is_inside(self) -> bool:
        return self._workers.inside()

    def _outcome(self) -> None:
        """Raise the error that ended the operation."""
        error: PeltonError | None = self._intake.error
        if error is not None:
            raise error

    # -- iteration ---------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        """Messages until the operation ends; RuntimeError when it has a callback."""
        if self._has_callback:
            raise RuntimeError(
                "the callback of this operation takes its messages: call run() or wait, "
                "or iterate over an operation without a callback"
            )
        return self

    async def __anext__(self) -> Message:
        """The next message; raises the error that ended the operation."""
        intake, queue, last = self._intake, self._queue, self._last
        if last is not None:
            # Asking for the next message says that the last one is handled.
            self._last = None
            if intake.extension.given:
                intake.extension.given.pop(caller(), None)
            # ``took`` without a call for the usual case: this runs for every message.
            if intake.by_bytes:
                due = intake.took(last)
            else:
                intake.held -= 1
                due = intake.held <= intake.low and intake.pull()
            if due:
                self.client._send_now()  # a loop that never waits would keep it back
        while not queue:
            if intake.over:
                # The loop ends when the subscription has ended, too: afterwards nothing is left at the server.
                if not intake.finished:
                    await self._upkeep.wait(intake.events, intake.is_finished, math.inf)
                self._outcome()
                raise StopAsyncIteration
            # In a loop, because another task or thread may take the message that ended this wait.
            await self._upkeep.wait(intake.takers, intake.has_message, math.inf)
        message: Message = queue.popleft()
        self._last = message
        if intake.extension.on:
            intake.extension.given[caller()] = message
        return message

    # -- handlers ----------------------------------------------------------------------------------

    @locked
    async def run(self, timeout: Duration | None = None) -> None:
        """Let the callback handle messages: until the operation has ended, or for ``timeout``.

        In blocking code handlers run in this thread, or with ``concurrency`` in as many threads of their own;
        those that run at the end finish. Raises the error that ended the operation; RuntimeError without a
        callback.
        """
        if not self._has_callback:
            raise RuntimeError("run needs a callback; without one, iterate over the operation")
        seconds = math.inf if timeout is None else to_seconds(timeout, "timeout")
        if not await self._workers.run(self.is_done, seconds):
            await self._workers.rest()
        if self.is_done():
            self._outcome()

    def _settle(self, message: Message, _: object, error: Exception | None) -> None:
        """A handler has returned, or raised."""
        intake = self._intake
        if error is not None:
            self._fail(message, error)
        elif self._auto_ack:
            intake.acks.acknowledge(message)
        if intake.took(message):
            self.client._send_now()
        if intake.finished:  # it may have been the last one
            intake.events._stir()
            intake.takers._stir()

    def _fail(self, message: BaseMessage, cause: Exception) -> None:
        """A handler raised: the message is delivered again, and the user is told."""
        intake = self._intake
        error = CallbackFailedError(
            f"the callback of consumer {intake.info.name!r} failed on {message!r}: "
            f"{type(cause).__name__}: {cause}",
            message.subject,
            message,
        )
        error.__cause__ = cause
        intake.acks.acknowledge(message, self._nak)
        self.client._report(error)
        intake.events.emit("handler_failed", str(error), error=cause)

    # -- the end -----------------------------------------------------------------------------------

    @locked
    def stop(self) -> None:
        """Request nothing more and end: buffered messages go back to the consumer at once.

        An iteration ends, and no handler begins; running handlers finish. May be called in a handler, and in
        blocking code by any thread.
        """
        self._intake.stop()
        if not self._is_inside():
            self._upkeep.settle()

    async def drain(self, timeout: Duration | None = None) -> None:
        """Request nothing more, and wait until buffered messages are handled; PeltonTimeoutError.

        Without a callback it returns when the last messages have arrived; the iteration yields them and
        ends. In a handler it returns at once. ``timeout``: None for no limit.
        """
        intake = self._intake
        intake.drain()
        if not self._is_inside():
            seconds = math.inf if timeout is None else to_seconds(timeout, "timeout")
            if not await self._upkeep.wait(intake.events, self.is_done, seconds):
                raise PeltonTimeoutError(f"messages are still being handled after {seconds} s")

    # -- status ------------------------------------------------------------------------------------

    async def status(self) -> AsyncIterator[ConsumerEvent]:
        """What happens to the operation, as ConsumerEvents, until it has ended.

        Begins with events that nobody has read yet, at most the last 1000. For one reader.
        """
        intake = self._intake
        while True:
            while intake.events.unread:
                yield intake.events.unread.popleft()
            if intake.finished:
                return
            await self._upkeep.wait(intake.events, intake.events._has_news, math.inf)


class ConsumerMessages(Operation):
    """Messages of a pull consumer or an ordered consumer without end; made by ``consume``.

    ::

        async with consumer.consume(max_messages=100) as messages:
            async for message in messages:
                await message.ack()

        async with consumer.consume(handle, concurrency=10) as messages:
            await messages.run()  # until somebody calls messages.stop()
    """


class PushMessages(Operation):
    """Messages of a push consumer without end; made by ``PushConsumer.consume``.

    ::

        async with old.consume(handle, auto_ack=True) as messages:
            await messages.run()  # until a handler calls messages.stop()
    """

    async def _take(self, batch: int, seconds: float) -> list[Message]:
        """Up to ``batch`` messages, for ``fetch``: as soon as all are here, or those of so many ``seconds``."""
        intake = self._intake
        found: list[Message] = []
        deadline = self.client._clock() + seconds
        while len(found) < batch:
            left = deadline - self.client._clock()
            if not self._queue and not await self._upkeep.wait(
                intake.takers, intake.has_message, max(0.0, left)
            ):
                break
            try:
                found.append(await anext(self))
            except StopAsyncIteration:
                break
            except PeltonError:
                if not found:
                    raise  # otherwise the next call raises it
                break
        return found
