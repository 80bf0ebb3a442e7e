"""Publishing into a stream in bulk: rows of columns go out, and their acks are counted, without a
Python object per message.

While a publisher is open it captures the answers to its messages as the bytes are parsed
(``core.outflow``); all other operations of the connection go their usual way. What is not answered
is held, so that it can be sent again over another connection; whether that makes duplicates is for
the caller to know. For blocking code only.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from penstock.core.bulk.publish_window import Encoder, PublishWindow
from penstock.errors import ConnectionLost, PermissionsViolation

if TYPE_CHECKING:
    from penstock.core.bulk.publish_window import Rows
    from penstock.core.protocol.wire import Parser

    from .blocking.connection import BlockingClient
    from .connection import Interest
    from .message import BaseMessage

WINDOW = 16_384
WINDOW_BYTES = 16 * 1024 * 1024
LARGE = 1 << 62
BLOCK_BYTES = 128 * 1024  # handed to the socket at once


class RowPublisher:
    """Publishes rows in order, with at most ``window`` messages and about ``window_bytes`` bytes
    without an answer. One at a time may be open on a connection.

    Every call but ``close`` raises ConnectionLost when the connection broke: then ``open`` it on
    another one, ``settle`` what the stream has, and ``send_again``. PermissionsViolation when the
    server refuses the subject of a message, for it gives no other answer then.
    """

    def __init__(
        self,
        client: BlockingClient,
        *,
        common: bytes = b"",
        numbered: bytes = b"",
        window: int = WINDOW,
        window_bytes: int = WINDOW_BYTES,
        payload_max: int = 0,
    ) -> None:
        """``common``: header lines of every message. ``numbered``: begin of a header line that the
        number of the row ends. ``payload_max``: bytes of headers and payload, where that is less
        than what the server takes.
        """
        self.interest: Interest
        self._client = client
        self._inbox = client.new_inbox()
        encoder = Encoder(
            common=common,
            numbered=numbered,
            reply=f"{self._inbox}.".encode(),
            max_payload=min(client.server_info.max_payload, payload_max or LARGE),
        )
        self.flow = PublishWindow(encoder, window, window_bytes)
        self._reconnects = 0
        self._complaint: Exception | None = None
        self.open(client)

    def open(self, client: BlockingClient) -> None:
        """Take the answers that come over this connection; RuntimeError when somebody else reads
        it.
        """
        if client.connection.capture is not None:
            raise RuntimeError("the connection is captured by another reader")
        client.attach(f"{self._inbox}.*", self)
        client.connection.capture = self
        self._client = client
        self._reconnects = client.reconnects
        self._complaint = client.last_error

    def close(self) -> None:
        """Take no more answers."""
        connection = self._client.connection
        if connection.capture is self:
            connection.capture = None
            if not self._client.closed:
                connection.unsubscribe(self.interest)

    def publish(self, rows: Rows, start: int) -> int:
        """Send rows from ``start`` on, until the window is full; the first one that was not sent.

        Waits for nothing but the socket.
        """
        flow = self.flow
        while start < rows.count and not flow.full:
            start = flow.put(rows, start, BLOCK_BYTES)
            if flow.waiting_bytes >= BLOCK_BYTES or flow.full:
                self.push()
        return start

    def push(self) -> None:
        """Send what was put."""
        before = self.flow.waiting_bytes
        if before:
            self._check()
            self._client.connection.publish_operations(self.flow.take(), 0)
            self._client.flush_output()
        self._check()

    def send_again(self) -> None:
        """Send everything that is not answered once more."""
        self._check()
        self._client.connection.publish_operations(self.flow.again(), 0)
        self._client.flush_output()
        self._check()

    def wait(self, outstanding_max: int, seconds: float) -> bool:
        """Until no more than so many messages are without an answer; False when time runs out
        and no answer came at all.
        """
        self.push()
        deadline = time.monotonic() + seconds
        while self.flow.outstanding > outstanding_max:
            before = self.flow.outstanding
            self._client.wait_until(
                lambda: (
                    self.flow.outstanding <= outstanding_max
                    or self._client.lost_since(self._reconnects)
                    or self._client.last_error is not self._complaint
                ),
                max(0.0, deadline - time.monotonic()),
            )
            self._check()
            if self.flow.outstanding < before:
                deadline = time.monotonic() + seconds
            elif time.monotonic() >= deadline:
                return False
        return True

    def _check(self) -> None:
        client = self._client
        if client.closed or client.lost_since(self._reconnects):
            raise ConnectionLost(f"connection lost while publishing: {client.last_error}")
        if client.last_error is not self._complaint:
            self._complaint = client.last_error
            if isinstance(self._complaint, PermissionsViolation):
                raise self._complaint

    # -- called while bytes are parsed

    def feed(self, parser: Parser, data: bytes) -> list[tuple[object, ...]]:
        """Part of parsing: take our answers, return every other operation."""
        return self.flow.feed(parser, self.interest.sid, data)

    def receive(self, message: BaseMessage) -> None:
        """An answer parsed before the capture began; there is none, the inbox is new."""

    def end(self) -> None:
        """The client is closed: no answer follows."""
