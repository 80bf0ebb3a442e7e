"""What is remembered of closed connections, for monitoring. Plain values."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from penstock.core.hub import Connection

if TYPE_CHECKING:
    from penstock.server.clients.client import Client

REMEMBERED = 1000  # subscriptions of a closed connection; of one with more, only their number


class Held(NamedTuple):
    """A subscription of a connection that is closed."""

    subject: bytes
    queue: bytes
    sid: bytes
    delivered: int
    max: int


class Departed(NamedTuple):
    """A closed connection as /connz?state=closed shows it."""

    cid: int
    client: "Client"
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
    held: tuple[Held, ...]  # which they were; empty when there were more than REMEMBERED

    def all_subscriptions(self) -> tuple[Held, ...]:
        """As of a connection."""
        return self.held


@dataclass(slots=True)
class Past:
    """What the closed connections of an account came to."""

    in_msgs: int = 0
    out_msgs: int = 0
    in_bytes: int = 0
    out_bytes: int = 0
    slow_consumers: int = 0


def departed(connection: Connection, client: "Client", now_ns: int) -> Departed:
    """What is remembered of a connection that was closed now."""
    count = connection.subscription_count()
    held = connection.all_subscriptions() if count <= REMEMBERED else []
    return Departed(
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
        tuple(Held(s.subject, s.queue, s.sid, s.delivered, s.max) for s in held),
    )
