"""A connection for blocking code: a plain socket, which each waiting call reads.

There is no thread in the background. While a call waits, it reads bytes and answers the server's
pings; a client that is unused for minutes is disconnected by the server as stale and connects again at
the next call. One thread at a time may use a client; a second one gets ClientInUse. ``Options`` can be
pickled, so another process can open its own client.
"""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING

from penstock.errors import (
    ClientInUse,
    ConnectError,
    ConnectionLost,
    PenstockError,
    Timeout,
)

from .. import connection as machine
from ..jetstream import Headers, encode_header_map
from ..session import (
    OUTPUT_BYTES,
    PENDING_BYTES_MAX,
    PENDING_MESSAGES_MAX,
    Session,
)
from ..steps import call, made
from ..tls import begins_with_tls
from .messages import BlockingMessage
from .running import Blocking, Guard, exclusive, run
from .status import StatusEvents
from .subscription import Subscription
from .transport import Transport, open_transport

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from ..durations import Duration
    from ..options import Options, Server
    from ..protocol_lines import OnProtocol
    from ..requests import Question
    from ..services.models import ServiceConfig
    from ..status import Status
    from ..steps import Owner
    from .errands import Errands
    from .jetstream import JetStream
    from .services import Service, ServiceClient

LOOK_AFTER_S = 0.5  # a connection not read for this time is checked before use


