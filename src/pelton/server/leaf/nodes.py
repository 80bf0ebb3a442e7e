"""The leaf node connections of one server: negotiation, authentication, joining and closing.

    accepted --INFO--> CONNECT --authenticate--> INFO --> joined
    called   --INFO--> CONNECT of this server -> INFO --> joined

The code runs when connections open and close, and once a second; nothing runs per message. ``remotes``
and the listener open the connections.
"""

import asyncio
import os
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from pelton.core.base.quoting import quoted
from pelton.core.broker.event_loop import EventLoop
from pelton.core.broker.leaf import Events, Leaf
from pelton.core.broker.reactor import Connection
from pelton.core.broker.remote_servers import RemoteServers
from pelton.nuid import Nuid
from pelton.server.accounts.registry import Accounts, ServerAccount
from pelton.server.auth import Admitted, Authenticator, PendingOutcome, Refused
from pelton.server.clients.client import LEAFNODE
from pelton.server.identity import new_nonce
from pelton.server.leaf import negotiation
from pelton.server.leaf.admission import (
    OLD,
    SAME_CLUSTER,
    credentials,
    leaf_users,
    refusal,
    rule_hub,
    rule_leaf,
)
from pelton.server.leaf.connect_messages import Identity, Introduction
from pelton.server.leaf.negotiation import Connect, Info
from pelton.server.leaf.node import LeafNode
from pelton.server.logs.log import Log
from pelton.server.settings import Settings
from pelton.server.settings.leafnodes import LeafNodes as LeafSettings
from pelton.server.settings.leafnodes import LeafRemote
from pelton.server.units import SECOND_NS

if TYPE_CHECKING:
    from pelton.server.leaf.compression import CompressingTransport
    from pelton.server.transports.tls import TlsInfo

LOOP_DELAY_NS = 30 * SECOND_NS
SAME_CLUSTER_DELAY_NS = 30 * SECOND_NS
VIOLATION_DELAY_NS = 30 * SECOND_NS
MIN_VERSION_DELAY_NS = 5 * SECOND_NS
FINISH_NS = 2 * SECOND_NS
"""The time limit for the answer to CONNECT."""
LOOK_NS = SECOND_NS


