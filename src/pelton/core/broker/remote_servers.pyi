"""The other servers that one account is connected to."""

from pelton.core.broker.reactor import Connection
from pelton.core.broker.router import Router

class RemoteServer:
    """The server at the other end of a connection."""

    connection: Connection
    remote_servers: RemoteServers | None  # None before join()
    spoke: bool  # it is the hub of the two, and this server is its leaf
    isolated: bool  # it is not told of other servers' interest
    cluster: bytes

    def __init__(self, connection: Connection) -> None: ...

class RemoteServers:
    """The neighbours of one account's router."""

    router: Router
    members: list[RemoteServer]
    loop_subject: bytes

    def __init__(self, router: Router) -> None: ...
    def leave(self, server: RemoteServer) -> None: ...
