"""Pulling the messages of one consumer, as steps: when to send requests, and the arrived messages.

``pull.py`` has the requests and their replies. Does not depend on transports.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pelton.core.protocol.subjects import matches
from pelton.errors import (
    ConnectionClosedError,
    ConnectionLostError,
    PeltonError,
    PeltonTimeoutError,
    PermissionsViolationError,
)

from ..base.durations import Duration, to_nanoseconds, to_seconds
from ..base.message import NAK, BaseMessage
from ..base.steps import RETRY_S, SEND, Attach, Left, Mailbox, Ready, Until, call, flow
from ..session.session import Ping
from .pull import Fetch, pull_body
from .pull import Flow as Requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..base.interest import Interest
    from ..base.steps import Flow, Steps
    from ..session.session import Session
    from .streams import Streams

M = TypeVar("M", bound=BaseMessage)

GRACE_S = 2.0
"""How much longer than the server's own deadline the client waits for an answer."""


class Inbox(Mailbox):
    """The inbox of a handle's messages.

    The client refers to this and not to the handle, so that an unused handle can be garbage
    collected.
    """

    def __init__(self, client: Session[Any], asked: str) -> None:
        """Not subscribed yet. ``asked``: the subject of the pull requests."""
        self.client = client
        self._asked = asked
        self._interest: Interest
        self.queue: deque[Any] = deque()
        self.ended = False
        self.error: PeltonError | None = None
        """The connection broke: open requests get no answer any more."""
        self.refusal: PermissionsViolationError | None = None
        """The server permits no requests, or no subscription for their answers."""
        self.replies = client._new_replies()
        self._own = self.replies.prefix

    def _on_message(self, message: BaseMessage) -> None:
        """A message for the handle arrived."""
        if message.subject.startswith(self._own) and not self.replies.number_of(message.subject):
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

    def leave(self) -> None:
        """End the requests: messages that are here or on their way go back to the consumer at once."""
        if self.ended:
            return
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
        if f'"{self._asked}"' in complaint.text or f'"{self.replies.pattern}"' in complaint.text:
            self.refusal = complaint
            self._stir()

    def _has_news(self) -> bool:
        """Whether a message arrived, none will come, the connection broke, or the inbox ended."""
        failed = self.error is not None or self.refusal is not None
        return bool(self.queue) or self.ended or failed

    def has_ended(self) -> bool:
        """Whether no message follows."""
        return self.ended


class Late(Ping):
    """Gives messages back that arrive after their request was given up."""

    def __init__(self, client: Session[Any], interest: Interest) -> None:
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


