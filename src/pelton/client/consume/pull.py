"""Pull requests to a consumer, and their replies.

A request is published to ``$JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>`` with its own reply subject
below an inbox. Messages arrive with their stream subject, so only statuses tell to which request they
belong::

    request 1 (batch 3)  ──►  message, message, message              complete: no status follows
    request 2 (batch 3)  ──►  message, 408 Request Timeout                     expired
    request 3 (no_wait)  ──►  404 No Messages

Messages of a request that was given up still belong to the consumer's user: they count for the next
request. A pinned consumer serves one client of a priority group: its messages have the header
``Nats-Pin-Id``, which later requests repeat, until the server answers 423 because it pinned another client.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from pelton.api import encode
from pelton.api.calls import PullRequest
from pelton.core.protocol.subjects import matches
from pelton.errors import (
    ConnectionClosedError,
    ConnectionLostError,
    ConsumerDeletedError,
    NoRespondersError,
    PeltonError,
    PermissionsViolationError,
    PullError,
)

from ..base.arguments import check_number, check_texts
from ..base.durations import Duration, to_nanoseconds
from ..base.mailbox import Interest, Mailbox
from ..base.message import NAK, BaseMessage
from ..base.models import ConsumerConfig, ConsumerInfo
from ..session.session import Ping, Session

HEARTBEAT = 100
NOT_FOUND = 404
TIMEOUT = 408
CONFLICT = 409
NO_RESPONDERS = 503

PENDING_MESSAGES = "Nats-Pending-Messages"
STALLED = "Nats-Consumer-Stalled"
MOVING = ("leadership change", "server shutdown")
"""How a server describes that another one will lead the consumer."""
TRANSIENT = (*MOVING, "exceeded maxwaiting")


def config_of(info: ConsumerInfo) -> ConsumerConfig:
    """The consumer's configuration; servers always send it."""
    return info.config if info.config is not None else ConsumerConfig()


def check_most(batch: int, max_bytes: int) -> None:
    """Raise ValueError unless a pull may ask for so many messages, with so many bytes at most."""
    if type(batch) is not int or type(max_bytes) is not int:  # a fetch of each message asks here
        check_number("batch", batch)
        check_number("max_bytes", max_bytes)
    if batch < 1:
        raise ValueError(f"a pull asks for at least one message, got {batch}")
    if max_bytes < 0:
        raise ValueError(f"max_bytes is at least 1, or 0 for any size, got {max_bytes}")


def pull_body(
    batch: int,
    *,
    expires_ns: int = 0,
    no_wait: bool = False,
    max_bytes: int = 0,
    idle_heartbeat_ns: int = 0,
) -> bytes:
    """The body of a pull request.

    The deadline counts from the server's receipt, 0 for none; a heartbeat is at most half of it.
    ``max_bytes`` includes subjects and headers, 0 for no limit.
    """
    check_most(batch, max_bytes)
    request = PullRequest(
        batch=batch,
        expires=expires_ns,
        no_wait=no_wait,
        max_bytes=max_bytes,
        idle_heartbeat=idle_heartbeat_ns,
    )
    return encode(request)


def status_error(status: int, description: str, subject: str) -> PeltonError | None:
    """The error for a status; None when it only says that a request is over."""
    low = description.lower()
    if status in (NOT_FOUND, TIMEOUT) or (status == CONFLICT and low.startswith("batch completed")):
        return None
    if status == NO_RESPONDERS:
        return NoRespondersError(subject)
    if status == CONFLICT and low.startswith("consumer deleted"):
        return ConsumerDeletedError(status, description)
    return PullError(status, description)


