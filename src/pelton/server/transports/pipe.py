"""A connected socket with or without TLS, and the bytes that the kernel has not taken yet.

    kernel --recv--> [incoming BIO --> TLS] --> receive()
    send() --> [TLS --> outgoing BIO] --> backlog --> kernel

A pipe never waits. ``transport`` drives it for a connection of the core, ``handshake`` before that
connection exists.

receive() returns a view into a buffer that all pipes share: it is valid until the next receive() of any
pipe, so an idle pipe holds no buffer.
"""

import contextlib
import socket
import ssl
from typing import cast

CHUNK_BYTES = 128 * 1024  # one recv
RECORD_BYTES = 16 * 1024  # the largest TLS record
DRAIN_READS = 64

_raw = bytearray(CHUNK_BYTES)
_raw_view = memoryview(_raw)
_plain = bytearray(CHUNK_BYTES + 4 * RECORD_BYTES)
_plain_view = memoryview(_plain)
_NOTHING = memoryview(b"")


class PipeClosed(Exception):
    """The other side has closed, or the connection is broken. The text is the reason."""


class Pipe:
    """One connected non-blocking socket, owned until close()."""

    __slots__ = (
        "_backlog",
        "_ended",
        "_incoming",
        "_outgoing",
        "_unread",
        "closed",
        "socket",
        "tls",
    )

    def __init__(self, connected: socket.socket) -> None:
        """Take over the socket."""
        self.socket = connected
        self.tls: ssl.SSLObject | None = None
        self.closed = False
        self._ended = False  # the other side has sent its end of data
        self._backlog: bytearray | None = None
        self._unread = b""
        self._incoming: ssl.MemoryBIO | None = None
        self._outgoing: ssl.MemoryBIO | None = None

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self.socket.fileno()

    # -- TLS

    def start_tls(
        self, context: ssl.SSLContext, *, server_side: bool = True, hostname: str | None = None
    ) -> None:
        """Switch to TLS; bytes given to unread() are its beginning. Then call shake() at each
        readable event.
        """
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=hostname
        )
        self._incoming.write(self._unread)
        self._unread = b""

    def shake(self) -> bool:
        """Continue the handshake: whether it is complete.

        ssl.SSLError when the other side violates it (the alert is sent), PipeClosed when the
        connection has ended.
        """
        assert self.tls is not None
        assert self._incoming is not None
        while True:
            try:
                self.tls.do_handshake()
                return True
            except ssl.SSLWantReadError:
                self._send_outgoing()
            except ssl.SSLError:
                with contextlib.suppress(PipeClosed):
                    self._send_outgoing()
                raise
            finally:
                self._send_outgoing()
            if not self._read_raw():
                return False

    def _read_raw(self) -> bool:
        """Move received bytes into the TLS object; False when there are none."""
        assert self._incoming is not None
        got = self._recv()
        if got:
            self._incoming.write(_raw_view[:got])
        return got > 0

    # -- input

    def unread(self, data: bytes) -> None:
        """Put bytes back in front of the input."""
        self._unread = data + self._unread

    def receive(self) -> memoryview:
        """The received bytes; empty when there are none. PipeClosed at the end of data,
        ssl.SSLError for invalid TLS.
        """
        if self._unread:
            data, self._unread = memoryview(self._unread), b""
            return data
        if self.tls is None:
            return _raw_view[: self._recv()]
        assert self._incoming is not None
        assert self._outgoing is not None
        if self._ended:
            raise PipeClosed("Client Closed")
        closed = None
        if not self._incoming.pending:
            try:
                if not self._read_raw():
                    return _NOTHING
            except PipeClosed as problem:
                closed = problem
        got = self._decrypt()
        if self._outgoing.pending:
            self._send_outgoing()
        if closed is not None and not got:
            raise closed
        return _plain_view[:got]

    def _decrypt(self) -> int:
        tls, incoming = self.tls, self._incoming
        assert tls is not None
        assert incoming is not None
        got = 0
        try:
            while (incoming.pending or tls.pending()) and got <= CHUNK_BYTES + 2 * RECORD_BYTES:
                # read() with a buffer returns the number of bytes in it
                count = cast(int, tls.read(RECORD_BYTES, cast(bytearray, _plain_view[got:])))
                if not count:
                    self._ended = True
                    break
                got += count
        except ssl.SSLWantReadError:
            pass  # the rest of a record has not arrived yet
        if self._ended and not got:
            raise PipeClosed("Client Closed")
        return got

    @property
    def pending(self) -> bool:
        """Whether receive() has more data although the socket is not readable."""
        if self._unread or self._ended:
            return True
        if self.tls is None or self._incoming is None:
            return False
        return self._incoming.pending > 0 or self.tls.pending() > 0

    def _recv(self) -> int:
        try:
            got = self.socket.recv_into(_raw)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            raise PipeClosed("Read Error") from None
        if not got:
            raise PipeClosed("Client Closed")
        return got

    # -- output

    def send(self, data: bytes | bytearray | memoryview) -> bool:
        """Write; False when some bytes wait for flush(). PipeClosed when the connection is broken."""
        if self.tls is None:
            return self._send_raw(data)
        view = memoryview(data)
        try:
            while len(view):
                view = view[self.tls.write(view) :]
        except ssl.SSLError:
            raise PipeClosed("Write Error") from None
        return self._send_outgoing()

    def flush(self) -> bool:
        """Write waiting bytes: whether none are left."""
        waiting, self._backlog = self._backlog, None
        return self._send_raw(waiting) if waiting else True

    def _send_outgoing(self) -> bool:
        assert self._outgoing is not None
        if self._outgoing.pending:
            return self._send_raw(self._outgoing.read())
        return self._backlog is None

    def _send_raw(self, data: bytes | bytearray | memoryview) -> bool:
        if self._backlog is not None:
            self._backlog += data
            return False
        try:
            sent = self.socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            raise PipeClosed("Write Error") from None
        if sent == len(data):
            return True
        self._backlog = bytearray(memoryview(data)[sent:])
        return False

    def close(self) -> None:
        """Send the TLS close alert, if that needs no wait, and close the socket."""
        if self.closed:
            return
        self.closed = True
        if self.tls is not None:
            with contextlib.suppress(ssl.SSLError, PipeClosed, ValueError):
                self.tls.unwrap()
            with contextlib.suppress(PipeClosed):
                self._send_outgoing()
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
            # with unread input, close() sends a reset, and the other side loses the last bytes
            for _ in range(DRAIN_READS):
                if not self.socket.recv_into(_raw):
                    break
        self.socket.close()
