"""One leaf node connection, on either side."""

from collections.abc import Iterable

from pelton.core.broker.reactor import Connection
from pelton.core.broker.remote_servers import RemoteServer, RemoteServers

class Events:
    """Callbacks of a Leaf, to be overridden in a subclass. None of them is called per message."""

    def info(self, leaf: Leaf, text: bytes) -> None:
        """The other server sent INFO."""
    def connect(self, leaf: Leaf, text: bytes) -> None:
        """The other server sent CONNECT."""
    def error(self, leaf: Leaf, text: bytes) -> None:
        """The other server sent -ERR."""
    def pong(self, leaf: Leaf) -> None: ...
    def loop(self, leaf: Leaf) -> None:
        """The other server offers this server's own loop subject: it is reachable over two of this server's connections."""
    def violation(self, leaf: Leaf, kind: str, subject: bytes) -> None:
        """The other server violated a permission that it knows; kind: Publish or Subscription."""

class LeafPermissions:
    """The subjects that are allowed, without those that are denied. ``allow`` None: all subjects are allowed."""

    def __init__(self, allow: Iterable[str] | None = None, deny: Iterable[str] = ()) -> None: ...
    @property
    def steps(self) -> int: ...
    def allows_subject(self, subject: str) -> bool:
        """Whether a literal subject is allowed."""

class Leaf(RemoteServer):
    """A connection to another server, which is this server's leaf or its hub."""

    sending: LeafPermissions  # subjects of messages that may be sent to the other server
    asking: LeafPermissions  # interest that may be told to the other server; on the leaf's side also the messages that may come
    receiving: LeafPermissions  # messages that may come from a leaf
    awaits_connect: bool  # it has to send CONNECT; until then only INFO is allowed beside it

    def __init__(self, connection: Connection, events: Events, spoke: bool) -> None: ...
    def join(self, remote_servers: RemoteServers) -> None:
        """Join the account after the negotiation: tell the other server all interest here, and exchange messages from now on."""
    def leave(self) -> None:
        """The connection has ended."""
    def wants(self) -> dict[bytes, int]:
        """The interest told to the other server: subject, or subject and queue -> number of subscribers."""
    def ask_again(self) -> None:
        """The permissions for interest (`asking`) have changed: withdraw interest that is not allowed any more."""
