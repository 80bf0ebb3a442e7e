"""The client's calls as steps, without transport, waiting or clock.

A call is a generator that yields steps, is sent the result of each step, and returns its own result. A
shell carries out the steps: the asyncio shell awaits, the blocking shell waits::

    call = session.requesting("help", b"")                    shell:  step = next(call)
    Ready(5.0)                                                        <make sure of a connection>
    Until(question, question.is_over, 5.0)                            <read until that holds>
    StopIteration(value=message)                                      the result

An error of a step is thrown into the generator. A flow is such a generator that also yields the items
for its user: everything that is no ``Step``. To leave a flow early, the shell throws ``Left`` into it;
the flow may then still yield steps to clean up.

To add a call, write one generator in a class without I/O, and a line with its name for users:
``fetch = call(fetching)``. The classes of both shells inherit it, and each makes a method of it that
carries out the steps in its own way.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator
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

from .arguments import check_of

if TYPE_CHECKING:
    from pelton.errors import PeltonError, PermissionsViolationError

    from .addresses import Server
    from .interest import Interest
    from .message import BaseMessage

T = TypeVar("T")
S = TypeVar("S")
P = ParamSpec("P")


class Step:
    """An action that a shell carries out for a call."""

    __slots__ = ()


class Ready(Step):
    """Make sure of a connection, within ``seconds``.

    A shell that replaces lost connections in the background does nothing.
    """

    __slots__ = ("seconds",)

    def __init__(self, seconds: float | None = None) -> None:
        """None: as long as the options allow."""
        self.seconds = seconds


class Until(Step):
    """Send queued output and read until ``done()`` holds: True, or False when the time is over.

    Every change that may make ``done()`` hold stirs the ``box``, or ``other``.
    """

    __slots__ = ("box", "done", "other", "seconds")

    def __init__(
        self,
        box: Mailbox,
        done: Callable[[], bool],
        seconds: float,
        other: Mailbox | None = None,
    ) -> None:
        """``seconds`` may be infinite. The asyncio shell needs no ``other`` box."""
        self.box = box
        self.done = done
        self.seconds = seconds
        self.other = other


class Send(Step):
    """Send queued output; waits while the transport takes no more."""

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
    """Publish ``body`` to ``subject``; the result is the bytes of the one answer."""

    __slots__ = ("body", "headers", "reads", "seconds", "subject")

    def __init__(
        self,
        subject: str,
        body: bytes = b"",
        seconds: float | None = None,
        headers: bytes = b"",
        *,
        reads: bool = False,
    ) -> None:
        """``seconds``: how long to wait for the answer; None for the time of the options.

        ``reads``: it changes nothing, so it may be sent again.
        """
        self.reads = reads
        self.subject = subject
        self.body = body
        self.seconds = seconds
        self.headers = headers


class Sent:
    """How often a request was sent that may be sent again."""

    __slots__ = ("times",)

    def __init__(self) -> None:
        """Not yet."""
        self.times = 0


class Sleep(Step):
    """Wait while there is no connection."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        """The shell reads nothing meanwhile."""
        self.seconds = seconds


class Dial(Step):
    """Connect to a server, with the handshake.

    A failure raises PeltonError, OSError or ValueError, and leaves no connection.
    """

    __slots__ = ("server",)

    def __init__(self, server: Server) -> None:
        """``server`` is the only one to try."""
        self.server = server


class Work(Step):
    """Call a function that may block, such as a read from a file; its result is that of the step.

    The asyncio shell calls it in another thread.
    """

    __slots__ = ("finishes", "function")

    def __init__(self, function: Callable[[], Any], *, finishes: bool = True) -> None:
        """``function`` must not use the client.

        ``finishes``: it ends soon, so a cancelled task first waits for its end. False for a function that
        may block for ever, such as a read from a pipe.
        """
        self.function = function
        self.finishes = finishes


class Await(Step):
    """Wait for an awaitable of the user; its result is that of the step.

    TypeError in the blocking shell, which cannot.
    """

    __slots__ = ("awaitable",)

    def __init__(self, awaitable: Awaitable[Any]) -> None:
        """``awaitable`` is awaited once."""
        self.awaitable = awaitable


RETRY_S = 0.25
"""How long to wait before what found no leader is tried again, in seconds."""


def pausing(seconds: float = RETRY_S) -> Steps[None]:
    """Let time pass, before the next attempt."""
    yield Until(Mailbox(), lambda: False, seconds)


Steps: TypeAlias = Generator[Step, Any, T]
"""A call that returns a T."""
Flow: TypeAlias = Generator[Step | T, Any, None]
"""A call that yields Ts, one after the other."""


class Left(BaseException):
    """Thrown into a flow when its user leaves it."""


class Ended(Exception):  # no error: the iteration is over
    """Raised by the steps of an iteration's next item: no item follows."""