class Fetch:
    """One pull request with a waiting caller.

    ``subject`` is the subject of the request, ``reply`` its own inbox.
    """

    def __init__(self, subject: str, batch: int) -> None:
        """``begin`` follows."""
        self.subject = subject
        self.reply = ""
        self.batch = batch
        self.messages: list[BaseMessage] = []
        self.done = False
        self.error: PeltonError | None = None
        self._moved = False

    def take(self, message: BaseMessage) -> None:
        """Take a message for the handle; sets ``done`` when the request is over.

        Sets ``error`` as well if it failed.
        """
        # Messages count for whichever request runs; a status only for the one whose inbox it names (ADR-13).
        status = message.status if message.raw_headers else 0
        if status == 0:
            self.messages.append(message)
            self.done = len(self.messages) >= self.batch
        elif status != HEARTBEAT and message.subject == self.reply:
            self.done = True
            self.error = status_error(status, message.description, self.subject)

    def may_begin_again(self, *, clustered: bool) -> bool:
        """Whether the same request may be answered soon: the consumer gets another leader."""
        error = self.error
        if isinstance(error, PullError) and error.description.lower().startswith(MOVING):
            self._moved = True
            return True
        # Between two leaders nobody subscribes to the requests.
        return clustered and isinstance(error, NoRespondersError)

    def begin(self, reply: str) -> None:
        """The request is sent, or sent again, with the inbox ``reply``."""
        self.reply, self.done, self.error = reply, False, None

    def result(self) -> list[Any]:
        """The messages; raises the error only if there are none, so that no message is lost.

        A consumer that was moving to another leader when the time was over had no messages: that is no
        error.
        """
        if self.error is not None and not self.messages and not self._moving():
            raise self.error
        return self.messages

    def _moving(self) -> bool:
        """Whether the consumer exists and had no leader at the end."""
        if isinstance(self.error, PullError):
            return self.error.description.lower().startswith(MOVING)
        return self._moved and isinstance(self.error, NoRespondersError)


def control_reply(message: BaseMessage) -> str | None:
    """The reply subject for a control message of a push consumer; None for a real message.

    It is "" when no answer is needed. Heartbeats and flow-control requests (status 100) that ask for an
    answer get an empty message.
    """
    if message.status != HEARTBEAT:
        return None
    return message.reply or message.header(STALLED) or ""


# -- the inbox of requests -----------------------------------------------------------------------


class Inbox(Mailbox):
    """The inbox of pull requests, one after the other; of one consumer.

    The client refers to this and not to the consumer's handle, so that an unused handle can be garbage
    collected.
    """

    def __init__(self, client: Any, subject: str, consumer: str) -> None:
        """Subscribes. ``subject`` of the requests; ``consumer``: its name, for errors."""
        self.client = client
        self.subject = subject
        self.consumer = consumer
        self._interest: Interest
        self.queue: deque[Any] = deque()
        self.ended = False
        self.error: PeltonError | None = None
        """The connection broke: open requests get no answer any more."""
        self.refusal: PermissionsViolationError | None = None
        """The server permits no requests, or no subscription for their answers."""
        self._replies = client._new_replies()
        self._requests = 0
        client._attach(self._replies.pattern, self)
        client._watchers.add(self)

    def request(self, body: bytes) -> str:
        """Queue a pull request; returns the subject of its statuses."""
        self._requests += 1
        reply: str = self._replies.subject(self._requests)
        self.client._connection.publish(self.subject, body, reply)
        return reply

    def feed(self, fetch: Fetch) -> bool:
        """Pass the arrived messages to a request; whether it is over, or waiting for it has no sense."""
        queue = self.queue
        while queue and not fetch.done:
            fetch.take(queue.popleft())
        return fetch.done or self.ended or self.error is not None or self.refusal is not None

    def check(self) -> None:
        """Raise why no message can come any more."""
        if self.refusal is not None:
            raise self.refusal
        if self.error is not None:
            raise ConnectionLostError(f"connection lost while pulling: {self.error}")
        if self.ended:
            self._interest.check()
            raise ConnectionClosedError(f"the handle of consumer {self.consumer!r} is closed")

    def _on_message(self, message: BaseMessage) -> None:
        """A message for the handle arrived."""
        if message.subject.startswith(self._replies.prefix) and not self._replies.number_of(
            message.subject
        ):
            return  # somebody else published to the inbox
        self.queue.append(message)
        if self._waiting:
            self._stir()

    def _on_end(self) -> None:
        """No message follows."""
        self.ended = True
        self.client._watchers.discard(self)
        self._stir()

    def _on_abandoned(self) -> None:
        """Nobody has the handle any more."""
        self.leave()

    def close(self) -> None:
        """End the subscription."""
        if not self.ended:
            self.client._release(self._interest)
            self._on_end()

    def leave(self) -> None:
        """End the requests: messages that are here or on their way go back to the consumer at once."""
        if self.ended:
            return
        # What has arrived goes back first, then whatever still comes.
        late = Late(self.client, self._interest)
        while self.queue:
            late._on_message(self.queue.popleft())
        self._on_end()
        late.begin()

    def _on_lost(self, error: PeltonError) -> None:
        """The connection broke."""
        self.error = error
        self._stir()

    def _on_refused(self, complaint: PermissionsViolationError) -> None:
        """Fail if it is about this inbox or its requests."""
        if f'"{self.subject}"' in complaint.text or f'"{self._replies.pattern}"' in complaint.text:
            self.refusal = complaint
            self._stir()

    def _has_news(self) -> bool:
        """Whether a message arrived, none will come, the connection broke, or the inbox ended."""
        failed = self.error is not None or self.refusal is not None
        return bool(self.queue) or self.ended or failed


