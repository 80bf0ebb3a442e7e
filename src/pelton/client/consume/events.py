"""What happens to an operation that consumes, as events for its user. Does not depend on a transport."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..base.mailbox import Mailbox

if TYPE_CHECKING:
    from collections.abc import Callable

EventType: TypeAlias = Literal[
    "consumer_deleted",
    "consumer_not_found",
    "consumer_pinned",
    "consumer_recreated",
    "consumer_unpinned",
    "discard",
    "exceeded_limits",
    "flow_control",
    "group_deleted",
    "group_joined",
    "group_left",
    "group_waiting",
    "handler_failed",
    "heartbeat",
    "heartbeats_missed",
    "next",
    "no_responders",
    "ordered_consumer_recreated",
    "reset",
    "stream_not_found",
]
"""The types of events."""

EVENTS_MAX = 1000
"""The number of events that wait for a reader; older ones are dropped."""


@dataclass(frozen=True, slots=True)
class ConsumerEvent:
    """An event of an operation that consumes.

    Example::

        def tell(event: ConsumerEvent):
            print(event.type, event.description)

        operation = js.consumer("ORDERS", "packing").consume(on_status=tell)
        operation.stop()

    ========================== =====================================================================
    consumer_deleted           the server ended a request because its consumer was deleted
    consumer_not_found         the consumer does not exist; ``count`` look-ups in a row
    consumer_pinned            the server chose this client of the group; ``name`` is the pin id
    consumer_recreated         the missing consumer was created again (``on_missing="recreate"``)
    consumer_unpinned          the server chose another client of the group
    discard                    a request ended before its messages arrived (``messages_left``)
    exceeded_limits            the server refused a request because of a limit
    flow_control               the server of a push consumer was told that it may go on
    group_deleted              the consumer group was deleted; the operation ends
    group_joined               this client consumes as the member ``name``: ``description`` has its filters
    group_left                 the member ``name`` has no partition any more; it waits until it has one
    group_waiting              other members still have partitions that the member ``name`` gets
    handler_failed             the callback raised ``error``; its message is delivered again
    heartbeat                  the server is alive and has no messages
    heartbeats_missed          ``count`` heartbeats in a row did not come; after two it is looked up
    next                       a request for ``count`` messages was sent
    no_responders              no server answered for the consumer; it is looked up
    ordered_consumer_recreated an ordered consumer goes on with the new consumer ``name``
    reset                      outstanding requests were given up, and a new one is sent
    stream_not_found           the stream does not exist; ``count`` look-ups in a row
    ========================== =====================================================================
    """

    type: EventType
    description: str = ""
    """The reason, or the server's words."""
    count: int = 0
    name: str = ""
    """The consumer's name, or the pin id."""
    messages_left: int = 0
    """Messages that an ended request did not deliver."""
    bytes_left: int = 0
    error: Exception | None = None

    @property
    def data(self) -> int | str | Exception | None:
        """What the event is about, as nats.js has it: the error, the count, the name or the reason."""
        return self.error or self.count or self.name or self.description or None


def no_event(_: ConsumerEvent) -> None:
    """Ignore the event."""


class EventFeed(Mailbox):
    """The events of one operation, for its callback and for one reader."""

    def __init__(self) -> None:
        """No event yet, and no callback."""
        self.unread: deque[ConsumerEvent] = deque(maxlen=EVENTS_MAX)
        self.callback: Callable[[ConsumerEvent], None] = no_event
        self._over = False

    def emit(self, kind: EventType, description: str = "", **fields: Any) -> None:
        """Tell the user of an event."""
        event = ConsumerEvent(kind, description, **fields)
        self.unread.append(event)
        self._stir()
        self.callback(event)

    def _has_news(self) -> bool:
        """Whether there is an event to read, or none follows."""
        return bool(self.unread) or self._over

    def end(self) -> None:
        """The operation has ended."""
        self._over = True
        self._stir()
