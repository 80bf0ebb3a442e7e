"""What differs between the halves of the client, for blocking code: a plain socket,
which one of the waiting calls reads.

Any number of threads may use a client: ``sharing.py`` says which of them reads, and a thread of the client
does so while no call waits. ``Options`` can be pickled, so another process can open its own client.
"""

from __future__ import annotations

import inspect
import math
import random
import time
from typing import TYPE_CHECKING, TypeVar, cast

from pelton.errors import (
    CallbackFailedError,
    ConnectError,
    ConnectionLostError,
    PeltonError,
    PeltonTimeoutError,
)

from ..base.arguments import refuse
from ..base.mailbox import Mailbox, Owner
from ..base.message import BaseMessage, HeadersLike, encode_header_map
from ..protocol import events
from ..protocol.connection import State
from ..protocol.options import Options, begins_with_tls
from ..session.session import (
    OUTPUT_BYTES,
    PENDING_BYTES_MAX,
    PENDING_MESSAGES_MAX,
    Session,
)
from .attempts import connect_again, connect_first
from .locks import Sleeper, locked
from .sharing import GATHER_S, KEEPER, Shared, forget
from .subscription import Subscription
from .transport import Transport, open_transport

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from ..base.addresses import Server
    from ..base.durations import Duration
    from ..protocol.events import OnProtocol
    from ..session.requests import Question
    from ..session.status import Status
    from .connection import Client

T = TypeVar("T")

LOOK_AFTER_S = 0.5  # a connection not read for this time is checked before use


