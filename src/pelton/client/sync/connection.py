# Made of client/aio/connection.py by tools/gen_sync.py: change that file, and run it again.
"""A connection to a server: messages, requests, and what else is made with it.

A publish, from the call to the socket::

    Client.publish ──► Connection.publish ──► _plan_flush ──► _flush_output ──► Link.write
    (backend.py)       (protocol/connection.py)               at the end of the turn of the loop

and a request::

    Client.request ──► Requests.ask ──► Connection.publish
                  └──► _until: wait until the answer has arrived     Question.outcome
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Self

from pelton.errors import (
    ConnectionClosedError,
    ConnectionLostError,
    NoRespondersError,
    PeltonTimeoutError,
)

from ..base.arguments import check_number, refuse
from ..base.durations import Duration, to_seconds
from ..base.mailbox import RETRY_S
from ..base.message import HeadersLike, encode_header_map
from ..session.requests import Gathered, Question, Sent, is_end
from ..session.session import LEAVE_SHARE, Ping
from ..session.status import Status, StatusBox
from .backend import Backend
from .locks import locked
from .subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..services import ServiceConfig
    from .jetstream import JetStream
    from .messages import Message
    from .services import Service, ServiceClient

SILENCE_S = 1.0
"""How long to wait for an answer before a request is sent again that may be; each further time twice as long."""


class Client(Backend):
    """A connection to a NATS server; made by ``connect``.

    ::

        with connect("nats://127.0.0.1:4222", timeout="5s") as nc:
            nc.publish("greetings.anna", b"hello")
            answer = nc.request("help", b"", timeout=2)  # NoRespondersError, PeltonTimeoutError
    """

    @locked
    def __enter__(self) -> Self:
        """The client itself, already open."""
        return self

    @locked
    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    # -- requests ----------------------------------------------------------------------------------

    @locked
    def request(
        self,
        subject: str,
        data: bytes = b"",
        *,
        timeout: Duration | None = None,
        headers: HeadersLike | None = None,
    ) -> Message:
        """Publish a request and wait for one answer.

        Raises NoRespondersError, PeltonTimeoutError, PermissionsViolationError when the server refuses it,
        ConnectionLostError when the connection broke meanwhile, and the errors of publish.
        """
        return self._request(subject, data, self._timeout_of(timeout), encode_header_map(headers))

    def _request(
        self, subject: str, data: bytes, seconds: float, raw_headers: bytes = b""
    ) -> Message:
        """``request`` with a whole header block."""
        self._ready(seconds)
        return self._answer(self._requests.ask(subject, data, raw_headers), seconds)

    def _answer(self, question: Question, seconds: float) -> Message:
        """Wait for the answer to a request that was sent."""
        try:
            self._until(question, question.is_over, seconds)
        finally:
            self._requests.forget(question)
        answer: Message = question.outcome(seconds)
        return answer

    def _repeat(
        self,
        subject: str,
        data: bytes,
        seconds: float,
        raw_headers: bytes = b"",
        sent: Sent | None = None,
    ) -> Message:
        """A request that is sent again while no answer comes: sent twice it does nothing more.

        A server that just ceases to lead may answer nothing. Raises as ``request``.
        """
        sent = sent or Sent()
        self._ready(seconds)
        # A quarter, so that within a short timeout the request is still sent again twice.
        deadline, pause = self._clock() + seconds, min(SILENCE_S, seconds / 4)
        question = self._requests.ask(subject, data, raw_headers)
        sent.times += 1
        try:
            while not self._until(
                question, question.is_over, min(pause, max(0.0, deadline - self._clock()))
            ):
                if self._clock() >= deadline:
                    break
                pause *= 2
                self._requests.repeat(question, data, raw_headers)
                sent.times += 1
        finally:
            self._requests.forget(question)
        answer: Message = question.outcome(seconds)
        return answer

    def _read(self, subject: str, data: bytes, seconds: float) -> Message:
        """A request that changes nothing: in a cluster it is sent again while no answer comes."""
        if self.clustered:
            return self._repeat(subject, data, seconds)
        return self._request(subject, data, seconds)

    def _persevere(
        self,
        subject: str,
        data: bytes,
        seconds: float,
        raw_headers: bytes = b"",
        *,
        again: Sent | None = None,
    ) -> Message:
        """A request that is sent again while a cluster elects a leader and nobody answers.

        ``again``: also when the connection breaks or no answer comes, because sent twice it does nothing
        more; counts how often it was sent. Raises as ``request``, at the latest when the time is over.
        """
        deadline = self._clock() + seconds
        while True:
            try:
                if again is not None:
                    return self._repeat(subject, data, seconds, raw_headers, again)
                return self._request(subject, data, seconds, raw_headers)
            except NoRespondersError:
                # A single server answers 503 when nobody listens. In a cluster, the stream or consumer may be
                # between two leaders (ADR-22).
                seconds = deadline - self._clock() - RETRY_S
                if seconds <= 0 or not self.clustered:
                    raise
                self._sleep(RETRY_S)
            except ConnectionLostError:
                # Without a pause: the next request waits for a connection anyway.
                seconds = deadline - self._clock()
                if seconds <= 0 or again is None:
                    raise

    @locked
    def request_many(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: HeadersLike | None = None,
        max_messages: int | None = None,
        max_wait: Duration | None = None,
        stall: Duration | None = None,
        sentinel: Callable[[Message], bool] | bool = False,
    ) -> Iterator[Message]:
        """Publish a request and yield its answers, as they come.

        Ends after ``max_messages``, after ``max_wait`` (the timeout of the options), when ``stall``
        passes after an answer without another one, or with the answer that ends the answers:
        ``sentinel`` says which one does, True stands for an empty one; it is not yielded. Raises
        NoRespondersError when nobody listens, and the errors of publish.
        """
        seconds = self._timeout_of(max_wait, "max_wait")
        pause = math.inf if stall is None else to_seconds(stall, "stall")
        check_number("max_messages", max_messages, least=1, optional=True)
        if not isinstance(sentinel, bool) and not callable(sentinel):
            refuse("sentinel", "a function or True", sentinel)
        self._ready(seconds)
        answers = Gathered(subject, self.new_inbox())
        self._attach(answers.inbox, answers)
        # Before the request is sent: a refusal or a loss must not be missed.
        self._watchers.add(answers)
        deadline, taken = self._clock() + seconds, 0
        try:
            self._connection.publish(subject, data, answers.inbox, encode_header_map(headers))
            self._send_queued()
            while max_messages is None or taken < max_messages:
                left = deadline - self._clock()
                if not answers._has_news():
                    # ``stall`` counts between two answers, not before the first one (ADR-47).
                    wait = min(left, pause) if taken else left
                    if wait <= 0 or not self._until(answers, answers._has_news, wait):
                        return
                message: Message | None = answers.take()
                if message is None or is_end(message, sentinel):
                    return
                taken += 1
                yield message
        finally:
            self._watchers.discard(answers)
            self._release(answers._interest)

    # -- the connection ----------------------------------------------------------------------------

    @locked
    def flush(self, timeout: Duration | None = None) -> None:
        """Wait until the server has processed all sent operations; PeltonTimeoutError, ConnectionLostError."""
        seconds = self._timeout_of(timeout)
        self._ready(seconds)
        ping = Ping()
        self._connection.ping(ping)
        if not self._until(ping, ping.is_over, seconds):
            raise PeltonTimeoutError(f"the server did not answer a ping in {seconds} s")
        if ping.error is not None:
            raise ping.error

    @locked
    def rtt(self) -> float:
        """The time that the server takes to answer a ping, in seconds."""
        start = self._clock()
        self.flush()
        return self._clock() - start

    @locked
    def reconnect(self, timeout: Duration | None = None) -> None:
        """Leave the server and connect to the next one, or to the same when there is only one.

        Subscriptions continue. The old server gets queued output before; half of the time is for that.
        Raises PeltonTimeoutError when there is no new connection in time (the client goes on trying), ValueError with
        the option ``reconnect=False``.
        """
        seconds = self._timeout_of(timeout)
        if not self.options.reconnect:
            raise ValueError("the option reconnect is off, so the client can't connect again")
        if self.closed:
            raise self._connection.closed_error()
        if self._connection.connected:
            with contextlib.suppress(PeltonTimeoutError, ConnectionLostError):
                # A server that does not answer any more is left all the same.
                self.flush(seconds * LEAVE_SHARE)
            self._connection.receive_eof(ConnectionLostError("asked to connect again"))
            self._process()
            # After ``_process``, which has counted the end of the connection as a loss.
            self._pool.left()
        self._ready(seconds)
        at = self._connection
        done = self._until(self._arrivals, lambda: at.connected or self.closed, seconds)
        if self.closed:
            raise at.closed_error()
        if not done:
            raise PeltonTimeoutError(f"no connection in {seconds} s; the client goes on trying")

    @locked
    def drain(self, timeout: Duration | None = None) -> None:
        """Receive and handle messages on their way for every subscription, send queued output, and close.

        Messages without a callback can still be taken. PeltonTimeoutError when the time is over first.
        """
        seconds = self._timeout_of(timeout)
        deadline = self._clock() + seconds
        owners = [interest.owner for interest in self._connection.interests.values()]
        subscriptions = [each for each in owners if isinstance(each, Subscription)]
        try:
            # All of them before one round trip: with a round trip for each, thousands would take seconds, and
            # the last ones would go on receiving.
            for each in subscriptions:
                self._connection.drain(each._interest)
            self.flush(seconds)
            for each in subscriptions:
                each._end_drained(deadline - self._clock())
            # What callbacks have sent meanwhile.
            self.flush(max(0.0, deadline - self._clock()))
        except PeltonTimeoutError:
            raise PeltonTimeoutError(f"not drained in {seconds} s") from None
        finally:
            # Also when the time is over: a client that is half drained is of no use.
            self.close()

    @locked
    def status(self) -> StatusEvents:
        """The events of the connection from now on, to iterate over; ends when the client is closed."""
        return StatusEvents(self)

    # -- what is made with it ----------------------------------------------------------------------

    def jetstream(
        self,
        *,
        domain: str | None = None,
        prefix: str | None = None,
        timeout: Duration | None = None,
    ) -> JetStream:
        """Streams and consumers over this connection; domain or prefix replace those of the options."""
        from .jetstream import JetStream  # a program that only publishes need not load it

        domain, prefix = self._api_of(domain, prefix)
        seconds = self._timeout_of(timeout)
        return JetStream(self, domain=domain, prefix=prefix, timeout=seconds)

    @locked
    def add_service(self, config: ServiceConfig) -> Service:
        """A service on this connection; it has no endpoints yet, and answers to ``$SRV`` requests."""
        from .services import Service

        service = Service(self, config)
        service._begin()
        return service

    def service_client(self) -> ServiceClient:
        """Finds services and calls them."""
        from .services import ServiceClient

        return ServiceClient(self)


class StatusEvents(StatusBox):
    """Events of a connection: ``for event in client.status()``; ends when the client is closed.

    ::

        for event in nc.status():
            print(event.type, event.error)
    """

    client: Client

    def __iter__(self) -> Self:
        """The object itself."""
        return self

    @locked
    def __next__(self) -> Status:
        """The next event; the iteration ends after "closed"."""
        if not self._has_news():
            with contextlib.suppress(ConnectionClosedError):  # the event "closed" is there
                self.client._until(self, self._has_news, math.inf)
        status = self._take()
        if status is None:
            raise StopIteration
        return status
