"""The buffered messages of one operation that consumes, and what keeps them coming.

::

    server ── messages ──► receive ──► queue ──► takers: an iteration, or handlers
                 ▲                                  │
                 └───── pull, when ``held <= low`` ◄─┘

``held`` counts what is requested or buffered and not taken yet, ``expected`` what the server still owes
to requests. A loop of steps, ``turn``, does everything that is not done for each message: it asks again
after a loss, looks up a consumer that does not answer, watches heartbeats, extends the ack wait of
messages, and ends the subscription. In asyncio a task runs it; in blocking code the waiting call does.

Does not depend on a transport; the client's clock is the only time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec.structs import replace

from pelton.errors import (
    ApiError,
    ConnectionClosedError,
    ConnectionLostError,
    ConsumerDeletedError,
    ConsumerNotFoundError,
    NotEnabledError,
    OutputFullError,
    PeltonError,
    PeltonTimeoutError,
    PermissionsViolationError,
    PullError,
    StreamNotFoundError,
)

from ..base.message import IN_PROGRESS
from ..base.steps import RETRY_S, Mailbox, Until
from .acking import Acks
from .events import EventFeed
from .extending import AckExtension
from .heartbeats import Heartbeats, looking
from .requests import size_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.interest import Interest
    from ..base.message import BaseMessage
    from ..base.models import ConsumerInfo
    from ..base.steps import Steps
    from ..jetstream.streams import Streams
    from ..session.session import Session

OnMissing: TypeAlias = Literal["wait", "raise", "recreate"]
"""What to do when the consumer or its stream is deleted."""

NO_SUBJECT = " "
"""No subject begins with it."""
MISSED_MAX = 2
"""Missed heartbeats after which the consumer is looked up."""
RETRY_MAX_S = 2.0
"""The longest time between two attempts to find a consumer."""


def raise_lasting(error: PeltonError) -> None:
    """Raise an error that does not pass; return for one that the next attempt may not have."""
    if isinstance(error, NotEnabledError) or (isinstance(error, ApiError) and error.code < 500):
        raise error
    if isinstance(error, ConnectionClosedError) and not isinstance(error, ConnectionLostError):
        raise error


class Intake(Mailbox, ABC):
    """The messages of an operation, in the order in which they are taken.

    Subclasses say how messages are requested and how a missing consumer is found.
    """

    def __init__(self, js: Streams[Any], info: ConsumerInfo, on_missing: OnMissing) -> None:
        """Subscribed with ``begin``."""
        if on_missing not in ("wait", "raise", "recreate"):
            raise ValueError(f"on_missing is 'wait', 'raise' or 'recreate', got {on_missing!r}")
        self.client: Session[Any] = js.client
        self._plans = js._plans
        self.info = info
        self.stream = info.stream_name
        self.queue: deque[Any] = deque()
        self.takers = Mailbox()
        """Waits for messages, and for the end."""
        self.kept = False
        """Whether a task of the shell runs ``turn``, so that waiting calls need not."""
        self.over = False
        """Whether no message follows those in the queue."""
        self.finished = False
        """Whether the subscription is ended, too."""
        self.error: PeltonError | None = None
        """Why the operation ended by itself."""
        self._interest: Interest
        self.acks = Acks(self.client)
        self.events = EventFeed()
        self.heartbeats = Heartbeats()
        self.extension = AckExtension()
        self.inline: Callable[[Any], None] | None = None
        """Handles each message as it arrives; then there is no queue."""
        self.hire: Callable[[], None] | None = None
        """Called when a message comes and no handler waits for it."""
        self.freed: Callable[[], None] | None = None
        """Called when the operation has ended."""
        self.handling: dict[int, BaseMessage] = {}
        """The messages of running handlers, by handler."""
        self.held = 0
        """What is requested or buffered and not handled yet: messages, or bytes."""
        self.low = 0
        """More is requested when at most this much is held."""
        self.by_bytes = False
        self.expected = 0
        """What the server still owes to requests; then its heartbeats are watched.

        ``held`` is the sum of this, of what is buffered, and of what is being handled.
        """
        self.flowing = False
        """Whether requests can be sent right now."""
        self._on_missing = on_missing
        self._lost: PeltonError | None = None
        self._doubt: Exception | None = None
        """Why the consumer must be looked up."""
        self._own = NO_SUBJECT  # how the reply subjects of this client's requests begin
        self._ending = ""  # "", "stop" or "drain"
        self._resume_at = -math.inf
        self._attempts = 0  # to find the consumer
        self._turner: object = None  # the caller that runs ``turn``
        self._turner_waits: Mailbox | None = None
        self._retry_at = -math.inf

    # -- implemented by subclasses -----------------------------------------------------------------

    @abstractmethod
    def inbox(self) -> tuple[str, str]:
        """The subject and queue group to subscribe to."""

    def pull(self) -> bool:
        """Ask for more messages if it is time; whether output waits to be sent."""
        return False

    @abstractmethod
    def restart(self, why: str) -> None:
        """Give up outstanding requests, and ask again."""

    def after_loss(self, why: PeltonError) -> None:
        """The connection broke: go on, at the latest when there is one again."""
        self.restart(str(why))

    @abstractmethod
    def on_status(self, status: int, message: BaseMessage) -> None:
        """A message of the server without content arrived."""

    def is_answer(self, subject: str) -> bool:
        """Whether a subject that begins with ``_own`` belongs to a request."""
        return False

    def fit(self, info: ConsumerInfo) -> None:
        """Take over the consumer's configuration."""
        self.info = info
        self.acks.fit(info.config)

    # -- called by the shell -----------------------------------------------------------------------

    def begin(self) -> None:
        """Subscribe, and ask for the first messages."""
        self.fit(self.info)
        subject, queue = self.inbox()
        self.client._attach(subject, self, queue)
        self.client._watchers.add(self)
        self.heartbeats.restart(self.client._clock())
        self.flowing = True

    def extend_acks(self) -> None:
        """From now on extend the ack wait of messages that are buffered or being handled."""
        if self.info.config is not None and self.acks.wanted:
            self.extension.begin(self.info.config, self.client._clock())

    def extend_when_due(self, now: float) -> float:
        """Extend ack waits if it is time for it; returns when it is again."""
        if self.finished:
            return math.inf
        if now >= self.extension.due:
            for message in self.extension.look(now, (*self.handling.values(), *self.queue)):
                self.acks.send(message, IN_PROGRESS)
        return self.extension.due

    def has_message(self) -> bool:
        """Whether there is a message to take, or none follows."""
        return bool(self.queue) or self.over

    def awaiting(self, box: Mailbox, done: Callable[[], bool], seconds: float) -> Steps[bool]:
        """Wait until ``done()`` holds; False when the time is over."""
        if self.kept:
            return bool((yield Until(box, done, seconds)))
        client = self.client
        deadline = client._clock() + seconds
        while not done():
            left = deadline - client._clock()
            if left <= 0:
                return False
            caller = client._caller()
            if self._turner in (None, caller):
                yield from self._taking_turn(caller, box, done, left)
            else:
                yield Until(box, lambda: done() or self._turner is None, left)
        return True

    def _taking_turn(
        self, caller: object, box: Mailbox, done: Callable[[], bool], seconds: float
    ) -> Steps[None]:
        """A turn of one of several callers; when it ends, another one that waits goes on."""
        outer = self._turner, self._turner_waits
        self._turner, self._turner_waits = caller, box
        try:
            yield from self.turn(done, seconds)
        finally:
            self._turner, self._turner_waits = outer
            self.takers._stir()
            self.events._stir()

    def keeping(self) -> Steps[None]:
        """Keep messages coming until the operation has ended."""
        while not self.finished:
            yield from self.turn(self.is_finished, math.inf)

    def stop(self) -> None:
        """Request nothing more, and give buffered messages back to the consumer."""
        if self._ending == "stop" or self.finished:
            return
        self._ending = "stop"
        self._end_taking()
        self._return_queue()
        self._stir()

    def drain(self) -> None:
        """Request nothing more; buffered messages and those on their way are still taken."""
        if not self._ending:
            self._ending = "drain"
            self.flowing = False
            self._stir()

    @property
    def ending(self) -> bool:
        """Whether the operation was told to end, or has ended."""
        return bool(self._ending) or self.over

    def is_finished(self) -> bool:
        """Whether the subscription is ended, too."""
        return self.finished

    # -- called by the client ----------------------------------------------------------------------

    def _on_message(self, message: BaseMessage) -> None:
        """A message of the consumer, or a status of the server."""
        if message.subject.startswith(self._own) and not self.is_answer(message.subject):
            return  # somebody else published to the inbox
        self.heartbeats.heard = True
        if message.raw_headers and (status := message.status):
            self.on_status(status, message)
        elif self._ending == "stop":
            self.acks.give_back(message)
        else:
            self.expected -= size_of(message) if self.by_bytes else 1
            self.keep(message)

    def keep(self, message: BaseMessage) -> None:
        """Add a message to the queue, or pass it to the callback that takes each as it arrives."""
        if self.inline is not None:
            self.inline(message)
            return
        self.queue.append(message)
        if self.takers._waiting:
            self.takers._stir()
        elif self.hire is not None:
            self.hire()

    def took(self, message: BaseMessage) -> bool:
        """A message was handled: ask for more if it is time; whether output waits to be sent."""
        self.held -= size_of(message) if self.by_bytes else 1
        return self.held <= self.low and self.pull()

    def _on_end(self) -> None:
        """The client is closed."""
        if self._interest.failure and self.error is None:
            self.error = self._interest.lost()
        self._finish()

    def _on_abandoned(self) -> None:
        """The user dropped the operation without ending it: stop, as far as nobody has to wait for it."""
        if self.kept:
            self.stop()
            return
        self._end_taking()
        self.client._release(self._interest)  # or the server delivers here again what is given back
        self._return_queue()
        self._leave()
        self._finish()

    def _on_lost(self, error: PeltonError) -> None:
        """The connection broke."""
        self._lost = error
        self._stir()

    def _on_refused(self, complaint: PermissionsViolationError) -> None:
        """The server does not permit an operation: the end, if it is a request or the inbox."""
        if any(f'"{subject}"' in complaint.text for subject in self.subjects()):
            self._fail(complaint)

    def subjects(self) -> tuple[str, ...]:
        """The subjects without which nothing can be consumed."""
        return (self._interest.subject,)

    # -- keeping messages coming -------------------------------------------------------------------

    def doubt(self, why: Exception) -> None:
        """The consumer may be gone: look it up."""
        self.flowing = False
        self._doubt = why
        self._stir()

    def turn(self, done: Callable[[], bool], seconds: float) -> Steps[None]:
        """Do what is due, and wait until something else is, or until ``done()`` holds."""
        try:
            yield from self._turn(done, seconds)
        except (PeltonError, ValueError) as error:
            if isinstance(error, ConnectionLostError | OutputFullError):
                self._lost = error
                yield Until(self, self._is_ending, RETRY_S)
            elif self._ending:
                self._finish()
            else:
                self._fail(error if isinstance(error, PeltonError) else PullError(0, str(error)))
        except BaseException:
            if self.kept:
                self._finish()  # the task was cancelled
            raise

    def _turn(self, done: Callable[[], bool], seconds: float) -> Steps[None]:
        if self._ending:
            yield from self._closing()
            return
        if self._doubt is not None:
            yield from self._retrying(self._doubt, done, seconds)
            return
        if self._lost is not None:
            lost, self._lost = self._lost, None
            self.after_loss(lost)
        now = self.client._clock()
        if now >= self.heartbeats.due:
            self._look(now)
        extend_due = self.extend_when_due(now)
        if now >= self._resume_at and self.held <= self.low:
            self.pull()
        due = min(self.heartbeats.due, extend_due)
        if self._resume_at > now:
            due = min(due, self._resume_at)

        def news() -> bool:
            return done() or self._is_ending() or bool(self._lost or self._doubt)

        yield Until(self, news, max(0.0, min(seconds, due - now)), self._turner_waits)

    def _retrying(self, why: Exception, done: Callable[[], bool], seconds: float) -> Steps[None]:
        """Recover when it is time for it, and there is a connection."""
        wait = self._retry_at - self.client._clock()
        if wait <= 0 and self.client._stays_open and not self.client._connection.connected:
            wait = RETRY_S
        if wait <= 0:
            yield from self.recovering(why)
            return

        wait = max(0.0, min(wait, self._look_meanwhile() - self.client._clock()))

        def news() -> bool:
            return done() or self._is_ending()

        yield Until(self, news, min(wait, seconds), self._turner_waits)

    def _is_ending(self) -> bool:
        return bool(self._ending) or self.finished

    def _look(self, now: float) -> None:
        """Notice that not even heartbeats arrive."""
        owed = self.client._connection.connected and self.expected > 0 and self._resume_at <= now
        if missed := self.heartbeats.missed(now, watched=owed):
            self.events.emit("heartbeats_missed", count=missed)
            if missed >= MISSED_MAX:
                self.doubt(PeltonTimeoutError(f"no heartbeat of consumer {self.info.name!r}"))

    def _look_meanwhile(self) -> float:
        """Go on counting while a silent consumer is looked up; returns when to count again."""
        heartbeats, now = self.heartbeats, self.client._clock()
        if not heartbeats.silent:
            return math.inf
        if now >= heartbeats.due:
            connected = self.client._connection.connected
            if missed := heartbeats.missed(now, watched=connected):
                self.events.emit("heartbeats_missed", count=missed)
        return heartbeats.due

    # -- a consumer that does not answer -----------------------------------------------------------

    def recovering(self, why: Exception) -> Steps[None]:
        """Try once to find the consumer and to ask for messages; raises as ``on_missing`` says."""
        if isinstance(why, ConsumerDeletedError) and self._on_missing == "raise":
            raise why
        self._attempts += 1
        try:
            info = yield from looking(
                self.client, self._look_meanwhile, self._finding(self._attempts)
            )
        except (StreamNotFoundError, ConsumerNotFoundError):
            if self._on_missing == "raise":
                raise
        except PermissionsViolationError:
            if self._attempts > 1:  # it may not be looked up, so only ask again
                self._recovered(self.info, why)
                return
        except PeltonError as error:
            raise_lasting(error)
        else:
            self._recovered(info, why)
            return
        wait = min(RETRY_S * 2 ** min(self._attempts - 1, 8), RETRY_MAX_S)
        self._retry_at = self.client._clock() + wait

    def _finding(self, count: int) -> Steps[ConsumerInfo]:
        """The consumer's info; creates a missing one when ``on_missing`` says so."""
        name = self.info.name
        try:
            return (yield from self._plans.consumer_info(self.stream, name))
        except StreamNotFoundError as error:
            self.events.emit("stream_not_found", str(error), count=count, name=name)
            raise
        except ConsumerNotFoundError as error:
            self.events.emit("consumer_not_found", str(error), count=count, name=name)
            if self._on_missing != "recreate" or self.info.config is None:
                raise
        config = replace(self.info.config, name=name)
        try:
            info = yield from self._plans.create_consumer(self.stream, config)
        except StreamNotFoundError as error:
            self.events.emit("stream_not_found", str(error), count=count, name=name)
            raise
        self.events.emit("consumer_recreated", name=name)
        return info

    def _recovered(self, info: ConsumerInfo, why: Exception) -> None:
        self._doubt = None
        self._lost = None
        self._attempts = 0
        self._retry_at = -math.inf
        self.fit(info)
        self.flowing = True
        self.heartbeats.restart(self.client._clock())
        self.restart(str(why))

    # -- the end -----------------------------------------------------------------------------------

    def _closing(self) -> Steps[None]:
        """End the subscription; messages on their way are taken, or given back after ``stop``."""
        self.flowing = False
        connection = self.client._connection
        try:
            connection.drain(self._interest)
            if connection.connected:
                yield from self.client._flushing()
                yield from self._tidying()
        except PeltonError:
            pass  # what was on its way is delivered again
        finally:
            self._finish()

    def _tidying(self) -> Steps[None]:
        """What is left to do at the server before the operation counts as ended."""
        yield from ()

    def _leave(self) -> None:
        """``_tidying`` for an operation that nobody waits for."""

    def _return_queue(self) -> None:
        while self.queue:
            self.acks.give_back(self.queue.popleft())

    def _fail(self, error: PeltonError) -> None:
        if self.error is None:
            self.error = error
        self._finish()

    def _end_taking(self) -> None:
        self.over = True
        self.flowing = False
        self.takers._stir()

    def _finish(self) -> None:
        """The subscription is over, and no message follows."""
        if self.finished:
            return
        self.finished = True
        self.extension.end()
        self.client._watchers.discard(self)
        self.client._release(self._interest)
        self._end_taking()
        if self.freed is not None:
            self.freed()
        self.events.end()
        self._stir()
