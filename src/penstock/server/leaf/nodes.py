"""The leaf nodes of one server: who is connected, what is said before messages flow, and what ends
a connection.

    accepted --INFO--> CONNECT --who is it--> INFO --> joined
    called   --INFO--> we CONNECT ----------> INFO --> joined

Runs when connections come and go, and once a second; nothing of it per message. Knows nothing of
how a connection is opened: ``remotes`` and the listener do that.
"""

import asyncio
import os
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from penstock.core.base.quoting import quoted
from penstock.core.broker.event_loop import Turn
from penstock.core.broker.leaf import Events, Leaf
from penstock.core.broker.reactor import Connection
from penstock.core.broker.remote_servers import RemoteServers
from penstock.nuid import Nuid
from penstock.server.accounts.registry import Accounts, ServerAccount
from penstock.server.auth import Admitted, Gate, Later, Refused
from penstock.server.identity import new_nonce
from penstock.server.leaf import handshake
from penstock.server.leaf.admission import (
    OLD,
    SAME_CLUSTER,
    credentials,
    leaf_users,
    refusal,
    rule_hub,
    rule_leaf,
)
from penstock.server.leaf.handshake import Connect, Info
from penstock.server.leaf.introduction import Identity, Introduction
from penstock.server.leaf.peer import LeafPeer
from penstock.server.logs.log import Log
from penstock.server.settings import Settings
from penstock.server.settings.leafnodes import LeafNodes as LeafSettings
from penstock.server.settings.leafnodes import LeafRemote
from penstock.server.units import SECOND_NS

if TYPE_CHECKING:
    from penstock.server.leaf.compression import CompressingTransport
    from penstock.server.transports.tls import TlsFacts

LOOP_DELAY_NS = 30 * SECOND_NS
SAME_CLUSTER_DELAY_NS = 30 * SECOND_NS
VIOLATION_DELAY_NS = 30 * SECOND_NS
MIN_VERSION_DELAY_NS = 5 * SECOND_NS
FINISH_NS = 2 * SECOND_NS
"""How long the answer to our CONNECT may take."""
LOOK_NS = SECOND_NS


