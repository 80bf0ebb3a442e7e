"""Consuming for blocking code: pull, ordered and push consumers, and their operations without end.

The thread that iterates, or that calls ``run``, sends requests and watches heartbeats while it waits.
With ``concurrency`` it does so all the time, and handlers run in threads of their own.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from queue import SimpleQueue
from typing import TYPE_CHECKING

from penstock.errors import ClientInUse, PenstockError

from ..consume.handles import Consuming
from ..consume.operation import Operation, PullOperation
from ..consume.ordering import Ordering
from ..consume.pushed import Pushing, PushOperation
from ..durations import Duration, to_seconds
from ..steps import made
from .errands import Errands
from .messages import BlockingMessage
from .running import Entered, exclusive, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ..consume.events import ConsumerEvent
    from .connection import BlockingClient

logger = logging.getLogger(__name__)


class _Operation(Entered, Operation[BlockingMessage]):
    """The iteration and the handlers of an operation, for blocking code."""

    client: BlockingClient

    def _check(
        self,
        callback: Callable[[BlockingMessage], object] | None,
        concurrency: int | None,
        auto_ack: bool,
        auto_extend: bool | None,
        nak_delay: Duration | None,
    ) -> None:
        super()._check(callback, concurrency, auto_ack, auto_extend, nak_delay)
        if auto_extend and concurrency is None:
            raise ValueError("auto_extend needs handlers in threads: give concurrency, 1 or more")

    def _begin(self) -> None:
        self._running = False
        self._intake.begin()
        if self._callback is None:
            connection, interest = self.client.connection, self._intake.interest
            # Nobody can take messages of an operation that was garbage-collected.
            weakref.finalize(self, connection.abandon, interest).atexit = False
        elif self._concurrency is not None and self._auto_extend is not False:
            self._intake.extend_acks()

    def _teller(
        self, on_event: Callable[[ConsumerEvent], object]
    ) -> Callable[[ConsumerEvent], None]:
        def tell(event: ConsumerEvent) -> None:
            try:
                on_event(event)
            except Exception:
                logger.exception("a handler of the client failed")

        return tell

    def _inside(self) -> bool:
        return self._running

    @exclusive
    def stop(self) -> None:
        """Request nothing more and end: buffered messages go back to the consumer at once.

        An iteration ends, and no handler begins; running handlers finish. May be called in a handler.
        """
        super().stop()
        if not self._running:
            run(self.client, self._finishing(self._intake.is_finished, math.inf))

    # -- iteration ---------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        """Messages until the operation ends; RuntimeError when it has a callback."""
        if self._callback is not None:
            raise RuntimeError("the callback of this operation takes its messages")
        return self

    def __next__(self) -> BlockingMessage:
        """The next message; raises the error that ended the operation."""
        intake, queue, last = self._intake, self._queue, self._last
        if last is not None:
            self._last = None
            if intake.by_bytes:
                due = intake.took(last)
            else:
                intake.held -= 1
                due = intake.held <= intake.low and intake.pull()
            if due:
                self._send()
        while not queue:
            if intake.over:
                if not intake.finished:
                    run(self.client, self._finishing(intake.is_finished, math.inf))
                self._outcome()
                raise StopIteration
            run(self.client, intake.awaiting(intake.takers, intake.has_message, math.inf))
        try:
            message: BlockingMessage = queue.popleft()
        except IndexError:  # another thread took it
            raise ClientInUse from None
        self._last = message
        return message

    def _send(self) -> None:
        """Send a request now, because the next wait may be far away."""
        client = self.client
        if not client.guard.take(False):
            raise ClientInUse
        try:
            if client.connected:
                client.send_waiting()
        except PenstockError as error:  # the next wait connects again, and asks again
            client.report(error)
        finally:
            client.guard.give()

    # -- handlers ----------------------------------------------------------------------------------

    def run(self, timeout: Duration | None = None) -> None:
        """Handle messages with the callback: until the operation has ended, or for ``timeout``.

        Handlers run in this thread, or with ``concurrency`` in as many threads of their own; those that
        run at the end finish. In such a thread a handler calls ``ack``, ``nak``, ``term`` and
        ``in_progress`` of its message, and no other method of the client. Raises the error that ended
        the operation; RuntimeError without a callback.
        """
        if self._callback is None:
            raise RuntimeError("run needs a callback; without one, iterate over the operation")
        if self._running:
            raise RuntimeError("this operation runs already")
        deadline = math.inf if timeout is None else time.monotonic() + to_seconds(timeout)
        self._running = True
        try:
            if self._concurrency is None:
                self._run_here(deadline)
            else:
                self._run_threads(deadline, self._concurrency)
        finally:
            self._running = False
        if self._is_done():
            self._outcome()

    def _run_here(self, deadline: float) -> None:
        intake, queue, callback = self._intake, self._queue, self._callback
        assert callback is not None
        handling, auto_ack = intake.handling, self._auto_ack
        while not self._is_done():
            while queue:
                message = queue.popleft()
                handling[0] = message
                try:
                    callback(message)
                    if auto_ack:
                        intake.acknowledge(message)
                except Exception as error:
                    self._failed(message, error)
                finally:
                    del handling[0]
                if intake.took(message):
                    self._send()
                if deadline < math.inf and time.monotonic() >= deadline:
                    return
            left = deadline - time.monotonic()
            if left <= 0:
                return
            run(self.client, intake.awaiting(intake.takers, self._has_work, left))

    def _has_work(self) -> bool:
        return bool(self._queue) or self._intake.finished

    def _run_threads(self, deadline: float, count: int) -> None:
        """Pass messages to threads, and do everything else here until they have ended."""
        errands = self.client.begin_errands(Errands())
        jobs: SimpleQueue[tuple[int, BlockingMessage] | None] = SimpleQueue()
        threads = [
            threading.Thread(target=self._work, args=(jobs, errands), daemon=True)
            for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        try:
            self._pass_on(deadline, count, jobs, errands)
        finally:
            try:
                self._pass_on(-math.inf, count, jobs, errands)
            finally:
                for _ in threads:
                    jobs.put(None)
                self.client.end_errands(errands)

    def _pass_on(
        self,
        deadline: float,
        count: int,
        jobs: SimpleQueue[tuple[int, BlockingMessage] | None],
        errands: Errands,
    ) -> None:
        intake, queue, handling = self._intake, self._queue, self._intake.handling
        free = [number for number in range(count) if number not in handling]
        while True:
            while errands.ended:
                number, message, error = errands.ended.popleft()
                del handling[number]
                free.append(number)
                if error is not None:
                    self._failed(message, error)
                else:
                    self._handled(message)
                intake.took(message)
            left = deadline - time.monotonic()
            if (left <= 0 and not handling) or self._is_done():
                return
            while queue and free and left > 0:
                number = free.pop()
                next_message: BlockingMessage = queue.popleft()
                handling[number] = next_message
                jobs.put((number, next_message))

            def news(passing: bool = left > 0) -> bool:
                more = bool(queue and free) and passing
                return bool(errands.ended) or more or (intake.finished and not handling)

            wait = left if left > 0 else math.inf
            run(self.client, intake.awaiting(intake.takers, news, wait))

    def _work(
        self, jobs: SimpleQueue[tuple[int, BlockingMessage] | None], errands: Errands
    ) -> None:
        """Handle messages in a thread."""
        callback = self._callback
        assert callback is not None
        while (job := jobs.get()) is not None:
            number, message = job
            failure: Exception | None = None
            try:
                callback(message)
            except Exception as error:
                failure = error
            except BaseException as error:
                failure = RuntimeError(f"the handler ended its thread: {error!r}")
            errands.end(number, message, failure)


class ConsumerMessages(_Operation, PullOperation[BlockingMessage]):
    """Messages of a pull consumer or an ordered consumer without end; made by ``consume``.

    ::

        with consumer.consume(max_messages=100) as messages:
            for message in messages:
                message.ack()

        with consumer.consume(handle, concurrency=10) as messages:
            messages.run()  # until a handler calls messages.stop()
    """

    client: BlockingClient


class PushMessages(_Operation, PushOperation[BlockingMessage]):
    """Messages of a push consumer without end; made by ``PushConsumer.consume``."""

    client: BlockingClient


class Consumer(Entered, Consuming[BlockingMessage]):
    """A pull consumer; made by ``JetStream.consumer``.

    ::

        consumer = js.consumer("ORDERS", "billing")
        message = consumer.next(timeout=5)
        if message is not None:
            message.ack()
    """

    client: BlockingClient

    close = exclusive(Consuming.close)
    consume = made(ConsumerMessages)


class OrderedConsumer(Entered, Ordering[BlockingMessage]):
    """An ordered consumer; made by ``JetStream.ordered_consumer``. One operation at a time."""

    client: BlockingClient

    consume = made(ConsumerMessages)


class PushConsumer(Entered, Pushing[BlockingMessage]):
    """A push consumer; made by ``JetStream.push_consumer``."""

    client: BlockingClient

    consume = made(PushMessages)
