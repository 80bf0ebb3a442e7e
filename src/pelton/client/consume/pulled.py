"""The messages of a pull consumer: when more are requested, and what the server says of a request.

Each request has its own reply subject, so late statuses of an abandoned request can be recognised. Does not
depend on a transport.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.errors import (
    ConsumerDeletedError,
    NoRespondersError,
    PeltonError,
    PullError,
)

from .intake import Intake, OnMissing
from .pull import CONFLICT, HEARTBEAT, NO_RESPONDERS, NOT_FOUND, TIMEOUT

if TYPE_CHECKING:
    from ..base.message import BaseMessage
    from ..base.models import ConsumerInfo
    from ..session.session import Session
    from .pull import Asking, Sizes

LIMITED_S = 1.0
"""How long to wait after the server refused a request because of a limit."""
WRONG_PIN = 423
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
        amount = self._sizes.limit - max(0, self.held)
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
        if status in (NOT_FOUND, TIMEOUT) or low.startswith("batch completed"):
            self._ended(message)
        elif status == WRONG_PIN:
            if self.asking.unpin():
                self.events.emit("consumer_unpinned", words)
            self._ended(message)
        elif status == NO_RESPONDERS:
            self.give_up()
            self.events.emit("no_responders", name=self.info.name)
            self.doubt(NoRespondersError(self._subject))
        elif low.startswith(LIMITS):
            self._on_limit(message, low)
        elif low.startswith(ENDS):
            self._on_request_end(status, words)
        else:
            self.fail(PullError(status, words))
            return
        self._stir()

    def _ended(self, message: BaseMessage) -> None:
        """A request is over; what it did not deliver is not outstanding any more."""
        messages_left = _number(message, "Nats-Pending-Messages")
        bytes_left = _number(message, "Nats-Pending-Bytes")
        left = bytes_left if self.by_bytes else messages_left
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