class LeafNodes(Events):
    """All leaf node connections of one server."""

    def __init__(
        self,
        turn: Turn,
        settings: Settings,
        identity: Identity,
        log: Log,
        gate: Gate,
        accounts: Accounts,
    ) -> None:
        """Nobody is connected yet."""
        self.turn = turn
        self.settings = settings
        self._we = Introduction(settings, identity)
        self.log = log
        self.peers: dict[int, LeafPeer] = {}  # by connection id
        # told of a joined connection that is closed, while it still has its subscriptions
        self.gone_hooks: list[Callable[[Connection, LeafPeer], object]] = []
        self.changed_hooks: list[Callable[[LeafPeer], object]] = []  # told who has come or gone
        self.delays: dict[int, int] = {}  # id() of a LeafRemote -> ns to wait before the next call
        self.encrypted: set[int] = set()  # id() of a LeafRemote whose hub wants TLS
        self._gate = gate
        self._accounts = accounts
        self._remote_servers: dict[str, RemoteServers] = {}
        self._ids = Nuid(Random(os.urandom(16)))
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def own(self) -> LeafSettings:
        """Their part of the settings."""
        found = self.settings.leafnodes
        return found if found is not None else LeafSettings()

    # -- life

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to look after them."""
        self._loop = loop

    def reloaded(self) -> None:
        """Users or accounts have changed: leafs that would not be let in any more have to go."""
        for peer in list(self.peers.values()):
            if peer.admitted is None or not peer.joined:
                continue
            users = leaf_users(self.own)
            if users:
                known = peer.admitted.user
                stays = known is not None and known in users
            else:
                stays = not isinstance(self._gate.still_valid(peer.admitted), Refused)
            if not stays or self._accounts.get(peer.account_name) is not peer.account:
                text = b"Authorization Violation"
                self._fail(peer.connection, text, "Authentication Failure")

    def close(self) -> None:
        """The server stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def accepted(
        self,
        connection: Connection,
        host: str,
        port: int,
        *,
        tls: "TlsFacts | None" = None,
        link: "CompressingTransport | None" = None,
    ) -> LeafPeer:
        """A server has called; with `link` it is offered compression."""
        peer = self._register(connection, host, port, spoke=False)
        peer.link = link
        peer.tls = tls
        peer.nonce = new_nonce()
        peer.due_ns = self.turn.now_ns + self.own.auth_timeout_ns
        self.log.info(f"{peer.shown} - Leafnode connection created ")
        connection.write(handshake.line(b"INFO", self._we.info(peer)))
        return peer

    def called(
        self,
        connection: Connection,
        address: tuple[str, int],
        remote: LeafRemote,
        url: str,
        ended: Callable[[LeafPeer], None],
        *,
        tls: "TlsFacts | None" = None,
        link: "CompressingTransport | None" = None,
    ) -> LeafPeer:
        """We have called a server; `ended` is called when the connection is closed."""
        peer = self._register(connection, *address, spoke=not remote.hub)
        peer.remote, peer.url, peer.ended = remote, url, ended
        peer.link = link
        peer.tls = tls
        peer.due_ns = self.turn.now_ns + remote.first_info_timeout_ns
        self.log.info(
            f"{peer.shown} - Leafnode connection created for account: {peer.account_name} "
        )
        return peer

    def _register(self, connection: Connection, host: str, port: int, *, spoke: bool) -> LeafPeer:
        peer = LeafPeer(connection, host, port)
        connection.session = peer
        peer.leaf = Leaf(connection, self, spoke)
        peer.leaf.isolated = self.own.isolate
        self.peers[connection.id] = peer
        self._look_later()
        return peer

    def closed(self, connection: Connection) -> None:
        """The core has closed a connection; not of a leaf node: nothing happens."""
        peer = connection.session
        if not isinstance(peer, LeafPeer) or self.peers.pop(connection.id, None) is None:
            return
        if peer.joined:
            for gone in self.gone_hooks:
                gone(connection, peer)
        if peer.leaf is not None:
            peer.leaf.leave()
        self._accounts.leave(connection)
        tag = f" - Remote: {peer.name}" if peer.name else ""
        self.log.info(f"{peer.shown} - Leafnode connection closed: {connection.reason}{tag}")
        if peer.joined:
            peer.joined = False
            for hook in self.changed_hooks:
                hook(peer)
        if peer.ended is not None:
            peer.ended(peer)

    # -- what the other side says (Events)

    def info(self, leaf: Leaf, text: bytes) -> None:
        """INFO: it is our hub, or at least whom we have called."""
        peer = self._peer(leaf)
        if peer is None:
            return
        try:
            info = handshake.read_info(text)
        except ValueError:
            self._end(peer, "Parse Error")
            return
        if peer.remote is None:  # from a leaf it is about compression
            if not peer.greeted:
                self._compressed(peer, info, self.own.compression)
            return
        if not peer.greeted:
            if not info.client_id or info.leafnode_urls is None:
                self.log.error(f"{peer.shown} - attempted to connect to wrong port")
                self._end(peer, "Incorrect Port")
                return
            if self._compressed(peer, info, peer.remote.compression or self.own.compression):
                return  # another INFO comes
            self._greeted(peer, info)
            self._hear_urls(peer, info)
            if peer.connection.closed or peer.connection.closing or info.info_on_connect:
                return
            self._finish(peer, info)
            return
        self._hear_urls(peer, info)
        if info.connect_info and not peer.joined:
            peer.remote_account = info.remote_account
            self._finish(peer, info)
        elif peer.joined and (info.import_ is not None or info.export is not None):
            self._rule_called(peer, info)
            leaf.ask_again()

    def _compressed(self, peer: LeafPeer, info: Info, own: str) -> bool:
        """Agree on compression, once: whether the connection is compressed from here on."""
        if peer.link is None:
            if own == "off" and info.compression:
                peer.compression = own
            return False
        from penstock.server.leaf.compression import negotiate

        try:
            return negotiate(peer, info.compression, own, self._we.info(peer))
        except ValueError as problem:
            self.log.error(f"{peer.shown} - {problem}")
            self._fail(peer.connection, str(problem).encode(), "Protocol Violation")
            return True

    def _hear_urls(self, peer: LeafPeer, info: Info) -> None:
        """Every INFO may say anew where the hub is reached."""
        if peer.discovered is not None and (info.leafnode_urls or info.ws_connect_urls):
            peer.discovered(info)

    def connect(self, leaf: Leaf, text: bytes) -> None:
        """CONNECT: somebody wants to be our leaf."""
        peer = self._peer(leaf)
        if peer is None or peer.remote is not None or peer.joined or peer.greeted:
            self._fail(leaf.connection, b"Unknown Protocol Operation", "Protocol Violation")
            return
        try:
            asked = handshake.read_connect(text)
        except ValueError:
            self._end(peer, "Parse Error")
            return
        peer.greeted = True
        wrong = refusal(asked, self._we.cluster, self.own.min_version)
        if wrong is not None:
            error, reason = wrong
            self.log.error(f"{peer.shown} - {error}")
            self._fail(leaf.connection, error.encode(), reason)
            return
        outcome = self._check(peer, asked)
        if isinstance(outcome, Later):
            outcome.then(lambda decided: self._decided(peer, asked, decided))
        else:
            self._decided(peer, asked, outcome)

    def error(self, leaf: Leaf, text: bytes) -> None:
        """-ERR: most of them mean that the connection ends."""
        peer = self._peer(leaf)
        if peer is None:
            return
        self.log.error(f"{peer.shown} - Leafnode Error {quoted(text)}")
        what = ""
        if SAME_CLUSTER.encode() in text:
            self._delay(peer, SAME_CLUSTER_DELAY_NS)
            what = "with same cluster name error. Delaying attempt to reconnect for 30s"
        elif OLD.encode() in text:
            self._delay(peer, MIN_VERSION_DELAY_NS)
            what = "due to minimum version requirement. Delaying attempt to reconnect for 5s"
        elif b"Loop detected" in text:
            self._looped(peer, tell=False)
        if what:
            self.log.error(f"{peer.shown} - Leafnode connection dropped {what}")

    def pong(self, leaf: Leaf) -> None:
        """An answer to PING."""
        peer = self._peer(leaf)
        if peer is not None and peer.pinged_ns:
            peer.connection.rtt_ns = max(self.turn.now_ns - peer.pinged_ns, 1)
            peer.pinged_ns = 0

    def loop(self, leaf: Leaf) -> None:
        """It is behind two of our connections."""
        peer = self._peer(leaf)
        if peer is not None:
            self._looped(peer, tell=True)

    def violation(self, leaf: Leaf, kind: str, subject: bytes) -> None:
        """It was told what it may, and did something else."""
        peer = self._peer(leaf)
        if peer is None:
            return
        shown = subject.decode("utf-8", "replace")
        self._delay(peer, VIOLATION_DELAY_NS)
        to = "Publish to" if kind == "Publish" else "Subscription to"
        place = f"{kind} Violation on {quoted(subject)}"
        self.log.error(f"{peer.shown} - {place} - Check other side configuration")
        text = f'Permissions Violation for {to} "{shown}"'
        self._fail(leaf.connection, text.encode("utf-8", "surrogateescape"), "Protocol Violation")

    # -- a leaf that called

    def _check(self, peer: LeafPeer, asked: Connect) -> Admitted | Refused | Later:
        shown, there = credentials(asked, peer, self.own)
        outcome = self._gate.check(shown, there)
        if isinstance(outcome, Admitted) and not outcome.account and there.users is None:
            outcome.account = self.own.account
        return outcome

    def _decided(self, peer: LeafPeer, asked: Connect, outcome: Admitted | Refused) -> None:
        connection, leaf = peer.connection, peer.leaf
        if connection.closed or connection.closing or leaf is None:
            return
        if isinstance(outcome, Refused):
            shown, _ = credentials(asked, peer, self.own)
            self.log.error(f"{peer.shown} - authentication error - {shown.shown}")
            self._refuse(peer, outcome)
            return
        account = self._accounts.get(outcome.account)
        if account is None or account.expired:
            missing = quoted(outcome.account)
            self.log.error(f"{peer.shown} - account {missing} of a leafnode is not there")
            self._fail(connection, b"Authorization Violation", "Missing Account")
            return
        peer.admitted, peer.user = outcome, outcome.name
        peer.account = account
        if not self._accounts.join(connection, account, leaf=True):
            text = "maximum account active connections exceeded"
            self.log.error(f"{peer.shown} - {text}")
            self._fail(connection, text.encode(), "Maximum Account Connections Exceeded")
            return
        peer.name, peer.version, peer.cluster = asked.name, asked.version, asked.cluster
        peer.domain, peer.remote_account = asked.domain, asked.remote_account
        if peer.compression == "not supported" and self.own.compression and asked.compress_mode:
            peer.compression = asked.compress_mode  # it has nothing to agree on
        leaf.cluster = asked.cluster.encode()
        leaf.spoke = asked.is_hub
        leaf.isolated = leaf.isolated or asked.isolate
        connection.headers = asked.headers
        self._replace_older(peer)
        domain = self._we.domain
        rule_leaf(leaf, outcome.permissions, asked, domain, system=self._is_system(peer))
        info = self._we.info(peer)
        info.import_, info.export = handshake.grants(outcome.permissions)
        info.remote_account, info.connect_info = account.name, True
        info.acc_is_sys = self._is_system(peer)
        info.compression = peer.compression if self.own.compression else ""
        connection.write(handshake.line(b"INFO", info))
        self._join(peer, account)

    def _refuse(self, peer: LeafPeer, refusal: Refused) -> None:
        """Say no: at once, or later when this address has failed often, also as a client."""
        patience, now = self._gate.patience, self.turn.now_ns
        when_ns = patience.failed(peer.host, now)

        def answer() -> None:
            if when_ns:
                patience.answered(peer.host)
            self._fail(peer.connection, refusal.error, refusal.reason)
            self.turn.kick()

        if when_ns and self._loop is not None:
            self._loop.call_later((when_ns - now) / SECOND_NS, answer)
        else:
            answer()

    def _replace_older(self, peer: LeafPeer) -> None:
        """A server that connects anew has lost a connection that we still believe in."""
        for other in list(self.peers.values()):
            if (
                other is not peer
                and other.joined
                and other.remote is None
                and peer.name
                and peer.remote_account
                and (other.name, other.cluster, other.account_name, other.remote_account)
                == (peer.name, peer.cluster, peer.account_name, peer.remote_account)
            ):
                text = "Duplicate Remote LeafNode Connection"
                self.log.error(f"{other.shown} - {text}")
                self._fail(other.connection, text.encode(), text)
                self.log.warn(f"{peer.shown} - Replacing connection from same server")

    # -- a server that we called

    def _greeted(self, peer: LeafPeer, info: Info) -> None:
        """Its first INFO: answer with CONNECT."""
        connection, leaf, remote = peer.connection, peer.leaf, peer.remote
        assert leaf is not None
        assert remote is not None
        peer.greeted = True
        if " " in info.cluster:
            text = "cluster name cannot contain spaces"
            self.log.error(f"{peer.shown} - {text}")
            self._fail(connection, text.encode(), "Protocol Violation")
            return
        if info.tls_required and peer.tls is None:
            self.encrypted.add(id(remote))  # the next call begins with that
            self.delays[id(remote)] = 1
            self._end(peer, "TLS Handshake Failure")
            return
        peer.name, peer.domain = info.server_name or info.server_id, info.domain
        peer.cluster, peer.version = info.cluster, info.version
        peer.nonce = info.nonce
        leaf.cluster = info.cluster.encode()
        connection.headers = info.headers
        account = self._accounts.get(remote.account)
        if account is None:
            self.log.error(
                f"Unable to lookup account {remote.account} for solicited leafnode connection"
            )
            self._end(peer, "Missing Account")
            return
        try:
            asked = self._we.connect(peer, remote, headers=info.headers)
        except (OSError, ValueError) as problem:
            self.log.error(f"{peer.shown} - {problem}")
            self._end(peer, "Authentication Failure")
            return
        connection.write(handshake.line(b"CONNECT", asked))
        peer.due_ns = self.turn.now_ns + FINISH_NS
        self.log.debug(f"{peer.shown} - Remote leafnode connect msg sent")

    def _finish(self, peer: LeafPeer, info: Info) -> None:
        """It has let us in."""
        remote = peer.remote
        assert remote is not None
        account = self._accounts.get(remote.account)
        if account is None:
            self._end(peer, "Missing Account")
            return
        for other in self.peers.values():
            if (
                other.joined
                and other.remote is None
                and other.account is account
                and peer.cluster
                and other.cluster == peer.cluster
            ):
                self._looped(peer, tell=True)
                return
        peer.account = account
        if not self._accounts.join(peer.connection, account, leaf=True):
            text = "maximum account active connections exceeded"
            self.log.error(f"{peer.shown} - {text}")
            self._fail(peer.connection, text.encode(), "Maximum Account Connections Exceeded")
            return
        if peer.leaf is not None:
            peer.leaf.isolated = peer.leaf.isolated or remote.isolate
        self._rule_called(peer, info)
        self._join(peer, account)

    def _rule_called(self, peer: LeafPeer, info: Info) -> None:
        """What we may send it and ask it for: its user's permissions, and our own settings."""
        assert peer.leaf is not None
        assert peer.remote is not None
        system = self._is_system(peer)
        rule_hub(peer.leaf, info, peer.remote, self._we.domain, peer.domain, system=system)

    # -- both

    def _join(self, peer: LeafPeer, account: ServerAccount) -> None:
        leaf = peer.leaf
        assert leaf is not None
        servers = self._remote_servers.get(account.name)
        if servers is None or servers.router is not account.router:
            servers = self._remote_servers[account.name] = RemoteServers(account.router)
            servers.loop_subject = f"$LDS.{self._ids.next()}".encode()
        domain = self._we.domain
        if domain != peer.domain or not domain:
            domains = f"local {quoted(domain)}, remote {quoted(peer.domain)}"
            self.log.info(f"{peer.shown} - JetStream using domains: {domains}")
        peer.joined = True
        peer.due_ns = self.turn.now_ns + LOOK_NS
        leaf.join(servers)
        for hook in self.changed_hooks:
            hook(peer)

    def _is_system(self, peer: LeafPeer) -> bool:
        system = self._accounts.system
        return system is not None and system is peer.account

    def _peer(self, leaf: Leaf) -> LeafPeer | None:
        peer = leaf.connection.session
        return peer if isinstance(peer, LeafPeer) else None

    def _delay(self, peer: LeafPeer, delay_ns: int) -> None:
        if peer.remote is not None:
            self.delays[id(peer.remote)] = delay_ns

    def _looped(self, peer: LeafPeer, *, tell: bool) -> None:
        self._delay(peer, LOOP_DELAY_NS)
        text = (
            f'Loop detected for leafnode account="{peer.account_name}". '
            "Delaying attempt to reconnect for 30s"
        )
        self.log.error(f"{peer.shown} - {text}")
        if tell:
            self._fail(peer.connection, text.encode(), "Protocol Violation")
        else:
            self._end(peer, "Protocol Violation")

    def _fail(self, connection: Connection, text: bytes, reason: str) -> None:
        connection.fail(text, reason)

    def _end(self, peer: LeafPeer, reason: str) -> None:
        self.turn.disconnect(peer.connection, reason)

    # -- time

    def _look_later(self) -> None:
        if self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(LOOK_NS / SECOND_NS, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self.turn.now_ns = self.turn.clock.now()
        for peer in list(self.peers.values()):
            if peer.due_ns <= now and not peer.connection.closing:
                self._due(peer, now)
        if self.peers:
            self._look_later()
        self.turn.kick()

    def _due(self, peer: LeafPeer, now_ns: int) -> None:
        connection = peer.connection
        if not peer.joined:
            if peer.remote is None:
                self._fail(connection, b"Authentication Timeout", "Authentication Timeout")
            elif peer.greeted:
                text = b"Stale Leaf Node Connection - Closing"
                self._fail(connection, text, "Stale Connection")
            else:
                self._end(peer, "Read Error")
            return
        if connection.pings_out + 1 > self.settings.ping_max:
            self.log.debug(f"{peer.shown} - Stale Client Connection - Closing")
            self._fail(connection, b"Stale Connection", "Stale Connection")
            return
        connection.pings_out += 1
        peer.pinged_ns = peer.pinged_ns or now_ns
        connection.write(b"PING\r\n")
        peer.due_ns = now_ns + self.settings.ping_interval_ns
