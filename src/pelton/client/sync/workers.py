"""How handlers of messages run in blocking code: in the threads that call ``run``, or in threads of their own.

A consumer or a service has ``Workers``, with one ``Pool`` for each callback::

    message ──► queue ──► notify ──► a thread in ``run`` ──► begin ──► callback ──► settle: answer, ack, count
                                          └─ passes it to a thread of the pool, up to the limit

Callbacks run without the client's lock, everything else with it. Handlers begin only while a thread calls
``run`` or ``finish``. ``client/aio/workers.py`` has the same classes for tasks.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from ..base.arguments import unawaited, waits

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from ..base.mailbox import Mailbox
    from ..consume.intake import Intake
    from .connection import Client

T = TypeVar("T")

Wait: TypeAlias = "Callable[[Mailbox, Callable[[], bool], float], bool]"
"""As ``Client._until``."""
Answer: TypeAlias = "bytes | None"
"""What a handler of requests returns."""
Sent: TypeAlias = None
"""What a call returns that has queued an answer: in blocking code nobody waits for it."""


def sent(client: Client) -> None:
    """For the calls that return ``Sent``."""


class Pool(Generic[T]):
    """One callback and its queue of messages, which threads take, as many as ``limit`` at a time."""

    inline = False
    """No callback is called as messages arrive, as functions are in asyncio."""

    def __init__(
        self,
        workers: Workers,
        callback: Callable[[T], Any],
        queue: deque[Any],
        begin: Callable[[Any], T] | None,
        settle: Callable[[T, Any, Exception | None], None],
        limit: int | None,
    ) -> None:
        """Made by ``Workers.pool``."""
        self.running: dict[object, T] = {}
        """What is being handled."""
        self.queue = queue
        self.workers = workers
        """Those that it belongs to."""
        self.notify: Callable[[], None] = workers._box._stir
        """A message was added to the queue. Does not refer to the pool: the program may have dropped it."""
        self._callback = callback
        self._begin = begin
        self._settle = settle
        self._limit = limit
        self._inside: list[int] = []  # the threads of running handlers, one of them perhaps twice
        # True for a message to take, False for the end
        self._jobs: SimpleQueue[bool] = SimpleQueue()
        self._passed = 0  # messages in the queue that a thread of the pool is about to take
        self._threads = 0
        self._closed = False

    def extends(self, asked: bool | None) -> bool:
        """Whether the ack waits of messages are extended: by default where handlers have threads of their own."""
        return self._limit is not None if asked is None else asked

    def handle(self, message: Any) -> None:
        """Never called: no callback is ``inline``."""

    def close(self) -> None:
        """No message follows; those in the queue are still handled."""
        self._closed = True
        self._end_if_done()

    def end_threads(self) -> None:
        """Let the threads end that wait for messages; the next message begins others."""
        for _ in range(self._threads):
            self._jobs.put(False)
        self._threads = 0

    @property
    def busy(self) -> int:
        """The number of handlers that run, or are about to."""
        return len(self._inside) + self._passed

    def is_ready(self) -> bool:
        """Whether a message may be handled now."""
        if self._limit is None:
            return bool(self.queue)
        return len(self.queue) > self._passed and self.busy < self._limit

    def pass_on(self) -> None:
        """Let a thread of the pool handle the next message."""
        self._passed += 1
        # Threads are started when they are needed; they stay for the next messages.
        if self.busy > self._threads:
            self._threads += 1
            threading.Thread(target=self._work, daemon=True).start()
        self._jobs.put(True)

    def waits_for_me(self) -> bool:
        """Whether only this thread can handle the next message: its handlers are all that may run."""
        mine = self._inside.count(threading.get_ident())
        # Otherwise a handler that waits for its own operation would wait for ever.
        return bool(self.queue) and mine == self.busy == self._limit

    def _work(self) -> None:
        guard = self.workers.client._guard
        while self._jobs.get():
            with guard:
                self._passed -= 1
                # The end of the operation may have given the message back meanwhile.
                if self.queue:
                    # A handler that raises SystemExit must not end the thread, for which nobody waits.
                    self._handle_next(BaseException)

    def _handle_next(self, caught: type[BaseException] = Exception) -> None:
        """Handle a message, for callers that have the lock; other exceptions than ``caught`` pass."""
        message = self.queue.popleft()
        item: T = message if self._begin is None else self._begin(message)
        # Not the thread: a handler that waits may let its thread run another handler.
        key, me = object(), threading.get_ident()
        self.running[key] = item
        self._inside.append(me)
        result: Any = None
        failure: Exception | None = None
        try:
            result = self.workers.client._guard.without(self._callback, item)
        except caught as error:
            failure = error if isinstance(error, Exception) else _ended(error)
        finally:
            del self.running[key]
            self._inside.remove(me)
            self._end_if_done()
            if self._limit is not None or self.workers._finishing:
                self.workers._box._stir()
        if result is not None and unawaited(result):  # as of a lambda; its work was not done
            failure = TypeError(
                "the handler returned a coroutine: give a function, or use connect()"
            )
        self._settle(item, result, failure)

    def _end_if_done(self) -> None:
        if self._closed and not self.queue and not self._passed:
            self.end_threads()


def _ended(error: BaseException) -> RuntimeError:
    return RuntimeError(f"the handler ended its thread: {error!r}")


class Workers:
    """The handlers of one object, such as a service: how many run, who waits for them, and their end."""

    def __init__(self, client: Client, box: Mailbox, wait: Wait | None = None) -> None:
        """``box`` is stirred when what ``run`` waits for may hold; ``wait`` is how to wait for a box."""
        self.client = client
        self._box = box
        self._wait: Wait = wait or client._until
        self._pools: list[Pool[Any]] = []
        self._finishing = 0  # calls of ``finish``

    def pool(
        self,
        callback: Callable[[T], Any],
        queue: deque[Any],
        *,
        settle: Callable[[T, Any, Exception | None], None],
        begin: Callable[[Any], T] | None = None,
        limit: int | None = None,
        what: str = "the callback",
    ) -> Pool[T]:
        """Let a callback handle the messages of a queue: in the threads that call ``run``, or with a
        ``limit`` in as many threads of the pool.

        ``begin``: returns what the callback gets for a message, which it is about to handle. ``settle``: called
        with that, and with what the callback returned or raised; it raises nothing. ``what``: the name of
        the callback, for the TypeError of a coroutine function.
        """
        if waits(callback):
            raise TypeError(f"{what} is a coroutine function: give a function, or use connect()")
        pool = Pool(self, callback, queue, begin, settle, limit)
        self._pools.append(pool)
        return pool

    def inside(self) -> bool:
        """Whether a handler makes this call."""
        me = threading.get_ident()
        return any(me in pool._inside for pool in self._pools)

    def all_handled(self) -> bool:
        """Whether no message waits, and no handler runs but those that make this call."""
        me = threading.get_ident()
        return not any(pool.queue or pool.busy > pool._inside.count(me) for pool in self._pools)

    def run(self, done: Callable[[], bool], seconds: float = math.inf) -> bool:
        """Handle messages until ``done()`` holds; False when the time is over.

        Handlers in threads of their own may still run then.
        """
        deadline = time.monotonic() + seconds
        while not done():
            if self.client._connection.bytes_waiting:
                self.client._send_queued()
            left = deadline - time.monotonic()
            if left <= 0 or not self._wait(self._box, lambda: done() or self._is_ready(), left):
                return False
            if not done():
                self._work_once()
        return True

    def finish(self) -> None:
        """Handle all messages, and wait for all handlers, but not for those that make this call."""
        self._finishing += 1
        try:
            while not self.all_handled():
                self._work_once()
                self._wait(self._box, lambda: self.all_handled() or self._is_ready(), math.inf)
        finally:
            self._finishing -= 1

    def rest(self) -> None:
        """Wait for the handlers that run, but not for those that make this call, and end their threads.

        Threads that wait for messages would keep an object alive that the program has dropped.
        """
        me = threading.get_ident()

        def resting() -> bool:
            return not any(pool.busy > pool._inside.count(me) for pool in self._pools)

        self._wait(self._box, resting, math.inf)
        for pool in self._pools:
            pool.end_threads()

    def close(self) -> None:
        """No message follows."""
        for pool in self._pools:
            pool.close()

    def _is_ready(self) -> bool:
        return any(pool.is_ready() or pool.waits_for_me() for pool in self._pools)

    def _work_once(self) -> None:
        """Handle one message of each pool without a limit, and let other pools handle all that they can."""
        for pool in list(self._pools):
            while pool._limit is not None and pool.is_ready():
                pool.pass_on()
            if pool.waits_for_me() or (pool._limit is None and pool.queue):
                pool._handle_next()


def caller() -> object:
    """Who calls: the thread."""
    return threading.get_ident()


class Turns(ABC):
    """Runs the turns of an operation: one of the calls that wait does, and then the next one."""

    def __init__(self, client: Client, intake: Intake) -> None:
        """``start`` follows."""
        self.client = client
        self.intake = intake
        self.waiting_for: Mailbox | None = None
        """What else wakes a turn: what the call that runs it waits for."""
        self._turner: object = None  # the thread that runs a turn

    @abstractmethod
    def turn(self, done: Callable[[], bool], seconds: float) -> None:
        """Do what is due, and wait until something else is, or until ``done()`` holds."""

    def start(self, *, extends: bool) -> None:
        """Subscribe; the client's own thread extends ack waits, also while no call waits."""
        self.intake.begin()
        if extends:
            self.intake.extend_acks()
            if self.intake.extension.on:
                self.client._assume(self.intake.extend_when_due)

    def wait(self, box: Mailbox, done: Callable[[], bool], seconds: float) -> bool:
        """Wait until ``done()`` holds; False when the time is over."""
        clock = self.client._clock
        deadline = clock() + seconds
        while not done():
            left = deadline - clock()
            if left <= 0:
                return False
            # The same thread again: a handler that runs within a turn waits for its operation.
            if self._turner in (None, threading.get_ident()):
                self._take_turn(box, done, left)
            else:
                # When the thread with the turns leaves, one of those that wait takes over.
                self.client._until(box, lambda: done() or self._turner is None, left)
        return True

    def _take_turn(self, box: Mailbox, done: Callable[[], bool], seconds: float) -> None:
        """Run a turn; when it ends, another call that waits goes on."""
        outer = self._turner, self.waiting_for
        self._turner, self.waiting_for = threading.get_ident(), box
        try:
            self.turn(done, seconds)
        finally:
            self._turner, self.waiting_for = outer
            self.intake.takers._stir()
            self.intake.events._stir()

    def settle(self) -> None:
        """After ``stop``: give messages back that are on their way, and unsubscribe."""
        self.wait(self.intake.events, self.intake.is_finished, math.inf)
