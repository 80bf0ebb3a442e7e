"""The socket of the blocking client: it never blocks, except in waits with a deadline."""

from __future__ import annotations

import select
import socket
import ssl
import time
from typing import TYPE_CHECKING

from penstock.errors import ConnectError

from ..memory import open_socket
from ..tls import make_context

if TYPE_CHECKING:
    from ..options import Options, Server, TlsOptions
    from .errands import Errands

RECEIVE_BYTES = 16 * 1024
RECEIVE_BYTES_MAX = 256 * 1024
WAIT_MAX_S = 3600.0  # poll() takes milliseconds in a C int

_READ = select.POLLIN | select.POLLHUP | select.POLLERR


class Transport:
    """A connected socket, plain or TLS."""

    def __init__(self, connected: socket.socket) -> None:
        """Takes over the socket."""
        self.reason: Exception | None = None
        """Why the connection ended, if the transport knows it."""
        connected.setblocking(False)
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._poll = select.poll()
        self._poll.register(connected, _READ)
        # one for all reads: memory of its own for each one costs more than a short answer
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._errands: Errands | None = None
        self.woken = False
        """Whether a wait has ended because of errands."""

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
        self._poll.unregister(self._socket)
        try:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            self._socket = context.wrap_socket(self._socket, server_hostname=hostname)
        except (OSError, ssl.SSLError) as error:
            raise ConnectError(f"TLS handshake failed: {error}") from error
        self._socket.setblocking(False)
        self._poll.register(self._socket, _READ)

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

    def heed(self, errands: Errands | None) -> None:
        """End waits when a thread has an errand; None for no more."""
        if self._errands is not None:
            self._poll.unregister(self._errands)
        self._errands = errands
        if errands is not None:
            self._poll.register(errands, select.POLLIN)

    def fileno(self) -> int:
        """The socket's, for a caller that waits for several transports."""
        return self._socket.fileno()

    @property
    def more_is_here(self) -> bool:
        """Whether bytes were received that ``read`` has not returned, so that the socket does not tell of them."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def read(self) -> bytes | None:
        """The bytes that arrived, without waiting; b"" at the end of the connection, None for none."""
        data = self._read()
        return None if data is None else bytes(data)

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

    def receive(self, deadline: float) -> bytes | memoryview | None:
        """The bytes that arrived; b"" at the end of the connection, None when none arrived in time.

        None also when the wait ended because of errands; then ``woken`` is set.
        """
        self.woken = False
        while True:
            data = self._read()
            if data is not None:
                return data
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            ready = self._poll.poll(min(left, WAIT_MAX_S) * 1000)
            errands = self._errands
            if errands is not None and any(each == errands.fileno() for each, _ in ready):
                errands.hear()
                self.woken = True
                return self._read()

    def wait_both(self, deadline: float) -> bytes | memoryview | None:
        """Wait until the socket can be written or read; returns the bytes, None for none.

        Raises ConnectError at the deadline.
        """
        self._poll.modify(self._socket, _READ | select.POLLOUT)
        try:
            left = deadline - time.monotonic()
            ready = self._poll.poll(max(0.0, min(left, WAIT_MAX_S)) * 1000)
        finally:
            self._poll.modify(self._socket, _READ)
        if self._errands is not None:
            self._errands.hear()  # they are performed before the next wait
        if not ready:
            return b""  # a server that takes no bytes for so long counts as gone
        return self._read()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def open_transport(server: Server, options: Options) -> Transport:
    """Connect to the server; raises OSError."""
    if server.memory:
        return Transport(open_socket(server.host, waits=True))
    connected = socket.create_connection(
        (server.host, server.port), timeout=options.connect_timeout
    )
    if not server.websocket:
        return Transport(connected)
    from .websocket import WebSocketTransport

    return WebSocketTransport(connected, server, options)