class Owner(Protocol):
    """The owner of a subscription."""

    _interest: Interest

    def _on_message(self, message: BaseMessage) -> None:
        """A message arrived."""

    def _on_end(self) -> None:
        """No message follows."""


class Mailbox:
    """An object that calls wait for: a change stirs it, and the waiting calls check again."""

    _waiting: tuple[Any, ...] = ()
    """The waiting calls, in a shell that has to wake them: each ``wake`` is called once."""

    def _stir(self) -> None:
        """Wake the waiting calls, because the object has changed."""
        waiting, self._waiting = self._waiting, ()
        for each in waiting:
            each.wake()

    def _on_lost(self, error: PeltonError) -> None:
        """The connection broke, or the client was closed."""

    def _on_refused(self, complaint: PermissionsViolationError) -> None:
        """The server does not permit an operation, which may concern this object."""


# -- calls as methods of the shells ---------------------------------------------------------------


class Offered:
    """Base of the shells' classes: what a prompt offers to complete are calls, not the steps behind them."""

    __slots__ = ()

    def __dir__(self) -> list[str]:
        """The names of the object without those of steps."""
        kind = type(self)
        return [name for name in super().__dir__() if not _is_steps(getattr(kind, name, None))]


def _is_steps(member: object) -> bool:
    returns = str(getattr(member, "__annotations__", {}).get("return", ""))
    return _RETURNS.fullmatch(returns) is not None


class Awaits(Offered):
    """Base of the asyncio shell's classes: their calls are awaited."""

    __slots__ = ()


class Blocks(Offered):
    """Base of the blocking shell's classes: their calls wait."""

    __slots__ = ()


class Call(Generic[P, T]):
    """A call of both shells in a class without I/O.

    ``realise`` makes a method of it in each class of a shell that inherits it.
    """

    def __init__(self, steps: Callable[..., Any], like: Callable[..., Any]) -> None:
        """The methods have the signature and docstring of ``like``."""
        self.steps = steps
        self.like = like

    @overload
    def __get__(self, shell: None, kind: type) -> Call[P, T]: ...
    @overload
    def __get__(self, shell: Awaits, kind: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, shell: Blocks, kind: type) -> Callable[P, T]: ...
    def __get__(self, shell: Any, kind: type) -> Any:
        """Return the call itself; shells have a method in its place."""
        return self


class FlowCall(Generic[P, T]):
    """A flow of both shells, which the user iterates over."""

    def __init__(
        self, steps: Callable[..., Flow[Any]], like: Callable[..., Flow[Any]] | None = None
    ) -> None:
        """``steps`` makes the generator; the methods have the signature and docstring of ``like``."""
        self.steps = steps
        self.like = like or steps

    @overload
    def __get__(self, shell: None, kind: type) -> FlowCall[P, T]: ...
    @overload
    def __get__(self, shell: Awaits, kind: type) -> Callable[P, AsyncGenerator[T, None]]: ...
    @overload
    def __get__(self, shell: Blocks, kind: type) -> Callable[P, Iterator[T]]: ...
    def __get__(self, shell: Any, kind: type) -> Any:
        """Return the flow itself; shells have a method in its place."""
        return self


class Verb(Call[P, None]):
    """A call of a message that only sends the server the bytes that ``steps`` returns.

    ``ends`` says that no other ack of the message may follow.
    """

    def __init__(self, steps: Callable[..., bytes], *, ends: bool = True) -> None:
        """``steps`` returns the bytes."""
        super().__init__(steps, steps)
        self.ends = ends


