"""Carry out steps in asyncio, and make the methods that do so."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..steps import (
    Attach,
    Await,
    Awaits,
    Dial,
    Left,
    Request,
    Send,
    Sleep,
    Step,
    Until,
    Work,
    realise,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from ..steps import Flow, Steps
    from .connection import Client

T = TypeVar("T")

LOOK_S = 1e-6
"""More than the time of checking one wait for its deadline, in seconds."""


def _runner(begin: Callable[..., Steps[Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """A method that carries out the steps that ``begin`` returns, and returns their result."""

    async def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        client: Client = self.client
        steps = begin(self, *args, **kwargs)
        answer: Any = None
        try:
            step = steps.send(None)
            while True:
                try:
                    if isinstance(step, Until):
                        answer = await until(client, step)
                    elif isinstance(step, Send):
                        client.plan_flush()
                        if client.much_waits:
                            await client.wait_writable()
                    else:
                        answer = await perform(client, step)
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as stop:
            return stop.value

    return call


_run = _runner(lambda _, steps: steps)


async def run(client: Client, steps: Steps[T]) -> T:
    """Carry out the steps of a call, and return its result."""
    result: T = await _run(client, steps)
    return result


async def iterate(client: Client, flow: Flow[T]) -> AsyncGenerator[T, None]:
    """Carry out the steps of a flow, and yield its items."""
    try:
        item = flow.send(None)
        while True:
            answer: Any = None
            try:
                if isinstance(item, Step):
                    answer = await perform(client, item)
                else:
                    yield item
            except GeneratorExit:
                item = flow.throw(Left())
            except BaseException as error:
                item = flow.throw(error)
            else:
                item = flow.send(answer)
    except (StopIteration, Left):
        return


async def perform(client: Client, step: Step) -> Any:
    """Carry out one step, and return its result. ``Ready`` does nothing: see
    ``Session.stays_open``.
    """
    if isinstance(step, Request):
        steps = client.requesting(
            step.subject, step.body, timeout=step.seconds, raw_headers=step.headers
        )
        return (await _run(client, steps)).data
    if isinstance(step, Until):
        return await until(client, step)
    if isinstance(step, Send):
        client.plan_flush()
        await client.wait_writable()
    elif isinstance(step, Attach):
        client.attach(step.subject, step.owner, step.queue)
    elif isinstance(step, Sleep):
        await asyncio.sleep(step.seconds)
    elif isinstance(step, Dial):
        await client.dial(step.server)
    elif isinstance(step, Work):
        return await client.loop.run_in_executor(None, step.function)
    elif isinstance(step, Await):
        return await step.awaitable
    return None


class Waiting:
    """A task that waits for a mailbox."""

    __slots__ = ("deadline", "future", "late")

    def __init__(self, future: asyncio.Future[None], deadline: float) -> None:
        """``late`` tells whether its time is over."""
        self.future = future
        self.deadline = deadline
        self.late = False

    def wake(self) -> None:
        """Let the task check again."""
        if not self.future.done():
            self.future.set_result(None)


class Deadlines:
    """Ends the waits of a client whose time is over, with one timer of the loop for all of them.

    Most waits end before their time, and a timer for each would cost more than everything else.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts without waits."""
        self._loop = loop
        self._waiting: set[Waiting] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf

    def add(self, waiting: Waiting) -> None:
        """Wake ``waiting`` at its deadline, unless it is removed before."""
        self._waiting.add(waiting)
        if waiting.deadline < self._due:
            self._plan(waiting.deadline)

    def remove(self, waiting: Waiting) -> None:
        """Remove ``waiting``: it does not wait any more."""
        self._waiting.discard(waiting)

    def _plan(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        self._timer, self._due = None, math.inf
        for each in [each for each in self._waiting if each.deadline <= now]:
            self._waiting.remove(each)
            each.late = True
            each.wake()
        due = min((each.deadline for each in self._waiting), default=math.inf)
        if due < math.inf:  # not more often than it takes to check all of them
            self._plan(max(due, now + len(self._waiting) * LOOK_S))


async def until(client: Client, step: Until) -> bool:
    """Wait until the step's condition holds; False when the time is over."""
    done, box, loop = step.done, step.box, client.loop
    if done():
        return True
    if client.connection.bytes_waiting:
        client.flush_for_wait()
    future: asyncio.Future[None] = loop.create_future()
    waiting = Waiting(future, loop.time() + step.seconds)
    client.deadlines.add(waiting)
    try:
        while True:
            box.waiting = (*box.waiting, waiting)
            await future
            if done():
                return True
            if waiting.late:
                return False
            waiting.future = future = loop.create_future()
    finally:
        client.deadlines.remove(waiting)
        if box.waiting:
            box.waiting = tuple([each for each in box.waiting if each is not waiting])


def _told(body: Callable[..., bytes], ends: bool) -> Callable[..., Coroutine[Any, Any, None]]:
    """A method of a message that sends the server the payload of ``body``."""

    async def tell(self: Any, /, *args: Any, **kwargs: Any) -> None:
        self.check_acknowledgeable()
        client = self.interest.owner.client
        client.connection.answer(self.reply, body(self, *args, **kwargs))
        client.plan_flush()
        if client.much_waits:
            await client.wait_writable()
        if ends:
            self.acked = True

    return tell


class Awaited(Awaits):
    """Base of the shell's classes: the calls that they inherit are coroutine functions."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """Make the methods."""
        super().__init_subclass__()
        realise(cls, _runner, iterate, _told, "AsyncGenerator")


class Entered(Awaited):
    """Base of objects for ``async with``, which run the steps of ``_leaving`` at the end."""

    __slots__ = ()
    client: Client
    _leaving: Callable[[type[BaseException] | None], Steps[None]]

    async def __aenter__(self) -> Self:
        """The object itself."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """The end of the block."""
        await run(self.client, self._leaving(kind))
