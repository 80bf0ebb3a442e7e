"""The client for code that waits: a plain socket, read by whoever waits for something.

There is no thread in the background. Bytes are read, and the server's pings answered, while a call
waits; a client that is left alone for minutes is cut off by the server as stale and connects again
at the next call. One thread at a time may use a client, and a second one is refused (ClientInUse).
``Options`` can be pickled, so a client is opened where it is used::

    with connect_blocking("nats://127.0.0.1:4222") as nc:
        nc.publish("greetings.anna", b"hello")
"""

from __future__ import annotations

import logging
import math
import random
import time
from typing import TYPE_CHECKING, Any, Unpack

from penstock.errors import (
    ClientInUse,
    ConnectError,
    ConnectionLost,
    NoResponders,
    PenstockError,
    PermissionsViolation,
    Timeout,
)
from penstock.nuid import Nuid

from . import connection as machine
from .blocking_guard import Guard, exclusive
from .blocking_socket import Transport, open_transport
from .blocking_subscription import BlockingMessage, Subscription
from .durations import Duration, to_seconds
from .jetstream import Headers, encode_header_map
from .message import BaseMessage
from .options import DEFAULT_URL, ConnectOptions, Options, TlsOptions, make_options
from .pool import ServerPool

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable

    from .blocking_jetstream import JetStream
    from .info import ServerInfo
    from .options import Server

LOOK_AFTER_S = 0.5  # a connection not read for so long is looked at before it is used
PENDING_MESSAGES_MAX = 524_288
PENDING_BYTES_MAX = 128 * 1024 * 1024

logger = logging.getLogger(__name__)


class Question:
    """A request whose answer is waited for later; made by ``BlockingClient.ask``."""

    __slots__ = ("answer", "complaint", "inbox", "subject", "transport")

    def __init__(self, subject: str, inbox: str, transport: Transport | None) -> None:
        """Sent over this transport, and answered over no other."""
        self.subject = subject
        self.inbox = inbox
        self.transport = transport
        self.answer: BaseMessage | None = None
        self.complaint: Exception | None = None
        """What the server had complained about last when it was asked."""


