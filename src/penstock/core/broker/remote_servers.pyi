"""The other servers that one account is connected to."""

from penstock.core.broker.reactor import Connection
from penstock.core.broker.router import Router

class Peer:
    """Another server at the other end of a connection."""

    connection: Connection
    peers: Peers | None  # None before it has joined
    spoke: bool  # it is the hub of the two, and we are a leaf of it
    isolated: bool  # it does not hear of what other servers want
    cluster: bytes

    def __init__(self, connection: Connection) -> None: ...

class Peers:
    """The neighbours of one account's router."""

    router: Router
    members: list[Peer]
    loop_subject: bytes

    def __init__(self, router: Router) -> None: ...
    def join(self, peer: Peer) -> None:
        """The peer takes part from now on, and hears of all the interest there is."""
    def leave(self, peer: Peer) -> None: ...
