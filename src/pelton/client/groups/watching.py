"""The newest version of a group's document, from a push consumer on its key.

Only the newest version matters, so a watch that has missed something begins again with the last value.
Does not depend on a transport.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pelton.api import keyvalue as wire

from ..base.models import ConsumerConfig
from ..base.steps import Mailbox
from ..jetstream.pull import control_reply
from ..session.own_consumers import OwnConsumers

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.interest import Interest
    from ..base.message import BaseMessage
    from ..base.steps import Steps
    from ..jetstream.streams import Streams

HEARTBEAT_S = 5.0
SILENCE_S = 2.5 * HEARTBEAT_S
"""How long nothing may arrive until the watch begins again."""
INACTIVE_S = 30.0
_OPERATION, _MARKER = "KV-Operation", "Nats-Marker-Reason"


class DocumentWatch(Mailbox):
    """A watch of one key."""

    def __init__(self, js: Streams[Any], bucket: str, key: str, tell: Callable[[], None]) -> None:
        """``tell`` is called when there is news, or when the watch has to begin again."""
        self.client = js.client
        self._interest: Interest
        self.is_open = False
        """Whether the server's consumer is believed to be there."""
        self.news = False
        """Whether the document changed since the last ``take``."""
        self._consumers = OwnConsumers(js.client, js._plans, wire.stream_of(bucket))
        self._subject = f"{wire.prefix_of(bucket)}{key}"
        self._tell = tell
        self._value: bytes | None = None
        self._revision = 0
        self._consumer_seq = 0
        self._attached = False
        self._due = math.inf

    @property
    def due(self) -> float:
        """When to look whether anything arrived, by the client's clock."""
        return self._due

    def take(self) -> bytes | None:
        """The document now; None when there is none."""
        self.news = False
        return self._value

    def opening(self) -> Steps[None]:
        """Begin, or begin again; StreamNotFoundError without the bucket."""
        self._detach()
        inbox = self.client.new_inbox()
        self.client._attach(inbox, self, "")
        self._attached = True
        self._consumer_seq = self._revision = 0
        config = ConsumerConfig(
            deliver_subject=inbox,
            deliver_policy="last_per_subject",
            filter_subject=self._subject,
            ack_policy="none",
            max_deliver=1,
            idle_heartbeat=HEARTBEAT_S,
            inactive_threshold=INACTIVE_S,
            mem_storage=True,
            num_replicas=1,
        )
        info = yield from self._consumers.creating(config)
        self.is_open = True
        self._due = self.client._clock() + SILENCE_S
        if not (info.num_pending or info.delivered.consumer_seq or self._consumer_seq):
            self._set(None)
        yield from self._consumers.removing(keep=info.name)

    def check(self) -> None:
        """Begin again if nothing arrived for too long."""
        if self.client._clock() >= self._due:
            self.is_open = False

    def _reopen(self) -> None:
        """Begin again: the connection broke."""
        self.is_open = False

    def closing(self) -> Steps[None]:
        """End the subscription, and remove the consumer."""
        self.close()
        yield from self._consumers.removing()

    def close(self) -> None:
        """End the subscription; the server removes the consumer."""
        self.is_open = False
        self._detach()

    def _detach(self) -> None:
        if self._attached:
            self._attached = False
            self.client._release(self._interest)

    # -- called by the client ----------------------------------------------------------------------

    def _on_message(self, message: BaseMessage) -> None:
        """A version of the document, or a heartbeat."""
        self._due = self.client._clock() + SILENCE_S
        if control_reply(message) is not None:
            return
        metadata = message.metadata
        if metadata.consumer_seq != self._consumer_seq + 1:
            self.is_open = False
            self._tell()
            return
        self._consumer_seq = metadata.consumer_seq
        if metadata.stream_seq < self._revision:
            return
        self._revision = metadata.stream_seq
        removed = message.header(_OPERATION) or message.header(_MARKER)
        self._set(None if removed else message.data)

    def _on_end(self) -> None:
        """The client is closed."""
        self._attached = False

    def _set(self, value: bytes | None) -> None:
        self._value = value
        self.news = True
        self._tell()