class Late(Ping):
    """Gives messages back that arrive after their request was given up."""

    def __init__(self, client: Session, interest: Interest) -> None:
        """Takes over the subscription."""
        super().__init__()
        self.client = client
        self._interest = interest
        interest.owner = self

    def begin(self) -> None:
        """Unsubscribe at the server; messages on their way come before the pong."""
        connection = self.client._connection
        if connection.connected:
            connection.drain(self._interest)
            connection.ping(self)
            self.client._plan_flush()
        else:
            self._on_end()

    def _on_message(self, message: BaseMessage) -> None:
        """Give a message back."""
        mine = not matches(message.subject, self._interest.subject)  # requests get statuses alone
        if mine and not message.status and not message.acked:
            message.acked = True
            try:
                self.client._connection.answer(message.reply, NAK)
            except PeltonError as error:  # the server delivers it again after the ack wait
                self.client._report(error)
            self.client._plan_flush()

    def pong(self) -> None:
        """No message follows."""
        super().pong()
        self._on_end()

    def _on_lost(self, error: PeltonError) -> None:
        """No message follows."""
        super()._on_lost(error)
        self._on_end()

    def _on_abandoned(self) -> None:
        """Nobody has the handle any more: the pong, or the loss of the connection, is the end all the same."""

    def _on_end(self) -> None:
        """Forget the subscription."""
        self.client._connection.forget(self._interest)


# -- what requests say ----------------------------------------------------------------------------

MESSAGES_MAX = 500
"""Messages that an operation buffers, unless it is told a number."""
# The protocol needs a number of messages; the bytes are the limit.
BATCH_OF_BYTES = 1_000_000
"""The number of messages in a request that is limited by bytes."""
PRIORITY_MAX = 9
PIN_HEADER = b"Nats-Pin-Id:"


class Asking:
    """The part of an operation's requests that concerns its priority group."""

    def __init__(
        self,
        config: ConsumerConfig,
        pins: dict[str, str],
        *,
        group: str = "",
        min_pending: int = 0,
        min_ack_pending: int = 0,
        priority: int = 0,
    ) -> None:
        """``pins``: the pin ids of the client by group. ValueError when the config does not fit."""
        check_texts(group=group)
        check_number("min_pending", min_pending)
        check_number("min_ack_pending", min_ack_pending)
        check_number("priority", priority)
        groups, policy = config.priority_groups, config.priority_policy
        if not group and len(groups) == 1:
            group = groups[0]
        if group and group not in groups:
            raise ValueError(
                f"the consumer has no priority group {group!r}: it has {', '.join(groups) or 'none'}"
            )
        if groups and not group:
            raise ValueError(f"name one of the consumer's priority groups: {', '.join(groups)}")
        if (min_pending or min_ack_pending) and policy != "overflow":
            raise ValueError("min_pending and min_ack_pending need the priority policy 'overflow'")
        if min_pending < 0 or min_ack_pending < 0:
            raise ValueError("min_pending and min_ack_pending are not negative")
        if priority and policy != "prioritized":
            raise ValueError("priority needs the priority policy 'prioritized'")
        if not 0 <= priority <= PRIORITY_MAX:
            raise ValueError(f"a priority is 0 (first) to {PRIORITY_MAX}, got {priority}")
        self.group = group
        self.pinned = policy == "pinned_client"
        fields = {
            "group": group,
            "min_pending": min_pending,
            "min_ack_pending": min_ack_pending,
            "priority": priority,
        }
        self._fields: dict[str, Any] = {name: value for name, value in fields.items() if value}
        self._pins = pins

    @property
    def pin(self) -> str:
        """The pin id of this client, "" for none."""
        return self._pins.get(self.group, "")

    def body(self, batch: int, **fields: Any) -> bytes:
        """The body of a request: ``expires``, ``idle_heartbeat``, ``max_bytes``, ``no_wait``."""
        given = {name: value for name, value in fields.items() if value}
        request: dict[str, Any] = {"batch": batch, **self._fields, **given}
        if self.pinned and (pin := self._pins.get(self.group)):
            request["id"] = pin
        return msgspec.json.encode(request)

    def learn(self, message: BaseMessage) -> str:
        """The pin id of a message when it is a new one; later requests have it."""
        # Looked for in the raw bytes: decoding the headers of every message would cost more.
        if PIN_HEADER not in message.raw_headers:
            return ""
        pin = message.header("Nats-Pin-Id") or ""
        if self._pins.get(self.group, "") == pin:
            return ""
        self._pins[self.group] = pin
        return pin

    def unpin(self) -> bool:
        """The server pinned another client; returns whether this client had a pin."""
        return bool(self._pins.pop(self.group, ""))


