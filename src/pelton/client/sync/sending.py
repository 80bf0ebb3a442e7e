"""The calls that publish one of many messages, whose acks come later; for blocking code.

A program makes such a call for each message, so each half has its own text, without a call that it does not
need. Here, messages are queued and sent in blocks. ``publishing.py`` has the other calls of
these classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.message import HeadersLike, publish_headers
from ..batches import FastBatchBase
from ..publishing import PublisherBase
from ..session.session import OUTPUT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from .connection import Client


class WindowSender(PublisherBase):
    """Publishes while a window has room."""

    client: Client
    """The client that it belongs to."""
    _make_room: Callable[[], None]

    def publish(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
    ) -> None:
        """Queue a message; waits only when the window is full.

        Queued bytes are sent in blocks, when the window is full, and on ``flush``.
        """
        block = publish_headers(headers, msg_id=msg_id) if headers or msg_id else b""
        client = self.client
        guard = client._guard
        guard.take()
        try:
            if self._window.full:
                self._make_room()
            # No timer looks for overdue acks here: that is done whenever a block goes out.
            elif self._lost or self._connection.bytes_waiting > OUTPUT_BYTES:
                client._flush_output()
                self._look()
            self._put(subject, data, block, msg_id or "", None)
        finally:
            guard.give()


class FlowSender(FastBatchBase):
    """Publishes while a stream is not too far behind."""

    client: Client
    """The client that it belongs to."""
    _make_room: Callable[[], None]

    def publish(
        self, subject: str, data: bytes = b"", *, headers: HeadersLike | None = None
    ) -> None:
        """Queue a message; waits while the stream is too far behind.

        Queued bytes are sent in blocks, when the stream has to answer, and at the end. Raises BatchEndedError or an
        ApiError when the stream takes no more messages; PeltonTimeoutError when it does not answer.
        """
        client = self.client
        guard = client._guard
        guard.take()
        try:
            if self.flow.full:
                self._make_room()
            elif self._connection.bytes_waiting > OUTPUT_BYTES:
                client._flush_output()
            self._put(subject, data, headers)
        finally:
            guard.give()
