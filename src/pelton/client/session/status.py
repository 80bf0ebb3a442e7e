"""What happens to a connection, as events for the user. Does not depend on transports or time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ..base.mailbox import Mailbox

if TYPE_CHECKING:
    from .session import Session

StatusType: TypeAlias = Literal[
    "connected",
    "disconnected",
    "reconnecting",
    "reconnected",
    "lame_duck",
    "servers_discovered",
    "slow_consumer",
    "error",
    "closed",
]

EVENTS_MAX = 1000
"""Events that wait for a reader; of more, the oldest are dropped."""


class Status(NamedTuple):
    """One event of a connection.

    Example::

        def tell(event: Status):
            print(event.type)

        pelton.sync.connect(url, on_status=tell).close()
    """

    type: StatusType
    """connected: for the first time. disconnected: the connection broke, ``error`` says why.
    reconnecting: an attempt at ``server`` begins. reconnected: connected again. lame_duck: the server
    is about to stop. servers_discovered: INFO named new ``servers``. slow_consumer: a subscription
    drops messages. error: no call can raise ``error``. closed: no event follows."""
    server: str = ""
    """URL of the server, without credentials."""
    error: Exception | None = None
    servers: tuple[str, ...] = ()
    """URLs of new servers."""


class StatusBox(Mailbox):
    """Keeps the events of a client for one reader, from its making on."""

    def __init__(self, client: Session) -> None:
        """Events from now on, to iterate over; ends after "closed"."""
        self.client: Any = client
        """The client that it belongs to."""
        self._events: deque[Status] = deque(maxlen=EVENTS_MAX)
        self._over = client.closed
        if not self._over:
            client._readers_of_status.add(self)

    def _put(self, status: Status) -> None:
        """An event for the reader."""
        self._events.append(status)
        if status.type == "closed":
            self._over = True
        self._stir()

    def _has_news(self) -> bool:
        """Whether the reader has something to take, or can stop."""
        return bool(self._events) or self._over

    def close(self) -> None:
        """Keep no more events; the iteration ends after those that are here."""
        self._over = True
        self.client._readers_of_status.discard(self)
        self._stir()

    def _take(self) -> Status | None:
        """The next event of those that are there; None for none."""
        return self._events.popleft() if self._events else None
