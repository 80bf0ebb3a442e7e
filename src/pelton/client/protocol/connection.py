"""One client connection as a state machine: bytes in, events and bytes out.

::

                connected_to(server)        INFO, no TLS           PONG
    DISCONNECTED ────────────► AWAITING_INFO ────────► AWAITING_PONG ───► CONNECTED
         ▲                          │ INFO, TLS             ▲                │
         │                          └──► AWAITING_TLS ──────┘                │
         │                                       tls_established()          │
         └────────── receive_eof(), a fatal -ERR, a broken protocol ◄────────┘

The caller carries bytes: it calls ``receive_data``, takes ``events()`` and writes ``data_to_send()``.
The table of subscriptions outlives a connection: after the next handshake it is replayed, followed by
the messages that were published meanwhile. Does not depend on sockets, on time (the caller decides
when to ping) or on JetStream.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from pelton.core.protocol import wire
from pelton.errors import (
    AuthenticationError,
    ConnectError,
    ConnectionClosedError,
    ConnectionLostError,
    InvalidSubjectError,
    OutputFullError,
    PayloadTooLargeError,
    PeltonError,
    ProtocolError,
    ServerError,
)

from ..base.arguments import BLANK, check_literal, check_pattern, check_publish, refuse
from ..base.mailbox import Interest
from ..base.message import BaseMessage
from .events import (
    Abandoned,
    Connected,
    Disconnected,
    Ended,
    Event,
    InfoChanged,
    LameDuck,
    Pong,
    ProtocolLines,
    ServerComplaint,
    TlsRequired,
)
from .info import ServerInfo, connect_line, decode_info, is_fatal, make_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..base.addresses import Server
    from .options import Options

PING = b"PING\r\n"
PONG = b"PONG\r\n"
# Bounded: a program that publishes to ever new subjects must not fill the memory with them.
SUBJECTS_KNOWN_MAX = 4096
# INFO lists the URLs of a whole cluster, so it may be much longer than other lines.
INFO_LINE_MAX = 1024 * 1024
SIZES = 24
"""Bytes for the two sizes of a message in a line, and the blanks before them."""
ROOM = 160
"""Bytes for the sizes in a line, and for what follows the prefix of an inbox."""
RECEIVE_PAYLOAD_MAX = 1 << 30  # a server may allow messages of any size


class State(enum.Enum):
    """The state of the connection; see the picture at the head of the module."""

    DISCONNECTED = "disconnected"
    AWAITING_INFO = "awaiting INFO"
    AWAITING_TLS = "awaiting TLS"
    AWAITING_PONG = "awaiting PONG"
    CONNECTED = "connected"
    CLOSED = "closed"


class Capture(Protocol):
    """Takes the messages of one subscription while bytes are parsed; see ``client/sync/columns.py``."""

    def _feed(self, parser: wire.Parser, data: bytes | memoryview) -> list[tuple[object, ...]]:
        """Parse data; keep the messages of that subscription, return every other operation."""


class Connection:
    """The state machine. Not thread-safe; one instance serves a client over all its reconnects."""

    def __init__(
        self,
        options: Options,
        message_type: Callable[[str, str, bytes, bytes, Interest], BaseMessage] = BaseMessage,
    ) -> None:
        """``message_type`` makes the event of a message."""
        self.options = options
        self.state = State.DISCONNECTED
        self.info = ServerInfo()
        self.capture: Capture | None = None
        """While set, parses the received bytes: a fast path for bulk readers."""
        self.lines: ProtocolLines | None = None
        """While set, gets the bytes of both directions, to show the protocol's lines."""
        self.interests: dict[int, Interest] = {}
        self.bytes_received = 0
        self.bytes_sent = 0
        self.messages_received = 0
        self.messages_sent = 0
        self._message_type = message_type
        self._server: Server | None = None
        self._tls = False
        self.connections = 0
        """The number of handshakes that succeeded."""
        self._sid = 0
        self._parser = wire.Parser(wire.ROLE_CLIENT, INFO_LINE_MAX, RECEIVE_PAYLOAD_MAX)
        self._events: list[Event] = []
        self._out: list[bytes | memoryview] = []
        self.bytes_waiting = 0
        """The number of bytes that ``data_to_send`` would return."""
        self._short = (options.control_line_max - len(options.inbox_prefix.encode()) - ROOM) // 2
        """A subject and a reply with so many bytes each surely fit into one line."""
        self._kept: list[
            tuple[int, bytes]
        ] = []  # size and operation, published without a connection
        self._kept_bytes = 0
        self._pings: deque[object] = deque()
        self._abandoned: deque[int | str] = deque()
        self.on_abandoned: Callable[[], None] | None = None
        """Called by any thread, at any moment, when ``settle_abandoned`` has something to do."""
        self._failure = ""  # why the client was closed, unless its owner closed it
        self._subjects_known: set[str] = set()

    # -- called by the client about the transport ---------------------------------------------

    def connected_to(self, server: Server, tls: bool = False) -> None:
        """The transport to the server is open; ``tls`` when it was encrypted before INFO."""
        if self.state is not State.DISCONNECTED:
            raise RuntimeError(f"a connection is already there: {self.state.value}")
        self._server = server
        self._tls = tls
        # A new one, because the last connection may have ended in the middle of a message.
        self._parser = wire.Parser(wire.ROLE_CLIENT, INFO_LINE_MAX, RECEIVE_PAYLOAD_MAX)
        if self.lines is not None:
            self.lines.restart()
        self.state = State.AWAITING_INFO

    def tls_established(self) -> None:
        """The transport is encrypted, as ``TlsRequired`` asked."""
        if self.state is not State.AWAITING_TLS:
            raise RuntimeError(f"no TLS was asked for: {self.state.value}")
        self._tls = True
        self._introduce()

    def receive_data(self, data: bytes | memoryview) -> None:
        """Process bytes from the server; they may change afterwards.

        Never raises because of the bytes: after a protocol error the event is ``Disconnected``.
        """
        if self.state in (State.DISCONNECTED, State.CLOSED):
            return
        # Before the bytes are parsed: ``Abandoned`` must precede messages that nobody would take.
        if self._abandoned:
            self.settle_abandoned()
        self.bytes_received += len(data)
        if self.lines is not None:
            self.lines.received(data)
        broken: wire.WireError | None = None
        operations: Sequence[Any]
        try:
            if self.capture is not None:
                operations = self.capture._feed(self._parser, data)
            else:
                operations = self._parser.feed(data)
        except wire.WireError as error:
            # What came before the fault is sound, and may contain the -ERR that explains it.
            operations, broken = error.events, error
        # Local names, because the loop below runs for every message.
        interests, events, message_type = self.interests, self._events, self._message_type
        message_kind = wire.OP_MSG
        operation: Any
        for operation in operations:
            if operation[0] == message_kind:
                _, subject, sid, reply, headers, payload = operation
                interest = interests.get(sid)
                if interest is None:  # unsubscribed while the message was on its way
                    continue
                self.messages_received += 1
                interest.delivered += 1
                events.append(message_type(subject, reply, headers, payload, interest))
                # The server counts as well and has ended the subscription: it needs no UNSUB.
                if interest.delivered == interest.max_msgs:
                    self.forget(interest)
                    events.append(Ended(interest))
            else:
                if not self._control(operation):
                    # After a fatal -ERR the rest of the bytes belongs to a connection that is over.
                    return
        if broken is not None:
            # Wrong bytes at the very beginning: most likely the port of another protocol, such as HTTP.
            strange = self.state is State.AWAITING_INFO
            what = "this is no NATS server" if strange else "the server broke the protocol"
            self._disconnect(ProtocolError(f"{what}: {broken}"))

    def receive_eof(self, error: Exception | None = None) -> None:
        """The transport is gone; ``error`` says why, when known."""
        if self.state in (State.DISCONNECTED, State.CLOSED):
            return
        reason = f": {error}" if error else ""
        tls = self.options.tls
        # With TLS 1.3 the client's handshake is done before the server misses a certificate,
        # so the refusal looks like a plain end of the connection.
        if (
            self.state is State.AWAITING_PONG
            and self.info.tls_verify
            and not (tls and tls.cert_file)
        ):
            reason += "; it asks its clients for a certificate"
        if self.state is State.CONNECTED:
            self._disconnect(ConnectionLostError(f"connection to {self._server} lost{reason}"))
        else:
            self._disconnect(
                ConnectError(f"{self._server} closed while {self.state.value}{reason}")
            )

    def events(self) -> list[Event]:
        """The events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def data_to_send(self) -> bytes:
        """Bytes to write to the transport now; b"" when there are none."""
        if not self._out:
            return b""
        data = b"".join(self._out)  # returns a single bytes object as it is
        self._out.clear()
        self.bytes_waiting = 0
        self.bytes_sent += len(data)
        if self.lines is not None:
            self.lines.sent(data)
        return data

    # -- operations of the client ---------------------------------------------------------

    @property
    def server(self) -> Server | None:
        """The server of this connection, or of the last one."""
        return self._server

    @property
    def connected(self) -> bool:
        """Whether the server takes operations right now."""
        return self.state is State.CONNECTED

    def publish(
        self,
        subject: str,
        payload: bytes,
        reply: str = "",
        headers: bytes = b"",
        sound_reply: bool = False,
    ) -> None:
        """Send a message; without a connection, keep it until there is one.

        ``sound_reply`` says that the client made the reply subject, so it needs no check. Raises
        InvalidSubjectError, PayloadTooLargeError, OutputFullError, ConnectionClosedError.
        """
        try:
            # Each subject is checked once: looking it up in a set is cheaper than matching the pattern again.
            if subject not in self._subjects_known:
                self._learn_subject(subject, reply)
            if reply and not sound_reply:
                if BLANK.search(reply):
                    raise InvalidSubjectError(f"bad reply subject {reply!r}")
                # UTF-8 takes at most 4 bytes per character: only long texts have to be encoded for measuring.
                if 4 * len(reply) > self._short:
                    self._check_line(f"{subject} {reply}", SIZES)
            # The server would end the whole connection for it (Maximum Payload Violation).
            if len(payload) + len(headers) > self.info.max_payload:
                raise PayloadTooLargeError(
                    f"{len(headers)} header and {len(payload)} payload bytes, "
                    f"the server takes {self.info.max_payload}"
                )
            data = wire.pub(subject, reply, headers, payload)
        except (TypeError, UnicodeEncodeError):
            # Kinds of arguments are checked only after a failure, so a good publish does not pay for it.
            check_publish(subject, payload, reply, headers)
            raise
        self.messages_sent += 1
        if self.state is State.CONNECTED:
            self._out.append(data)
            self.bytes_waiting += len(data)
        else:
            self._keep(data, len(payload) + len(headers))

    def answer(self, reply: str, payload: bytes) -> None:
        """Publish to the reply subject of a received message; the parser has checked the subject.

        Raises OutputFullError, ConnectionClosedError.
        """
        data = wire.pub(reply, "", b"", payload)
        self.messages_sent += 1
        if self.state is State.CONNECTED:
            self._out.append(data)
            self.bytes_waiting += len(data)
        else:
            self._keep(data, len(payload))

    def publish_chunk(
        self, subject: str, payload: bytes | memoryview, reply: str, headers: bytes
    ) -> None:
        """Send a large message without a copy of its own; the payload must not change until it is sent.

        The client made subject and reply. Without a connection it keeps nothing and raises ConnectionLostError.
        Raises PayloadTooLargeError.
        """
        # Not kept for the next connection: the upload first asks the stream which chunks it has.
        if self.state is not State.CONNECTED:
            self._check_open()
            raise ConnectionLostError(f"not connected: {self.state.value}")
        size = len(headers) + len(payload)
        if size > self.info.max_payload:
            raise PayloadTooLargeError(f"{size} bytes, the server takes {self.info.max_payload}")
        self.messages_sent += 1
        self._send(f"HPUB {subject} {reply} {len(headers)} {size}\r\n".encode() + headers)
        self._send(payload)
        self._send(b"\r\n")

    def publish_operations(self, operations: bytes, count: int) -> None:
        """Send whole publishes that ``core/bulk/publish_window`` made and checked.

        Without a connection it keeps nothing and raises ConnectionLostError.
        """
        if self.state is not State.CONNECTED:
            self._check_open()
            raise ConnectionLostError(f"not connected: {self.state.value}")
        self.messages_sent += count
        self._send(operations)

    def subscribe(self, subject: str, queue: str = "", owner: Any = None) -> Interest:
        """Subscribe to a subject; raises InvalidSubjectError, ConnectionClosedError, TypeError."""
        for name, value in (("subject", subject), ("queue", queue)):
            if not isinstance(value, str):
                refuse(name, "text", value)
        check_pattern(subject)
        if queue and BLANK.search(queue):
            raise InvalidSubjectError(f"bad queue group {queue!r}")
        if 4 * (len(subject) + len(queue)) > self._short:
            line = f"{subject} {queue}" if queue else subject
            self._check_line(line, 1 + len(str(self._sid + 1)))
        self._check_open()
        if self._abandoned:
            self.settle_abandoned()
        # Never used twice, not even on another connection: late messages of an ended subscription
        # must not find a new one.
        self._sid += 1
        interest = Interest(self._sid, subject, queue, owner)
        self.interests[interest.sid] = interest
        if self.state is State.CONNECTED:
            self._send(self._sub_line(interest))
        return interest

    def unsubscribe(self, interest: Interest, max_msgs: int = 0) -> None:
        """Unsubscribe at once, or after max_msgs messages in all (``Ended`` follows then)."""
        if self.interests.get(interest.sid) is not interest:
            return
        # The server counts from SUB on, not from UNSUB on, so ``max_msgs`` includes earlier messages.
        if max_msgs > interest.delivered:
            interest.max_msgs = max_msgs
            line = b"UNSUB %d %d\r\n" % (interest.sid, max_msgs)
        else:
            self.forget(interest)
            line = b"UNSUB %d\r\n" % interest.sid
            if max_msgs:
                self._events.append(Ended(interest))
        if self.state is State.CONNECTED:
            self._send(line)

    def drain(self, interest: Interest) -> None:
        """Unsubscribe at the server, but take messages that are still on their way.

        The caller then sends a ping, waits for the pong and calls ``forget``.
        """
        # Not replayed after a reconnect: messages that were on their way are lost with the connection.
        interest.draining = True
        if self.state is State.CONNECTED:
            self._send(b"UNSUB %d\r\n" % interest.sid)

    def abandon(self, sid: int) -> None:
        """The object that takes the messages was garbage collected; the event ``Abandoned`` follows.

        May be called at any time, in any thread. A number and no Interest: what waits to call this must not
        keep its owner.
        """
        self._abandon(sid)

    def abandon_requests(self, subjects: Iterable[str]) -> None:
        """Publish empty requests soon, whose answers nobody awaits, to tidy up after an object.

        May be called as ``abandon``. Without a connection they are left out.
        """
        for subject in subjects:
            self._abandon(subject)

    def _abandon(self, each: int | str) -> None:
        # A finalizer may run here at any moment and in any thread: appending to a deque is atomic.
        self._abandoned.append(each)
        if self.on_abandoned is not None:
            self.on_abandoned()

    def settle_abandoned(self) -> None:
        """Do what abandoned objects have left to do."""
        while self._abandoned:
            each = self._abandoned.popleft()
            if isinstance(each, int):
                if (interest := self.interests.get(each)) is not None:
                    self._events.append(Abandoned(interest))
            # Otherwise left out: a server removes inactive consumers by itself.
            elif self.state is State.CONNECTED:
                self.publish(each, b"")

    def forget(self, interest: Interest) -> None:
        """Remove the subscription from the table, without an operation to the server."""
        self.interests.pop(interest.sid, None)

    def ping(self, waiter: object = None) -> None:
        """Send a ping; the event ``Pong(waiter)`` follows, or ``Disconnected`` with the waiter in its list."""
        if self.state is not State.CONNECTED:
            self._check_open()
            raise ConnectionLostError(f"not connected: {self.state.value}")
        self._pings.append(waiter)
        self._send(PING)

    @property
    def pings_outstanding(self) -> int:
        """The number of pings that the server has not answered yet."""
        return len(self._pings)

    def close(self, failure: str = "") -> None:
        """Close: every later operation raises. Queued output can still be taken.

        ``failure`` is the reason, unless the owner closes; open subscriptions get it.
        """
        if self.state is not State.CLOSED:
            self._failure = failure
        for interest in self.interests.values():
            interest.failure = failure
        waiters, self._pings = list(self._pings), deque()
        if self.state not in (State.DISCONNECTED, State.CLOSED):
            self._events.append(Disconnected(None, waiters))
        self.state = State.CLOSED
        self.interests.clear()
        self._kept.clear()

    # -- internal -------------------------------------------------------------------------

    def closed_error(self) -> ConnectionClosedError:
        """The error of every call on a closed client."""
        why = f": {self._failure}" if self._failure else ""
        return ConnectionClosedError(f"the client is closed{why}")

    def _check_open(self) -> None:
        if self.state is State.CLOSED:
            raise self.closed_error()

    def _learn_subject(self, subject: str, reply: str) -> None:
        check_literal(subject)
        if 4 * len(subject) > self._short:
            self._check_line(f"{subject} {reply}", SIZES)
            return  # with a longer reply it may not fit
        # All at once: dropping the oldest would need an order of use.
        if len(self._subjects_known) >= SUBJECTS_KNOWN_MAX:
            self._subjects_known.clear()
        self._subjects_known.add(subject)

    def _check_line(self, line: str, more: int) -> None:
        """Raise InvalidSubjectError for a line that the server would end the connection for."""
        size, limit = (
            len(line.encode("utf-8", "surrogateescape")) + more,
            self.options.control_line_max,
        )
        if size > limit:
            raise InvalidSubjectError(
                f"the subject is too long: a line of {size} bytes, the server takes {limit} "
                f"(max_control_line; option control_line_max): {line[:40]!r}..."
            )

    def _keep(self, data: bytes, size: int) -> None:
        # Without a bound, a publisher would fill the memory while no server is there.
        self._check_open()
        if self._kept_bytes + len(data) > self.options.pending_bytes_max:
            raise OutputFullError(f"{self._kept_bytes} bytes already wait for a connection")
        self._kept.append((size, data))
        self._kept_bytes += len(data)

    def _send(self, data: bytes | memoryview) -> None:
        self._out.append(data)
        self.bytes_waiting += len(data)

    @staticmethod
    def _sub_line(interest: Interest) -> bytes:
        # Subjects are bytes for a server: those that are not UTF-8 stay what they are as surrogates.
        queue = f" {interest.queue}" if interest.queue else ""
        return f"SUB {interest.subject}{queue} {interest.sid}\r\n".encode(
            "utf-8", "surrogateescape"
        )

    def _control(self, operation: tuple[Any, ...]) -> bool:
        """Process any operation but a message; False when the connection is over."""
        kind = operation[0]
        if kind == wire.OP_PING:
            self._send(PONG)
        elif kind == wire.OP_PONG:
            self._on_pong()
        elif kind == wire.OP_INFO:
            self._on_info(operation[1])
        elif kind == wire.OP_ERR:
            self._on_error(operation[1].decode("utf-8", "replace").strip().strip("'"))
        return self.state is not State.DISCONNECTED

    def _on_info(self, text: bytes) -> None:
        try:
            info = decode_info(text)
        except ProtocolError as error:
            self._disconnect(error)
            return
        # A server in lame duck mode may send INFO again; the event comes once.
        ducked, self.info = self.info.ldm, info
        if self.state is not State.AWAITING_INFO:
            self._events.append(InfoChanged(info))
            if info.ldm and not ducked:
                self._events.append(LameDuck(info))
            return
        assert self._server is not None
        wanted = self._server.tls or self.options.tls is not None
        # A WebSocket has its TLS below the frames, whatever INFO asks for.
        if self._tls or self._server.websocket or not (wanted or info.tls_required):
            self._introduce()
        elif info.tls_required or info.tls_available:
            self.state = State.AWAITING_TLS
            self._events.append(TlsRequired(self._server))
        else:
            # Never go on in plain text: somebody in between could have removed the offer from INFO.
            self._disconnect(ConnectError(f"TLS is wanted, but {self._server} does not offer it"))

    def _introduce(self) -> None:
        assert self._server is not None
        try:
            line = connect_line(self.options, self._server, self.info, self._tls)
        except Exception as error:  # the authenticator is the user's code
            who = "the credentials" if self.options.authenticator is None else "the authenticator"
            clear = isinstance(error, ValueError | TypeError)  # also CredentialsError
            words = str(error) if clear else f"{type(error).__name__}: {error}"
            failure = AuthenticationError(f"{who} failed: {words}")
            # Not a refusal by the server, which would be given up after two of them.
            failure.by_server = False
            failure.__cause__ = error
            self._disconnect(failure)
            return
        self._send(line)
        # CONNECT has no answer of its own. The PONG shows that the server took it; otherwise -ERR comes first.
        self._send(PING)
        self.state = State.AWAITING_PONG

    def _on_pong(self) -> None:
        if self.state is State.AWAITING_PONG:
            self._start()
        # Pongs have no id: they come in the order of the pings.
        elif self._pings:
            waiter = self._pings.popleft()
            if waiter is not None:
                self._events.append(Pong(waiter))

    def _start(self) -> None:
        self.state = State.CONNECTED
        for interest in list(self.interests.values()):
            # Subscriptions go out before kept messages: answers to these must find their subscribers.
            if interest.draining:
                continue
            self._send(self._sub_line(interest))
            if interest.max_msgs:  # the new server counts from zero
                self._send(
                    b"UNSUB %d %d\r\n" % (interest.sid, interest.max_msgs - interest.delivered)
                )
        for size, data in self._kept:
            if size <= self.info.max_payload:
                self._send(data)
            else:  # this server takes less than the one before, and would end the connection
                words = f"{size} bytes were kept for a connection, the server takes"
                error = PayloadTooLargeError(f"{words} {self.info.max_payload}")
                self._events.append(ServerComplaint(error))
        self._kept.clear()
        self._kept_bytes = 0
        self.connections += 1
        self._events.append(Connected(self.info, again=self.connections > 1))

    def _on_error(self, text: str) -> None:
        error = make_error(text)
        if isinstance(error, ServerError) and not is_fatal(text):
            self._events.append(ServerComplaint(error))
        elif isinstance(error, AuthenticationError):
            # A nonce in INFO means that the server takes signatures: a missing one is the likely cause.
            hint = ""
            options = self.options
            signs = options.authenticator or options.creds or options.nkey or options.jwt
            if self.info.nonce and not signs:
                hint = "; the server takes nkey signatures: give creds, an nkey or an authenticator"
            self._disconnect(
                AuthenticationError(f"{self._server} refuses the credentials: {text}{hint}")
            )
        elif self.state is State.CONNECTED:
            self._disconnect(error)
        else:
            self._disconnect(ConnectError(f"{self._server} refuses the connection: {text}"))

    def _disconnect(self, error: PeltonError | None) -> None:
        self.state = State.DISCONNECTED
        # Not sent over the next connection: the server may have got it, and would get it twice.
        self._out.clear()
        self.bytes_waiting = 0
        waiters, self._pings = list(self._pings), deque()
        self._events.append(Disconnected(error, waiters))
