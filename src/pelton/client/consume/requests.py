"""What pull requests of an operation say: sizes, deadlines, and the priority group with its pin.

A pinned consumer serves one client of a group. Its messages have the header ``Nats-Pin-Id``; later
requests repeat that id, until the server answers 423 because it pinned another client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pelton.api import encode
from pelton.api.calls import PullRequest

from ..base.durations import Duration, to_nanoseconds

if TYPE_CHECKING:
    from ..base.message import BaseMessage
    from ..base.models import ConsumerConfig

MESSAGES_MAX = 500
"""Messages that an operation buffers, unless it is told a number."""
BATCH_OF_BYTES = 1_000_000
"""The number of messages in a request that is limited by bytes."""
PRIORITY_MAX = 9
PIN_HEADER = b"Nats-Pin-Id:"


class Asking:
    """The part of an operation's requests that concerns its priority group."""

    def __init__(
        self,
        config: ConsumerConfig,
        pins: dict[str, str],
        *,
        group: str = "",
        min_pending: int = 0,
        min_ack_pending: int = 0,
        priority: int = 0,
    ) -> None:
        """``pins``: the pin ids of the client by group. ValueError when the config does not fit."""
        groups, policy = config.priority_groups, config.priority_policy
        if not group and len(groups) == 1:
            group = groups[0]
        if group and group not in groups:
            raise ValueError(
                f"the consumer has no priority group {group!r}: it has {', '.join(groups) or 'none'}"
            )
        if groups and not group:
            raise ValueError(f"name one of the consumer's priority groups: {', '.join(groups)}")
        if (min_pending or min_ack_pending) and policy != "overflow":
            raise ValueError("min_pending and min_ack_pending need the priority policy 'overflow'")
        if min_pending < 0 or min_ack_pending < 0:
            raise ValueError("min_pending and min_ack_pending are not negative")
        if priority and policy != "prioritized":
            raise ValueError("priority needs the priority policy 'prioritized'")
        if not 0 <= priority <= PRIORITY_MAX:
            raise ValueError(f"a priority is 0 (first) to {PRIORITY_MAX}, got {priority}")
        self.group = group
        self.pinned = policy == "pinned_client"
        self._fields: dict[str, Any] = {
            "group": group,
            "min_pending": min_pending,
            "min_ack_pending": min_ack_pending,
            "priority": priority,
        }
        self._pins = pins

    @property
    def pin(self) -> str:
        """The pin id of this client, "" for none."""
        return self._pins.get(self.group, "")

    def body(self, batch: int, **fields: Any) -> bytes:
        """The body of a request: ``expires``, ``idle_heartbeat``, ``max_bytes``, ``no_wait``."""
        pin = self._pins.get(self.group, "") if self.pinned else ""
        return encode(PullRequest(batch=batch, id=pin, **self._fields, **fields))

    def learn(self, message: BaseMessage) -> str:
        """The pin id of a message when it is a new one; later requests have it."""
        if PIN_HEADER not in message.raw_headers:
            return ""
        pin = message.header("Nats-Pin-Id") or ""
        if self._pins.get(self.group, "") == pin:
            return ""
        self._pins[self.group] = pin
        return pin

    def unpin(self) -> bool:
        """The server pinned another client; returns whether this client had a pin."""
        return bool(self._pins.pop(self.group, ""))


class Sizes:
    """How much an operation buffers, and when it asks for more."""

    def __init__(
        self,
        *,
        max_messages: int | None = None,
        max_bytes: int | None = None,
        threshold: int | None = None,
        expires: Duration = 30.0,
        heartbeat: Duration = 5.0,
    ) -> None:
        """ValueError for numbers below 1, both limits, or a heartbeat above half of ``expires``."""
        if max_messages is not None and max_bytes is not None:
            raise ValueError("give max_messages or max_bytes, not both")
        self.by_bytes = max_bytes is not None
        limit = max_bytes if max_bytes is not None else max_messages
        self.limit = MESSAGES_MAX if limit is None else limit
        """Messages, or bytes when ``by_bytes``."""
        if self.limit < 1:
            raise ValueError(f"max_messages and max_bytes are at least 1, got {self.limit}")
        self._batch = BATCH_OF_BYTES
        self.low = self.limit // 2 if threshold is None else threshold
        """More is requested when at most this much is outstanding or buffered."""
        if not 0 <= self.low < self.limit:
            raise ValueError(f"the threshold is at least 0 and below {self.limit}, got {self.low}")
        self.expires_ns = int(to_nanoseconds(expires))
        self.heartbeat_ns = int(to_nanoseconds(heartbeat))
        if not 0 < 2 * self.heartbeat_ns <= self.expires_ns:
            raise ValueError(
                "a heartbeat is more than 0 and at most half of expires, "
                f"got heartbeat={heartbeat!r} and expires={expires!r}"
            )

    def fit(self, config: ConsumerConfig) -> None:
        """Keep requests within the limits of the consumer."""
        if config.max_expires:
            self.expires_ns = min(self.expires_ns, int(config.max_expires))
            self.heartbeat_ns = min(self.heartbeat_ns, self.expires_ns // 2)
        if config.max_batch:
            self._batch = min(self._batch, config.max_batch)
        allowed = config.max_bytes if self.by_bytes else config.max_batch
        if allowed and allowed < self.limit:
            self.limit = allowed
            self.low = min(self.low, allowed // 2)

    def body(self, asking: Asking, amount: int) -> bytes:
        """The request for ``amount`` messages or bytes."""
        times = {"expires": self.expires_ns, "idle_heartbeat": self.heartbeat_ns}
        if self.by_bytes:
            return asking.body(self._batch, max_bytes=amount, **times)
        return asking.body(amount, **times)


def size_of(message: BaseMessage) -> int:
    """The size of a message as the server counts it for ``max_bytes``."""
    return len(message.subject) + len(message.reply) + len(message.raw_headers) + len(message.data)