class Backend(Shared):
    """The transport and the waits of a client."""

    _stays_open = False
    logged = CallbackFailedError

    def __init__(
        self,
        options: Options,
        message_type: type[BaseMessage],
        tls_context: ssl.SSLContext | None = None,
        *,
        on_status: Callable[[Status], object] | None = None,
        on_protocol: OnProtocol | None = None,
        on_error: Callable[[Exception], object] | None = None,
    ) -> None:
        """Connects; raises ConnectError, AuthenticationError."""
        super().__init__(options, message_type, time.monotonic, random.SystemRandom())
        self._listen(on_status, on_protocol, on_error)
        self._tls_context = tls_context
        self._transport = None
        self._usable = (
            False  # whether the handshake is done, and the connection not known to be lost
        )
        self._rest = memoryview(b"")  # bytes that the transport has not taken yet
        self._ping_due = 0.0
        self._read_at = 0.0
        self._share()
        with self._guard:
            outer = self._begin_leading()
            try:
                connect_first(self)
            finally:
                self._end_leading(outer)
        # Last, so that a connect that fails leaves no thread behind.
        self._keeper.start()

    # -- opening and closing -----------------------------------------------------------------------

    def close(self) -> None:
        """Send queued output and close; a second call does nothing.

        Calls that wait in other threads, also for a connection, raise ConnectionClosedError, and iterations over
        subscriptions end.
        """
        with self._guard:
            if self.closed:
                return
            try:
                if self._connection.connected:
                    self._leave_consumers()
                    self._send(time.monotonic() + self.options.connect_timeout)
            except (OSError, PeltonError):
                pass  # the server is gone, so nothing can be sent
            finally:
                self._end()
            if self._leader in (None, KEEPER):
                self._guard.without(self._keeper.join)

    @locked
    def detach(self) -> Transport:
        """Hand over the transport of the connection, and close the client.

        For a caller that speaks the protocol itself from here on, and closes the transport. Call ``flush``
        before, and have no subscriptions: what the server still sends is the caller's.
        """
        self._reopen(None)
        self._send_waiting()
        # Taken out before ``_end``, which would close it.
        transport, self._transport = self._transport, None
        if transport is None:
            raise self.last_error or ConnectionLostError("the connection was closed")
        self._usable = False
        self._end()
        return transport

    def _end(self, failure: str = "") -> None:
        if self.closed:  # another thread was faster
            return
        self._shut()
        self._end_all(failure)
        self._keeper.end()
        self._bell.wake()  # of a thread that connects
        for each in list(self._sleepers):
            each.wake()
        for box in (self._ending, self._change, self._outflow):
            box._stir()
        # Otherwise the thread that leads closes it, when it has left its wait.
        if self._leads_or_may():
            self._bell.close()

    def _shut(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None
            self._usable = False
            self._rest = memoryview(b"")
            if self._leader == KEEPER:
                self._keeper.rouse()
            self._outflow._stir()

    def _release_socket(self) -> None:
        self._guard.reset_in_child()
        transport, self._transport = self._transport, None
        self._usable = False
        self._rest = memoryview(b"")
        if transport is not None:
            transport.release()

    def _dial(self, server: Server) -> None:
        """Connect to a server.

        A failure raises PeltonError, OSError or ValueError, and closes the socket.
        """
        try:
            self._open_one(server)
        except BaseException as error:
            self._shut()
            self._connection.receive_eof()
            self._connection.events()
            # With a number it is the kernel's own (ETIMEDOUT), and has its own words.
            if isinstance(error, TimeoutError) and error.errno is None:
                raise self._no_answer() from None
            raise

    def _open_one(self, server: Server) -> None:
        deadline = time.monotonic() + self.options.connect_timeout
        first = begins_with_tls(server, self.options.tls)
        transport = open_transport(
            server, self.options, self._guard, self._bell, lambda: self.closed, deadline
        )
        # Another thread closed the client while this one had no transport yet that could be closed.
        if self.closed:
            transport.close()
            raise self._connection.closed_error()
        self._transport = transport
        self._gather_s = 0.0 if server.memory else GATHER_S
        if first:
            transport.start_tls(server, self.options.tls, self._tls_context, deadline)
        transport.begin()
        self._check_open()
        self._connection.connected_to(server, tls=first)
        while not self._connection.connected:
            self._bell.attend()
            if not self._turn(deadline):
                raise self._no_answer()
            self._check_open()
            if self._transport is None:
                raise self.last_error or ConnectError("closed during the handshake")
        if not self._send(deadline):
            raise self.last_error or ConnectError("closed after the handshake")
        self._ping_due = time.monotonic() + self.options.ping_interval
        self._usable = self._connection.connected

    def _no_answer(self) -> ConnectError:
        return ConnectError(f"no answer in {self.options.connect_timeout} s")

    def _lost_since(self, reconnects: int) -> bool:
        """Whether the connection broke since ``reconnects`` was read."""
        return self._transport is None or self.reconnects != reconnects

    @locked
    def _ensure_open(self, timeout: Duration | None = None) -> None:
        """Connect again when the connection is lost; ConnectionClosedError when that is not possible.

        Tries as often as the options say. When they set no limit, it raises PeltonTimeoutError after
        ``timeout`` (that of the options); the next call tries again.
        """
        self._reopen(timeout)

    def _reopen(self, timeout: Duration | None) -> None:
        """``_ensure_open`` for callers that have the guard."""
        # A broken connection shows only when it is read, and a publish would vanish in it. So one that has been
        # silent for a while is looked at before it is used.
        if self._usable and (
            time.monotonic() - self._read_at < LOOK_AFTER_S or not self._is_over()
        ):
            return
        self._check_open()
        if not self.options.reconnect:
            self._end(f"the connection is lost, and reconnect is off: {self.last_error}")
            raise self._connection.closed_error()
        unlimited = self.options.reconnect_attempts_max < 0
        seconds = self._timeout_of(timeout)
        deadline = time.monotonic() + seconds if unlimited else math.inf
        try:
            # Several threads may notice the loss: one connects, the others follow it.
            while not self._usable:
                self._check_open()
                if self._leads_or_may():
                    self._connect_again(deadline)
                elif not self._follow(deadline, self._arrivals):
                    raise PeltonTimeoutError(f"no connection in {seconds} s: {self.last_error}")
        finally:
            self._hand_over()

    def _is_over(self) -> bool:
        """Look at a connection that was not read for a while: the server may be gone."""
        # Another thread reads, and will notice the end itself.
        if self._leader not in (None, KEEPER):
            return False
        self._read_at = time.monotonic()
        assert self._transport is not None
        self._receive(self._transport.receive(0.0))
        return not self._usable

    def _check_open(self) -> None:
        if self.closed:
            raise self._connection.closed_error()

    def _connect_again(self, deadline: float) -> None:
        outer = self._begin_leading()
        try:
            connect_again(self, deadline)
        except ConnectError as error:
            self._end(f"gave up reconnecting: {error}")
            raise self._connection.closed_error() from error
        finally:
            self._end_leading(outer)

    def _pause(self, seconds: float) -> None:
        """Sleep between two attempts to connect; ConnectionClosedError when another thread closes."""
        self._check_open()
        sleeper = Sleeper()
        self._ending._waiting = (*self._ending._waiting, sleeper)
        try:
            sleeper.sleep(self._guard, seconds)
        finally:
            forget(self._ending, sleeper)
        self._check_open()

    # -- bytes -------------------------------------------------------------------------------------

    def _push(self) -> bool:
        """Write queued output as far as the transport takes it; whether it took everything."""
        transport = self._transport
        if transport is None:
            return True
        # The rest of an operation goes first; new output waits in the state machine until then.
        if not self._rest:
            data = self._connection.data_to_send()
            sent = transport.send(data) if data else 0
            if sent == len(data):
                return True
            self._rest = memoryview(data)[sent:]
        return self._push_rest(transport)

    def _push_rest(self, transport: Transport) -> bool:
        try:
            while self._rest:
                sent = transport.send(self._rest)
                if not sent:
                    return False
                self._rest = self._rest[sent:] or memoryview(self._connection.data_to_send())
            return True
        finally:
            if self._outflow._waiting:
                self._outflow._stir()

    def _send(self, deadline: float) -> bool:
        """Write all queued output; False when the connection broke meanwhile.

        Reads while the server takes no more bytes, so that client and server never wait for each other.
        """
        if self._push():
            return True
        transport, connection = self._transport, self._connection
        # What is queued by now. Other threads wait for what they add.
        goal = connection.bytes_sent + connection.bytes_waiting

        def gone() -> bool:
            return self._transport is not transport

        def sent() -> bool:
            return gone() or connection.bytes_sent - len(self._rest) >= goal

        self._bell.wake()  # whoever leads shall write
        if not self._wait(sent, deadline - time.monotonic(), self._outflow) and not gone():
            self._receive(b"")  # a server that takes no bytes for so long counts as gone
        return not gone()

    def _receive(self, data: bytes | memoryview | None) -> None:
        """Process bytes that were read (b"" is the end, None is nothing), and act on their events."""
        if data is None:
            return
        if data:
            self._connection.receive_data(data)
        else:
            transport = self._transport
            self._connection.receive_eof(None if transport is None else transport.reason)
        self._process()
        if self._change._waiting:
            self._change._stir()

    def _changed(self, event: events.Event) -> None:
        if isinstance(event, events.TlsRequired):
            assert self._transport is not None
            deadline = time.monotonic() + self.options.connect_timeout
            self._transport.start_tls(event.server, self.options.tls, self._tls_context, deadline)
            self._connection.tls_established()
        elif isinstance(event, events.Disconnected):
            self.last_error = event.error or ConnectionLostError("the connection was closed")
            self._shut()
            self._tell_lost(ConnectionLostError(str(self.last_error)), event.waiters)

    def _turn(self, deadline: float) -> bool:
        """Write, then read once; False when nothing arrived before the deadline."""
        transport = self._transport
        assert transport is not None
        wrote = self._connection.bytes_waiting > 0 or bool(self._rest)
        if wrote:
            self._push()
        due = self._ping_due
        data = transport.receive(
            due if self._usable and due < deadline else deadline, bool(self._rest), later=wrote
        )
        # Lost or replaced while this thread waited without the guard.
        if self._transport is not transport:
            return True
        if data is None:
            now = time.monotonic()
            if self._connection.connected and now >= self._ping_due:
                self._ping_due = now + self.options.ping_interval
                self._keep_alive()
                return True
            return now < deadline
        self._read_at = time.monotonic()
        self._receive(data)
        if self._transport is None:
            if self._connection.state is State.DISCONNECTED and isinstance(
                self.last_error, ConnectError
            ):
                raise self.last_error
            return True
        if self._connection.bytes_waiting:
            self._push()
        return True

    def _send_ack(self, reply: str, payload: bytes) -> None:
        """Send an ack at once; one that follows soon after another waits for more, or for the next wait.

        For callers that have the guard. A program that handles messages quickly sends many acks with one
        write; the keeper sends what nobody else does. To a broker in the same process each goes at once: a
        test that moves its clock, or asks what was acknowledged, need not wait.
        """
        now = time.monotonic()
        if not self._usable or now - self._read_at >= LOOK_AFTER_S:
            self._reopen(None)
        self._connection.answer(reply, payload)
        # The first ack after a pause goes at once; a program that acknowledges rarely sees no delay.
        if now >= self._gather_until or self._much_waits:
            self._gather_until = now + self._gather_s
            self._send_waiting()
        else:
            self._acks_gathered += 1
            if not self._keeper_sends:
                self._keeper_sends = True
                self._keeper.rouse()

    # -- waiting: what the calls of both halves are made of ----------------------------------------

    def _write_queued(self) -> None:
        """Write queued output now, and do not wait for a transport that takes no more."""
        if not self._push():
            self._bell.wake()  # whoever reads writes the rest
            self._keeper.rouse()

    @locked
    def _send_now(self) -> None:
        """Send queued output now, because the next wait may be far away."""
        try:
            if self.connected:
                self._send_waiting()
        except PeltonError as error:  # the next wait connects again, and asks again
            self._report(error)

    def _until(
        self, box: Mailbox, done: Callable[[], bool], seconds: float, other: Mailbox | None = None
    ) -> bool:
        """Wait until ``done()`` holds; False when the time is over. What changes it stirs a box."""
        return self._wait(done, seconds, box, other)

    def _ready(self, seconds: float | None = None) -> None:
        """Make sure of a connection; PeltonTimeoutError, ConnectionClosedError."""
        self._reopen(seconds)

    def _send_queued(self) -> None:
        """Send queued output."""
        self._flush_output()

    def _sleep(self, seconds: float) -> None:
        """Let time pass; ConnectionClosedError when the client is closed meanwhile."""
        self._wait(_never, seconds, Mailbox())

    def _work(self, function: Callable[[], T], *, finishes: bool = True) -> T:
        """Call a function that may block, such as a read from a file, while other threads go on."""
        return self._guard.without(function)

    def _awaited(self, awaitable: Awaitable[T]) -> T:
        """TypeError: only asyncio awaits."""
        if inspect.iscoroutine(awaitable):
            awaitable.close()  # or Python warns that nobody awaited it
        raise TypeError("a blocking client cannot await: give an iterator, or use asyncio")

    def wait_until(self, done: Callable[[], bool], timeout: Duration | None = None) -> bool:
        """Read, and call callbacks, until ``done()`` holds; False when the time is over.

        Connects again if needed. ``done`` is asked when something arrives, and should be quick.
        """
        if not callable(done):
            refuse("done", "a function", done)
        return self._wait_until(done, timeout)

    @locked
    def _wait_until(
        self,
        done: Callable[[], bool],
        timeout: Duration | None = None,
        box: Mailbox | None = None,
    ) -> bool:
        """As ``wait_until``. What other threads change must stir ``box``; what arrives needs none."""
        return self._wait(done, self._timeout_of(timeout), self._change, box)

    @locked
    def _flush_output(self) -> None:
        """Write queued output; bytes that a broken connection did not take are lost without an
        error.
        """
        self._reopen(None)
        self._send_waiting()

    def _send_waiting(self) -> bool:
        """``flush_output`` for an open connection; False when it broke meanwhile."""
        return self._push() or self._send(time.monotonic() + self.options.timeout)

    @property
    def _much_waits(self) -> bool:
        """Whether more output is queued than may be held back."""
        return self._connection.bytes_waiting > OUTPUT_BYTES

    def _plan_flush(self) -> None:
        """Send queued output if nobody else will; a call that waits or works sends it later."""
        nobody_will = self._bell.waits or self._leader == KEEPER
        if nobody_will and self._connection.connected and not self._push():
            self._bell.wake()
            self._keeper.rouse()

    _report = locked(Session._report)

    # -- verbs -------------------------------------------------------------------------------------

    def publish(
        self,
        subject: str,
        data: bytes = b"",
        *,
        reply: str = "",
        headers: HeadersLike | None = None,
    ) -> None:
        """Send a message; it is written before the call returns.

        Raises InvalidSubjectError, PayloadTooLargeError, ConnectionClosedError, PeltonTimeoutError when no
        server was found in the time of the options, and ConnectionLostError when it is unknown whether the
        server received the message.
        """
        # As ``@locked``, written out, without the call of a wrapper for each message.
        self._guard.take()
        try:
            now = time.monotonic()
            if not self._usable or now - self._read_at >= LOOK_AFTER_S:
                self._reopen(None)
                now = time.monotonic()
            self._connection.publish(subject, data, reply, encode_header_map(headers))
            if not self._push() and not self._send(now + self.options.timeout):
                raise ConnectionLostError(f"connection lost while publishing: {self.last_error}")
        finally:
            self._guard.give()

    @locked
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
        subscription = Subscription(cast("Client", self), pending_messages_max, pending_bytes_max)
        self._subscribe(subject, subscription, queue, max_msgs)
        self._flush_output()
        return subscription

    @locked
    def _attach(self, subject: str, owner: Owner, queue: str = "") -> None:
        """Subscribe for an owner with ``interest``, ``receive(message)`` and ``end()``.

        ``subscribe`` uses it.
        """
        self._reopen(None)
        owner._interest = self._connection.subscribe(subject, queue, owner)
        self._flush_output()

    @locked
    def _ask(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: HeadersLike | None = None,
        raw_headers: bytes = b"",
        timeout: Duration | None = None,
    ) -> Question:
        """Queue a request, which is sent with the next flush or wait.

        ``_answer_to`` or ``_forget`` must follow. Raises the errors of publish; ``timeout`` is for the
        connection.
        """
        self._reopen(timeout)
        return self._requests.ask(subject, data, raw_headers or encode_header_map(headers))

    @locked
    def _answer_to(self, question: Question, timeout: Duration | None = None) -> BaseMessage:
        """Wait for the answer to what ``_ask`` has sent; raises as ``request``."""
        seconds = self._timeout_of(timeout)
        try:
            self._wait(question.is_over, seconds, question)
        finally:
            self._requests.forget(question)
        answer: BaseMessage = question.outcome(seconds)
        return answer

    @locked
    def _forget(self, question: Question) -> None:
        """Nobody waits for the answer any more."""
        self._requests.forget(question)

    set_servers = locked(Session.set_servers)


def _never() -> bool:
    return False
