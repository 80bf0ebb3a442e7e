"""One leaf node connection, on either side of it."""

from collections.abc import Iterable

from penstock.core.broker.reactor import Connection
from penstock.core.broker.remote_servers import RemoteServer, RemoteServers

class Events:
    """What a Leaf hands on, to a subclass: nothing of it comes per message."""

    def info(self, leaf: Leaf, text: bytes) -> None:
        """INFO came."""
    def connect(self, leaf: Leaf, text: bytes) -> None:
        """CONNECT came."""
    def error(self, leaf: Leaf, text: bytes) -> None:
        """-ERR came."""
    def pong(self, leaf: Leaf) -> None: ...
    def loop(self, leaf: Leaf) -> None:
        """The other side offers what only we have: it is behind two of our connections."""
    def violation(self, leaf: Leaf, kind: str, subject: bytes) -> None:
        """It did what it knows that it may not; kind: Publish or Subscription."""

class LeafPermissions:
    """Subjects that are allowed but for those that are denied. ``allow`` None: everything is."""

    allow: list[bytes] | None
    deny: list[bytes]

    def __init__(self, allow: Iterable[str] | None = None, deny: Iterable[str] = ()) -> None: ...
    def allows_subject(self, subject: str) -> bool:
        """Whether a literal subject is allowed."""

class Leaf(RemoteServer):
    """A connection to another server, which is our leaf or our hub."""

    sending: LeafPermissions  # what goes there
    asking: LeafPermissions  # what it is asked for, and from a reactor: what may come
    receiving: LeafPermissions  # what may come from a leaf

    def __init__(self, connection: Connection, events: Events, spoke: bool) -> None: ...
    def join(self, remote_servers: RemoteServers) -> None:
        """Both sides know who they are: tell all that is wanted here, and take part."""
    def leave(self) -> None:
        """The connection has ended."""
    def wants(self) -> dict[bytes, int]:
        """What the other side was told: subject, or subject and queue -> how many want it."""
    def ask_again(self) -> None:
        """The rules of what may be asked for have changed."""
