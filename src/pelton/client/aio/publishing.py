"""Publishing into streams with many acks outstanding, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..jetstream.publishing import Publishing
from ..plans.jetstream import Headers, publish_headers
from .running import Entered, run

if TYPE_CHECKING:
    import asyncio

    from pelton.errors import PeltonError

    from ..base.models import PubAck
    from .connection import Client


class Publisher(Entered, Publishing):
    """Publishes into streams with a bounded window of outstanding acks; made by ``JetStream.publisher``.

    A message that is not acknowledged in time is sent again if it has a message id, and fails otherwise;
    a message that no stream of a cluster answers is sent again until then. Each ``publish`` returns a
    future for its ack; failures are also collected in ``failures``, and raised as PublishFailedError by
    ``flush`` and at the end of ``async with``.

    ::

        async with js.publisher(window=512) as publisher:
            for number in range(1000):
                await publisher.publish("orders.new", b"%d" % number, msg_id=f"order-{number}")
    """

    client: Client
    _timer: asyncio.TimerHandle | None = None

    async def publish(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
        msg_id: str | None = None,
    ) -> asyncio.Future[PubAck]:
        """Send a message, after waiting for room in the window; the future is for its ack."""
        client = self.client
        if self._window.full:
            await run(client, self._making_room())
        block = publish_headers(headers, msg_id=msg_id) if headers or msg_id else b""
        future: asyncio.Future[PubAck] = client._loop.create_future()
        self._put(subject, data, block, msg_id or "", future)
        client._plan_flush()
        if self._timer is None:
            self._sooner()
        if client._much_waits:
            await client._wait_writable()
        return future

    def _on_lost(self, error: PeltonError) -> None:
        """The connection broke: send again what may be sent twice."""
        super()._on_lost(error)
        self._look()

    def _sooner(self) -> None:
        """Look when the first message is overdue, even if no call waits."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        deadline = self._window.next_deadline()
        if deadline is not None:
            wait = max(0.0, deadline - self.client._clock())
            self._timer = self.client._loop.call_later(wait, self._on_timer)

    def _on_timer(self) -> None:
        self._look()
        self._sooner()

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super()._close()
