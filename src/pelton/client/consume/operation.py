"""One operation that consumes without end: its options, its handlers, and how it ends.

The shells add the iteration and the running of handlers. Does not depend on a transport.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from pelton.errors import CallbackFailedError, PeltonError

from ..base.durations import Duration, to_seconds
from ..base.message import BaseMessage, nak_body
from ..base.steps import call, flow
from .requests import Sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.steps import Flow, Steps
    from ..session.session import Session
    from .events import ConsumerEvent
    from .intake import Intake, OnMissing

M = TypeVar("M", bound=BaseMessage)


class Source(Protocol[M]):
    """A consumer: a pull consumer or an ordered one."""

    @property
    def client(self) -> Session[M]:
        """The client that consumes."""

    def _intake(self, sizes: Sizes, on_missing: OnMissing, priority: dict[str, Any]) -> Intake:
        """The messages of a new operation."""


class Operation(ABC, Generic[M]):
    """Messages of a consumer without end."""

    def __init__(
        self,
        intake: Intake,
        callback: Callable[[M], object] | None,
        *,
        concurrency: int | None,
        auto_ack: bool,
        auto_extend: bool | None,
        nak_delay: Duration | None,
        on_event: Callable[[ConsumerEvent], object] | None,
    ) -> None:
        """Begins at once; ``check`` has passed."""
        self.client = intake.client
        """The client that it belongs to."""
        self._intake = intake
        self._queue = intake.queue
        self._callback = callback
        self._concurrency = concurrency
        self._auto_ack = auto_ack
        self._auto_extend = auto_extend
        self._nak = nak_body(nak_delay)
        self._last: BaseMessage | None = None
        if on_event is not None:
            intake.events.callback = functools.partial(self.client._tell, on_event)
        try:
            self._begin()
        except BaseException:
            if intake.freed is not None:
                intake.freed()
            raise

    def _check(
        self,
        callback: Callable[[M], object] | None,
        concurrency: int | None,
        auto_ack: bool,
        auto_extend: bool | None,
        nak_delay: Duration | None,
    ) -> None:
        """Raise ValueError or TypeError for options that contradict each other, or the shell."""
        if callback is None and (concurrency is not None or auto_ack):
            raise ValueError("concurrency and auto_ack need a callback")
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"at least one handler runs at a time, got {concurrency}")
        nak_body(nak_delay)
        if callback is not None:
            self._check_callback(callback, concurrency or 1, bool(auto_extend))

    # -- implemented by the shells -----------------------------------------------------------------

    @abstractmethod
    def _check_callback(
        self, callback: Callable[[M], object], concurrency: int, auto_extend: bool
    ) -> None:
        """Raise ValueError or TypeError for a callback that the shell cannot run so."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin the intake, and what handles messages."""

    @abstractmethod
    def _inside(self) -> bool:
        """Whether a handler of this operation makes the call."""

    # -- state -------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """The number of buffered messages."""
        return len(self._queue)

    @property
    def ended(self) -> bool:
        """Whether no message follows."""
        return self._intake.over and not self._queue

    def _iterating(self) -> Self:
        """The operation itself, to iterate over; RuntimeError when it has a callback."""
        if self._callback is not None:
            raise RuntimeError(
                "the callback of this operation takes its messages: call run() or wait, "
                "or iterate over an operation without a callback"
            )
        return self

    def _check_runs(self) -> None:
        """Raise RuntimeError when there is no callback to run."""
        if self._callback is None:
            raise RuntimeError("run needs a callback; without one, iterate over the operation")

    def _is_done(self) -> bool:
        intake = self._intake
        handled = self._callback is None or not (intake.handling or intake.queue)
        return intake.finished and handled

    # -- the end -----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Request nothing more and end: buffered messages go back to the consumer at once.

        An iteration ends, and no handler begins; running handlers finish. May be called in a handler.
        """
        self._intake.stop()

    def _draining(self, timeout: Duration | None = None) -> Steps[None]:
        """Request nothing more, and wait until buffered messages are handled; PeltonTimeoutError.

        Without a callback it returns when the last messages have arrived; the iteration yields them and
        ends. In a handler it returns at once. ``timeout``: None for no limit.
        """
        intake = self._intake
        intake.drain()
        if self._inside():
            return
        seconds = math.inf if timeout is None else to_seconds(timeout)
        yield from self._finishing(self._is_done, seconds)

    drain = call(_draining)

    def _finishing(self, done: Callable[[], bool], seconds: float) -> Steps[None]:
        yield from self._intake.awaiting(self._intake.events, done, seconds)

    def _leaving(self, kind: type[BaseException] | None) -> Steps[None]:
        """Stop at the end of the block; running handlers finish, unless an exception left the block."""
        intake = self._intake
        intake.stop()
        intake_only = kind is not None or self._inside()
        done = intake.is_finished if intake_only else self._is_done
        yield from self._finishing(done, math.inf)

    # -- events ------------------------------------------------------------------------------------

    def _watching(self) -> Flow[ConsumerEvent]:
        """What happens to the operation, as ConsumerEvents, until it has ended.

        Begins with events that nobody has read yet, at most the last 1000. For one reader.
        """
        intake = self._intake
        while True:
            while intake.events.unread:
                yield intake.events.unread.popleft()
            if intake.finished:
                return
            yield from intake.awaiting(intake.events, intake.events._has_news, math.inf)

    events = flow(_watching)

    # -- handlers ----------------------------------------------------------------------------------

    def _handled(self, message: BaseMessage) -> None:
        if self._auto_ack:
            self._intake.acks.acknowledge(message)

    def _failed(self, message: BaseMessage, cause: Exception) -> None:
        """A handler raised: the message is delivered again, and the user is told."""
        intake = self._intake
        error = CallbackFailedError(
            f"the callback of consumer {intake.info.name!r} failed on {message!r}: "
            f"{type(cause).__name__}: {cause}",
            message.subject,
            message,
        )
        error.__cause__ = cause
        intake.acks.acknowledge(message, self._nak)
        self.client._report(error)
        intake.events.emit("handler_failed", str(error), error=cause)

    def _outcome(self) -> None:
        """Raise the error that ended the operation."""
        error: PeltonError | None = self._intake.error
        if error is not None:
            raise error


class PullOperation(Operation[M]):
    """Messages of a pull consumer or an ordered consumer."""

    def __init__(
        self,
        consumer: Source[M],
        callback: Callable[[M], object] | None = None,
        *,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        threshold: int | None = None,
        expires: Duration = 30.0,
        heartbeat: Duration = 5.0,
        on_missing: OnMissing = "wait",
        concurrency: int | None = None,
        auto_ack: bool = False,
        auto_extend: bool | None = None,
        nak_delay: Duration | None = None,
        on_event: Callable[[ConsumerEvent], object] | None = None,
        group: str = "",
        min_pending: int = 0,
        min_ack_pending: int = 0,
        priority: int = 0,
    ) -> None:
        """Messages without end: iterate over them, or give a callback.

        max_messages: how many messages are requested and not handled at most (500), or
        max_bytes: how many bytes. More are requested when
        threshold: at most so much is left; half of it by default.
        expires, heartbeat: how long a request waits, and how often the server says that it is alive;
            when it misses two heartbeats, the consumer is looked up and a new request is sent.
        on_missing: when the consumer or its stream is deleted: "wait" until it is there again, "raise"
            ConsumerDeletedError, ConsumerNotFoundError or StreamNotFoundError, or "recreate" the consumer from its
            last known configuration.
        concurrency: how many handlers run at a time (1).
        auto_ack: acknowledge a message when its handler returns.
        auto_extend: extend the ack wait of buffered messages and of those that are being handled: by the
            callback, or by the loop until it asks for the next one.
        nak_delay: when a handler raises, its message is delivered again after this time.
        on_event: called with each ConsumerEvent.
        group, min_pending, min_ack_pending, priority: of a consumer with priority groups.

        Goes on after reconnects, restarts of the server and changes of the leader. Raises ValueError
        for options that contradict each other or the consumer. An iteration raises PullError when the
        server refuses the requests, PermissionsViolationError, and ConnectionClosedError when the client is lost.
        """
        self._check(callback, concurrency, auto_ack, auto_extend, nak_delay)
        sizes = Sizes(
            max_messages=max_messages,
            max_bytes=max_bytes,
            threshold=threshold,
            expires=expires,
            heartbeat=heartbeat,
        )
        priorities = {
            "group": group,
            "min_pending": min_pending,
            "min_ack_pending": min_ack_pending,
            "priority": priority,
        }
        super().__init__(
            consumer._intake(sizes, on_missing, priorities),
            callback,
            concurrency=concurrency,
            auto_ack=auto_ack,
            auto_extend=auto_extend,
            nak_delay=nak_delay,
            on_event=on_event,
        )
