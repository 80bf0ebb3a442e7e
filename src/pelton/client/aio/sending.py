"""The calls that publish one of many messages, whose acks come later; for asyncio.

A program makes such a call for each message, so each half has its own text, without a call that it does not
need. In asyncio, timers also look for overdue acks and keep a batch open. ``publishing.py`` has
the other calls of these classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.errors import PeltonError

from ..base.message import HeadersLike, publish_headers
from ..batches import FastBatchBase
from ..publishing import PublisherBase

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine
    from typing import Any

    from ..base.models import PubAck
    from .connection import Client

KEEP_ALIVE_S = 3.0
"""A fast batch without publishes sends a ping after this time; streams wait for 10 s."""


class WindowSender(PublisherBase):
    """Publishes while a window has room."""

    client: Client
    """The client that it belongs to."""
    _make_room: Callable[[], Coroutine[Any, Any, None]]
    _timer: asyncio.TimerHandle | None = None

    async def publish(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: HeadersLike | None = None,
        msg_id: str | None = None,
    ) -> asyncio.Future[PubAck]:
        """Send a message, after waiting for room in the window; the future is for its ack."""
        client = self.client
        if self._window.full:
            await self._make_room()
        block = publish_headers(headers, msg_id=msg_id) if headers or msg_id else b""
        # After the wait for room: a call that is cancelled there leaves no future behind.
        future: asyncio.Future[PubAck] = client._loop.create_future()
        self._put(subject, data, block, msg_id or "", future)
        client._plan_flush()
        # One timer, for the oldest message: it is set again when it fires, not for each publish.
        if self._timer is None:
            self._sooner()
        if client._much_waits:
            await client._wait_writable()
        return future

    def _on_lost(self, error: PeltonError) -> None:
        """The connection broke: send again what may be sent twice."""
        super()._on_lost(error)
        # At once, because in asyncio there may be no call that waits and would look.
        self._look()

    def _sooner(self) -> None:
        """Look when the first message is overdue, even if no call waits."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._window.next_deadline() is not None:
            wait = self._window.seconds_left(self.client._clock())
            self._timer = self.client._loop.call_later(wait, self._on_timer)

    def _on_timer(self) -> None:
        self._look()
        self._sooner()

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super()._close()


class FlowSender(FastBatchBase):
    """Publishes while a stream is not too far behind."""

    client: Client
    """The client that it belongs to."""
    _make_room: Callable[[], Coroutine[Any, Any, None]]
    _timer: asyncio.TimerHandle | None = None
    _published_at = 0.0

    async def publish(
        self, subject: str, data: bytes = b"", *, headers: HeadersLike | None = None
    ) -> None:
        """Send a message; waits while the stream is too far behind.

        BatchEndedError or an ApiError when the stream takes nothing more; PeltonTimeoutError when it is silent.
        """
        client = self.client
        if self.flow.full:
            await self._make_room()
        self._put(subject, data, headers)
        self._published_at = client._clock()
        if self._timer is None and not self._closed:
            self._keep_alive()
        client._plan_flush()
        if client._much_waits:
            await client._wait_writable()

    def _keep_alive(self) -> None:
        client = self.client
        self._timer = client._loop.call_later(KEEP_ALIVE_S, self._keep_alive)
        if client._clock() - self._published_at >= KEEP_ALIVE_S:
            try:
                self._ping()
            except PeltonError as error:
                client._report(error)

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super()._close()
