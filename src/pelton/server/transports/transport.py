"""The transport between a connection of the core and its pipe: the event loop reports a ready socket, the
transport reads and writes.

    EventLoop --readable()--> Pipe.receive --> EventLoop.take_in          core --write(bytes)--> Pipe.send

The WebSocket transport adds frames.
"""

import ssl
from typing import TYPE_CHECKING

from pelton.core.broker.event_loop import EventLoop
from pelton.core.broker.reactor import Connection
from pelton.server.transports.pipe import Pipe, PipeClosed

if TYPE_CHECKING:
    from collections.abc import Callable


class Transport:
    """Connects a core connection to a pipe.

    Give it to Sessions.accept, then call `serve` when the connection may read; output of the core
    is sent before that too.
    """

    __slots__ = ("__weakref__", "connection", "event_loop", "on_close", "pipe")

    def __init__(self, event_loop: EventLoop, pipe: Pipe) -> None:
        """`turn` is the event loop that will watch the pipe's socket."""
        self.event_loop = event_loop
        self.pipe = pipe
        self.connection: Connection | None = None
        self.on_close: Callable[[], object] | None = None  # called before the pipe is closed

    def serve(self, connection: Connection) -> None:
        """Start reading, with the bytes read so far first. OSError when the socket can't be
        watched.
        """
        self.connection = connection
        self.event_loop.now_ns = self.event_loop.clock.now()
        self.event_loop.attach(connection, self.pipe.fileno())
        if self.pipe.pending:
            self.readable()
        if not connection.closed:
            self.writable()

    # -- called by the core

    def write(self, data: bytes) -> None:
        """Send output of the connection."""
        try:
            sent = self.pipe.send(self._encode(data))
        except PipeClosed as problem:
            self._end(str(problem))
            return
        if not sent and self.connection is not None:
            self.event_loop.hold(self.connection, True)

    def readable(self) -> None:
        """Read: the socket is readable or at its end."""
        connection = self.connection
        if connection is None:
            return
        try:
            while True:
                data = self.pipe.receive()
                if len(data):
                    self._received(connection, data)
                # No socket event follows for bytes that are decrypted already, so they are handed
                # to the core even when the connection has stopped reading.
                if connection.closed or not self.pipe.pending:
                    return
        except PipeClosed as problem:
            self._end(str(problem))
        except ssl.SSLError:
            self._end("Read Error")

    def writable(self) -> None:
        """Write: the socket is writable again."""
        connection = self.connection
        if connection is None:
            return
        try:
            empty = self.pipe.flush()
        except PipeClosed as problem:
            self._end(str(problem))
            return
        self.event_loop.hold(connection, not empty)

    def close(self) -> None:
        """The core has closed the connection: close the pipe."""
        closed, self.on_close = self.on_close, None
        if closed is not None:
            closed()
        self.pipe.close()

    # -- for subclasses that add a layer

    def _encode(self, data: bytes) -> bytes:
        return data

    def _received(self, connection: Connection, data: memoryview) -> None:
        self.event_loop.take_in(connection, data)

    def _end(self, reason: str) -> None:
        if self.connection is not None:
            self.event_loop.disconnect(self.connection, reason)
