"""How handlers of messages run in asyncio: functions as messages arrive, coroutine functions in tasks.

A subscription, a consumer or a service has ``Workers``, with one ``Pool`` for each callback::

    message ──► queue ──► notify ──► a task ──► begin ──► callback ──► settle: answer, ack, count, report
                            └─ no task waits for messages: one more, up to the limit

A task handles one message after the other, so that a burst costs one task, and a message that a task waits
for costs no turn of the loop. ``client/sync/workers.py`` has the same classes for threads.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from pelton.errors import PeltonTimeoutError

from ..base.arguments import unawaited, waits
from ..base.mailbox import Mailbox

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Awaitable, Callable, Generator

    from ..consume.intake import Intake
    from .connection import Client

T = TypeVar("T")

Wait: TypeAlias = "Callable[[Mailbox, Callable[[], bool], float], Awaitable[bool]]"
"""As ``Client._until``."""
Answer: TypeAlias = "bytes | Awaitable[bytes | None] | None"
"""What a handler of requests returns."""


class Sent:
    """An answer on its way: it may be awaited, until the connection takes more."""

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        """The answer is queued already."""
        self._client = client

    def __await__(self) -> Generator[Any, None, None]:
        """Wait while the connection has more than enough to write."""
        return self._client._wait_writable().__await__()


def sent(client: Client) -> Sent:
    """What a call returns that has queued an answer, and that handlers of both kinds make."""
    return Sent(client)


class Pool(Mailbox, Generic[T]):
    """One callback and its queue of messages, which tasks take, as many as ``limit`` at a time."""

    def __init__(
        self,
        workers: Workers,
        callback: Callable[[T], Any],
        queue: deque[Any],
        begin: Callable[[Any], T] | None,
        settle: Callable[[T, Any, Exception | None], None],
        limit: int,
    ) -> None:
        """Made by ``Workers.pool``."""
        self.inline = not waits(callback)
        """Whether ``handle`` has to be called for each message, in place of ``notify``."""
        self.running: dict[object, T] = {}
        """What is being handled, by the task."""
        self.queue = queue
        self.workers = workers
        """Those that it belongs to."""
        self._callback = callback
        self._begin = begin
        self._settle = settle
        self._limit = limit
        self._tasks: set[asyncio.Task[None]] = set()
        self._hiring = False  # whether a task is about to begin
        self._closed = False

    def extends(self, asked: bool | None) -> bool:
        """Whether the ack waits of messages are extended: by default where others run beside a handler."""
        if self.inline and asked:
            raise ValueError(
                "nothing else runs during a plain function: auto_extend needs a coroutine function"
            )
        return not self.inline and asked is not False

    def notify(self) -> None:
        """A message was added to the queue."""
        # A task that waits takes it; a second one would find nothing.
        if self._waiting:
            self._stir()
        elif len(self._tasks) < self._limit and not self._hiring:
            # One at a time: the task that begins calls for the next one if it leaves messages.
            self._hiring = True
            task = self.workers.client._spawn(self._work(), finishes=True)
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def handle(self, message: Any) -> None:
        """Call the function with a message now."""
        item: T = message if self._begin is None else self._begin(message)
        result: Any = None
        failure: Exception | None = None
        try:
            result = self._callback(item)
        except Exception as error:
            failure = error
        if result is not None and unawaited(result):  # as of a lambda; its work was not done
            failure = TypeError(
                "the handler returned a coroutine: give the coroutine function itself"
            )
        self._settle(item, result, failure)

    def close(self) -> None:
        """No message follows; those in the queue are still handled."""
        self._closed = True
        self._stir()

    def is_handled(self, me: asyncio.Task[Any] | None) -> bool:
        """Whether no message is left to a task other than ``me``."""
        others = self._tasks - {me}
        return not (self.queue and others) and self.running.keys() <= {me}

    async def _work(self) -> None:
        """Handle one message after the other; of several tasks, at most one waits for messages."""
        workers, client, queue = self.workers, self.workers.client, self.queue
        task = asyncio.current_task()
        assert task is not None
        self._hiring = False
        while True:
            while not queue:
                # Another task waits already: one is enough for the next message.
                if self._closed or self._waiting:
                    return
                await client._until(self, self._has_news, math.inf)
            message = queue.popleft()
            item: T = message if self._begin is None else self._begin(message)
            # Others may handle the rest while this handler runs.
            if queue:
                self.notify()
            self.running[task] = item
            result, failure = None, None
            try:
                result = await self._callback(item)
            except Exception as error:
                failure = error
            except asyncio.CancelledError as error:
                if task.cancelling():
                    raise
                # not this task was cancelled, but what the handler awaited
                failure = RuntimeError(f"the handler was cancelled: {error!r}")
            finally:
                del self.running[task]
            self._settle(item, result, failure)
            # ``finish`` may have waited for this handler.
            if workers._waiting:
                workers._stir()
            if client._much_waits:
                await client._wait_writable()

    def _has_news(self) -> bool:
        return bool(self.queue) or self._closed

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.workers._stir()
        self.workers._box._stir()


class Workers(Mailbox):
    """The handlers of one object, such as a service: how many run, who waits for them, and their end."""

    def __init__(self, client: Client, box: Mailbox, wait: Wait | None = None) -> None:
        """``box`` is stirred when what ``run`` waits for may hold; ``wait`` is how to wait for a box."""
        self.client = client
        self._box = box
        self._wait: Wait = wait or client._until
        self._pools: list[Pool[Any]] = []

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
        """Let a callback handle the messages of a queue, ``limit`` of them at a time.

        ``begin``: returns what the callback gets for a message, which it is about to handle. ``settle``: called
        with that, and with what the callback returned or raised; it raises nothing. ``limit``: None for one
        after the other. ``what``: the name of the callback, for the TypeError or ValueError of one that
        cannot run so.
        """
        if limit is not None and limit > 1 and not waits(callback):
            raise ValueError(f"only coroutine functions run concurrently: give one as {what}")
        pool = Pool(self, callback, queue, begin, settle, limit or 1)
        self._pools.append(pool)
        return pool

    def inside(self) -> bool:
        """Whether a handler makes this call."""
        me = asyncio.current_task()
        return any(me in pool.running for pool in self._pools)

    def all_handled(self) -> bool:
        """Whether no message waits, and no handler runs but that which makes this call."""
        me = asyncio.current_task()
        return all(pool.is_handled(me) for pool in self._pools)

    async def run(self, done: Callable[[], bool], seconds: float = math.inf) -> bool:
        """Let handlers run until ``done()`` holds; False when the time is over."""
        return await self._wait(self._box, done, seconds)

    async def finish(self, seconds: float = math.inf) -> None:
        """Wait until all messages are handled, but not for the handler that makes this call; PeltonTimeoutError."""
        if not await self.client._until(self, self.all_handled, seconds):
            raise PeltonTimeoutError(f"messages are still being handled after {seconds} s")

    async def rest(self) -> None:
        """Wait for nothing: handlers go on in their tasks."""

    def close(self) -> None:
        """No message follows; those in the queues are still handled."""
        for pool in self._pools:
            pool.close()


def caller() -> object:
    """Who calls: the task."""
    return asyncio.current_task()


class Turns(ABC):
    """Runs the turns of an operation: a task does, until the operation has ended."""

    def __init__(self, client: Client, intake: Intake) -> None:
        """``start`` follows."""
        self.client = client
        self.intake = intake
        self.wait = client._until
        """Wait for a mailbox: ``await wait(box, done, seconds)``; False when the time is over."""
        self.waiting_for: Mailbox | None = None
        """What else wakes a turn."""

    @abstractmethod
    async def turn(self, done: Callable[[], bool], seconds: float) -> None:
        """Do what is due, and wait until something else is, or until ``done()`` holds."""

    def start(self, *, extends: bool) -> None:
        """Subscribe, and keep messages coming; ``extends``: also the ack waits of those that are here."""
        # Before ``begin``: from now on the task ends the operation, also when nobody refers to it.
        self.intake.kept = True
        self.intake.begin()
        if extends:
            self.intake.extend_acks()
        self.client._spawn(self._keep())

    async def _keep(self) -> None:
        intake = self.intake
        while not intake.finished:
            await self.turn(intake.is_finished, math.inf)

    def settle(self) -> None:  # noqa: B027  # the task does it
        """After ``stop``: messages are given back, and the subscription ends."""