class LeafNodes(Events):
    """All leaf node connections of one server."""

    def __init__(
        self,
        event_loop: EventLoop,
        settings: Settings,
        identity: Identity,
        log: Log,
        authenticator: Authenticator,
        accounts: Accounts,
    ) -> None:
        """Start without connections."""
        self.event_loop = event_loop
        self.settings = settings
        self._we = Introduction(settings, identity)
        self.log = log
        self.peers: dict[int, LeafNode] = {}  # by connection id
        # called for a joined connection that closes, while it still has its subscriptions
        self.gone_hooks: list[Callable[[Connection, LeafNode], object]] = []
        self.changed_hooks: list[
            Callable[[LeafNode], object]
        ] = []  # called when a leaf node joins or leaves
        self.delays: dict[int, int] = {}  # id() of a LeafRemote -> ns to wait before the next call
        self.encrypted: set[int] = set()  # id() of a LeafRemote whose hub wants TLS
        self._authenticator = authenticator
        self._accounts = accounts
        self._remote_servers: dict[str, RemoteServers] = {}
        self._ids = Nuid(Random(os.urandom(16)))
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def own(self) -> LeafSettings:
        """The settings of leaf nodes."""
        found = self.settings.leafnodes
        return found if found is not None else LeafSettings()

    # -- life cycle

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the event loop of the timer."""
        self._loop = loop

    def reloaded(self) -> None:
        """Close leaf nodes that pinned certificates, users or accounts no longer permit."""
        pins = self.own.tls.pinned_certs if self.own.tls is not None else frozenset()
        for node in list(self.peers.values()):
            here = node.remote is None and node.kind == LEAFNODE  # through the leaf nodes' listener
            if here and node.tls is not None and not node.tls.is_pinned(pins):
                self._end(node, "TLS Handshake Failure")
                continue
            if node.admitted is None or not node.joined:
                continue
            users = leaf_users(self.own)
            if users:
                known = node.admitted.user
                stays = known is not None and known in users
            else:
                stays = not isinstance(self._authenticator.still_valid(node.admitted), Refused)
            if not stays or self._accounts.get(node.account_name) is not node.account:
                text = b"Authorization Violation"
                self._fail(node.connection, text, "Authentication Failure")

    def close(self) -> None:
        """Stop the timer; the server is stopping."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def accepted(
        self,
        connection: Connection,
        host: str,
        port: int,
        *,
        kind: str = LEAFNODE,
        tls: "TlsInfo | None" = None,
        link: "CompressingTransport | None" = None,
    ) -> LeafNode:
        """Register a connection that a leaf node opened; `kind`: LEAFNODE or LEAFNODE_WS; with
        `link`, offer compression.
        """
        node = self._register(connection, host, port, spoke=False)
        if node.leaf is not None:
            node.leaf.awaits_connect = True
        node.kind = kind
        node.link = link
        node.tls = tls
        node.nonce = new_nonce()
        node.due_ns = self.event_loop.now_ns + self.own.auth_timeout_ns
        self.log.info(f"{node.shown} - Leafnode connection created ")
        connection.write(negotiation.line(b"INFO", self._we.info(node)))
        return node

    def called(
        self,
        connection: Connection,
        address: tuple[str, int],
        remote: LeafRemote,
        url: str,
        ended: Callable[[LeafNode], None],
        *,
        tls: "TlsInfo | None" = None,
        link: "CompressingTransport | None" = None,
    ) -> LeafNode:
        """Register a connection that this server opened to a hub; `ended` is called when it closes."""
        node = self._register(connection, *address, spoke=not remote.hub)
        node.remote, node.url, node.ended = remote, url, ended
        node.link = link
        node.tls = tls
        node.due_ns = self.event_loop.now_ns + remote.first_info_timeout_ns
        self.log.info(
            f"{node.shown} - Leafnode connection created for account: {node.account_name} "
        )
        return node

    def _register(self, connection: Connection, host: str, port: int, *, spoke: bool) -> LeafNode:
        node = LeafNode(connection, host, port)
        connection.session = node
        node.leaf = Leaf(connection, self, spoke)
        node.leaf.isolated = self.own.isolate
        self.peers[connection.id] = node
        self._look_later()
        return node

    def closed(self, connection: Connection) -> None:
        """The core has closed a connection; ignored unless it is a leaf node's."""
        node = connection.session
        if not isinstance(node, LeafNode) or self.peers.pop(connection.id, None) is None:
            return
        if node.joined:
            for gone in self.gone_hooks:
                gone(connection, node)
        if node.leaf is not None:
            node.leaf.leave()
        self._accounts.leave(connection)
        tag = f" - Remote: {node.name}" if node.name else ""
        self.log.info(f"{node.shown} - Leafnode connection closed: {connection.reason}{tag}")
        if node.joined:
            node.joined = False
            for hook in self.changed_hooks:
                hook(node)
        if node.ended is not None:
            node.ended(node)

    # -- messages from the other side (Events)

    def info(self, leaf: Leaf, text: bytes) -> None:
        """Handle INFO. Only the first INFO of a hub needs an answer."""
        node = self._node(leaf)
        if node is None:
            return
        try:
            info = negotiation.read_info(text)
        except ValueError:
            self._end(node, "Parse Error")
            return
        if node.remote is None:  # INFO of a leaf node is about compression
            if not node.greeted:
                self._compressed(node, info, self.own.compression)
            return
        if not node.greeted:
            # a port for clients has neither; with no_advertise, nats-server leaves the URLs out
            leafs = info.leafnode_urls is not None or info.info_on_connect
            if not info.client_id or not leafs:
                self.log.error(f"{node.shown} - attempted to connect to wrong port")
                self._end(node, "Incorrect Port")
                return
            if self._compressed(node, info, node.remote.compression or self.own.compression):
                return  # the other side sends another INFO
            self._greeted(node, info)
            self._hear_urls(node, info)
            if node.connection.closed or node.connection.closing or info.info_on_connect:
                return
            self._finish(node, info)
            return
        self._hear_urls(node, info)
        if info.connect_info and not node.joined:
            node.remote_account = info.remote_account
            self._finish(node, info)
        elif node.joined and (info.import_ is not None or info.export is not None):
            self._rule_called(node, info)
            leaf.ask_again()

    def _compressed(self, node: LeafNode, info: Info, own: str) -> bool:
        """Agree on compression, once. Returns whether the connection is compressed from now on."""
        if node.link is None:
            if own == "off" and info.compression:
                node.compression = own
            return False
        from pelton.server.leaf.compression import negotiate

        try:
            return negotiate(node, info.compression, own, self._we.info(node))
        except ValueError as problem:
            self.log.error(f"{node.shown} - {problem}")
            self._fail(node.connection, str(problem).encode(), "Protocol Violation")
            return True

    def _hear_urls(self, node: LeafNode, info: Info) -> None:
        """Take over the hub's URLs, which any INFO may change."""
        if node.discovered is not None and (info.leafnode_urls or info.ws_connect_urls):
            node.discovered(info)

    def connect(self, leaf: Leaf, text: bytes) -> None:
        """Handle the CONNECT of a leaf node."""
        node = self._node(leaf)
        if node is None or node.remote is not None or node.joined or node.greeted:
            self._fail(leaf.connection, b"Unknown Protocol Operation", "Protocol Violation")
            return
        try:
            asked = negotiation.read_connect(text)
        except ValueError:
            self._end(node, "Parse Error")
            return
        node.greeted = True
        leaf.awaits_connect = False
        wrong = refusal(asked, self._we.cluster, self.own.min_version)
        if wrong is not None:
            error, reason = wrong
            self.log.error(f"{node.shown} - {error}")
            self._fail(leaf.connection, error.encode(), reason)
            return
        outcome = self._check(node, asked)
        if isinstance(outcome, PendingOutcome):
            outcome.then(lambda decided: self._decided(node, asked, decided))
        else:
            self._decided(node, asked, outcome)

    def error(self, leaf: Leaf, text: bytes) -> None:
        """Handle -ERR: after most errors the other side closes the connection."""
        node = self._node(leaf)
        if node is None:
            return
        self.log.error(f"{node.shown} - Leafnode Error {quoted(text)}")
        what = ""
        if SAME_CLUSTER.encode() in text:
            self._delay(node, SAME_CLUSTER_DELAY_NS)
            what = "with same cluster name error. Delaying attempt to reconnect for 30s"
        elif OLD.encode() in text:
            self._delay(node, MIN_VERSION_DELAY_NS)
            what = "due to minimum version requirement. Delaying attempt to reconnect for 5s"
        elif b"Loop detected" in text:
            self._looped(node, tell=False)
        if what:
            self.log.error(f"{node.shown} - Leafnode connection dropped {what}")

    def pong(self, leaf: Leaf) -> None:
        """Handle the answer to a PING."""
        node = self._node(leaf)
        if node is not None and node.pinged_ns:
            node.connection.rtt_ns = max(self.event_loop.now_ns - node.pinged_ns, 1)
            node.pinged_ns = 0

    def loop(self, leaf: Leaf) -> None:
        """Close the connection: the other server is reachable over two connections."""
        node = self._node(leaf)
        if node is not None:
            self._looped(node, tell=True)

    def violation(self, leaf: Leaf, kind: str, subject: bytes) -> None:
        """Close the connection: the other side violated its permissions."""
        node = self._node(leaf)
        if node is None:
            return
        shown = subject.decode("utf-8", "replace")
        self._delay(node, VIOLATION_DELAY_NS)
        to = "Publish to" if kind == "Publish" else "Subscription to"
        place = f"{kind} Violation on {quoted(subject)}"
        self.log.error(f"{node.shown} - {place} - Check other side configuration")
        text = f'Permissions Violation for {to} "{shown}"'
        self._fail(leaf.connection, text.encode("utf-8", "surrogateescape"), "Protocol Violation")

    # -- connections from leaf nodes

    def _check(self, node: LeafNode, asked: Connect) -> Admitted | Refused | PendingOutcome:
        shown, there = credentials(asked, node, self.settings)
        outcome = self._authenticator.check(shown, there)
        if isinstance(outcome, Admitted) and not outcome.account and there.users is None:
            outcome.account = self.own.account
        return outcome

    def _decided(self, node: LeafNode, asked: Connect, outcome: Admitted | Refused) -> None:
        connection, leaf = node.connection, node.leaf
        if connection.closed or connection.closing or leaf is None:
            return
        if isinstance(outcome, Refused):
            shown, _ = credentials(asked, node, self.settings)
            self.log.error(f"{node.shown} - authentication error - {shown.shown}")
            self._refuse(node, outcome)
            return
        account = self._accounts.get(outcome.account)
        if account is None or account.expired:
            missing = quoted(outcome.account)
            self.log.error(f"{node.shown} - the leafnode asks for unknown account {missing}")
            self._fail(connection, b"Authorization Violation", "Missing Account")
            return
        node.admitted, node.user = outcome, outcome.name
        node.account = account
        if not self._accounts.join(connection, account, leaf=True):
            text = "maximum account active connections exceeded"
            self.log.error(f"{node.shown} - {text}")
            self._fail(connection, text.encode(), "Maximum Account Connections Exceeded")
            return
        node.name, node.version, node.cluster = asked.name, asked.version, asked.cluster
        node.domain, node.remote_account = asked.domain, asked.remote_account
        if node.compression == "not supported" and self.own.compression and asked.compress_mode:
            node.compression = asked.compress_mode  # no agreement is needed
        leaf.cluster = asked.cluster.encode()
        leaf.spoke = asked.is_hub
        leaf.isolated = leaf.isolated or asked.isolate
        connection.headers = asked.headers
        self._replace_older(node)
        domain = self._we.domain
        rule_leaf(leaf, outcome.permissions, asked, domain, system=self._is_system(node))
        info = self._we.info(node)
        info.import_, info.export = negotiation.grants(outcome.permissions)
        info.remote_account, info.connect_info = account.name, True
        info.acc_is_sys = self._is_system(node)
        info.compression = node.compression if self.own.compression else ""
        connection.write(negotiation.line(b"INFO", info))
        self._join(node, account)

    def _refuse(self, node: LeafNode, refusal: Refused) -> None:
        """Refuse a leaf node: at once, or later when its address has failed often, as client or
        leaf node.
        """
        delay, now = self._authenticator.failure_delay, self.event_loop.now_ns
        when_ns = delay.failed(node.host, now)

        def answer() -> None:
            if when_ns:
                delay.answered(node.host)
            self._fail(node.connection, refusal.error, refusal.reason)
            self.event_loop.kick()

        if when_ns and self._loop is not None:
            self._loop.call_later((when_ns - now) / SECOND_NS, answer)
        else:
            answer()

    def _replace_older(self, node: LeafNode) -> None:
        """Close an older connection of the same server, which has lost it and connected again."""
        for other in list(self.peers.values()):
            if (
                other is not node
                and other.joined
                and other.remote is None
                and node.name
                and node.remote_account
                and (other.name, other.cluster, other.account_name, other.remote_account)
                == (node.name, node.cluster, node.account_name, node.remote_account)
            ):
                text = "Duplicate Remote LeafNode Connection"
                self.log.error(f"{other.shown} - {text}")
                self._fail(other.connection, text.encode(), text)
                self.log.warn(f"{node.shown} - Replacing connection from same server")

    # -- connections to hubs

    def _greeted(self, node: LeafNode, info: Info) -> None:
        """Answer the hub's first INFO with CONNECT."""
        connection, leaf, remote = node.connection, node.leaf, node.remote
        assert leaf is not None
        assert remote is not None
        node.greeted = True
        if " " in info.cluster:
            text = "cluster name cannot contain spaces"
            self.log.error(f"{node.shown} - {text}")
            self._fail(connection, text.encode(), "Protocol Violation")
            return
        if info.tls_required and node.tls is None:
            self.encrypted.add(id(remote))  # the next connection starts with TLS
            self.delays[id(remote)] = 1
            self._end(node, "TLS Handshake Failure")
            return
        node.name, node.domain = info.server_name or info.server_id, info.domain
        node.cluster, node.version = info.cluster, info.version
        node.nonce = info.nonce
        leaf.cluster = info.cluster.encode()
        connection.headers = info.headers
        account = self._accounts.get(remote.account)
        if account is None:
            self.log.error(
                f"Unable to lookup account {remote.account} for solicited leafnode connection"
            )
            self._end(node, "Missing Account")
            return
        try:
            asked = self._we.connect(node, remote, headers=info.headers)
        except (OSError, ValueError) as problem:
            self.log.error(f"{node.shown} - {problem}")
            self._end(node, "Authentication Failure")
            return
        connection.write(negotiation.line(b"CONNECT", asked))
        node.due_ns = self.event_loop.now_ns + FINISH_NS
        self.log.debug(f"{node.shown} - Remote leafnode connect msg sent")

    def _finish(self, node: LeafNode, info: Info) -> None:
        """The hub has accepted this server: join."""
        remote = node.remote
        assert remote is not None
        account = self._accounts.get(remote.account)
        if account is None:
            self._end(node, "Missing Account")
            return
        for other in self.peers.values():
            if (
                other.joined
                and other.remote is None
                and other.account is account
                and node.cluster
                and other.cluster == node.cluster
            ):
                self._looped(node, tell=True)
                return
        node.account = account
        if not self._accounts.join(node.connection, account, leaf=True):
            text = "maximum account active connections exceeded"
            self.log.error(f"{node.shown} - {text}")
            self._fail(node.connection, text.encode(), "Maximum Account Connections Exceeded")
            return
        if node.leaf is not None:
            node.leaf.isolated = node.leaf.isolated or remote.isolate
        self._rule_called(node, info)
        self._join(node, account)

    def _rule_called(self, node: LeafNode, info: Info) -> None:
        """Set the permissions of the connection: the user's, and this server's settings."""
        assert node.leaf is not None
        assert node.remote is not None
        system = self._is_system(node)
        rule_hub(node.leaf, info, node.remote, self._we.domain, node.domain, system=system)

    # -- both directions

    def _join(self, node: LeafNode, account: ServerAccount) -> None:
        leaf = node.leaf
        assert leaf is not None
        servers = self._remote_servers.get(account.name)
        if servers is None or servers.router is not account.router:
            servers = self._remote_servers[account.name] = RemoteServers(account.router)
            servers.loop_subject = f"$LDS.{self._ids.next()}".encode()
        domain = self._we.domain
        if domain != node.domain or not domain:
            domains = f"local {quoted(domain)}, remote {quoted(node.domain)}"
            self.log.info(f"{node.shown} - JetStream using domains: {domains}")
        node.joined = True
        node.due_ns = self.event_loop.now_ns + LOOK_NS
        leaf.join(servers)
        for hook in self.changed_hooks:
            hook(node)

    def _is_system(self, node: LeafNode) -> bool:
        system = self._accounts.system
        return system is not None and system is node.account

    def _node(self, leaf: Leaf) -> LeafNode | None:
        node = leaf.connection.session
        return node if isinstance(node, LeafNode) else None

    def _delay(self, node: LeafNode, delay_ns: int) -> None:
        if node.remote is not None:
            self.delays[id(node.remote)] = delay_ns

    def _looped(self, node: LeafNode, *, tell: bool) -> None:
        self._delay(node, LOOP_DELAY_NS)
        text = (
            f'Loop detected for leafnode account="{node.account_name}". '
            "Delaying attempt to reconnect for 30s"
        )
        self.log.error(f"{node.shown} - {text}")
        if tell:
            self._fail(node.connection, text.encode(), "Protocol Violation")
        else:
            self._end(node, "Protocol Violation")

    def _fail(self, connection: Connection, text: bytes, reason: str) -> None:
        connection.fail(text, reason)

    def _end(self, node: LeafNode, reason: str) -> None:
        self.event_loop.disconnect(node.connection, reason)

    # -- timer

    def _look_later(self) -> None:
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(LOOK_NS / SECOND_NS, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self.event_loop.now_ns = self.event_loop.clock.now()
        for node in list(self.peers.values()):
            if node.due_ns <= now and not node.connection.closing:
                self._due(node, now)
        if self.peers:
            self._look_later()
        self.event_loop.kick()

    def _due(self, node: LeafNode, now_ns: int) -> None:
        connection = node.connection
        if not node.joined:
            if node.remote is None:
                self._fail(connection, b"Authentication Timeout", "Authentication Timeout")
            elif node.greeted:
                text = b"Stale Leaf Node Connection - Closing"
                self._fail(connection, text, "Stale Connection")
            else:
                self._end(node, "Read Error")
            return
        if connection.pings_out + 1 > self.settings.ping_max:
            self.log.debug(f"{node.shown} - Stale Client Connection - Closing")
            self._fail(connection, b"Stale Connection", "Stale Connection")
            return
        connection.pings_out += 1
        node.pinged_ns = node.pinged_ns or now_ns
        connection.write(b"PING\r\n")
        node.due_ns = now_ns + self.settings.ping_interval_ns
