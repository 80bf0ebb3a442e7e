"""Records of closed connections, for monitoring. Plain values."""

from collections import deque
from collections.abc import Iterator

from msgspec import Struct

from pelton.core.broker.reactor import Connection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pelton.server.clients.client import Client

REMEMBERED = 1000  # kept subscriptions of one connection; with more, only their number
LISTED = 100_000  # the same for all together; above it, the oldest connections keep only the number
LONG_BYTES = 256  # a subscription with longer names counts as several


class ClosedSubscription:
    """A subscription of a closed connection. Made in great numbers, so the class is kept cheap."""

    __slots__ = ("delivered", "max", "queue", "sid", "subject")

    def __init__(self, subject: bytes, queue: bytes, sid: bytes, delivered: int, most: int) -> None:
        """The subscription's values in the router."""
        self.subject = subject
        self.queue = queue
        self.sid = sid
        self.delivered = delivered
        self.max = most


class ClosedConnection(Struct):
    """A closed connection as /connz?state=closed shows it."""

    cid: int
    client: "Client"  # for a leaf node, its facts in the same form
    start_ns: int
    stop_ns: int
    last_ns: int
    reason: str
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    pending: int
    stalls: int
    rtt_ns: int
    subscriptions: int
    held: list[ClosedSubscription]  # its subscriptions; empty when there were too many

    def all_subscriptions(self) -> list[ClosedSubscription]:
        """The subscriptions, under the name of Connection's method."""
        return self.held


class ClosedConnections:
    """The newest closed connections, oldest first, at most `size`."""

    def __init__(self, size: int, listed: int = LISTED) -> None:
        """`listed`: how many subscriptions are kept by name for all connections together; long ones
        count for more (`weight`).
        """
        self.size = size
        self.listed = 0
        self._most_listed = listed
        self._all: deque[ClosedConnection] = deque()
        self._with_list: deque[ClosedConnection] = deque()

    def append(self, gone: ClosedConnection) -> None:
        """Add a connection; the oldest is removed when there are too many."""
        if self.size == 0:
            return
        if len(self._all) == self.size:
            oldest = self._all.popleft()
            if self._with_list and self._with_list[0] is oldest:
                self._strip_oldest()
        self._all.append(gone)
        if gone.held:
            self._with_list.append(gone)
            self.listed += weight(gone.held)
        while self.listed > self._most_listed:
            self._strip_oldest()

    def _strip_oldest(self) -> None:
        held = self._with_list.popleft().held
        self.listed -= weight(held)
        held.clear()

    def __iter__(self) -> Iterator[ClosedConnection]:
        """Iterate from the oldest on."""
        return iter(self._all)

    def __getitem__(self, index: int) -> ClosedConnection:
        """The connection at an index; 0 is the oldest. IndexError."""
        return self._all[index]


def weight(held: list[ClosedSubscription]) -> int:
    """The weight of subscriptions: one each, and one more for every LONG_BYTES of their names."""
    return sum(1 + (len(s.subject) + len(s.queue) + len(s.sid)) // LONG_BYTES for s in held)


class ClosedTotals(Struct):
    """The totals of an account's closed connections."""

    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    slow_consumers: int = 0


def departed(connection: Connection, client: "Client", now_ns: int) -> ClosedConnection:
    """The record of a connection that was closed now."""
    count = connection.subscription_count()
    held = connection.all_subscriptions() if count <= REMEMBERED else []
    return ClosedConnection(
        connection.id,
        client,
        connection.start_ns,
        now_ns,
        connection.last_ns,
        connection.reason,
        connection.in_msgs,
        connection.out_msgs,
        connection.in_bytes,
        connection.out_bytes,
        connection.pending_bytes(),
        connection.stalls,
        connection.rtt_ns,
        count,
        [ClosedSubscription(s.subject, s.queue, s.sid, s.delivered, s.max) for s in held],
    )