class BlockingClient(Blocking, Session[BlockingMessage]):
    """A connection for blocking code; made by ``connect_blocking``."""

    stays_open = False

    def __init__(
        self,
        options: Options,
        tls_context: ssl.SSLContext | None = None,
        *,
        on_status: Callable[[Status], object] | None = None,
        on_protocol: OnProtocol | None = None,
    ) -> None:
        """Connects; raises ConnectError, AuthenticationError."""
        super().__init__(options, BlockingMessage, time.monotonic, random.SystemRandom())
        self.listen(on_status, on_protocol)
        self.guard = Guard()
        self.errands: Errands | None = None
        """What handler threads leave to the thread that uses the client, while it runs handlers."""
        self._tls_context = tls_context
        self._transport: Transport | None = None
        self._ping_due = 0.0
        self._read_at = 0.0
        run(self, self._opening())

    def __enter__(self) -> BlockingClient:
        """The client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    @property
    def client(self) -> BlockingClient:
        """The client itself."""
        return self

    @property
    def connected(self) -> bool:
        """Whether the connection was open at its last use; a call connects again when it is lost."""
        return self._transport is not None

    # -- opening and closing -----------------------------------------------------------------------

    @exclusive
    def close(self) -> None:
        """Send queued output and close; a second call does nothing."""
        if self.closed:
            return
        try:
            if self.connection.connected and self._transport is not None:
                self._send(time.monotonic() + self.options.connect_timeout)
        except (OSError, PenstockError):
            pass  # the server is gone, so nothing can be sent
        finally:
            self._end()

    @exclusive
    def detach(self) -> Transport:
        """Hand over the transport of the connection, and close the client.

        For a caller that speaks the protocol itself from here on, and closes the transport. Call ``flush``
        before, and have no subscriptions: what the server still sends is the caller's.
        """
        self.reopen(None)
        self.send_waiting()
        transport, self._transport = self._transport, None
        if transport is None:
            raise self.last_error or ConnectionLost("the connection was closed")
        self._end()
        return transport

    def _end(self, failure: str = "") -> None:
        self._shut()
        self._end_all(failure)

    def _shut(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def dial(self, server: Server) -> None:
        """Connect to a server.

        A failure raises PenstockError, OSError or ValueError, and closes the socket.
        """
        try:
            self._open_one(server)
        except BaseException:
            self._shut()
            self.connection.receive_eof()
            self.connection.events()
            raise

    def _open_one(self, server: Server) -> None:
        deadline = time.monotonic() + self.options.connect_timeout
        first = begins_with_tls(server, self.options.tls)
        self._transport = open_transport(server, self.options)
        if first:
            self._transport.start_tls(server, self.options.tls, self._tls_context, deadline)
        self._transport.begin()
        self._transport.heed(self.errands)
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
        """Whether the connection broke since ``reconnects`` was read."""
        return self._transport is None or self.reconnects != reconnects

    @exclusive
    def ensure_open(self, timeout: Duration | None = None) -> None:
        """Connect again when the connection is lost; ConnectionClosed when that is not possible.

        Tries as often as the options say. When they set no limit, it raises Timeout after ``timeout`` (that of
        the options); the next call tries again.
        """
        self.reopen(timeout)

    def reopen(self, timeout: Duration | None) -> None:
        """``ensure_open`` for callers that hold the guard."""
        if self._transport is not None:
            if time.monotonic() - self._read_at < LOOK_AFTER_S:
                return
            self._read_at = time.monotonic()
            # The server may have sent a ping, or be gone.
            self._receive(self._transport.receive(0.0))
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
            run(self, self._reopening(deadline))
        except ConnectError as error:
            self._end(f"gave up reconnecting: {error}")
            raise self.connection.closed_error() from error

    # -- bytes -------------------------------------------------------------------------------------

    def _send(self, deadline: float) -> bool:
        """Write all queued output; False when the connection broke meanwhile.

        Reads while the server takes no more bytes, so that client and server never wait for each other.
        """
        transport = self._transport
        assert transport is not None
        while data := self.connection.data_to_send():
            sent = transport.send(data)
            if sent == len(data):
                continue
            view = memoryview(data)[sent:]
            while view:
                if not sent:
                    self._receive(transport.wait_both(deadline))
                    if self._transport is not transport:
                        return False
                sent = transport.send(view)
                view = view[sent:]
        return True

    def _receive(self, data: bytes | memoryview | None) -> None:
        """Process bytes that were read (b"" is the end, None is nothing), and act on their events."""
        if data is None:
            return
        if data:
            self.connection.receive_data(data)
        else:
            transport = self._transport
            self.connection.receive_eof(None if transport is None else transport.reason)
        self.process()

    def _changed(self, event: machine.Event) -> None:
        if isinstance(event, machine.TlsRequired):
            assert self._transport is not None
            deadline = time.monotonic() + self.options.connect_timeout
            self._transport.start_tls(event.server, self.options.tls, self._tls_context, deadline)
            self.connection.tls_established()
        elif isinstance(event, machine.Disconnected):
            self.last_error = event.error or ConnectionLost("the connection was closed")
            self._shut()
            self._tell_lost(ConnectionLost(str(self.last_error)), event.waiters)

    def _turn(self, deadline: float) -> bool:
        """Write, then read once; False when nothing arrived before the deadline."""
        transport = self._transport
        assert transport is not None
        if self.errands is not None:
            self.errands.perform(self)
        if self.connection.bytes_waiting and not self._send(deadline):
            return True
        data = transport.receive(
            min(deadline, self._ping_due) if self.connection.connected else deadline
        )
        if data is None:
            if self.connection.connected and time.monotonic() >= self._ping_due:
                self._ping_due = time.monotonic() + self.options.ping_interval
                self._keep_alive()
                return True
            return transport.woken
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

    @exclusive
    def begin_errands(self, errands: Errands) -> Errands:
        """From now on this thread sends the acks of others; RuntimeError when it does already."""
        if self.errands is not None:
            raise RuntimeError("handlers of this client run already: give each operation a client")
        self.errands = errands
        if self._transport is not None:
            self._transport.heed(errands)
        return errands

    def end_errands(self, errands: Errands) -> None:
        """Send what is left; other threads get ClientInUse again."""
        errands.perform(self)
        if self._transport is not None:
            self._transport.heed(None)
        self.errands = None
        errands.close()

    @exclusive
    def wait_until(self, done: Callable[[], bool], timeout: Duration | None = None) -> bool:
        """Read until ``done()`` holds, reconnecting if needed; False when the time is over."""
        return self.wait(done, self.timeout_of(timeout))

    def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """``wait_until`` for callers that hold the guard."""
        deadline = time.monotonic() + seconds
        while not done():
            reconnects = self.reconnects
            try:
                self.reopen(deadline - time.monotonic())
            except Timeout:
                return done()
            if self.reconnects != reconnects:
                continue  # the waiting call may have to ask again
            if not self._turn(deadline):
                return done()
        return True

    @exclusive
    def flush_output(self) -> None:
        """Write queued output; bytes that a broken connection did not take are lost without an
        error.
        """
        self.reopen(None)
        self.send_waiting()

    def send_waiting(self) -> bool:
        """``flush_output`` for an open connection; False when it broke meanwhile."""
        if not self.connection.bytes_waiting:
            return True
        return self._send(time.monotonic() + self.options.timeout)

    @property
    def much_waits(self) -> bool:
        """Whether more output is queued than may be held back."""
        return self.connection.bytes_waiting > OUTPUT_BYTES

    def plan_flush(self) -> None:
        """Does nothing: queued output is sent at the next wait."""

    def report(self, error: Exception) -> None:
        """Keep an error that no call can raise in ``last_error``."""
        self.last_error = error

    # -- verbs -------------------------------------------------------------------------------------

    def publish(
        self, subject: str, data: bytes = b"", *, reply: str = "", headers: Headers | None = None
    ) -> None:
        """Send a message; it is written before the call returns.

        Raises InvalidSubject, PayloadTooLarge, ConnectionClosed, Timeout when no server was found in the time
        of the options, and ConnectionLost when it is unknown whether the server received the message.
        """
        if not self.guard.take(False):
            raise ClientInUse
        try:
            now = time.monotonic()
            if self._transport is None or now - self._read_at >= LOOK_AFTER_S:
                self.reopen(None)
                now = time.monotonic()
            self.connection.publish(subject, data, reply, encode_header_map(headers))
            if not self._send(now + self.options.timeout):
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
        """Subscribe to a subject, which may have wildcards; a queue group shares the messages.

        With max_msgs the subscription ends after that many messages. Messages over the pending limits are
        dropped.
        """
        subscription = Subscription(self, pending_messages_max, pending_bytes_max)
        self._subscribe(subject, subscription, queue, max_msgs)
        self.flush_output()
        return subscription

    @exclusive
    def attach(self, subject: str, owner: Owner, queue: str = "") -> None:
        """Subscribe for an owner with ``interest``, ``receive(message)`` and ``end()``.

        ``subscribe`` uses it.
        """
        self.reopen(None)
        owner.interest = self.connection.subscribe(subject, queue, owner)
        self.flush_output()

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
        """Queue a request, which is sent with the next flush or wait.

        ``answer_to`` or ``forget`` must follow. Raises the errors of publish; ``timeout`` is for the
        connection.
        """
        self.reopen(timeout)
        return self._ask(subject, data, raw_headers or encode_header_map(headers))

    answer_to = call(Session[BlockingMessage].answering)

    @exclusive
    def drain(self, timeout: Duration | None = None) -> None:
        """Receive messages on their way for every subscription, send queued output, and close.

        Messages that were received can still be taken.
        """
        for interest in list(self.connection.interests.values()):
            self.connection.drain(interest)
        self.flush(timeout)
        self.close()

    status = made(StatusEvents)

    def jetstream(
        self,
        *,
        domain: str | None = None,
        prefix: str | None = None,
        timeout: Duration | None = None,
    ) -> JetStream:
        """Streams and consumers over this connection; domain or prefix replace those of the options."""
        from .jetstream import JetStream

        domain, prefix = self.api_of(domain, prefix)
        return JetStream(self, domain=domain, prefix=prefix, timeout=self.timeout_of(timeout))

    def add_service(self, config: ServiceConfig) -> Service:
        """A service on this connection; it has no endpoints yet, and answers to ``$SRV`` requests."""
        from .services import Service

        service = Service(self, config)
        run(self, service.begin())
        return service

    def service_client(self) -> ServiceClient:
        """Finds services and calls them."""
        from .services import ServiceClient

        return ServiceClient(self)
