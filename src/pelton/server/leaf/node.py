"""A leaf node connection and the server at its other end, for the rest of this server."""

from typing import TYPE_CHECKING

from pelton.server.clients.client import LEAFNODE, Client
from pelton.server.clients.timer_wheel import NEVER_NS
from pelton.server.settings.accounts import DEFAULT_ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.core.broker.leaf import Leaf
    from pelton.core.broker.reactor import Connection
    from pelton.server.accounts.registry import ServerAccount
    from pelton.server.auth import Admitted
    from pelton.server.leaf.compression import CompressingTransport
    from pelton.server.leaf.negotiation import Info
    from pelton.server.settings.leafnodes import LeafRemote
    from pelton.server.transports.tls import TlsInfo


class LeafNode:
    """The data that the server keeps with a leaf node connection (its ``session``)."""

    __slots__ = (
        "account",
        "admitted",
        "cluster",
        "compression",
        "connection",
        "discovered",
        "domain",
        "due_ns",
        "ended",
        "greeted",
        "host",
        "joined",
        "kind",
        "leaf",
        "link",
        "name",
        "nonce",
        "pinged_ns",
        "port",
        "remote",
        "remote_account",
        "tls",
        "url",
        "user",
        "version",
    )

    def __init__(self, connection: "Connection", host: str, port: int) -> None:
        """A server at that address, before its first INFO or CONNECT."""
        self.connection = connection
        self.leaf: Leaf | None = None
        self.host = host
        self.port = port
        self.account: ServerAccount | None = None  # the account on this side
        self.remote: LeafRemote | None = None  # None: the other side connected
        self.url = ""
        self.nonce = ""
        self.admitted: Admitted | None = None
        self.user = ""
        self.name = ""  # the other server's name
        self.version = ""
        self.cluster = ""
        self.domain = ""
        self.remote_account = ""
        self.greeted = False  # its first INFO or CONNECT has arrived
        self.joined = False  # messages may flow
        self.due_ns = NEVER_NS  # time of the next check: the handshake is late, or a ping is due
        self.pinged_ns = 0  # time of the unanswered ping; 0: none
        self.kind = LEAFNODE  # connection type, as users may restrict it
        self.compression = "not supported"
        self.link: CompressingTransport | None = None  # only when compression is possible
        self.tls: TlsInfo | None = None  # facts of the TLS handshake
        self.discovered: Callable[[Info], None] | None = None  # called with the hub's URLs
        self.ended: Callable[[LeafNode], None] | None = None  # called when the connection is closed

    @property
    def account_name(self) -> str:
        """The account that the connection is or will be bound to."""
        if self.account is not None:
            return self.account.name
        return (self.remote.account if self.remote is not None else "") or DEFAULT_ACCOUNT

    @property
    def is_spoke(self) -> bool:
        """Whether this server is the leaf of the two."""
        return self.leaf is not None and self.leaf.spoke

    @property
    def is_isolated(self) -> bool:
        """Whether it is not told the interest of other leaf nodes."""
        return self.leaf is not None and self.leaf.isolated

    def tls_info(self) -> Client:
        """The connection's facts in the form of a Client: plain values that keep no connection
        alive.
        """
        tls_info = Client(self.host, self.port, NEVER_NS)
        tls_info.kind, tls_info.name, tls_info.version = self.kind, self.name, self.version
        tls_info.user, tls_info.tls = self.user, self.tls
        tls_info.account, tls_info.admitted = self.account, self.admitted
        return tls_info

    @property
    def shown(self) -> str:
        """The beginning of a log line about the connection."""
        return f"{self.host}:{self.port} - lid:{self.connection.id}"