class Sizes:
    """How much an operation buffers, and when it asks for more."""

    def __init__(
        self,
        *,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        threshold: int | None = None,
        expires: Duration = 30.0,
        heartbeat: Duration = 5.0,
    ) -> None:
        """ValueError for numbers below 1, both limits, or a heartbeat above half of ``expires``."""
        check_number("max_messages", max_messages, optional=True)
        check_number("max_bytes", max_bytes, optional=True)
        check_number("threshold", threshold, optional=True)
        if max_messages is not None and max_bytes is not None:
            raise ValueError("give max_messages or max_bytes, not both")
        self.by_bytes = max_bytes is not None
        limit = max_bytes if max_bytes is not None else max_messages
        self.limit = MESSAGES_MAX if limit is None else limit
        """Messages, or bytes when ``by_bytes``."""
        if self.limit < 1:
            raise ValueError(f"max_messages and max_bytes are at least 1, got {self.limit}")
        self._batch = BATCH_OF_BYTES
        # Half, as in ADR-37.
        self.low = self.limit // 2 if threshold is None else threshold
        """More is requested when at most this much is outstanding or buffered."""
        if not 0 <= self.low < self.limit:
            raise ValueError(f"the threshold is at least 0 and below {self.limit}, got {self.low}")
        self.expires_ns = int(to_nanoseconds(expires, "expires"))
        self.heartbeat_ns = int(to_nanoseconds(heartbeat, "heartbeat"))
        # nats-server refuses a larger one: heartbeat value too large.
        if not 0 < 2 * self.heartbeat_ns <= self.expires_ns:
            raise ValueError(
                "a heartbeat is more than 0 and at most half of expires, "
                f"got heartbeat={heartbeat!r} and expires={expires!r}"
            )

    def fit(self, config: ConsumerConfig) -> None:
        """Keep requests within the limits of the consumer."""
        if config.max_expires:
            self.expires_ns = min(self.expires_ns, int(config.max_expires))
            self.heartbeat_ns = min(self.heartbeat_ns, self.expires_ns // 2)
        if config.max_batch:
            self._batch = min(self._batch, config.max_batch)
        allowed = config.max_bytes if self.by_bytes else config.max_batch
        if allowed and allowed < self.limit:
            self.limit = allowed
            self.low = min(self.low, allowed // 2)

    def body(self, asking: Asking, amount: int) -> bytes:
        """The request for ``amount`` messages or bytes."""
        times = {"expires": self.expires_ns, "idle_heartbeat": self.heartbeat_ns}
        if self.by_bytes:
            return asking.body(self._batch, max_bytes=amount, **times)
        return asking.body(amount, **times)


def size_of(message: BaseMessage) -> int:
    """The size of a message as the server counts it for ``max_bytes``."""
    return len(message.subject) + len(message.reply) + len(message.raw_headers) + len(message.data)
