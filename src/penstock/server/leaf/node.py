"""A leaf node connection and the server at its other end, as the rest of this server sees them."""

from typing import TYPE_CHECKING

from penstock.server.clients.client import LEAFNODE, Client
from penstock.server.clients.timer_wheel import NEVER_NS
from penstock.server.settings.accounts import DEFAULT_ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.broker.leaf import Leaf
    from penstock.core.broker.reactor import Connection
    from penstock.server.accounts.registry import ServerAccount
    from penstock.server.auth import Admitted
    from penstock.server.leaf.compression import CompressingTransport
    from penstock.server.leaf.negotiation import Info
    from penstock.server.settings.leafnodes import LeafRemote
    from penstock.server.transports.tls import TlsInfo


class LeafNode:
    """What the server keeps with a leaf node connection (its ``session``)."""

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
        """A server at that address; nothing else is known yet."""
        self.connection = connection
        self.leaf: Leaf | None = None
        self.host = host
        self.port = port
        self.account: ServerAccount | None = None  # of this side
        self.remote: LeafRemote | None = None  # we have called it; None: it has called us
        self.url = ""
        self.nonce = ""
        self.admitted: Admitted | None = None
        self.user = ""
        self.name = ""  # of the other server
        self.version = ""
        self.cluster = ""
        self.domain = ""
        self.remote_account = ""
        self.greeted = False  # its first INFO came
        self.joined = False  # messages may flow
        self.due_ns = NEVER_NS  # when to look at it: a handshake is late, or a ping is due
        self.pinged_ns = 0  # a ping is on its way since; 0: none
        self.kind = LEAFNODE  # connection type, as users may restrict it
        self.compression = "not supported"
        self.link: CompressingTransport | None = None  # it may be compressed
        self.tls: TlsInfo | None = None  # tls_info of the handshake
        self.discovered: Callable[[Info], None] | None = None  # told where the hub says it is
        self.ended: Callable[[LeafNode], None] | None = None  # called once it is closed

    @property
    def account_name(self) -> str:
        """The account that it is bound to, or is to be."""
        if self.account is not None:
            return self.account.name
        return (self.remote.account if self.remote is not None else "") or DEFAULT_ACCOUNT

    @property
    def is_spoke(self) -> bool:
        """It is the hub of the two."""
        return self.leaf is not None and self.leaf.spoke

    @property
    def is_isolated(self) -> bool:
        """It does not hear of what other leaf nodes want."""
        return self.leaf is not None and self.leaf.isolated

    def tls_info(self) -> Client:
        """What is remembered of it, as of a client: plain tls_info that keep no connection alive."""
        tls_info = Client(self.host, self.port, NEVER_NS)
        tls_info.kind, tls_info.name, tls_info.version = self.kind, self.name, self.version
        tls_info.user, tls_info.tls = self.user, self.tls
        tls_info.account, tls_info.admitted = self.account, self.admitted
        return tls_info

    @property
    def shown(self) -> str:
        """How log lines begin."""
        return f"{self.host}:{self.port} - lid:{self.connection.id}"
