"""Carry out steps in asyncio, and make the methods that do so."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ..base.forgotten import AsyncItems, AsyncOnly
from ..base.steps import (
    Attach,
    Await,
    Awaits,
    Dial,
    Ended,
    Left,
    Request,
    Send,
    Sleep,
    Step,
    Until,
    Work,
    realise,
)
from .waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

    from ..base.steps import Flow, Steps
    from .connection import Client

T = TypeVar("T")


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
                        answer = await until(client, step.box, step.done, step.seconds)
                    elif isinstance(step, Send):
                        client._plan_flush()
                        if client._much_waits:
                            await client._wait_writable()
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
        return await _run(client, client._asking(step))
    if isinstance(step, Until):
        return await until(client, step.box, step.done, step.seconds)
    if isinstance(step, Send):
        client._plan_flush()
        await client._wait_writable()
    elif isinstance(step, Attach):
        client._attach(step.subject, step.owner, step.queue)
    elif isinstance(step, Sleep):
        await asyncio.sleep(step.seconds)
    elif isinstance(step, Dial):
        await client._dial(step.server)
    elif isinstance(step, Work):
        return await worked(client._loop.run_in_executor(None, step.function), step.finishes)
    elif isinstance(step, Await):
        return await step.awaitable
    return None


async def worked(work: asyncio.Future[Any], finishes: bool) -> Any:
    """The result of what a thread does. A thread cannot be stopped: a cancelled task waits for its end."""
    if not finishes:
        return await work
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # taken note of
        raise


def _told(body: Callable[..., bytes], ends: bool) -> Callable[..., Coroutine[Any, Any, None]]:
    """A method of a message that sends the server the payload of ``body``."""

    async def tell(self: Any, /, *args: Any, **kwargs: Any) -> None:
        self._check_acknowledgeable()
        client = self._interest.owner.client
        client._connection.answer(self.reply, body(self, *args, **kwargs))
        client._plan_flush()
        if client._much_waits:
            await client._wait_writable()
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


class Iterated(Awaited, AsyncItems, Generic[T]):
    """Base of objects for ``async for``: the steps of ``_following`` return an item, or raise Ended."""

    client: Client
    """The client that it belongs to."""
    _following: Callable[..., Steps[T]]

    def __aiter__(self) -> Self:
        """The object itself."""
        return self

    async def __anext__(self) -> T:
        """The next item; waits for it."""
        try:
            return await run(self.client, self._following())
        except Ended:
            raise StopAsyncIteration from None


class Entered(Awaited, AsyncOnly):
    """Base of objects for ``async with``, which run the steps of ``_leaving`` at the end."""

    __slots__ = ()
    client: Client
    """The client that it belongs to."""
    _leaving: Callable[[type[BaseException] | None], Steps[None]]

    async def __aenter__(self) -> Self:
        """The object itself."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """The end of the block."""
        await run(self.client, self._leaving(kind))


class Watched(Iterated[T], Entered, Generic[T]):
    """Base of watches, which begin at ``async with``, when they are awaited, or with the first call."""

    _beginning: Callable[[], Steps[None]]

    def __await__(self) -> Generator[Any, None, Self]:
        """Begin: every change from now on is delivered."""
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        """Begin: every change from now on is delivered."""
        await run(self.client, self._beginning())
        return self
