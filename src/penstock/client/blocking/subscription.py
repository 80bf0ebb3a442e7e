"""A subscription of the blocking client."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..steps import call
from ..subscribing import Subscribed
from .messages import BlockingMessage
from .running import Entered, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..durations import Duration
    from .connection import BlockingClient


class Subscription(Entered, Subscribed[BlockingMessage]):
    """Messages of one subject, kept until they are taken."""

    client: BlockingClient

    def next(self, timeout: Duration | None = None) -> BlockingMessage:
        """The next message; raises as ``taking``."""
        if self._queue or self.has_news():
            return self._take()
        return run(self.client, self.taking(timeout))

    def __iter__(self) -> Iterator[BlockingMessage]:
        """Messages until the subscription ends; waits without limit.

        Raises ConnectionClosed when the client is lost meanwhile.
        """
        while True:
            if not self.has_news():
                self.client.wait_until(self.has_news, math.inf)
            elif self._over():
                return
            else:
                yield self._take()

    drain = call(Subscribed[BlockingMessage].draining)
