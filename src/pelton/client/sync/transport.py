"""The socket of the blocking client: opened straight, in memory or through a proxy, plain or TLS, and maybe
with a WebSocket's frames on it.

It never blocks, except in waits with a deadline and in the look-up of a host's name. The client's bell ends each
wait, so that ``close`` in another thread ends an attempt to connect at once. Called with the client's guard;
the waits give it away.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import time
from typing import TYPE_CHECKING

from pelton.errors import ConnectError

from ..base.addresses import Server, TlsOptions, open_socket
from ..protocol.options import Options, make_context
from ..protocol.socks import Proxy, parse_proxy, talk
from .locks import READABLE, WRITABLE, Bell, Guard, new_poll

if TYPE_CHECKING:
    from collections.abc import Callable


RECEIVE_BYTES = 16 * 1024
RECEIVE_BYTES_MAX = 256 * 1024
# Windows has a number of its own for it.
_UNDER_WAY = {errno.EINPROGRESS, getattr(errno, "WSAEWOULDBLOCK", errno.EINPROGRESS)}
WAIT_MAX_S = 3600.0  # poll() takes milliseconds in a C int


class Transport:
    """A connected socket, plain or TLS."""

    def __init__(self, connected: socket.socket, guard: Guard, bell: Bell) -> None:
        """Takes over the socket. The bell ends waits for bytes."""
        self.reason: Exception | None = None
        """Why the connection ended, if the transport knows it."""
        connected.setblocking(False)
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            # Nagle's algorithm would hold back a small request until the last segment is acknowledged.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.closed = False
        """Whether ``close`` was called, maybe while another thread waits for bytes."""
        self._encrypted = False
        self._guard = guard
        self._bell = bell
        self._socket = connected
        self._poll = new_poll()
        self._poll.register(connected, READABLE)
        # one for all reads: memory of its own for each one costs more than a short answer
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._poll.register(bell, READABLE)

    def begin(self) -> None:
        """The connection is open, and encrypted if it is from the first byte."""

    def start_tls(
        self,
        server: Server,
        options: TlsOptions | None,
        context: ssl.SSLContext | None,
        deadline: float,
    ) -> None:
        """Encrypt from here on; ConnectError when the handshake fails."""
        if context is None:
            context = make_context(options)
        hostname = (options.hostname if options else None) or server.host
        # Before it is wrapped: afterwards this object has no descriptor.
        self._poll.unregister(self._socket)
        patience = Patience(self._guard, self._bell, lambda: self.closed, deadline)
        try:
            # Without the handshake, which would wait for as long as the server likes, with the guard taken.
            self._socket = encrypted = context.wrap_socket(
                self._socket, server_hostname=hostname, do_handshake_on_connect=False
            )
            patience.shake_hands(encrypted)
        except (OSError, ssl.SSLError) as error:
            raise ConnectError(f"TLS handshake failed: {error}") from error
        self._encrypted = True  # decrypted bytes may wait where poll() does not see them
        self._poll.register(self._socket, READABLE)

    def send(self, data: bytes | memoryview) -> int:
        """Send bytes and return how many the kernel took.

        0 when it has no room, or when the connection is broken, which reading then detects.
        """
        try:
            return self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError, InterruptedError):
            return 0
        except OSError:
            return 0

    def fileno(self) -> int:
        """The socket's, for a caller that waits for several transports."""
        return self._socket.fileno()

    @property
    def is_plain(self) -> bool:
        """Whether the bytes of the socket are those of the protocol: neither encrypted nor in frames."""
        return not self._encrypted

    @property
    def more_is_here(self) -> bool:
        """Whether bytes were received that ``read`` has not returned, so that the socket does not tell of them."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def read(self) -> bytes | memoryview | None:
        """The bytes that arrived, without waiting; empty at the end of the connection, None for none.

        They stay until the next read.
        """
        return self._read()

    def _read(self) -> bytes | memoryview | None:
        """Bytes, which stay until the next read; b"" at the end of the connection, None for none."""
        buffer = self._buffer
        try:
            count = self._socket.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError, InterruptedError):
            return None
        except OSError:
            return b""
        if count == len(buffer) < RECEIVE_BYTES_MAX:
            self._buffer = memoryview(bytearray(2 * count))
        return buffer[:count]

    def receive(
        self, deadline: float, writable: bool = False, *, later: bool = False
    ) -> bytes | memoryview | None:
        """The bytes that arrived; b"" at the end of the connection, None when none arrived in time.

        The bell's owner has called ``attend``. None also when it was to wake, and with ``writable`` when the
        socket takes bytes. ``later``: bytes were written just now, so the answer is hardly there yet.
        """
        left = deadline - time.monotonic()
        # Right after a write the answer is hardly there: a read would only cost a system call. TLS is always
        # read, because decrypted bytes may wait where poll does not see them.
        if not later or left <= 0 or self._encrypted:
            data = self._read()
            if data is not None or left <= 0:
                return data
        bell, poll, guard = self._bell, self._poll, self._guard
        # Woken since ``attend``: the caller looks at what has changed.
        if not bell.begin_wait():
            return self._read() if later else None
        if writable:
            poll.modify(self._socket, READABLE | WRITABLE)
        given: list[object] = []
        try:
            guard.give_away(given)
            poll.poll((min(WAIT_MAX_S, left)) * 1000)
        finally:
            if given:
                guard.regain(given[0])
            bell.end_wait()
            # ``close`` in another thread has taken the descriptor away.
            if writable and not self.closed:
                poll.modify(self._socket, READABLE)
        return b"" if self.closed else self._read()

    def watching(self, bell: Bell, deadline: float) -> Callable[[], object]:
        """A function that waits for bytes or for that bell, and needs neither guard nor transport."""
        poll = new_poll()
        poll.register(self._socket, READABLE)
        poll.register(bell, READABLE)

        def wait() -> None:
            left = deadline - time.monotonic()
            poll.poll(max(0.0, min(left, WAIT_MAX_S)) * 1000)
            bell.hear()

        return wait

    def release(self) -> None:
        """Give the socket back in a forked process, without a word to the server."""
        self.closed = True
        self._socket.close()

    def close(self) -> None:
        """Close the socket; another thread that waits for bytes stops waiting."""
        self.closed = True
        self._socket.close()
        self._bell.wake()


class WebSocketTransport(Transport):
    """A connected socket, plain or TLS, with frames on it."""

    def __init__(
        self, connected: socket.socket, guard: Guard, bell: Bell, server: Server, options: Options
    ) -> None:
        """Takes over the socket; ``begin`` follows."""
        super().__init__(connected, guard, bell)
        from ..protocol.websocket import FRAME_BYTES, WebSocket

        self._frames = WebSocket(server, options)
        self._frame_bytes = FRAME_BYTES
        self._pending = b""  # bytes of frames that the kernel has not taken yet
        self._claimed = 0  # bytes of the protocol in the last one of these frames

    def begin(self) -> None:
        """Ask for the WebSocket; reading gets the answer."""
        self._pending = self._frames.request()
        self._push()

    @property
    def is_plain(self) -> bool:
        """Never: the bytes are in frames."""
        return False

    def _push(self) -> bool:
        """Send what is pending; False when some of it is left."""
        while self._pending:
            sent = super().send(self._pending)
            if not sent:
                return False
            self._pending = self._pending[sent:]
        return True

    def send(self, data: bytes | memoryview) -> int:
        """Send bytes as one frame, and return how many of them went.

        0 while the kernel has no room: the next call has the same bytes and continues.
        """
        # The caller repeats bytes that did not go. They must not be put into a second frame.
        if not self._claimed:
            self._claimed = min(len(data), self._frame_bytes)
            self._pending += self._frames.frames(data[: self._claimed])
        if not self._push():
            return 0
        sent, self._claimed = self._claimed, 0
        return sent

    def _read(self) -> bytes | memoryview | None:
        if self._frames.closed:
            self.reason = ConnectError(self._frames.closed)
            return b""
        received = super()._read()
        if not received:
            return received
        try:
            data = self._frames.receive(received)
        except ConnectError as error:  # of the handshake
            self.reason = error
            return b""
        if answers := self._frames.answers():
            self._pending += answers  # what does not go now goes with the next frame
            self._push()
        # Data that came before the close frame; the end is told by the next read.
        return data or (self._read() if self._frames.closed else None)

    def close(self) -> None:
        """Send the closing frame if there is room for it, and close the socket."""
        if not self._claimed and not self._frames.closed:
            self._pending += self._frames.close()
            self._push()
        super().close()


def open_transport(
    server: Server,
    options: Options,
    guard: Guard,
    bell: Bell,
    over: Callable[[], bool],
    deadline: float,
) -> Transport:
    """Connect to the server; raises OSError, and ConnectError as soon as the client is ``over``."""
    if server.memory:
        connected = guard.without(lambda: open_socket(server.host, waits=True))
    elif options.socks_proxy:
        proxy = parse_proxy(options.socks_proxy)
        patience = Patience(guard, bell, over, deadline)
        connected = patience.connect_through(proxy, server.host, server.port)
    else:
        connected = Patience(guard, bell, over, deadline).connect(server.host, server.port)
    if not server.websocket:
        return Transport(connected, guard, bell)
    return WebSocketTransport(connected, guard, bell, server, options)


class Patience:
    """How long an attempt to connect may wait, and what ends it sooner."""

    def __init__(self, guard: Guard, bell: Bell, over: Callable[[], bool], deadline: float) -> None:
        """``over`` tells whether the client is closed; who closes it wakes the bell."""
        self.deadline = deadline
        self._guard = guard
        self._bell = bell
        self._over = over

    def wait(self, waited: socket.socket, events: int, deadline: float) -> None:
        """Wait until the socket is ready; TimeoutError at the deadline, ConnectError after ``close``."""
        poll = new_poll()
        poll.register(waited, events)
        poll.register(self._bell, READABLE)
        fileno, bell = waited.fileno(), self._bell
        while True:
            bell.attend()
            # After ``attend``: a close from here on ends the wait.
            self.check()
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            if not bell.begin_wait():
                continue
            given: list[object] = []
            try:
                self._guard.give_away(given)
                ready = poll.poll(min(left, WAIT_MAX_S) * 1000)
            finally:
                if given:
                    self._guard.regain(given[0])
                bell.end_wait()
            self.check()
            # Otherwise only the bell rang: wait on, unless the client is closed.
            if any(number == fileno for number, _ in ready):
                return

    def check(self) -> None:
        """Raise ConnectError when the client was closed."""
        if self._over():
            raise ConnectError("the client was closed while it connected")

    def connect(self, host: str, port: int) -> socket.socket:
        """A connected socket that does not block; OSError with the last address's reason."""
        found = self._guard.without(socket.getaddrinfo, host, port, 0, socket.SOCK_STREAM)
        error = OSError(f"{host} has no address")
        for number, (family, kind, protocol, _, address) in enumerate(found):
            self.check()
            now = time.monotonic()
            # An equal share for each address: one that never answers leaves time for the others.
            share = (self.deadline - now) / (len(found) - number)
            opened = socket.socket(family, kind, protocol)
            try:
                opened.setblocking(False)
                code = opened.connect_ex(address)
                if code in _UNDER_WAY:
                    self.wait(opened, WRITABLE, now + share)
                    # Writable only means that it is decided.
                    code = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise OSError(code, os.strerror(code))
            except OSError as reason:
                opened.close()
                error = reason
            except BaseException:
                opened.close()
                raise
            else:
                return opened
        raise error

    def connect_through(self, proxy: Proxy, host: str, port: int) -> socket.socket:
        """The same behind a SOCKS proxy; ConnectError when the proxy refuses."""
        try:
            opened = self.connect(proxy.host, proxy.port)
        except OSError as error:
            raise ConnectError(f"the proxy {proxy}: {error}") from None
        try:
            conversation = talk(proxy, host, port)
            data, wanted = next(conversation)
            while True:
                self._send(opened, data)
                data, wanted = conversation.send(self._receive(opened, wanted))
        except StopIteration:
            return opened
        except BaseException:
            opened.close()
            raise

    def _send(self, opened: socket.socket, data: bytes) -> None:
        while data:
            try:
                data = data[opened.send(data) :]
            except BlockingIOError:
                self.wait(opened, WRITABLE, self.deadline)

    def _receive(self, opened: socket.socket, size: int) -> bytes:
        while True:
            try:
                return opened.recv(size)
            except BlockingIOError:
                self.wait(opened, READABLE, self.deadline)

    def shake_hands(self, encrypted: ssl.SSLSocket) -> None:
        """The handshake of TLS; OSError (also ssl.SSLError) when it fails."""
        while True:
            self.check()
            try:
                encrypted.do_handshake()
            except ssl.SSLWantReadError:
                self.wait(encrypted, READABLE, self.deadline)
            except ssl.SSLWantWriteError:
                self.wait(encrypted, WRITABLE, self.deadline)
            else:
                return
