"""Checks the CONNECT of a leaf node, and makes the permissions of its connection from the user's
permissions, the settings and the JetStream domains. Pure.

A leaf node's user has the permissions of a client: its publish permissions apply to incoming messages,
its subscribe permissions to outgoing ones. Neither side reaches the other's JetStream under the plain
subjects.
"""

from pelton.api.dialects.requests import SUBJECTS
from pelton.core.broker.leaf import Leaf, LeafPermissions
from pelton.server.auth import AuthContext
from pelton.server.auth.connect_options import Credentials
from pelton.server.clients.auth_context import add_tls
from pelton.server.clients.client import LEAFNODE
from pelton.server.leaf.negotiation import Connect, Grant, Info, at_least
from pelton.server.leaf.node import LeafNode
from pelton.server.settings import Settings
from pelton.server.settings.leafnodes import LeafNodes, LeafRemote
from pelton.server.settings.users import Permissions, SubjectPermission, User

JETSTREAM = ("$JS.API.>", "$KV.>", "$OBJ.>")
"""Subjects that never cross a leaf node connection: each side has its own JetStream."""
SYSTEM = ("$JSC.>", "$NRG.>", *JETSTREAM)
_FIRST_WORDS = frozenset(subject.split(".")[1] for subject in SUBJECTS)
SAME_CLUSTER = "remote leafnode has same cluster name"
OLD = "connection rejected since minimum version required is"


def leaf_users(own: LeafNodes) -> list[User]:
    """The users of the section `leafnodes.authorization`; []: the clients' users apply."""
    if own.users:
        return own.users
    if own.user:
        return [User(own.user, own.password, account=own.account)]
    if own.nkey:
        return [User(nkey=own.nkey, account=own.account)]
    return []


def refusal(asked: Connect, cluster: str, min_version: str) -> tuple[str, str] | None:
    """Why a server may not connect, whatever its user: the error, and the reason of the close."""
    if asked.lang:
        return "attempted to connect to leaf node port", "Incorrect Port"
    if " " in asked.cluster:
        return "cluster name cannot contain spaces", "Protocol Violation"
    if asked.cluster and asked.cluster == cluster:
        return SAME_CLUSTER, "Cluster Names Identical"
    if asked.gateway:
        text = f'Rejecting connection from gateway "{asked.gateway}" on the leafnode port'
        return text, "Wrong Gateway"
    if min_version and not at_least(asked.version, min_version):
        return f'{OLD} "{min_version}"', "Minimum Version Required"
    return None


def credentials(
    asked: Connect, node: LeafNode, settings: Settings
) -> tuple[Credentials, AuthContext]:
    """Credentials and context of a leaf node for the authenticator."""
    own = settings.leafnodes or LeafNodes()
    shown = Credentials(
        name=asked.name,
        user=asked.user,
        password=asked.password,
        auth_token=asked.auth_token,
        jwt=asked.jwt,
        nkey=asked.nkey,
        sig=asked.sig,
    )
    there = AuthContext(node.host, node.connection.id, node.kind, leaf=True, nonce=node.nonce)
    listener = own.tls if node.kind == LEAFNODE else settings.websocket.tls
    there.tls_map = listener is not None and listener.map
    if node.tls is not None:
        add_tls(there, node.tls)
    users = leaf_users(own)
    if users:
        there.users = users
        there.no_auth_user = ""
    return shown, there


def kept(*, system: bool) -> tuple[str, ...]:
    """Subjects that do not cross; `system`: the connection is one of the system account."""
    return SYSTEM if system else JETSTREAM


def dialects(*domains: str) -> tuple[str, ...]:
    """Requests in the dialects, which do not cross either; all may when a JetStream domain has a name
    with which they begin.
    """
    return () if _FIRST_WORDS.intersection(domains) else SUBJECTS


def own_api(domain: str, other: str) -> list[str]:
    """API subjects of this server's domain, which do not cross; none when both sides have the same
    domain.
    """
    return [f"$JS.{domain}.API.>"] if domain and domain != other else []


def rule_leaf(
    leaf: Leaf, permissions: Permissions | None, asked: Connect, domain: str, *, system: bool
) -> None:
    """Set the permissions of a connection from a leaf node."""
    may_get = permissions.subscribe if permissions is not None else SubjectPermission()
    may_send = permissions.publish if permissions is not None else SubjectPermission()
    stays = kept(system=system) + dialects(domain, asked.domain)
    leaf.sending = LeafPermissions(
        may_get.allow,
        [*may_get.deny, *(asked.deny_pub or ()), *stays, *own_api(domain, asked.domain)],
    )
    leaf.asking = LeafPermissions(may_send.allow, [*may_send.deny, *stays])
    leaf.receiving = LeafPermissions(may_send.allow, may_send.deny)


def rule_hub(
    leaf: Leaf, info: Info, remote: LeafRemote, domain: str, other: str, *, system: bool
) -> None:
    """Set the permissions of a connection to a hub: its user's permissions, and this server's
    settings.
    """
    may_send, may_get = info.export or Grant(), info.import_ or Grant()
    stays = kept(system=system) + dialects(domain, other)
    leaf.sending = LeafPermissions(
        may_send.allow,
        [*(may_send.deny or ()), *remote.deny_exports, *stays, *own_api(domain, other)],
    )
    leaf.asking = LeafPermissions(
        may_get.allow, [*(may_get.deny or ()), *remote.deny_imports, *stays]
    )
