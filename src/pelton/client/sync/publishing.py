# Made of client/aio/publishing.py by tools/gen_sync.py: change that file, and run it again.
"""Publishing into streams with many acks outstanding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from pelton.errors import PublishFailedError

from .locks import locked
from .sending import WindowSender

if TYPE_CHECKING:
    from collections.abc import Callable


class Publisher(WindowSender):
    """Publishes into streams with a bounded window of outstanding acks; made by ``JetStream.publisher``.

    A message that is not acknowledged in time is sent again if it has a message id, and fails otherwise;
    a message that no stream of a cluster answers is sent again until then. Failures are collected in
    ``failures``, and raised as PublishFailedError by ``flush`` and at the end of the block.

    ::

        with js.publisher(window=512) as publisher:
            for number in range(1000):
                publisher.publish("orders.new", b"%d" % number, msg_id=f"order-{number}")
    """

    @locked
    def flush(self) -> None:
        """Wait until every message is acknowledged or has failed.

        PublishFailedError names the messages that failed since the last call.
        """
        self._settle(lambda: not self._window)
        if self.failures:
            failures, self.failures = self.failures, []
            raise PublishFailedError(failures)

    @locked
    def __enter__(self) -> Self:
        """The publisher itself."""
        return self

    @locked
    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for every ack, unless the block raises; PublishFailedError when some did not arrive."""
        try:
            if kind is None:
                self.flush()
        finally:
            self._close()

    def _make_room(self) -> None:
        self._settle(lambda: not self._window.full)

    def _settle(self, done: Callable[[], bool]) -> None:
        client, window = self.client, self._window
        while not done():
            refused = window.refused

            def over(refused: bool = refused) -> bool:
                return done() or self._lost or (window.refused and not refused)

            client._until(self, over, window.seconds_left(self._clock()))
            if self._lost:
                client._ready(self._patience)
            self._look()
