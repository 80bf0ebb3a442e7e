"""A server at the other end of a leaf node connection, as the rest of the server knows it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.hub import Connection
    from penstock.core.leaf import Leaf
    from penstock.server.auth import Admitted
    from penstock.server.settings.leafnodes import LeafRemote

NEVER_NS = 1 << 62


class LeafPeer:
    """What the server keeps with a leaf node connection (its ``session``)."""

    __slots__ = (
        "account",
        "admitted",
        "cluster",
        "connection",
        "domain",
        "due_ns",
        "ended",
        "greeted",
        "host",
        "joined",
        "kind",
        "leaf",
        "name",
        "nonce",
        "pinged_ns",
        "port",
        "remote",
        "remote_account",
        "rtt_ns",
        "tls",
        "url",
        "user",
        "version",
    )

    def __init__(self, connection: "Connection", host: str, port: int) -> None:
        """Somebody at that address, of whom nothing else is known."""
        self.connection = connection
        self.leaf: Leaf | None = None
        self.host = host
        self.port = port
        self.account = ""  # of this side
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
        self.rtt_ns = 0
        self.kind = "LEAFNODE"  # connection type, as users may restrict it
        self.tls: object = None  # facts of the handshake
        self.ended: Callable[[LeafPeer], None] | None = None  # called once it is closed

    @property
    def spoke(self) -> bool:
        """It is the hub of the two."""
        return self.leaf is not None and self.leaf.spoke

    @property
    def shown(self) -> str:
        """How log lines begin."""
        return f"{self.host}:{self.port} - lid:{self.connection.id}"

    def row(self, *, subscriptions: bool = False) -> dict[str, object]:
        """The entry of /leafz."""
        connection, leaf = self.connection, self.leaf
        row: dict[str, object] = {
            "id": connection.id,
            "name": self.name,
            "is_spoke": self.spoke,
            "is_isolated": bool(leaf is not None and leaf.isolated),
            "account": self.account,
            "ip": self.host,
            "port": self.port,
            "rtt": "",
            "in_msgs": connection.in_msgs,
            "out_msgs": connection.out_msgs,
            "in_bytes": connection.in_bytes,
            "out_bytes": connection.out_bytes,
            "subscriptions": connection.subscription_count(),
        }
        if subscriptions:
            row["subscriptions_list"] = [
                s.subject.decode("utf-8", "replace") for s in connection.all_subscriptions()
            ]
        row["compression"] = "not supported"
        return row
