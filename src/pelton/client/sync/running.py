"""Carry out steps in blocking code, and make the methods that do so.

A call has the client's guard whenever it works, and gives it away when it waits. Several threads may
call at a time: see ``connection.py``.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

from ..base.forgotten import BlockingItems, BlockingOnly
from ..base.steps import (
    Attach,
    Await,
    Blocks,
    Dial,
    Ended,
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

    from ..base.steps import Flow, Steps
    from .connection import Client

    F = TypeVar("F", bound=Callable[..., Any])

T = TypeVar("T")


def exclusive(method: F) -> F:
    """A method of an object with a ``client``, whose guard is held while it runs."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        guard = self.client._guard
        guard.take()
        try:
            return method(self, *args, **kwargs)
        finally:
            guard.give()

    return cast("F", guarded)


def run(client: Client, steps: Steps[T]) -> T:
    """Carry out the steps of a call, and return its result."""
    answer: Any = None
    client._guard.take()
    try:
        step = steps.send(None)
        while True:
            try:
                if isinstance(step, Until):
                    answer = client._wait(step.done, step.seconds, step.box, step.other)
                elif isinstance(step, Ready):
                    client._reopen(step.seconds)
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
        client._guard.give()


def iterate(client: Client, flow: Flow[T]) -> Generator[T, None, None]:
    """Carry out the steps of a flow, and yield its items."""
    go_on: Callable[[Any], Any] = flow.send
    answer: Any = None
    try:
        while True:
            with client._guard:
                item = go_on(answer)
                while isinstance(item, Step):
                    try:
                        answer = perform(client, item)
                    except BaseException as error:
                        item = flow.throw(error)
                    else:
                        item = flow.send(answer)
            go_on, answer = flow.send, None
            try:
                yield item
            except GeneratorExit:
                go_on, answer = flow.throw, Left()
            except BaseException as error:
                go_on, answer = flow.throw, error
    except (StopIteration, Left):
        return


def perform(client: Client, step: Step) -> Any:
    """Carry out one step, and return its result."""
    if isinstance(step, Until):
        return client._wait(step.done, step.seconds, step.box, step.other)
    if isinstance(step, Ready):
        client._reopen(step.seconds)
    elif isinstance(step, Request):
        return run(client, client._asking(step))
    elif isinstance(step, Send):
        client._flush_output()
    elif isinstance(step, Attach):
        client._attach(step.subject, step.owner, step.queue)
    elif isinstance(step, Sleep):
        client._pause(step.seconds)
    elif isinstance(step, Dial):
        client._dial(step.server)
    elif isinstance(step, Work):
        return client._guard.without(step.function)
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

    When the connection breaks meanwhile, the server delivers the message again, as without an ack.
    """

    def tell(self: Any, /, *args: Any, **kwargs: Any) -> None:
        client = self._interest.owner.client
        guard = client._guard
        guard.take()
        try:
            self._check_acknowledgeable()
            client._send_ack(self.reply, body(self, *args, **kwargs))
            if ends:
                self.acked = True
        finally:
            guard.give()

    return tell


class Blocking(Blocks):
    """Base of the shell's classes: the calls that they inherit wait."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """Make the methods."""
        super().__init_subclass__()
        realise(cls, _called, iterate, _told, "Iterator")


class Iterated(Blocking, BlockingItems, Generic[T]):
    """Base of objects for ``for``: the steps of ``_following`` return an item, or raise Ended."""

    client: Client
    """The client that it belongs to."""
    _following: Callable[..., Steps[T]]

    def __iter__(self) -> Self:
        """The object itself."""
        return self

    def __next__(self) -> T:
        """The next item; waits for it."""
        try:
            return run(self.client, self._following())
        except Ended:
            raise StopIteration from None


class Entered(Blocking, BlockingOnly):
    """Base of objects for ``with``, which run the steps of ``_leaving`` at the end."""

    __slots__ = ()
    client: Client
    """The client that it belongs to."""
    _leaving: Callable[[type[BaseException] | None], Steps[None]]

    def __enter__(self) -> Self:
        """The object itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """The end of the block."""
        run(self.client, self._leaving(kind))


class Watched(Iterated[T], Entered, Generic[T]):
    """Base of watches, which begin when they are made: every change from then on is delivered."""

    _beginning: Callable[[], Steps[None]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Made by ``watch``."""
        super().__init__(*args, **kwargs)
        run(self.client, self._beginning())
