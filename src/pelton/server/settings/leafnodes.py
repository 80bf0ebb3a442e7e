"""Settings of leaf nodes: the listener, and the remotes. Plain values."""

from msgspec import field

from pelton.server.settings.redacted import Redacted
from pelton.server.settings.tls import Tls
from pelton.server.settings.users import User
from pelton.server.units import SECOND_NS

DEFAULT_PORT = 7422


class LeafRemote(Redacted):
    """One of ``leafnodes.remotes``: a hub to connect to, with one URL or several equivalent ones."""

    secrets = ("nkey",)

    urls: list[str] = field(default_factory=list)
    account: str = ""  # "": the default account
    credentials: str = ""  # a file with a user JWT and its seed
    nkey: str = ""  # a seed
    tls: Tls | None = None  # None: TLS when the URL or the hub demands it, with the system's CAs
    hub: bool = False  # this server acts as the hub
    deny_imports: list[str] = field(default_factory=list)
    deny_exports: list[str] = field(default_factory=list)
    no_randomize: bool = False
    isolate: bool = False  # is not told the interest of other leaf nodes
    request_isolation: bool = False
    ignore_discovered: bool = False
    disabled: bool = False
    compression: str = ""  # "": that of LeafNodes
    ws_compression: bool = False  # for connections over WebSocket
    ws_no_masking: bool = False
    dial_timeout_ns: int = 0  # 0: that of LeafNodes
    first_info_timeout_ns: int = SECOND_NS


class LeafNodes(Redacted):
    """The ``leafnodes`` map."""

    secrets = ("password",)

    host: str = "0.0.0.0"
    port: int = 0  # 0: no listener; -1: any free one
    user: str = ""
    password: str = ""
    nkey: str = ""  # public key
    account: str = ""
    users: list[User] = field(default_factory=list)
    auth_timeout_ns: int = 2 * SECOND_NS
    tls: Tls | None = None
    advertise: str = ""
    no_advertise: bool = False
    min_version: str = ""
    isolate: bool = False
    compression: str = ""  # "": neither offered nor accepted
    reconnect_ns: int = SECOND_NS
    dial_timeout_ns: int = SECOND_NS
    remotes: list[LeafRemote] = field(default_factory=list)


_FIXED = frozenset({"host", "port", "advertise", "no_advertise"})


def fixed_changes(before: LeafNodes | None, after: LeafNodes | None) -> list[str]:
    """The changed settings of the map that can't change on a running server: the listener's address,
    whether it has TLS, and whether there are leaf nodes at all.
    """
    if before is None or after is None:
        return [] if before is after else ["leafnodes"]
    fixed = [
        f"leafnodes.{name}"
        for name in LeafNodes.__struct_fields__
        if name in _FIXED and getattr(before, name) != getattr(after, name)
    ]
    if (before.tls is None) != (after.tls is None):
        fixed.append("leafnodes.tls")
    return fixed