def call(steps: Callable[Concatenate[Any, P], Steps[T]]) -> Call[P, T]:
    """A call that carries out these steps of an object with a ``client``."""
    return Call(steps, steps)


def planned(plan: Callable[Concatenate[Any, P], Steps[T]]) -> Call[P, T]:
    """A call that carries out one of the ``plans`` of its object."""

    def begin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Steps[T]:
        return plan(self._plans, *args, **kwargs)

    return Call(begin, plan)


def flow(steps: Callable[Concatenate[Any, P], Flow[T]]) -> FlowCall[P, T]:
    """A flow of an object with a ``client``."""
    return FlowCall(steps)


def planned_flow(plan: Callable[Concatenate[Any, P], Flow[T]]) -> FlowCall[P, T]:
    """A flow that is one of the ``plans`` of its object."""

    def begin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Flow[T]:
        return plan(self._plans, *args, **kwargs)

    return FlowCall(begin, plan)


def verb(body: Callable[Concatenate[Any, P], bytes], *, ends: bool = True) -> Verb[P]:
    """An ack of a message with the payload that ``body`` returns."""
    return Verb(body, ends=ends)


def realise(
    shell: type,
    carry_out: Callable[[Callable[..., Steps[Any]]], Callable[..., Any]],
    iterate: Callable[[Any, Flow[Any]], Any],
    tell: Callable[[Callable[..., bytes], bool], Callable[..., Any]],
    iterator: str,
) -> None:
    """Make methods of the calls that a class of a shell has or inherits.

    ``carry_out`` makes the method of a call, ``tell`` that of a verb; ``iterate`` makes the ``iterator``
    of a client's flow.
    """
    found: dict[str, object] = {}
    for base in reversed(shell.__mro__):
        found.update(vars(base))
    for name, each in found.items():
        form = "{}"
        place = f"{shell.__qualname__}.{name}"
        if isinstance(each, FlowCall):
            begin = _checked(each.steps, each.like, place)
            method, form = _iterating(begin, iterate), f"{iterator}[{{}}]"
        elif isinstance(each, Verb):
            method = tell(_checked(each.steps, each.like, place), each.ends)
        elif isinstance(each, Call):
            method = carry_out(_checked(each.steps, each.like, place))
        else:
            continue
        method.__name__ = name
        method.__qualname__ = place
        method.__module__ = shell.__module__
        method.__doc__ = each.like.__doc__
        vars(method)["__signature__"] = _signature(each.like, form)
        setattr(shell, name, method)


def _checked(steps: Callable[..., T], like: Callable[..., Any], place: str) -> Callable[..., T]:
    """The steps of a call, which check the kinds of its arguments before they begin."""
    check = check_of(like)
    if check is None:
        return steps
    inner = f"{like.__qualname__}()"

    def begin(self: Any, /, *args: Any, **kwargs: Any) -> T:
        check(place, args, kwargs)
        try:
            return steps(self, *args, **kwargs)
        except TypeError as error:  # too many arguments, or too few: the user knows the call's name
            text = str(error)
            if not text.startswith(inner):
                raise
            raise TypeError(f"{place}(){text.removeprefix(inner)}") from None

    return begin


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
    """A method that calls a class, or a function, with its object.

    Its docstring is that of the constructor.
    """

    gives = kind if isinstance(kind, type) else None
    like: Any = kind if gives is None else getattr(kind, "__init__")  # noqa: B009  # mypy forbids .
    check = check_of(like if gives is None else functools.partial(like, None))
    named = kind.__qualname__

    def make(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if check is not None:
            check(named, args, kwargs)
        return kind(self, *args, **kwargs)

    signature = inspect.signature(like)
    me, *others = signature.parameters.values()
    if gives is not None:
        others = others[1:]
        signature = signature.replace(return_annotation=gives)
    make.__doc__ = like.__doc__
    vars(make)["__signature__"] = signature.replace(parameters=[me.replace(name="self"), *others])
    return make
