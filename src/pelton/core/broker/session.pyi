"""A client's operations: CONNECT, PUB, SUB, UNSUB, PING; verbose, pedantic, -ERR texts, limits."""

from collections.abc import Callable
from typing import Any

from pelton.core.broker.reactor import Connection, Reactor

PENDING: object

class Sessions:
    """The server's side of every connection.

    `connect(connection, text)` is called on CONNECT with the JSON text. It sets the connection's flags (verbose, pedantic, echo, headers,
    no_responders, ready) and returns the Router to use; None after it has written -ERR and closed the connection itself; or PENDING: the
    server reads nothing more from the connection until admit() (or until it closes). `accept` makes a Connection that is fed by hand.
    """

    def __init__(
        self,
        reactor: Reactor,
        connect: Callable[[Connection, bytes], object],
        default_router: object,
        auth_required: bool = False,
    ) -> None: ...
    auth_required: bool
    # None, or the message trace: begin(connection, subject, headers, size) -> the Trace to record to, None (publish it untraced)
    # or False (drop it); end(connection, trace) after it was published
    message_trace: Any
    max_subscriptions: int  # of new connections; 0: no limit
    max_sub_tokens: int  # of a subscription's subject; 0: as many as a trie takes
    # called with a connection when the first PING after its CONNECT was answered
    on_first_pong: Callable[[Connection], object] | None
    on_violation: Callable[[Connection, str], object] | None  # called when a permission was missing
    # None, or asked for a client that must authenticate and whose first operation is not CONNECT: the Router, with `ready` set, or None
    on_guest: Callable[[Connection], object] | None
    on_broken: (
        Callable[[Connection, str], object] | None
    )  # input that is no operation, or came before CONNECT; without secrets
    def admit(self, connection: Connection, router: object) -> None:
        """Give the decision that PENDING announced: the caller has set the flags. The connection goes on in the next turn (kick it).
        Does nothing when the connection has closed.
        """
    def recheck(self, connection: Connection) -> int:
        """The permissions of the connection have changed: end the subscriptions that they do not allow, tell the client; return how many."""
    def welcome(self, connection: Connection) -> None:
        """Give a new connection its router. EventLoop.adopt calls this."""
    def accept(self, transport: object = None) -> Connection: ...
    def feed(self, connection: Connection, data: bytes) -> None:
        """Process bytes that this client sent, split anywhere."""
    def hold(self) -> None:
        """From now on stop reading from a connection at its first publish."""
    def go_on(self) -> None:
        """Undo hold(): the held operations run in the reactor's next turn, in order."""
    def nobody(self, connection: Connection, subject: bytes, reply: bytes) -> None:
        """A held message of the client turned out to have no receiver: send 503 if the client asked for it."""
    def eof(self, connection: Connection) -> None: ...
