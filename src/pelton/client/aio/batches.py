"""Batches of publishes into one stream, for asyncio: atomic ones, and fast ones with few answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.errors import PeltonError

from ..jetstream.batches import Atomic, Fast
from .running import Entered, run

if TYPE_CHECKING:
    import asyncio

    from ..plans.jetstream import Headers
    from .connection import Client

KEEP_ALIVE_S = 3.0
"""A fast batch without publishes sends a ping after this time; streams wait for 10 s."""


class AtomicBatch(Entered, Atomic):
    """Messages that a stream stores as a whole, or not at all; made by ``JetStream.atomic_batch``.

    Use it in ``async with``: the end commits, and nothing is stored when the block raises; or call
    ``commit``. None of them is visible before. All subjects must belong to one stream, which allows atomic
    batches (API level 2). The stream gives up a batch that gets no message for 10 s.

    ::

        async with js.atomic_batch() as batch:
            await batch.add("orders.new", b"42 bolts")
            await batch.add("orders.paid", b"42 bolts")
        print(batch.ack.seq)
    """

    client: Client


class FastBatch(Entered, Fast):
    """Publishes into a stream that answers once per many messages; made by ``JetStream.fast_batch``.

    Use it in ``async with``: the end commits. Each message is stored separately and visible at once. A
    message that does not arrive or is refused ends the batch with BatchEndedError, unless ``gaps`` are
    allowed: then see ``flow.gaps`` and ``flow.failures``.

    ::

        async with js.fast_batch() as batch:
            for reading in readings:
                await batch.publish("readings.oven", reading)
    """

    client: Client
    _timer: asyncio.TimerHandle | None = None
    _published_at = 0.0

    async def publish(
        self, subject: str, data: bytes = b"", *, headers: Headers | None = None
    ) -> None:
        """Send a message; waits while the stream is too far behind.

        BatchEndedError or an ApiError when the stream takes nothing more; PeltonTimeoutError when it is silent.
        """
        client = self.client
        if self.flow.full:
            await run(client, self._making_room())
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
                self.client._report(error)

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super()._close()
