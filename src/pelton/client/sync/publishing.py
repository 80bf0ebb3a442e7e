"""Publishing into streams with many acks outstanding, for blocking code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..jetstream.publishing import Publishing
from ..plans.jetstream import Headers, publish_headers
from ..session.session import OUTPUT_BYTES
from .running import Entered, run

if TYPE_CHECKING:
    from .connection import Client


class Publisher(Entered, Publishing):
    """Publishes into streams with a bounded window of outstanding acks; made by ``JetStream.publisher``.

    A message that is not acknowledged in time is sent again if it has a message id, and fails otherwise;
    a message that no stream of a cluster answers is sent again until then. Failures are collected in
    ``failures`` and raised as PublishFailedError by ``flush`` and at the end of ``with``.

    ::

        with js.publisher(window=512) as publisher:
            for number in range(1000):
                publisher.publish("orders.new", b"%d" % number, msg_id=f"order-{number}")
    """

    client: Client

    def publish(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
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
                run(client, self._making_room())
            elif self._lost or self._connection.bytes_waiting > OUTPUT_BYTES:
                client._flush_output()
                self._look()
            self._put(subject, data, block, msg_id or "", None)
        finally:
            guard.give()
