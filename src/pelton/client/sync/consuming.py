"""Consuming for blocking code: pull, ordered and push consumers, and their operations without end.

A thread that iterates, or that calls ``run``, sends requests and watches heartbeats while it waits. With
``concurrency`` handlers run in threads of their own.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING

from pelton.errors import PeltonError

from ..base.arguments import waits
from ..base.durations import Duration, to_seconds
from ..base.forgotten import BlockingItems
from ..base.steps import made
from ..consume.handles import Consuming
from ..consume.operation import Operation, PullOperation
from ..consume.ordering import Ordering
from ..consume.pushed import Pushing, PushOperation
from .messages import Message
from .running import Entered, exclusive, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from .connection import Client


class _Operation(Entered, BlockingItems, Operation[Message]):
    """The iteration and the handlers of an operation, for blocking code."""

    client: Client

    def _check_callback(
        self, callback: Callable[[Message], object], concurrency: int, auto_extend: bool
    ) -> None:
        if waits(callback):
            raise TypeError(
                "the callback is a coroutine function: give a function, or use connect()"
            )

    @exclusive
    def _begin(self) -> None:
        self._running = False
        self._handlers: set[int] = set()  # threads
        self._ended: deque[tuple[int, Message, Exception | None]] = deque()
        intake = self._intake
        intake.begin()
        # Nobody can take or handle messages of an operation that was garbage-collected.
        weakref.finalize(self, self.client._connection.abandon, intake._interest.sid).atexit = False
        by_default = self._concurrency is not None and self._auto_extend is None
        if self._auto_extend or by_default:
            intake.extend_acks()
            if intake.extension.on:
                self.client._assume(intake.extend_when_due)

    def _inside(self) -> bool:
        return threading.get_ident() in self._handlers

    @exclusive
    def stop(self) -> None:
        """Request nothing more and end: buffered messages go back to the consumer at once.

        An iteration ends, and no handler begins; running handlers finish. May be called in a handler, and
        by any thread.
        """
        super().stop()
        if not self._inside():
            run(self.client, self._finishing(self._intake.is_finished, math.inf))

    # -- iteration ---------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        """Messages until the operation ends; RuntimeError when it has a callback."""
        return self._iterating()

    def __next__(self) -> Message:
        """The next message; raises the error that ended the operation. Several threads share them."""
        intake, queue, guard = self._intake, self._queue, self.client._guard
        guard.take()
        try:
            last = self._last
            if last is not None:
                self._last = None
                if intake.extension.given:
                    intake.extension.given.pop(threading.get_ident(), None)
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
            message: Message = queue.popleft()
            self._last = message
            if intake.extension.on:
                intake.extension.given[threading.get_ident()] = message
        finally:
            guard.give()
        return message

    @exclusive
    def _send(self) -> None:
        """Send a request now, because the next wait may be far away."""
        client = self.client
        try:
            if client.connected:
                client._send_waiting()
        except PeltonError as error:  # the next wait connects again, and asks again
            client._report(error)

    # -- handlers ----------------------------------------------------------------------------------

    def run(self, timeout: Duration | None = None) -> None:
        """Handle messages with the callback: until the operation has ended, or for ``timeout``.

        Handlers run in this thread, or with ``concurrency`` in as many threads of their own; those that
        run at the end finish. They may use the client. Raises the error that ended the operation;
        RuntimeError without a callback, or while another thread calls it.
        """
        self._check_runs()
        deadline = math.inf if timeout is None else time.monotonic() + to_seconds(timeout)
        with self.client._guard:
            if self._running:
                raise RuntimeError("this operation runs already")
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
        me = threading.get_ident()
        self._handlers.add(me)
        try:
            while message := self._next_to_handle(deadline):
                self._settle(message, self._call(message))
        finally:
            self._handlers.discard(me)

    @exclusive
    def _next_to_handle(self, deadline: float) -> Message | None:
        """The next message; None at the end, or when the time is over."""
        intake, queue = self._intake, self._queue
        while not queue or time.monotonic() >= deadline:
            left = deadline - time.monotonic()
            if left <= 0 or self._is_done():
                return None
            run(self.client, intake.awaiting(intake.takers, self._has_work, left))
        message: Message = queue.popleft()
        intake.handling[0] = message
        return message

    def _call(self, message: Message) -> Exception | None:
        """Let the callback handle a message; returns what it raised."""
        assert self._callback is not None
        try:
            self._callback(message)
        except Exception as error:
            return error
        return None

    @exclusive
    def _settle(self, message: Message, error: Exception | None, number: int = 0) -> None:
        """A handler has returned."""
        self._intake.handling.pop(number, None)
        if error is not None:
            self._failed(message, error)
        else:
            self._handled(message)
        if self._intake.took(message):
            self._send()

    def _has_work(self) -> bool:
        return bool(self._queue) or self._intake.finished

    def _run_threads(self, deadline: float, count: int) -> None:
        """Pass messages to threads until they have ended."""
        jobs: SimpleQueue[tuple[int, Message] | None] = SimpleQueue()
        threads = [
            threading.Thread(target=self._work, args=(jobs,), daemon=True) for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        try:
            self._pass_on(deadline, count, jobs)
        finally:
            try:
                self._pass_on(-math.inf, count, jobs)
            finally:
                for _ in threads:
                    jobs.put(None)

    @exclusive
    def _pass_on(
        self,
        deadline: float,
        count: int,
        jobs: SimpleQueue[tuple[int, Message] | None],
    ) -> None:
        intake, queue, handling = self._intake, self._queue, self._intake.handling
        ended = self._ended
        free = [number for number in range(count) if number not in handling]
        while True:
            while ended:
                number, message, error = ended.popleft()
                free.append(number)
                self._settle(message, error, number)
            left = deadline - time.monotonic()
            if (left <= 0 and not handling) or self._is_done():
                return
            while queue and free and left > 0:
                number = free.pop()
                next_message: Message = queue.popleft()
                handling[number] = next_message
                jobs.put((number, next_message))

            def news(passing: bool = left > 0) -> bool:
                more = bool(queue and free) and passing
                return bool(ended) or more or (intake.finished and not handling)

            wait = left if left > 0 else math.inf
            run(self.client, intake.awaiting(intake.takers, news, wait))

    def _work(self, jobs: SimpleQueue[tuple[int, Message] | None]) -> None:
        """Handle messages in a thread."""
        me, guard = threading.get_ident(), self.client._guard
        self._handlers.add(me)
        try:
            while (job := jobs.get()) is not None:
                number, message = job
                error: Exception | None
                try:
                    error = self._call(message)
                except BaseException as raised:
                    error = RuntimeError(f"the handler ended its thread: {raised!r}")
                with guard:
                    self._ended.append((number, message, error))
                    self._intake.takers._stir()
        finally:
            self._handlers.discard(me)


class ConsumerMessages(_Operation, PullOperation[Message]):
    """Messages of a pull consumer or an ordered consumer without end; made by ``consume``.

    ::

        with consumer.consume(max_messages=100) as messages:
            for message in messages:
                message.ack()

        with consumer.consume(handle, concurrency=10) as messages:
            messages.run()  # until a handler calls messages.stop()
    """

    client: Client


class PushMessages(_Operation, PushOperation[Message]):
    """Messages of a push consumer without end; made by ``PushConsumer.consume``.

    ::

        with old.consume(handle, auto_ack=True) as messages:
            messages.run()  # until a handler calls messages.stop()
    """

    client: Client


class Consumer(Entered, Consuming[Message]):
    """A pull consumer; made by ``JetStream.consumer``.

    ``next``, ``fetch`` and ``consume`` may be used at the same time and by several threads. ::

        consumer = js.consumer("ORDERS", "billing")
        message = consumer.next(timeout=5)
        if message is not None:
            message.ack()
    """

    client: Client

    close = exclusive(Consuming.close)
    consume = made(ConsumerMessages)


class OrderedConsumer(Entered, Ordering[Message]):
    """An ordered consumer; made by ``JetStream.ordered_consumer``. One operation at a time.

    ::

        ordered = js.ordered_consumer("ORDERS", filter_subjects=["orders.new"])
        with ordered.consume() as messages:
            for message in messages:
                print(message.metadata.stream_seq)
    """

    client: Client

    consume = made(ConsumerMessages)


class PushConsumer(Entered, Pushing[Message]):
    """A push consumer; made by ``JetStream.push_consumer``.

    ::

        old = js.push_consumer("ORDERS", "old")
        with old.consume() as messages:
            for message in messages:
                message.ack()
    """

    client: Client

    consume = made(PushMessages)
