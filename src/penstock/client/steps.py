"""What the client does, as steps: no transport, no waiting, no clock.

A call is a generator that yields steps, is sent what each of them gave, and returns the result. A
shell carries the steps out: that of asyncio awaits, that of blocking code waits::

    call = session.requesting("help", b"")                    shell:  step = next(call)
    Ready(5.0)                                                        <make sure of a connection>
    Until(question, question.is_over, 5.0)                            <read until that holds>
    StopIteration(value=message)                                      the result

What a step raises is thrown into the generator. A flow is such a generator that also yields what
its user iterates over: whatever is no ``Step`` is the user's. Who leaves a flow early throws
``Left`` into it, after which it may still yield steps, to clean up.

A call that is added is one generator in a class without I/O, with a line that names it for the
users: ``fetch = call(fetching)``. The classes of both shells inherit it, and each makes a method of it
that carries the steps out its own way.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
)

if TYPE_CHECKING:
    from penstock.errors import PenstockError, PermissionsViolation

    from .connection import Interest
    from .message import BaseMessage
    from .options import Server

T = TypeVar("T")
S = TypeVar("S")
P = ParamSpec("P")


class Step:
    """Something that a shell does for a call."""

    __slots__ = ()


class Ready(Step):
    """Have a connection, if it takes no longer than so many seconds. A shell that makes lost
    connections anew by itself does nothing.
    """

    __slots__ = ("seconds",)

    def __init__(self, seconds: float | None = None) -> None:
        """None: as long as the options allow."""
        self.seconds = seconds


class Until(Step):
    """Send what is queued and read until ``done()`` holds: True, or False when the seconds are over.
    Whatever may make it hold stirs the ``box``.
    """

    __slots__ = ("box", "done", "seconds")

    def __init__(self, box: Mailbox, done: Callable[[], bool], seconds: float) -> None:
        """``seconds`` may be infinite."""
        self.box = box
        self.done = done
        self.seconds = seconds


class Send(Step):
    """Send what is queued; waits while the other side takes no more."""

    __slots__ = ()


SEND = Send()


class Attach(Step):
    """Subscribe to a subject for an owner; sets its ``interest``."""

    __slots__ = ("owner", "queue", "subject")

    def __init__(self, subject: str, owner: Owner, queue: str = "") -> None:
        """``queue``: the group that shares the messages, "" for none."""
        self.subject = subject
        self.owner = owner
        self.queue = queue


class Request(Step):
    """Publish ``body`` to ``subject``; gives the bytes of the one answer."""

    __slots__ = ("body", "headers", "seconds", "subject")

    def __init__(
        self, subject: str, body: bytes = b"", seconds: float | None = None, headers: bytes = b""
    ) -> None:
        """``seconds``: how long the answer is waited for; None for the time of the options."""
        self.subject = subject
        self.body = body
        self.seconds = seconds
        self.headers = headers


class Sleep(Step):
    """Let time pass, while there is no connection."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        """Nothing is read meanwhile."""
        self.seconds = seconds


class Dial(Step):
    """Connect to a server, with the handshake; PenstockError, OSError or ValueError, and nothing is
    left of it, when that fails.
    """

    __slots__ = ("server",)

    def __init__(self, server: Server) -> None:
        """This one and no other."""
        self.server = server


Steps: TypeAlias = Generator[Step, Any, T]
"""A call that returns a T."""
Flow: TypeAlias = Generator[Step | T, Any, None]
"""A call that gives Ts, one after the other."""


class Left(BaseException):
    """Thrown into a flow whose user wants no more of it."""


class Owner(Protocol):
    """What a subscription belongs to."""

    interest: Interest

    def receive(self, message: BaseMessage) -> None:
        """A message came."""

    def end(self) -> None:
        """No message follows."""


class Mailbox:
    """Something that is waited for: who changes it stirs it, and whoever waits looks again."""

    waiting: tuple[Any, ...] = ()
    """Whoever waits for it in a shell that has to be told: their ``wake`` is called once."""

    def stir(self) -> None:
        """Something has changed."""
        waiting, self.waiting = self.waiting, ()
        for each in waiting:
            each.wake()

    def lost(self, error: PenstockError) -> None:
        """The connection broke, or the client was closed."""

    def refused(self, complaint: PermissionsViolation) -> None:
        """The server does not permit something, which may have to do with this."""


# -- how a call becomes a method of each shell -----------------------------------------------------


class Awaits:
    """What belongs to the shell of asyncio: its calls are awaited."""

    __slots__ = ()


class Blocks:
    """What belongs to the shell of blocking code: its calls wait."""

    __slots__ = ()


class Call(Generic[P, T]):
    """A call of both shells, as it stands in a class without I/O: these steps. What a class of a
    shell inherits becomes a method there, see ``realise``.
    """

    def __init__(self, steps: Callable[..., Any], like: Callable[..., Any]) -> None:
        """``like``: whose signature and docstring the methods have."""
        self.steps = steps
        self.like = like

    @overload
    def __get__(self, shell: None, kind: type) -> Call[P, T]: ...
    @overload
    def __get__(self, shell: Awaits, kind: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, shell: Blocks, kind: type) -> Callable[P, T]: ...
    def __get__(self, shell: Any, kind: type) -> Any:
        """Itself: where it is called there is a method in its place."""
        return self


class FlowCall(Generic[P, T]):
    """A flow of both shells: something to iterate over."""

    def __init__(self, steps: Callable[..., Flow[Any]]) -> None:
        """These steps."""
        self.steps = self.like = steps

    @overload
    def __get__(self, shell: None, kind: type) -> FlowCall[P, T]: ...
    @overload
    def __get__(self, shell: Awaits, kind: type) -> Callable[P, AsyncGenerator[T, None]]: ...
    @overload
    def __get__(self, shell: Blocks, kind: type) -> Callable[P, Iterator[T]]: ...
    def __get__(self, shell: Any, kind: type) -> Any:
        """Itself: where it is called there is a method in its place."""
        return self


class Verb(Call[P, None]):
    """A call of a message that only tells the server something: the bytes that ``steps`` gives.
    ``ends``: the server hears no other verb about the message.
    """

    def __init__(self, steps: Callable[..., bytes], *, ends: bool = True) -> None:
        """These bytes."""
        super().__init__(steps, steps)
        self.ends = ends


def call(steps: Callable[Concatenate[Any, P], Steps[T]]) -> Call[P, T]:
    """A call that carries out these steps of its object, which has a ``client``."""
    return Call(steps, steps)


def planned(plan: Callable[Concatenate[Any, P], Steps[T]]) -> Call[P, T]:
    """A call that carries out one of the ``plans`` of its object."""

    def begin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Steps[T]:
        return plan(self.plans, *args, **kwargs)

    return Call(begin, plan)


def flow(steps: Callable[Concatenate[Any, P], Flow[T]]) -> FlowCall[P, T]:
    """A flow of its object, which has a ``client``."""
    return FlowCall(steps)


def verb(body: Callable[Concatenate[Any, P], bytes], *, ends: bool = True) -> Verb[P]:
    """A verb of a message that tells the server this."""
    return Verb(body, ends=ends)


def realise(
    shell: type,
    carry_out: Callable[[Callable[..., Steps[Any]]], Callable[..., Any]],
    iterate: Callable[[Any, Flow[Any]], Any],
    tell: Callable[[Callable[..., bytes], bool], Callable[..., Any]],
    iterator: str,
) -> None:
    """Make methods of the calls that a class of a shell has or inherits: ``carry_out`` makes that of a
    call, ``tell`` that of a verb; ``iterate`` gives the ``iterator`` of a client's flow.
    """
    found: dict[str, object] = {}
    for base in reversed(shell.__mro__):
        found.update(vars(base))
    for name, each in found.items():
        form = "{}"
        if isinstance(each, FlowCall):
            method, form = _iterating(each.steps, iterate), f"{iterator}[{{}}]"
        elif isinstance(each, Verb):
            method = tell(each.steps, each.ends)
        elif isinstance(each, Call):
            method = carry_out(each.steps)
        else:
            continue
        method.__name__ = name
        method.__qualname__ = f"{shell.__qualname__}.{name}"
        method.__module__ = shell.__module__
        method.__doc__ = each.like.__doc__
        vars(method)["__signature__"] = _signature(each.like, form)
        setattr(shell, name, method)


def _iterating(
    begin: Callable[..., Flow[Any]], iterate: Callable[[Any, Flow[Any]], Any]
) -> Callable[..., Any]:
    def each(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return iterate(self.client, begin(self, *args, **kwargs))

    return each


_RETURNS = re.compile(r"(?:Steps|Plan|Flow)\[(.*)\]")


def _signature(like: Callable[..., Any], form: str) -> inspect.Signature:
    signature = inspect.signature(like)
    found = _RETURNS.fullmatch(str(signature.return_annotation))
    returns = form.format(found[1]) if found is not None else "None"
    return signature.replace(return_annotation=returns)


def made(kind: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method that calls a class, or a function, with its object; its docstring is that of the
    constructor.
    """

    def make(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return kind(self, *args, **kwargs)

    gives = kind if isinstance(kind, type) else None
    like: Any = kind if gives is None else getattr(kind, "__init__")  # noqa: B009  # mypy forbids .
    signature = inspect.signature(like)
    me, *others = signature.parameters.values()
    if gives is not None:
        others = others[1:]
        signature = signature.replace(return_annotation=gives)
    make.__doc__ = like.__doc__
    vars(make)["__signature__"] = signature.replace(parameters=[me.replace(name="self"), *others])
    return make
