"""Carry out steps in blocking code, and make the methods that do so.

One thread at a time uses a client: a call takes the client's guard until it returns, also for the
calls that it makes itself. Taking the guard never waits: a thread that waits for a message may hold it
without end.
"""

from __future__ import annotations

import functools
import inspect
import threading
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from penstock.errors import ClientInUse

from ..steps import (
    Attach,
    Await,
    Blocks,
    Dial,
    Left,
    Ready,
    Request,
    Send,
    Sleep,
    Step,
    Until,
    Work,
    realise,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ..steps import Flow, Steps
    from .connection import BlockingClient

    F = TypeVar("F", bound=Callable[..., Any])

T = TypeVar("T")


class Guard:
    """The lock of a client, which the thread of the running call holds.

    Methods write ``if not guard.take(False): raise ClientInUse``, and ``guard.give()`` in a
    finally: these are C calls, and take a tenth of the time of ``with``.
    """

    __slots__ = ("give", "take")

    def __init__(self) -> None:
        """No thread holds it."""
        lock = threading.RLock()
        self.take: Callable[[bool], bool] = lock.acquire
        self.give: Callable[[], None] = lock.release

    def __enter__(self) -> None:
        """Take the guard; ClientInUse when another thread holds it."""
        if not self.take(False):
            raise ClientInUse

    def __exit__(self, *_: object) -> None:
        """Release the guard."""
        self.give()


def exclusive(method: F) -> F:
    """A method of an object with a ``client``, whose guard is held while it runs."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        guard = self.client.guard
        if not guard.take(False):
            raise ClientInUse
        try:
            return method(self, *args, **kwargs)
        finally:
            guard.give()

    return cast("F", guarded)


def run(client: BlockingClient, steps: Steps[T]) -> T:
    """Carry out the steps of a call and return its result; ClientInUse when another thread calls."""
    if not client.guard.take(False):
        raise ClientInUse
    answer: Any = None
    try:
        step = steps.send(None)
        while True:
            try:
                if isinstance(step, Until):
                    answer = client.wait(step.done, step.seconds)
                elif isinstance(step, Ready):
                    client.reopen(step.seconds)
                else:
                    answer = perform(client, step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        client.guard.give()


def iterate(client: BlockingClient, flow: Flow[T]) -> Generator[T, None, None]:
    """Carry out the steps of a flow, and yield its items."""
    try:
        item = flow.send(None)
        while True:
            answer: Any = None
            try:
                if isinstance(item, Step):
                    with client.guard:
                        answer = perform(client, item)
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


def perform(client: BlockingClient, step: Step) -> Any:
    """Carry out one step, and return its result."""
    if isinstance(step, Until):
        return client.wait(step.done, step.seconds)
    if isinstance(step, Ready):
        client.reopen(step.seconds)
    elif isinstance(step, Request):
        steps = client.requesting(
            step.subject, step.body, timeout=step.seconds, raw_headers=step.headers
        )
        return run(client, steps).data
    elif isinstance(step, Send):
        client.flush_output()
    elif isinstance(step, Attach):
        client.attach(step.subject, step.owner, step.queue)
    elif isinstance(step, Sleep):
        time.sleep(step.seconds)
    elif isinstance(step, Dial):
        client.dial(step.server)
    elif isinstance(step, Work):
        return step.function()
    elif isinstance(step, Await):
        if inspect.iscoroutine(step.awaitable):
            step.awaitable.close()  # or Python warns that nobody awaited it
        raise TypeError("a blocking client cannot await: give an iterator, or use connect()")
    return None


def _called(begin: Callable[..., Steps[Any]]) -> Callable[..., Any]:
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return run(self.client, begin(self, *args, **kwargs))

    return call


def _told(body: Callable[..., bytes], ends: bool) -> Callable[..., None]:
    """A method of a message that sends the server the payload of ``body``.

    When the connection breaks meanwhile, the server delivers the message again, as without an ack. In a
    handler's thread the thread that uses the client sends it.
    """

    def tell(self: Any, /, *args: Any, **kwargs: Any) -> None:
        self.check_acknowledgeable()
        client = self.interest.owner.client
        errands = client.errands
        if errands is not None and errands.is_foreign():
            errands.answer(self.reply, body(self, *args, **kwargs))
            self.acked = self.acked or ends
            return
        if not client.guard.take(False):
            raise ClientInUse
        try:
            client.reopen(None)
            client.connection.answer(self.reply, body(self, *args, **kwargs))
            client.send_waiting()
        finally:
            client.guard.give()
        if ends:
            self.acked = True

    return tell


class Blocking(Blocks):
    """Base of the shell's classes: the calls that they inherit wait."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """Make the methods."""
        super().__init_subclass__()
        realise(cls, _called, iterate, _told, "Iterator")


class Entered(Blocking):
    """Base of objects for ``with``, which run the steps of ``_leaving`` at the end."""

    __slots__ = ()
    client: BlockingClient
    _leaving: Callable[[type[BaseException] | None], Steps[None]]

    def __enter__(self) -> Self:
        """The object itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """The end of the block."""
        run(self.client, self._leaving(kind))
