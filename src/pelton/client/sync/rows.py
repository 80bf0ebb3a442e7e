"""Publishing into a stream in bulk: rows of columns are sent and their acks counted, without a Python
object per message.

While a publisher is open, it captures the answers to its messages as the bytes are parsed
(``core/bulk/publish_window``); all other operations of the connection are processed as usual. It holds messages
without an answer, so that they can be sent again over another connection; the caller decides whether
that may make duplicates. For blocking code only.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pelton.core.bulk.publish_window import Encoder, PublishWindow, Rows
from pelton.errors import ConnectionLostError, PermissionsViolationError

if TYPE_CHECKING:
    from pelton.core.protocol.wire import Parser

    from ..base.mailbox import Interest
    from ..base.message import BaseMessage
    from .connection import Client

WINDOW = 16_384
WINDOW_BYTES = 16 * 1024 * 1024
# No limit: more than any server's max_payload.
LARGE = 1 << 62
BLOCK_BYTES = 128 * 1024  # handed to the socket at once


class RowPublisher:
    """Publishes rows in order, with a bounded window of messages without an answer.

    The window has at most ``window`` messages and about ``window_bytes`` bytes. One publisher at a time
    may be open on a connection. Every call but ``close`` raises ConnectionLostError when the connection broke:
    then ``open`` it on another one, ``settle`` the messages that the stream has, and ``send_again``.
    PermissionsViolationError when the server refuses the subject of a message, because it then sends no other
    answer.
    """

    def __init__(
        self,
        client: Client,
        *,
        common: bytes = b"",
        numbered: bytes = b"",
        window: int = WINDOW,
        window_bytes: int = WINDOW_BYTES,
        payload_max: int = 0,
    ) -> None:
        """``common``: header lines of every message.

        ``numbered``: the begin of a header line that ends with the number of the row. ``payload_max``: the
        limit for the bytes of headers and payload, if it is below that of the server.
        """
        self._interest: Interest
        self._client = client
        self._inbox = client.new_inbox()
        encoder = Encoder(
            common=common,
            numbered=numbered,
            reply=f"{self._inbox}.".encode(),
            max_payload=min(client.server_info.max_payload, payload_max or LARGE),
            max_line=client.options.control_line_max,
        )
        self.flow = PublishWindow(encoder, window, window_bytes, client._tokens.block)
        self._reconnects = 0
        self._complaint: Exception | None = None
        self.open(client)

    def open(self, client: Client) -> None:
        """Capture the answers that come over this connection; RuntimeError when another reader does."""
        if client._connection.capture is not None:
            raise RuntimeError("the connection is captured by another reader")
        client._attach(f"{self._inbox}.*", self)
        client._connection.capture = self
        self._client = client
        self._reconnects = client.reconnects
        # Compared by identity later: what was complained of before does not concern these messages.
        self._complaint = client.last_error

    def close(self) -> None:
        """Stop capturing answers."""
        connection = self._client._connection
        if connection.capture is self:
            connection.capture = None
            if not self._client.closed:
                connection.unsubscribe(self._interest)

    def publish(self, rows: Rows, start: int) -> int:
        """Send rows from ``start`` on, until the window is full; returns the first row that was not sent.

        Waits for nothing but the socket.
        """
        flow = self.flow
        while start < rows.count and not flow.full:
            start = flow.put(rows, start, BLOCK_BYTES)
            if flow.waiting_bytes >= BLOCK_BYTES or flow.full:
                self.push()
        return start

    def push(self) -> None:
        """Send the queued blocks."""
        before = self.flow.waiting_bytes
        if before:
            self._check()
            self._client._connection.publish_operations(self.flow.take(), 0)
            self._client._flush_output()
        self._check()

    def send_again(self) -> None:
        """Send every message without an answer again."""
        self._check()
        self._client._connection.publish_operations(self.flow.again(), 0)
        self._client._flush_output()
        self._check()

    def wait(self, outstanding_max: int, seconds: float) -> bool:
        """Wait until at most ``outstanding_max`` messages are without an answer.

        False when the time is over and no answer came at all.
        """
        self.push()
        deadline = time.monotonic() + seconds
        while self.flow.outstanding > outstanding_max:
            before = self.flow.outstanding
            self._client.wait_until(
                lambda: (
                    self.flow.outstanding <= outstanding_max
                    or self._client._lost_since(self._reconnects)
                    or self._client.last_error is not self._complaint
                ),
                max(0.0, deadline - time.monotonic()),
            )
            self._check()
            if self.flow.outstanding < before:
                # Any answer is progress: the time is for a silence, not for all messages.
                deadline = time.monotonic() + seconds
            elif time.monotonic() >= deadline:
                return False
        return True

    def _check(self) -> None:
        client = self._client
        if client.closed or client._lost_since(self._reconnects):
            raise ConnectionLostError(f"connection lost while publishing: {client.last_error}")
        if client.last_error is not self._complaint:
            self._complaint = client.last_error
            if isinstance(self._complaint, PermissionsViolationError):
                raise self._complaint

    # -- called while bytes are parsed

    def _feed(self, parser: Parser, data: bytes | memoryview) -> list[tuple[object, ...]]:
        """Called by the parser: take answers for this publisher, return every other operation."""
        return self.flow.feed(parser, self._interest.sid, data)

    def _on_message(self, message: BaseMessage) -> None:
        """Unused: the inbox is new, so no answer was parsed before the capture began."""

    def _on_end(self) -> None:
        """The client is closed: no answer follows."""
