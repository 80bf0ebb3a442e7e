"""The buffered messages of one operation that consumes, without I/O.

::

    server ── messages ──► _on_message ──► queue ──► takers: an iteration, or handlers
                 ▲                                        │
                 └─────── pull, when ``held <= low`` ◄────┘

``held`` counts what is requested or buffered and not taken yet, ``expected`` what the server still owes
to requests. ``Upkeep`` (aio/upkeep.py) does what has to wait: it asks again after a loss, looks up a consumer that
does not answer, and ends the subscription.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pelton.errors import (
    ApiError,
    ConnectionClosedError,
    ConnectionLostError,
    NotEnabledError,
    PeltonError,
    PeltonTimeoutError,
    PermissionsViolationError,
)

from ..base.mailbox import Interest, Mailbox
from ..base.message import ACK, IN_PROGRESS, BaseMessage, nak_body
from .events import EventFeed
from .pull import size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..base.models import ConsumerConfig, ConsumerInfo
    from ..session.session import Session

OnMissing: TypeAlias = Literal["wait", "raise", "recreate"]
"""What to do when the consumer or its stream is deleted."""

NO_SUBJECT = " "
"""No subject begins with it."""
MISSED_MAX = 2
"""Missed heartbeats after which the consumer is looked up."""


def raise_lasting(error: PeltonError) -> None:
    """Raise an error that does not pass; return for one that the next attempt may not have."""
    # 4xx: the request itself is wrong. 5xx may pass, for example when a leader is elected.
    if isinstance(error, NotEnabledError) or (isinstance(error, ApiError) and error.code < 500):
        raise error
    if isinstance(error, ConnectionClosedError) and not isinstance(error, ConnectionLostError):
        raise error


class Acks:
    """Acknowledges the messages of one consumer, as its ack policy says."""

    def __init__(self, client: Session) -> None:
        """Sends nothing before ``fit``."""
        self._client = client
        self.wanted = False
        """Whether the consumer waits for acks."""
        self._explicit = False

    def fit(self, config: ConsumerConfig | None) -> None:
        """Take over the ack policy of the consumer."""
        policy = "" if config is None else config.ack_policy
        self._explicit = policy == "explicit"
        self.wanted = self._explicit or policy == "all"

    def send(self, message: BaseMessage, payload: bytes) -> None:
        """Send the server an ack of a message; without a connection it is sent after the reconnect."""
        try:
            self._client._connection.answer(message.reply, payload)
        except PeltonError as error:  # the server delivers the message again
            self._client._report(error)
        else:
            self._client._plan_flush()

    def acknowledge(self, message: BaseMessage, payload: bytes = ACK) -> None:
        """Send the ack of a message, unless it has one or the consumer wants none."""
        if self.wanted and not message.acked:
            message.acked = True
            self.send(message, payload)

    def give_back(self, message: BaseMessage) -> None:
        """Give a message back: the consumer delivers it again at once."""
        if self._explicit:
            self.acknowledge(message, nak_body(None))


class Heartbeats:
    """Watches whether anything arrives from a consumer."""

    def __init__(self) -> None:
        """Watched from ``restart`` on."""
        self.interval_s = math.inf
        """The longest time between two messages or heartbeats of the consumer."""
        self.heard = False
        """Whether anything arrived since the last look; there are two looks in each interval."""
        self.due = math.inf
        """The time of the next look."""
        self._silent = 0  # looks in a row that found nothing

    def restart(self, now: float) -> None:
        """The first heartbeat is expected from now on."""
        self.due = now + self.interval_s / 2

    def missed(self, now: float, *, watched: bool) -> int:
        """Look whether anything arrived; returns the number of missed heartbeats when it has grown, else 0.

        A heartbeat counts as missed when it is late by half an interval. ``watched``: whether the server
        owes heartbeats.
        """
        self.due = now + self.interval_s / 2
        if self.heard or not watched:
            self.heard, self._silent = False, 0
            return 0
        self._silent += 1
        # There are two looks in each interval: after the third silent one a heartbeat is late by half an
        # interval, after the fifth the next one is.
        return self._silent // 2 if self._silent % 2 else 0

    @property
    def silent(self) -> bool:
        """Whether a heartbeat was missed since anything arrived."""
        return self._silent > 2


class AckExtension:
    """Which messages of an operation are due for an in-progress ack (``+WPI``), which restarts their ack wait.

    Those that were there at one look get it at the next one, whether they are buffered or being handled.
    """

    def __init__(self) -> None:
        """Off until ``begin``."""
        self.on = False
        """Whether ack waits are extended."""
        self.due = math.inf
        """The time of the next look."""
        self.given: dict[object, BaseMessage] = {}
        """The message that an iteration handles, by task or thread."""
        self._interval_s = math.inf
        self._seen: set[int] = set()

    def begin(self, config: ConsumerConfig, now: float) -> None:
        """Look at the messages four times in each ack wait of the consumer."""
        waits = [int(each) for each in config.backoff] or [int(config.ack_wait)]
        # With a backoff each delivery has its own ack wait. 0: the consumer was never looked up.
        self._interval_s = min(waits) / 4e9 or math.inf
        self.on = self._interval_s < math.inf
        self.due = now + self._interval_s

    def look(self, now: float, messages: Iterable[BaseMessage]) -> list[BaseMessage]:
        """Those of the messages, and of ``given``, that were already here at the last look."""
        self.due = now + self._interval_s
        here = [each for each in (*messages, *self.given.values()) if not each.acked]
        # A new message may get the id of one that is gone: its wait is then extended early, which is harmless.
        seen, self._seen = self._seen, {id(message) for message in here}
        return [message for message in here if id(message) in seen]

    def end(self) -> None:
        """The operation has ended."""
        self.given.clear()


class Intake(Mailbox, ABC):
    """The messages of an operation, in the order in which they are taken.

    Subclasses say how messages are requested and how a missing consumer is found.
    """

    def __init__(self, client: Session, info: ConsumerInfo, on_missing: OnMissing) -> None:
        """Subscribed with ``begin``."""
        if on_missing not in ("wait", "raise", "recreate"):
            raise ValueError(f"on_missing is 'wait', 'raise' or 'recreate', got {on_missing!r}")
        self.client = client
        self.info = info
        self.stream = info.stream_name
        self.queue: deque[Any] = deque()
        self.takers = Mailbox()
        """Waits for messages, and for the end."""
        self.kept = False
        """Whether a task looks after it, also when no call waits."""
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
        self.handling: dict[Any, Any] = {}
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
        self.on_missing = on_missing
        self.lost: PeltonError | None = None
        """The connection broke since the last ``tend``."""
        self.doubted: Exception | None = None
        """Why the consumer must be looked up."""
        self._own = NO_SUBJECT  # how the reply subjects of this client's requests begin
        self.told = ""
        """What the user has told it to do: "", "stop" or "drain"."""
        self._resume_at = -math.inf  # no request before this time

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

    # -- called by the operation -------------------------------------------------------------------

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

    def stop(self) -> None:
        """Request nothing more, and give buffered messages back to the consumer."""
        if self.told == "stop" or self.finished:
            return
        self.told = "stop"
        # First: an iteration must not take a message that is about to go back.
        self._end_taking()
        self._return_queue()
        self._stir()

    def drain(self) -> None:
        """Request nothing more; buffered messages and those on their way are still taken."""
        if not self.told:
            self.told = "drain"
            self.flowing = False
            self._stir()

    @property
    def ending(self) -> bool:
        """Whether the operation was told to end, or has ended."""
        return bool(self.told) or self.over

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
        # Requested before the stop: other clients get it at once, not after the ack wait.
        elif self.told == "stop":
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
        if self.hire is not None:  # also when only ``run`` waits, which takes no message
            self.hire()

    def took(self, message: BaseMessage) -> bool:
        """A message was handled: ask for more if it is time; whether output waits to be sent."""
        self.held -= size_of(message) if self.by_bytes else 1
        return self.held <= self.low and self.pull()

    def _on_end(self) -> None:
        """The client is closed."""
        if self._interest.failure and self.error is None:
            self.error = self._interest.lost()
        self.finish()

    def _on_abandoned(self) -> None:
        """The user dropped the operation without ending it: stop, as far as nobody has to wait for it."""
        if self.kept:
            # A task ends the operation properly, with the round trips that this needs.
            self.stop()
            return
        self._end_taking()
        self.client._release(self._interest)  # or the server delivers here again what is given back
        self._return_queue()
        self._leave()
        self.finish()

    def _on_lost(self, error: PeltonError) -> None:
        """The connection broke."""
        self.lost = error
        self._stir()

    def _on_refused(self, complaint: PermissionsViolationError) -> None:
        """The server does not permit an operation: the end, if it is a request or the inbox."""
        if any(f'"{subject}"' in complaint.text for subject in self.subjects()):
            self.fail(complaint)

    def subjects(self) -> tuple[str, ...]:
        """The subjects without which nothing can be consumed."""
        return (self._interest.subject,)

    # -- keeping messages coming -------------------------------------------------------------------

    def doubt(self, why: Exception) -> None:
        """The consumer may be gone: look it up."""
        self.flowing = False
        self.doubted = why
        self._stir()

    def tend(self, now: float) -> float:
        """Do what is due and needs no wait; returns when something is again."""
        if self.lost is not None:
            lost, self.lost = self.lost, None
            self.after_loss(lost)
        if now >= self.heartbeats.due:
            self._look(now)
        extend_due = self.extend_when_due(now)
        # Also when no message was taken: a request may have failed, or was held back after a limit.
        if now >= self._resume_at and self.held <= self.low:
            self.pull()
        due = min(self.heartbeats.due, extend_due)
        return min(due, self._resume_at) if self._resume_at > now else due

    def is_ending(self) -> bool:
        """Whether it was told to end, or its subscription is ended."""
        return bool(self.told) or self.finished

    def _look(self, now: float) -> None:
        """Notice that not even heartbeats arrive."""
        # Heartbeats belong to a request: without one, or without a connection, silence means nothing.
        owed = self.client._connection.connected and self.expected > 0 and self._resume_at <= now
        if missed := self.heartbeats.missed(now, watched=owed):
            self.events.emit("heartbeats_missed", count=missed)
            if missed >= MISSED_MAX:
                self.doubt(PeltonTimeoutError(f"no heartbeat of consumer {self.info.name!r}"))

    def look_meanwhile(self) -> float:
        """Go on counting while a silent consumer is looked up; returns when to count again."""
        heartbeats, now = self.heartbeats, self.client._clock()
        if not heartbeats.silent:
            return math.inf
        if now >= heartbeats.due:
            # A program may wait for a certain count to begin anew: it goes on while look-ups have no answer.
            connected = self.client._connection.connected
            if missed := heartbeats.missed(now, watched=connected):
                self.events.emit("heartbeats_missed", count=missed)
        return heartbeats.due

    def recovered(self, info: ConsumerInfo, why: Exception) -> None:
        """The consumer was found: go on with it."""
        self.doubted = None
        self.lost = None
        self.fit(info)
        self.flowing = True
        # A whole interval from now on: looking the consumer up may have taken longer than one.
        self.heartbeats.restart(self.client._clock())
        self.restart(str(why))
        self._stir()

    # -- the end -----------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Leave nothing at the server of an operation that nobody waits for."""

    def _return_queue(self) -> None:
        while self.queue:
            self.acks.give_back(self.queue.popleft())

    def fail(self, error: PeltonError) -> None:
        """End with this error."""
        if self.error is None:
            self.error = error
        self.finish()

    def _end_taking(self) -> None:
        self.over = True
        self.flowing = False
        self.takers._stir()

    def finish(self) -> None:
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