class Pulling(Generic[M]):
    """A handle of one consumer."""

    _calls_overlap: ClassVar[bool] = True
    """Whether a call may begin while another one of the same thread or task runs."""

    def __init__(self, js: Streams[M], stream: str, consumer: str) -> None:
        """A handle to pull messages of an existing consumer."""
        self.client = js.client
        self.stream = stream
        """The name of the stream."""
        self.consumer = consumer
        """The name of the consumer."""
        self._subject = js._plans.subjects.next_message(stream, consumer)
        self._inbox: Inbox | None = None
        self._requests = 0
        self._busy = False
        self._closed = False

    def _occupy(self) -> None:
        if self._busy and not self._calls_overlap:
            raise RuntimeError("another call is pulling with this handle")
        self._busy = True

    def _begin(self) -> Steps[Inbox]:
        """The subscribed inbox; ConnectionClosedError when handle or client are closed."""
        inbox = self._inbox
        if inbox is None:
            self._check_open()
            inbox = Inbox(self.client, self._subject)
            yield Attach(inbox.replies.pattern, inbox)
            self._inbox = inbox
            self.client._watchers.add(inbox)
            weakref.finalize(
                self, self.client._connection.abandon, inbox._interest.sid
            ).atexit = False
        inbox._interest.check()
        self._check_open()
        inbox.error = None
        return inbox

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionClosedError(f"the handle of consumer {self.consumer!r} is closed")

    def check_permitted(self, inbox: Inbox) -> None:
        """Raise what the server refused; the next call asks anew."""
        if inbox.refusal is not None:
            self._inbox = None
            self.client._release(inbox._interest)
            inbox._on_end()
            raise inbox.refusal

    def _request(self, inbox: Inbox, body: bytes) -> str:
        """Queue a pull request; returns the subject of its statuses."""
        self._requests += 1
        reply = inbox.replies.subject(self._requests)
        self.client._connection.publish(self._subject, body, reply)
        return reply

    def close(self) -> None:
        """Stop receiving; the consumer itself stays."""
        self._closed = True
        inbox = self._inbox
        if inbox is not None and not inbox.ended:
            self.client._release(inbox._interest)
            inbox._on_end()

    def _give_up(self, *, returns: bool) -> None:
        """End the requests of a call that was broken off; close.

        With ``returns`` messages that are here or on their way go back to the consumer at once.
        """
        self._closed = True
        inbox = self._inbox
        if inbox is None or inbox.ended:
            return
        if not returns:
            self.client._release(inbox._interest)
            inbox._on_end()
            return
        inbox.leave()

    def _end_requests(self) -> None:
        """An iteration was cancelled or failed, and perhaps nobody will call again: no message may come here.

        A later call subscribes anew.
        """
        inbox, self._inbox = self._inbox, None
        if inbox is not None:
            inbox.leave()

    def _leaving(self, _: type[BaseException] | None) -> Steps[None]:
        """The end of the block."""
        self.close()
        yield from ()

    # -- one request -------------------------------------------------------------------------------

    def _fetching(
        self,
        batch: int = 1,
        *,
        timeout: Duration | None = None,
        max_bytes: int = 0,
        no_wait: bool = False,
    ) -> Steps[list[M]]:
        """Up to ``batch`` messages: as soon as all arrived, or those that arrived in ``timeout`` seconds.

        With no_wait only the messages that the consumer has right now. An empty list when there are none.
        Raises PullError, ConsumerDeletedError, NoRespondersError (no such consumer), PermissionsViolationError,
        ConnectionLostError, but returns messages first if some arrived.
        """

        def body(count: int, seconds: float) -> bytes:
            expires_ns = 0 if no_wait else max(1, to_nanoseconds(seconds))
            return pull_body(count, expires_ns=expires_ns, no_wait=no_wait, max_bytes=max_bytes)

        return (yield from self._collecting(batch, self.client._timeout_of(timeout), body))

    fetch = call(_fetching)

    def _collecting(
        self, batch: int, seconds: float, body: Callable[[int, float], bytes]
    ) -> Steps[list[M]]:
        """``fetching`` with a request that ``body(messages, seconds)`` makes."""
        fetch = Fetch(self._subject, "", batch)
        self._occupy()
        try:
            yield Ready(seconds)
            inbox = yield from self._begin()
            _feed(inbox, fetch)
            if not fetch.done:
                request = body(batch - len(fetch.messages), seconds)
                yield from self._fetch(inbox, fetch, request, seconds)
        finally:
            self._busy = False
        found: list[Any] = fetch.result()
        return found

    def _fetch(self, inbox: Inbox, fetch: Fetch, body: bytes, seconds: float) -> Steps[None]:
        client = self.client
        fetch.reply = self._request(inbox, body)
        deadline = client._clock() + seconds
        yield from self._collect(inbox, fetch, seconds + GRACE_S)
        while fetch.may_begin_again(clustered=client.clustered):
            left = deadline - client._clock() - RETRY_S
            if fetch.messages or left <= 0:
                break
            yield Until(inbox, inbox.has_ended, RETRY_S)
            fetch.again(self._request(inbox, body))  # the consumer may be electing a leader
            yield from self._collect(inbox, fetch, left + GRACE_S)

    def _collect(self, inbox: Inbox, fetch: Fetch, seconds: float) -> Steps[None]:
        def over() -> bool:
            return _feed(inbox, fetch) or inbox._has_news()

        try:
            yield Until(inbox, over, seconds)
            if fetch.done or fetch.messages:
                return
            self.check_permitted(inbox)
            if inbox.error is not None:
                raise ConnectionLostError(f"connection lost while pulling: {inbox.error}")
            if inbox.ended:
                inbox._interest.check()
                self._check_open()
                raise ConnectionClosedError(f"the handle of consumer {self.consumer!r} is closed")
            raise PeltonTimeoutError(f"no answer to a pull from {self.consumer!r} in {seconds} s")
        except BaseException:
            inbox.queue.extendleft(reversed(fetch.messages))  # for the next call
            raise

    # -- without end
    # --------------------------------------------------------------------------------

    def _reading(
        self,
        *,
        batch: int = 500,
        max_bytes: int = 0,
        expires: Duration = 30.0,
        heartbeat: Duration = 5.0,
        patient: bool = True,
    ) -> Flow[M]:
        """Messages without end, with overlapping pull requests.

        Ends when its owner closes the handle or the client; raises ConnectionClosedError when the client is
        lost. Raises ConsumerDeletedError, NoRespondersError, PermissionsViolationError and PullError when the
        consumer cannot be pulled from any more. In a cluster, if ``patient``, it raises NoRespondersError
        only after half a minute, because the consumer may be electing a leader. Survives a lost connection,
        as far as the consumer does.
        """
        self._occupy()
        try:
            reading = yield from self._begin_reading(
                batch=batch,
                max_bytes=max_bytes,
                expires=expires,
                heartbeat=heartbeat,
                patient=patient,
            )
            while (yield from reading.refill()):
                yield from reading.at_hand()
        except (Left, GeneratorExit):
            raise  # the next call goes on
        except BaseException:
            self._end_requests()
            raise
        finally:
            self._busy = False

    messages = flow(_reading)

    def _begin_reading(
        self,
        *,
        batch: int,
        max_bytes: int = 0,
        expires: Duration = 30.0,
        heartbeat: Duration = 5.0,
        patient: bool,
    ) -> Steps[Reading[M]]:
        """Begin ``reading``; the caller takes the messages one by one."""
        heartbeat_ns = to_nanoseconds(heartbeat)
        requests = Requests(self._subject, batch, max_bytes, to_nanoseconds(expires), heartbeat_ns)
        yield Ready(math.inf)
        inbox = yield from self._begin()
        return Reading(self, inbox, requests, batch // 2, 2 * to_seconds(heartbeat), patient)


class Reading(Generic[M]):
    """Messages of a consumer without end."""

    def __init__(
        self,
        handle: Pulling[M],
        inbox: Inbox,
        requests: Requests,
        low: int,
        quiet: float,
        patient: bool,
    ) -> None:
        """``low``: request more when at most this many messages are outstanding.

        ``quiet``: seconds without a reply after which a request counts as lost.
        """
        self._handle = handle
        self._inbox = inbox
        self._requests = requests
        self._low = low
        self._quiet = quiet
        self._patient = patient

    def refill(self) -> Steps[bool]:
        """Request messages if it is time, and wait for news.

        False when no message follows; ConnectionClosedError when that is because the client was lost.
        """
        inbox, requests = self._inbox, self._requests
        if requests.refusals:
            yield Until(inbox, inbox.has_ended, RETRY_S)
        if not inbox.ended:
            yield Ready(math.inf)
            if inbox.error is not None:
                inbox.error = None
                requests.restart()
            body = requests.due()
            if body is not None:
                self._handle._request(inbox, body)
                yield SEND
            if not (yield Until(inbox, inbox._has_news, self._quiet)):
                requests.restart()  # not even a heartbeat: the request is lost
        if not inbox.queue:
            self._handle.check_permitted(inbox)
        if inbox.ended and not inbox.queue:
            inbox._interest.check()
            return False
        return True

    def at_hand(self) -> Iterator[M]:
        """The messages that have arrived, until it is time to request more."""
        queue, requests, low = self._inbox.queue, self._requests, self._low
        clustered = self._patient and self._handle.client.clustered
        while queue:
            message = queue.popleft()
            if requests.take(message, clustered=clustered):
                yield message
                if requests.outstanding <= low:
                    return  # request more before the rest is handled


def _feed(inbox: Inbox, fetch: Fetch) -> bool:
    """Pass the arrived messages to the request; returns whether it is over."""
    while inbox.queue and not fetch.done:
        fetch.take(inbox.queue.popleft())
    return fetch.done
