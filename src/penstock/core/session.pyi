"""What a client's operations do: CONNECT, PUB, SUB, UNSUB, PING; verbose, pedantic, -ERR texts, limits."""

from collections.abc import Callable
from typing import Any

from penstock.core.hub import Connection, Hub

class Sessions:
    """The server's side of every connection. `connect` is asked on CONNECT with the JSON text.

    connect(connection, text) -> Router to use, or None after it has itself written -ERR and closed. It sets the connection's flags
    (verbose, pedantic, echo, headers, no_responders, ready). `accept` makes a Connection that is fed by hand.
    """

    def __init__(
        self,
        hub: Hub,
        connect: Callable[[Connection, bytes], object],
        default_router: object,
        auth_required: bool = False,
    ) -> None: ...
    auth_required: bool
    # None, or what is asked about messages that may want to be traced: begin(connection, subject, headers, size) -> the Trace
    # to keep, None (publish it untraced) or False (drop it); end(connection, trace) when it was published
    tracer: Any
    max_subscriptions: int  # per connection; 0: no limit
    def welcome(self, connection: Connection) -> None:
        """Give a new connection its router; Turn.adopt calls this."""
    def accept(self, transport: object = None) -> Connection: ...
    def feed(self, connection: Connection, data: bytes) -> None:
        """Bytes that this client sent; any split."""
    def eof(self, connection: Connection) -> None: ...
