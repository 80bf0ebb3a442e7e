"""The transport between a connection of the core and its pipe: the event loop reports a ready socket, the
transport reads and writes.

    EventLoop --readable()--> Pipe.receive --> EventLoop.take_in          core --write(bytes)--> Pipe.send

The WebSocket transport puts frames between.
"""

import ssl
from typing import TYPE_CHECKING

from penstock.core.broker.event_loop import EventLoop
from penstock.core.broker.reactor import Connection
from penstock.server.transports.pipe import Pipe, PipeClosed

if TYPE_CHECKING:
    from collections.abc import Callable


class Transport:
    """The way of a connection over a pipe. Give it to Sessions.accept, then call `serve` when the
    connection may begin to read; until then what the core writes goes out as it comes.
    """

    __slots__ = ("__weakref__", "connection", "event_loop", "on_close", "pipe")

    def __init__(self, event_loop: EventLoop, pipe: Pipe) -> None:
        """`turn` is the one that will watch the pipe's socket."""
        self.event_loop = event_loop
        self.pipe = pipe
        self.connection: Connection | None = None
        self.on_close: Callable[[], object] | None = None  # called before the pipe is closed

    def serve(self, connection: Connection) -> None:
        """Begin: what has been read already comes first. OSError when it can't be watched."""
        self.connection = connection
        self.event_loop.now_ns = self.event_loop.clock.now()
        self.event_loop.attach(connection, self.pipe.fileno())
        if self.pipe.pending:
            self.readable()
        if not connection.closed:
            self.writable()

    # -- called by the core

    def write(self, data: bytes) -> None:
        """Output of the connection."""
        try:
            sent = self.pipe.send(self._encode(data))
        except PipeClosed as problem:
            self._end(str(problem))
            return
        if not sent and self.connection is not None:
            self.event_loop.hold(self.connection, True)

    def readable(self) -> None:
        """The socket has something, or is at its end."""
        connection = self.connection
        if connection is None:
            return
        try:
            while True:
                data = self.pipe.receive()
                if len(data):
                    self._received(connection, data)
                # What was decrypted has no socket that would tell of it again: it is taken in even
                # by a connection that is not read from.
                if connection.closed or not self.pipe.pending:
                    return
        except PipeClosed as problem:
            self._end(str(problem))
        except ssl.SSLError:
            self._end("Read Error")

    def writable(self) -> None:
        """The socket takes bytes again."""
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
        """The core has closed the connection."""
        closed, self.on_close = self.on_close, None
        if closed is not None:
            closed()
        self.pipe.close()

    # -- for those that put something between

    def _encode(self, data: bytes) -> bytes:
        return data

    def _received(self, connection: Connection, data: memoryview) -> None:
        self.event_loop.take_in(connection, data)

    def _end(self, reason: str) -> None:
        if self.connection is not None:
            self.event_loop.disconnect(self.connection, reason)
