"""Extending the ack wait of messages that an operation has buffered, or that its user handles.

At each look, the messages that were there at the last look get an in-progress ack (``+WPI``), which
restarts their ack wait. Does no I/O; the caller gives the time and sends the acks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..base.message import BaseMessage
    from ..base.models import ConsumerConfig


class AckExtension:
    """Which messages of an operation are due for an in-progress ack."""

    def __init__(self) -> None:
        """Off until ``begin``."""
        self.on = False
        """Whether ack waits are extended."""
        self.due = math.inf
        """The time of the next look."""
        self.given: dict[object, BaseMessage] = {}
        """The message that an iteration handles, by task or thread."""
        self._interval_s = math.inf
        self._seen: set[int] = set()

    def begin(self, config: ConsumerConfig, now: float) -> None:
        """Look at the messages four times in each ack wait of the consumer."""
        waits = [int(each) for each in config.backoff] or [int(config.ack_wait)]
        self._interval_s = min(waits) / 4e9 or math.inf
        self.on = self._interval_s < math.inf
        self.due = now + self._interval_s

    def look(self, now: float, messages: Iterable[BaseMessage]) -> list[BaseMessage]:
        """Those of the messages, and of ``given``, that were already here at the last look."""
        self.due = now + self._interval_s
        here = [each for each in (*messages, *self.given.values()) if not each.acked]
        seen, self._seen = self._seen, {id(message) for message in here}
        return [message for message in here if id(message) in seen]

    def end(self) -> None:
        """The operation has ended."""
        self.given.clear()
