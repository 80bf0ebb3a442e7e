"""Batches of publishes into one stream, for blocking code: atomic ones, and fast ones with few
answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..jetstream.batches import Atomic, Fast
from ..session.session import OUTPUT_BYTES
from .running import Entered, run

if TYPE_CHECKING:
    from ..plans.jetstream import Headers
    from .connection import Client


class AtomicBatch(Entered, Atomic):
    """Messages that a stream stores as a whole, or not at all; made by ``JetStream.atomic_batch``.

    Use it in ``with``: the end commits, and nothing is stored when the block raises; or call ``commit``.
    None of them is visible before. All subjects must belong to one stream, which allows atomic
    batches (API level 2). The stream gives up a batch that gets no message for 10 s.

    ::

        with js.atomic_batch() as batch:
            batch.add("orders.new", b"42 bolts")
            batch.add("orders.paid", b"42 bolts")
        print(batch.ack.seq)
    """

    client: Client


class FastBatch(Entered, Fast):
    """Publishes into a stream that answers once per many messages; made by ``JetStream.fast_batch``.

    Use it in ``with``: the end commits. Each message is stored separately and visible at once. A message
    that does not arrive or is refused ends the batch with BatchEndedError, unless ``gaps`` are allowed: then
    see ``flow.gaps`` and ``flow.failures``. The stream gives up a batch that gets no message for 10 s: a
    caller without messages calls ``ping``.

    ::

        with js.fast_batch() as batch:
            for reading in readings:
                batch.publish("readings.oven", reading)
    """

    client: Client

    def publish(self, subject: str, data: bytes = b"", *, headers: Headers | None = None) -> None:
        """Queue a message; waits while the stream is too far behind.

        Queued bytes are sent in blocks, when the stream has to answer, and at the end. Raises BatchEndedError or an
        ApiError when the stream takes no more messages; PeltonTimeoutError when it does not answer.
        """
        client = self.client
        guard = client._guard
        guard.take()
        try:
            if self.flow.full:
                run(client, self._making_room())
            elif self._connection.bytes_waiting > OUTPUT_BYTES:
                client._flush_output()
            self._put(subject, data, headers)
        finally:
            guard.give()
