"""What a client's operations do: CONNECT, PUB, SUB, UNSUB, PING; verbose, pedantic, -ERR texts, limits."""

from collections.abc import Callable
from typing import Any

from penstock.core.broker.reactor import Connection, Reactor

PENDING: object

class Sessions:
    """The server's side of every connection. `connect` is asked on CONNECT with the JSON text.

    connect(connection, text) -> Router to use, None after it has itself written -ERR and closed, or PENDING: nothing more is read
    from the connection until admit() (or until it is closed). It sets the connection's flags (verbose, pedantic, echo, headers, no_responders, ready). `accept` makes a Connection that is fed by hand.
    """

    def __init__(
        self,
        reactor: Reactor,
        connect: Callable[[Connection, bytes], object],
        default_router: object,
        auth_required: bool = False,
    ) -> None: ...
    auth_required: bool
    # None, or what is asked about messages that may want to be traced: begin(connection, subject, headers, size) -> the Trace
    # to keep, None (publish it untraced) or False (drop it); end(connection, trace) when it was published
    message_trace: Any
    max_subscriptions: int  # of connections that come from now on; 0: no limit
    max_sub_tokens: int  # of a subscription's subject; 0: as many as a trie takes
    # the first PING after a CONNECT was answered
    on_first_pong: Callable[[Connection], object] | None
    on_violation: Callable[[Connection, str], object] | None  # a permission was missing
    # None, or asked when the first operation of one that has to log in is no CONNECT: the Router to use, with `ready` set, or None
    on_guest: Callable[[Connection], object] | None
    on_broken: (
        Callable[[Connection, str], object] | None
    )  # what came was no operation, or came too early; without secrets
    def admit(self, connection: Connection, router: object) -> None:
        """The decision that PENDING promised: its flags are set, it goes on in the next turn (kick it). Nothing if it is gone."""
    def recheck(self, connection: Connection) -> int:
        """Its permits have changed: subscriptions they do not cover end, and it is told so; how many."""
    def welcome(self, connection: Connection) -> None:
        """Give a new connection its router; EventLoop.adopt calls this."""
    def accept(self, transport: object = None) -> Connection: ...
    def feed(self, connection: Connection, data: bytes) -> None:
        """Bytes that this client sent; any split."""
    def hold(self) -> None:
        """From here on a connection that publishes, or says CONNECT, is not read from."""
    def take_connects(self) -> None:
        """Undo hold() for CONNECT in the reactor's next turn; connections that publish still wait."""
    def go_on(self) -> None:
        """Undo hold(): what was held is done in the reactor's next turn, in order."""
    def nobody(self, connection: Connection, subject: bytes, reply: bytes) -> None:
        """What it published some time ago has no taker after all: it hears 503 if it wants to."""
    def eof(self, connection: Connection) -> None: ...