class BlockingClient:
    """A connection for blocking code; made by ``connect_blocking``."""

    def __init__(self, options: Options, tls_context: ssl.SSLContext | None = None) -> None:
        """Connects: ConnectError, AuthenticationError."""
        self.options = options
        self.guard = Guard()
        self.connection = machine.Connection(options, BlockingMessage)
        self.reconnects = 0
        self.last_error: Exception | None = None
        """What the server complained about last without closing, or why the connection was lost."""
        self._tls_context = tls_context
        self._pool = ServerPool(options, random.random)
        self._nuid = Nuid(random.SystemRandom())
        self._transport: Transport | None = None
        self._inbox = ""
        self._requests = 0
        self._questions: dict[str, Question] = {}  # by the reply subject
        self._failed_at = -math.inf  # when an attempt to connect failed last
        self._ping_due = 0.0
        self._read_at = 0.0
        self._open()

    # -- life -------------------------------------------------------------------------------------
    # -----------

    def __enter__(self) -> BlockingClient:
        """The client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self.connection.state is machine.State.CLOSED

    @property
    def connected(self) -> bool:
        """Whether the connection stood when it was last used; a call makes a lost one again."""
        return self._transport is not None

    @property
    def server_info(self) -> ServerInfo:
        """What the server said of itself last."""
        return self.connection.info

    @exclusive
    def close(self) -> None:
        """Send what is queued and close; a second time does nothing."""
        if self.closed:
            return
        try:
            if self.connection.connected and self._transport is not None:
                self._send(time.monotonic() + self.options.connect_timeout)
        except (OSError, PenstockError):
            pass  # the other side is gone: there is nothing left to send to
        finally:
            self._end()

    def _end(self, failure: str = "") -> None:
        """Nothing works any more. ``failure``: why, unless the owner closes."""
        self._shut()
        interests = list(self.connection.interests.values())
        self.connection.close(failure)
        for interest in interests:
            if interest.owner is not None and interest.owner is not self:
                interest.owner.end()
        if failure:
            logger.error("the client is closed: %s", failure)

    def _shut(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def _open(self) -> None:
        """Connect to the first server that takes us; ConnectError with every server's reason."""
        error: Exception | None = None
        for _ in self.options.servers:
            error = self._try_next(math.inf)
            if error is None:
                return
        raise self._pool.error(error)

    def _try_next(self, deadline: float) -> Exception | None:
        """One attempt at the next server; None when it took us. ConnectError when no server is
        left, Timeout when its turn comes after the deadline.
        """
        choice = self._pool.next()
        if choice is None:
            raise self._pool.error()
        server, wait = choice
        now = time.monotonic()
        wait = max(0.0, self._failed_at + wait - now)  # calls in between count as waiting
        if deadline - now <= wait:
            self._pool.postpone()
            time.sleep(max(0.0, deadline - now))
            raise Timeout(f"no connection in time: {self._pool.error()}")
        time.sleep(wait)
        try:
            self._open_one(server)
        except (
            PenstockError,
            OSError,
            ValueError,
        ) as failure:  # ValueError: a host that is no name
            self._shut()
            self.connection.receive_eof()
            self.connection.events()
            self._pool.failed(failure)
            self._failed_at = time.monotonic()
            return failure
        self._pool.succeeded()
        return None

    def _open_one(self, server: Server) -> None:
        deadline = time.monotonic() + self.options.connect_timeout
        first = self.options.tls is not None and self.options.tls.first
        self._transport = open_transport(server, self.options.connect_timeout)
        if first:
            self._transport.start_tls(server, self.options.tls, self._tls_context, deadline)
        self.connection.connected_to(server, tls=first)
        while not self.connection.connected:
            if not self._turn(deadline):
                raise ConnectError(f"no answer in {self.options.connect_timeout} s")
            if self._transport is None:
                raise self.last_error or ConnectError("closed during the handshake")
        if not self._send(deadline):
            raise self.last_error or ConnectError("closed after the handshake")
        self._ping_due = time.monotonic() + self.options.ping_interval

    def lost_since(self, reconnects: int) -> bool:
        """Whether the connection broke since the count of ``reconnects`` was taken."""
        return self._transport is None or self.reconnects != reconnects

    @exclusive
    def ensure_open(self, timeout: Duration | None = None) -> None:
        """Connect again when the connection is lost; ConnectionClosed when that cannot be.

        As often as the options say. Where they set no limit Timeout is raised after ``timeout``
        (that of the options); the next call tries again.
        """
        self._reopen(timeout)

    def _reopen(self, timeout: Duration | None) -> None:
        if self._transport is not None:
            if time.monotonic() - self._read_at < LOOK_AFTER_S:
                return
            self._look()
            if self._transport is not None:
                return
        if self.closed:
            raise self.connection.closed_error()
        if not self.options.reconnect:
            self._end(f"the connection is lost, and reconnect is off: {self.last_error}")
            raise self.connection.closed_error()
        unlimited = self.options.reconnect_attempts_max < 0
        deadline = time.monotonic() + self.timeout_of(timeout) if unlimited else math.inf
        try:
            while self._try_next(deadline) is not None:
                pass
        except ConnectError as error:
            self._end(f"gave up reconnecting: {error}")
            raise self.connection.closed_error() from error
        self.reconnects += 1

    def _look(self) -> None:
        """Read what came while nobody waited: the server may have pinged us, or be gone."""
        assert self._transport is not None
        self._read_at = time.monotonic()
        self._receive(self._transport.receive(0.0))

    # -- bytes ------------------------------------------------------------------------------------
    # -----------

    def _send(self, deadline: float) -> bool:
        """Write all queued output; False when the connection broke meanwhile.

        Reads what comes while the server does not take more, so that the two never wait for each
        other.
        """
        transport = self._transport
        assert transport is not None
        while data := self.connection.data_to_send():
            view = memoryview(data)
            while view:
                sent = transport.send(view)
                view = view[sent:]
                if view and not sent:
                    self._receive(transport.wait_both(deadline))
                    if self._transport is not transport:
                        return False
        return True

    def _receive(self, data: bytes | None) -> None:
        """Feed what was read (b"" is the end, None is nothing) and act on what it means."""
        if data is None:
            return
        if data:
            self.connection.receive_data(data)
        else:
            self.connection.receive_eof()
        for event in self.connection.events():
            if not isinstance(event, BaseMessage):
                self._on_event(event)
                continue
            owner = event.interest.owner
            try:
                (self._receive_answer if owner is self else owner.receive)(event)
            except (PenstockError, ValueError) as error:  # of this message; the others still count
                self.last_error = error

    def _on_event(self, event: machine.Event) -> None:
        if isinstance(event, machine.Pong):
            assert isinstance(event.waiter, list)
            event.waiter.append(True)
        elif isinstance(event, machine.Ended):
            if event.interest.owner is not self:
                event.interest.owner.end()
        elif isinstance(event, machine.ServerComplaint):
            self.last_error = event.error
        elif isinstance(event, machine.Connected | machine.InfoChanged):
            self._pool.learn(event.info.connect_urls)
        elif isinstance(event, machine.TlsRequired):
            assert self._transport is not None
            deadline = time.monotonic() + self.options.connect_timeout
            self._transport.start_tls(event.server, self.options.tls, self._tls_context, deadline)
            self.connection.tls_established()
        elif isinstance(event, machine.Disconnected):
            self.last_error = event.error
            self._shut()

    def _turn(self, deadline: float) -> bool:
        """Write, then read once; False when nothing came before the deadline."""
        transport = self._transport
        assert transport is not None
        if self.connection.bytes_waiting and not self._send(deadline):
            return True
        data = transport.receive(
            min(deadline, self._ping_due) if self.connection.connected else deadline
        )
        if data is None:
            if self.connection.connected and time.monotonic() >= self._ping_due:
                self._keep_alive()
                return True
            return False
        self._read_at = time.monotonic()
        self._receive(data)
        if self._transport is None:
            if self.connection.state is machine.State.DISCONNECTED and isinstance(
                self.last_error, ConnectError
            ):
                raise self.last_error
            return True
        if self.connection.bytes_waiting:
            self._send(deadline)
        return True

    def _keep_alive(self) -> None:
        self._ping_due = time.monotonic() + self.options.ping_interval
        if self.connection.pings_outstanding >= self.options.pings_outstanding_max:
            self.connection.receive_eof(TimeoutError("stale: pings are not answered"))
            self._receive_events_of_loss()
        else:
            self.connection.ping()

    def _receive_events_of_loss(self) -> None:
        for event in self.connection.events():
            if not isinstance(event, BaseMessage):
                self._on_event(event)

    def timeout_of(self, timeout: Duration | None) -> float:
        """The timeout that counts, in seconds: the one given, or that of the options."""
        return self.options.timeout if timeout is None else to_seconds(timeout)

    @exclusive
    def wait_until(self, done: Callable[[], bool], timeout: Duration | None = None) -> bool:
        """Read until ``done()`` holds, reconnecting if need be; False when time runs out."""
        deadline = time.monotonic() + self.timeout_of(timeout)
        while not done():
            reconnects = self.reconnects
            try:
                self._reopen(deadline - time.monotonic())
            except Timeout:
                return done()
            if self.reconnects != reconnects:
                continue  # whoever waits may have to ask again
            if not self._turn(deadline):
                return done()
        return True

    @exclusive
    def flush_output(self) -> None:
        """Write what is queued; what a broken connection did not take is lost without a word."""
        self._reopen(None)
        if self.connection.bytes_waiting:
            self._send(time.monotonic() + self.options.timeout)

    # -- verbs ------------------------------------------------------------------------------------
    # -----------

    def publish(
        self, subject: str, data: bytes = b"", *, reply: str = "", headers: Headers | None = None
    ) -> None:
        """Send a message; it is written before the call returns.

        Raises InvalidSubject, PayloadTooLarge, ConnectionClosed, Timeout when no server was found
        in the time of the options, and ConnectionLost when it cannot be known whether the server
        took it.
        """
        if not self.guard.take(False):
            raise ClientInUse
        try:
            self._reopen(None)
            self.connection.publish(subject, data, reply, encode_header_map(headers))
            if not self._send(time.monotonic() + self.options.timeout):
                raise ConnectionLost(f"connection lost while publishing: {self.last_error}")
        finally:
            self.guard.give()

    @exclusive
    def subscribe(
        self,
        subject: str,
        *,
        queue: str = "",
        max_msgs: int = 0,
        pending_messages_max: int = PENDING_MESSAGES_MAX,
        pending_bytes_max: int = PENDING_BYTES_MAX,
    ) -> Subscription:
        """Ask for the messages of a subject, which may hold wildcards; a queue group shares them.

        With max_msgs the subscription ends after that many. Messages over the pending limits are
        dropped.
        """
        subscription = Subscription(self, pending_messages_max, pending_bytes_max)
        self.attach(subject, subscription, queue)
        if max_msgs:
            self.connection.unsubscribe(subscription.interest, max_msgs)
        self.flush_output()
        return subscription

    @exclusive
    def attach(self, subject: str, owner: Any, queue: str = "") -> None:
        """Subscribe for an owner with ``interest``, ``receive(message)`` and ``end()``; the base of
        ``subscribe``.
        """
        self._reopen(None)
        owner.interest = self.connection.subscribe(subject, queue, owner)
        self.flush_output()

    def new_inbox(self) -> str:
        """A subject nobody else uses."""
        return f"{self.options.inbox_prefix}.{self._nuid.next()}"

    @exclusive
    def request(
        self,
        subject: str,
        data: bytes = b"",
        *,
        timeout: Duration | None = None,
        headers: Headers | None = None,
        raw_headers: bytes = b"",
    ) -> BlockingMessage:
        """Publish and wait for one answer.

        Raises NoResponders, Timeout, PermissionsViolation where the server says so, ConnectionLost
        when the connection broke meanwhile, and what publish raises.
        """
        question = self.ask(
            subject, data, headers=headers, raw_headers=raw_headers, timeout=timeout
        )
        return self.answer_to(question, timeout)

    @exclusive
    def ask(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
        raw_headers: bytes = b"",
        timeout: Duration | None = None,
    ) -> Question:
        """Queue a request; it goes out with the next flush or wait. ``answer_to`` or ``forget`` must
        follow. Raises what publish raises; ``timeout`` is for the connection.
        """
        self._reopen(timeout)
        if not self._inbox:
            self._inbox = self.new_inbox()
            self.connection.subscribe(f"{self._inbox}.*", owner=self)
        self._requests += 1
        question = Question(subject, f"{self._inbox}.{self._requests}", self._transport)
        question.complaint = self.last_error
        block = raw_headers or encode_header_map(headers)
        self.connection.publish(subject, data, question.inbox, block)
        self._questions[question.inbox] = question
        return question

    @exclusive
    def answer_to(self, question: Question, timeout: Duration | None = None) -> BlockingMessage:
        """Wait for the answer.

        Raises NoResponders, Timeout, PermissionsViolation where the server says so, and
        ConnectionLost when the connection broke since it was asked.
        """
        try:
            self.wait_until(
                lambda: (
                    question.answer is not None
                    or self._transport is not question.transport
                    or self._forbidden(question) is not None
                ),
                timeout,
            )
        finally:
            self.forget(question)
        answer, subject = question.answer, question.subject
        if answer is None:
            if self._transport is not question.transport:
                raise ConnectionLost(f"no answer from {subject!r}: {self.last_error}")
            if refusal := self._forbidden(question):
                raise refusal
            raise Timeout(f"no answer from {subject!r} in {self.timeout_of(timeout)} s")
        if answer.status == 503:
            raise NoResponders(subject)
        assert isinstance(answer, BlockingMessage)
        return answer

    def forget(self, question: Question) -> None:
        """Nobody waits for the answer any more."""
        self._questions.pop(question.inbox, None)

    def _forbidden(self, question: Question) -> PermissionsViolation | None:
        """What the server said last, where that is why no answer will come."""
        said = self.last_error
        if said is question.complaint or not isinstance(said, PermissionsViolation):
            return None
        told = f'"{question.subject}"' in said.text or f'"{self._inbox}.*"' in said.text
        return said if told else None

    def _receive_answer(self, message: BaseMessage) -> None:
        question = self._questions.get(message.subject)
        if question is not None:
            question.answer = message

    @exclusive
    def flush(self, timeout: Duration | None = None) -> None:
        """Wait until the server has taken all that was sent; Timeout, ConnectionLost."""
        self._reopen(timeout)
        transport = self._transport
        answered: list[bool] = []
        self.connection.ping(answered)
        if not self.wait_until(lambda: bool(answered) or self._transport is not transport, timeout):
            raise Timeout(f"the server did not answer a ping in {self.timeout_of(timeout)} s")
        if not answered:
            raise ConnectionLost(f"connection lost while flushing: {self.last_error}")

    def rtt(self) -> float:
        """Seconds the server takes to answer a ping."""
        start = time.monotonic()
        self.flush()
        return time.monotonic() - start

    @exclusive
    def drain(self, timeout: Duration | None = None) -> None:
        """Take what is on its way for every subscription, send what is queued, and close.

        Messages already received can still be asked for.
        """
        for interest in list(self.connection.interests.values()):
            self.connection.drain(interest)
        self.flush(timeout)
        self.close()

    def jetstream(
        self,
        *,
        domain: str | None = None,
        prefix: str | None = None,
        timeout: Duration | None = None,
    ) -> JetStream:
        """Streams and consumers over this connection."""
        from .blocking_jetstream import JetStream

        return JetStream(self, domain=domain, prefix=prefix, timeout=self.timeout_of(timeout))


def connect_blocking(
    servers: str | Iterable[str] | Options = DEFAULT_URL,
    *,
    tls: ssl.SSLContext | TlsOptions | None = None,
    **options: Unpack[ConnectOptions],
) -> BlockingClient:
    """Connect to one of the servers; usable in ``with``.

    ``servers``: a URL, several (also separated by commas), or whole ``Options``; ``options``: single
    ones, which ``help(Options)`` explains; ``tls``: file names, or a context. Raises ConnectError,
    AuthenticationError, ValueError on options that make no sense, and TypeError on options that there
    are not or that whole ``Options`` stand beside.
    """
    return BlockingClient(*make_options(servers, tls, options))
