"""The messages of one consumer as they arrive: those of a pull consumer on request, those of a push
consumer by themselves. Does not depend on a transport.

::

    PullIntake   when more are requested, and what the server says of a request
    PushIntake   the server asks whether what came before is handled, and goes on after the answer

Each request of a pull consumer has its own reply subject, so late statuses of an abandoned one can be
recognised. A question of a push consumer's flow control is answered when the messages before it are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.errors import ConsumerDeletedError, NoRespondersError, PeltonError, PullError

from .intake import Intake, OnMissing
from .pull import (
    CONFLICT,
    HEARTBEAT,
    NO_RESPONDERS,
    NOT_FOUND,
    TIMEOUT,
    Asking,
    Sizes,
    config_of,
    control_reply,
)

if TYPE_CHECKING:
    from ..base.message import BaseMessage
    from ..base.models import ConsumerInfo
    from ..session.session import Session

LIMITED_S = 1.0
"""How long to wait after the server refused a request because of a limit."""
WRONG_PIN = 423
# Statuses 409 are told apart by their words only; nats-server has no codes for them.
LIMITS = ("exceeded", "message size exceeds")
ENDS = ("leadership change", "server shutdown", "consumer deleted")


class PullIntake(Intake):
    """Messages of a pull consumer."""

    def __init__(
        self,
        client: Session,
        subject: str,
        info: ConsumerInfo,
        asking: Asking,
        sizes: Sizes,
        on_missing: OnMissing,
    ) -> None:
        """``subject`` of requests; ``sizes`` and ``asking`` belong to this operation."""
        super().__init__(client, info, on_missing)
        self.asking = asking
        self._sizes = sizes
        self._replies = self.client._new_replies()
        self._own = self._replies.prefix
        self._subject = subject
        self._requests = 0
        self._first = 1  # requests before this one were given up
        self.by_bytes = sizes.by_bytes
        self._crowded = False  # the next message did not fit beside those that are held

    def inbox(self) -> tuple[str, str]:
        """Every request has its own reply subject below the inbox."""
        return self._replies.pattern, ""

    def subjects(self) -> tuple[str, ...]:
        """The inbox, and the subject of requests."""
        return self._interest.subject, self._subject

    def is_answer(self, subject: str) -> bool:
        """Whether a subject below the inbox belongs to a request."""
        return self._replies.number_of(subject) > 0

    def fit(self, info: ConsumerInfo) -> None:
        """Keep requests within the limits of the consumer."""
        super().fit(info)
        if info.config is not None:
            self._sizes.fit(info.config)
        self.low = self._sizes.low
        self.heartbeats.interval_s = self._sizes.heartbeat_ns / 1e9

    def begin(self) -> None:
        """Subscribe, and send the first request."""
        super().begin()
        self.pull()

    def pull(self) -> bool:
        """Request as much as fits into the buffer; whether a request was queued."""
        # Below zero after late messages of abandoned requests, which nobody counted on.
        amount = self._sizes.limit - max(0, self.held)
        # A message that did not fit into the rest of a request may fit into a whole one: wait until
        # everything that came before is handled.
        low = 0 if self._crowded else self.low
        if not self.flowing or self.held > low or self._resume_at > self.client._clock():
            return False
        return self.request(amount)

    def request(self, amount: int) -> bool:
        """Request so many messages, or bytes; whether a request was queued."""
        body = self._sizes.body(self.asking, amount)
        reply = self._replies.subject(self._requests + 1)
        try:
            self.client._connection.publish(self._subject, body, reply, sound_reply=True)
        except PeltonError as error:  # no connection, and too much output waits for one
            self.lost = error
            self._stir()
            return False
        self._requests += 1
        self._crowded = False
        self.held += amount
        self.expected += amount
        self.events.emit("next", count=amount)
        return True

    def restart(self, why: str) -> None:
        """Give up outstanding requests, and send a new one."""
        self.give_up()
        self.events.emit("reset", why)
        self.pull()

    def give_up(self) -> None:
        """Nothing is outstanding any more; what is buffered or being handled stays held."""
        self._first = self._requests + 1
        # Messages of those requests may still come: they are taken, and make ``expected`` negative.
        self.held -= self.expected
        self.expected = 0

    def keep(self, message: BaseMessage) -> None:
        """Add a message to the queue."""
        if self.asking.pinned and (pin := self.asking.learn(message)):
            self.events.emit("consumer_pinned", name=pin)
        super().keep(message)

    def on_status(self, status: int, message: BaseMessage) -> None:
        """A heartbeat, or the end of a request."""
        words = message.description
        if status == HEARTBEAT:
            self.events.emit("heartbeat", words)
            return
        if self._replies.number_of(message.subject) < self._first or self.is_ending():
            return  # of a request that was given up
        low = words.lower()
        # Batch Completed: all messages were delivered, and some of the bytes are left (with max_bytes).
        if status in (NOT_FOUND, TIMEOUT) or low.startswith("batch completed"):
            self._ended(message)
        elif status == WRONG_PIN:
            # ADR-42: another client has the pin now. Requests without an id wait until it is free again.
            if self.asking.unpin():
                self.events.emit("consumer_unpinned", words)
            self._ended(message)
        # Nobody subscribes to the consumer's requests: it is gone, or has no leader at the moment.
        elif status == NO_RESPONDERS:
            self.give_up()
            self.events.emit("no_responders", name=self.info.name)
            self.doubt(NoRespondersError(self._subject))
        elif low.startswith(LIMITS):
            self._on_limit(message, low)
        elif low.startswith(ENDS):
            self._on_request_end(status, words)
        else:
            # For example 400 Bad Request: the next request would be refused in the same way.
            self.fail(PullError(status, words))
            return
        self._stir()

    def _ended(self, message: BaseMessage) -> None:
        """A request is over; what it did not deliver is not outstanding any more."""
        messages_left = _number(message, "Nats-Pending-Messages")
        bytes_left = _number(message, "Nats-Pending-Bytes")
        left = bytes_left if self.by_bytes else messages_left
        # 404 and a refused request name no rest, and the size of each request is not kept.
        if left is None:
            self.give_up()
        else:
            self.held -= left
            self.expected -= left
        if messages_left or bytes_left:
            self.events.emit(
                "discard",
                f"{message.status} {message.description}",
                messages_left=messages_left or 0,
                bytes_left=bytes_left or 0,
            )
        self.pull()

    def _on_limit(self, message: BaseMessage, low: str) -> None:
        """The server refused a request, or the next message does not fit into the rest of one."""
        left = _number(message, "Nats-Pending-Bytes")
        self._crowded = True
        # Otherwise the message is larger than all that may be requested, or a limit of the consumer is
        # exceeded: asking again at once would be a busy loop.
        fits_next_time = left is not None and left < self._sizes.limit
        if not (low.startswith("message size") and fits_next_time):
            self.events.emit("exceeded_limits", f"{message.status} {message.description}")
            self._resume_at = self.client._clock() + LIMITED_S
        self._ended(message)
        if low.startswith("exceeded maxrequest"):  # the consumer's limits have changed
            self.doubt(PullError(CONFLICT, message.description))

    def _on_request_end(self, status: int, words: str) -> None:
        """The consumer, or the server that leads it, ended the request."""
        if words.lower().startswith("consumer deleted"):
            self.give_up()
            self.events.emit("consumer_deleted", words, name=self.info.name)
            self.doubt(ConsumerDeletedError(status, words))
        else:
            self.restart(f"{status} {words}")


def _number(message: BaseMessage, name: str) -> int | None:
    value = message.header(name)
    return int(value) if value and value.isdigit() else None


NOTHING_ASKED = 1 << 62
"""``held`` while the server has asked nothing."""


class PushIntake(Intake):
    """Messages of a push consumer.

    ``held`` counts the messages to take before the server's question is answered.
    """

    def __init__(
        self, client: Session, info: ConsumerInfo, on_missing: OnMissing, messages_max: int
    ) -> None:
        """``messages_max``: more buffered messages are dropped; the server delivers them again."""
        super().__init__(client, info, on_missing)
        self._messages_max = messages_max
        self._question = ""
        self.held = NOTHING_ASKED

    def inbox(self) -> tuple[str, str]:
        """The subject and queue group of the consumer."""
        config = config_of(self.info)
        return config.deliver_subject, config.deliver_group

    def fit(self, info: ConsumerInfo) -> None:
        """Watch the heartbeats of the consumer, if it has any."""
        super().fit(info)
        heartbeat_ns = int(config_of(info).idle_heartbeat)
        if heartbeat_ns:
            self.heartbeats.interval_s = heartbeat_ns / 1e9

    def begin(self) -> None:
        """Subscribe."""
        super().begin()
        # A push consumer owes heartbeats at any time, not only to a request.
        self.expected = 1

    def restart(self, why: str) -> None:
        """The consumer was found again: subscribe anew if it delivers to another subject."""
        self._question, self.held = "", NOTHING_ASKED
        if self.inbox() != (self._interest.subject, self._interest.queue):
            former = self._interest
            self.client._attach(self.inbox()[0], self, self.inbox()[1])
            self.client._release(former)
        self.events.emit("reset", why)

    def after_loss(self, why: PeltonError) -> None:
        """The consumer may be gone with the connection."""
        self.doubt(why)

    def keep(self, message: BaseMessage) -> None:
        """Add a message to the queue, unless it is full."""
        # ``_on_message`` has counted it down.
        self.expected = 1
        if len(self.queue) >= self._messages_max:
            self.events.emit("discard", "the buffer is full", messages_left=1)
            return
        super().keep(message)

    def on_status(self, status: int, message: BaseMessage) -> None:
        """A heartbeat, or a question of flow control."""
        question = control_reply(message)
        if question:
            self._question, self.held = question, len(self.queue)
            if self.pull():
                self.client._plan_flush()
        elif status == HEARTBEAT:
            self.events.emit("heartbeat", message.description)

    def pull(self) -> bool:
        """Answer the server's question when the messages before it are taken."""
        if not self._question or self.held > 0:
            return False
        question, self._question, self.held = self._question, "", NOTHING_ASKED
        try:
            self.client._connection.publish(question, b"")
        except PeltonError:
            return False  # the server asks again
        self.events.emit("flow_control")
        return True
