"""A connected socket with or without TLS, and the bytes that the kernel has not taken yet.

    kernel --recv--> [incoming BIO --> TLS] --> receive()
    send() --> [TLS --> outgoing BIO] --> backlog --> kernel

A pipe never waits. ``transport`` drives it for a connection of the core, ``handshake`` before there is
one.

receive() returns a view into a buffer that all pipes share: it is valid until the next receive() of any
of them, so an idle pipe holds no buffer.
"""

import contextlib
import socket
import ssl
from typing import cast

CHUNK_BYTES = 128 * 1024  # one recv
RECORD_BYTES = 16 * 1024  # of a TLS record, at most
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
        """Takes over the socket."""
        self.socket = connected
        self.tls: ssl.SSLObject | None = None
        self.closed = False
        self._ended = False  # the other side has said that nothing more comes
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
        """From here on the bytes are TLS; what was given to unread() is its beginning. Then call
        shake() whenever something has come.
        """
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=hostname
        )
        self._incoming.write(self._unread)
        self._unread = b""

    def shake(self) -> bool:
        """Go on with the handshake: whether it is done. ssl.SSLError when the other side does it
        wrong (what it has to be told is sent), PipeClosed when it has gone.
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
        """Move what has come into the TLS machine; False when nothing has."""
        assert self._incoming is not None
        got = self._recv()
        if got:
            self._incoming.write(_raw_view[:got])
        return got > 0

    # -- input

    def unread(self, data: bytes) -> None:
        """Put bytes that were read back in front."""
        self._unread = data + self._unread

    def receive(self) -> memoryview:
        """What has come; empty when nothing has. PipeClosed at the end, ssl.SSLError when it is no
        TLS.
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
                # with a buffer, which may be any, it returns how much it has put there
                count = cast(int, tls.read(RECORD_BYTES, cast(bytearray, _plain_view[got:])))
                if not count:
                    self._ended = True
                    break
                got += count
        except ssl.SSLWantReadError:
            pass  # the rest of a record is on its way
        if self._ended and not got:
            raise PipeClosed("Client Closed")
        return got

    @property
    def pending(self) -> bool:
        """Whether receive() has more without the socket being readable."""
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
        """Write; True when the kernel has taken all, False when some waits for flush(). PipeClosed
        when the connection is broken.
        """
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
        """Write what waits: whether nothing waits any more."""
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
        """Say goodbye as far as that goes without waiting, and close the socket."""
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
            # unread input would make close() send a reset, and the other side would lose the end
            for _ in range(DRAIN_READS):
                if not self.socket.recv_into(_raw):
                    break
        self.socket.close()
