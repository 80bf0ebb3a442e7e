"""The leaf node part of a running server: opens the listener, connects to the remotes, closes all."""

import asyncio
import socket
from collections.abc import Collection
from typing import TYPE_CHECKING

from pelton.core.broker.event_loop import EventLoop
from pelton.core.broker.reactor import Connection
from pelton.core.broker.session import Sessions
from pelton.server.accounts.registry import Accounts
from pelton.server.auth import Authenticator
from pelton.server.clients.client import LEAFNODE_WS
from pelton.server.clients.clients import AUTHORIZATION
from pelton.server.errors import StartError
from pelton.server.leaf.connect_messages import Identity
from pelton.server.leaf.node import LeafNode
from pelton.server.leaf.nodes import LeafNodes
from pelton.server.leaf.remotes import Remotes
from pelton.server.logs.log import Log
from pelton.server.settings import Settings
from pelton.server.settings.leafnodes import LeafNodes as LeafSettings
from pelton.server.settings.leafnodes import fixed_changes
from pelton.server.transports.handshake import Arrivals, HandshakeFailed, peek, secure
from pelton.server.transports.listener import Listener, open_sockets
from pelton.server.transports.pipe import Pipe, PipeClosed
from pelton.server.transports.transport import Transport
from pelton.server.units import SECOND_NS, join_address

if TYPE_CHECKING:
    import ssl

    from pelton.server.app import Server
    from pelton.server.leaf.compression import CompressingTransport
    from pelton.server.transports.tls import TlsInfo


def open_part(server: "Server") -> "LeafService":
    """The leaf nodes of a starting server, to be opened with its other ports. StartError when a
    port is not available.
    """
    part = LeafService(
        server.event_loop,
        server.settings,
        server.log,
        server.authenticator,
        server.accounts,
        server.sessions,
        server_id=server.server_id,
        server_name=server.server_name,
    )

    def changed(node: LeafNode) -> None:
        if server.clients.system is not None:
            server.clients.system.account_changed(node)

    part.nodes.changed_hooks.append(changed)
    part.nodes.gone_hooks.append(
        lambda connection, node: server.clients.remember(connection, node.tls_info())
    )
    # at each reload, because the files of the certificates can change without a change of their names
    server.reloads.add(("leafnodes",), part.reloaded, part.prepare, always=True)
    server.reloads.add(("accounts", *AUTHORIZATION), part.reloaded)
    return part


class LeafService:
    """The leaf node part of one server, from start to stop."""

    def __init__(
        self,
        event_loop: EventLoop,
        settings: Settings,
        log: Log,
        authenticator: Authenticator,
        accounts: Accounts,
        sessions: Sessions,
        *,
        server_id: str,
        server_name: str,
    ) -> None:
        """Open the sockets. StartError when a port is not available."""
        own = settings.leafnodes
        assert own is not None
        self.event_loop = event_loop
        self.log = log
        self.settings = settings
        self.host = own.host
        self._sockets = open_sockets(own.host, own.port, "leafnodes.port") if own.port else []
        self.port = self._sockets[0].getsockname()[1] if self._sockets else 0
        identity = Identity(server_id, server_name, [self._address(own)], self.port)
        self.nodes = LeafNodes(event_loop, settings, identity, log, authenticator, accounts)
        self.remotes = Remotes(self.nodes, sessions)
        self._sessions = sessions
        self._context = self._fresh = server_context_of(own)
        self._arrivals = Arrivals()
        self._listener: Listener | None = None
        before = event_loop.on_close

        def closed(connection: Connection) -> None:
            if before is not None:
                before(connection)
            self.nodes.closed(connection)

        event_loop.on_close = closed

    def _address(self, own: LeafSettings) -> str:
        """The addresses of the listener for other servers."""
        if own.advertise:
            return own.advertise if ":" in own.advertise else f"{own.advertise}:{self.port}"
        host = own.host
        if host in ("", "0.0.0.0", "::"):
            host = _own_address()
        return join_address(host, self.port)

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Accept connections and connect to the remotes."""
        self.nodes.open(loop)
        if self._sockets:
            self._listener = Listener(self._sockets, self._accepted, self.event_loop, self.log)
            self._listener.open(loop)
            shown = join_address(self.host, self.port)
            self.log.info(f"Listening for leafnode connections on {shown}")
        self.remotes.open()

    def stop_listening(self) -> None:
        """Accept no further leaf nodes: the server is about to stop."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def close(self) -> None:
        """Close all; the server is stopping."""
        self.stop_listening()
        self._arrivals.close()
        self.remotes.close()
        self.nodes.close()

    def prepare(self, old: Settings, new: Settings) -> None:
        """Check a reload. StartError for a change that needs a restart, or unusable certificates."""
        fixed = fixed_changes(old.leafnodes, new.leafnodes)
        if fixed:
            raise StartError("; ".join(f"config reload not supported for {name}" for name in fixed))
        if new.leafnodes is not None:
            self._fresh = server_context_of(new.leafnodes)

    def reloaded(self, changed: Collection[str]) -> None:
        """Apply changed settings: use other certificates for new handshakes, connect to other
        remotes, close connections that are no longer allowed.
        """
        self._context = self._fresh
        if "leafnodes" in changed:
            self.remotes.apply(self.nodes.own.remotes)
        self.nodes.reloaded()

    def _accepted(self, connected: socket.socket, host: str, port: int) -> None:
        self.event_loop.now_ns = self.event_loop.clock.now()
        if self._context is not None:
            from pelton.server.leaf.compression import CompressingTransport

            transport = CompressingTransport(self.event_loop, Pipe(connected))
            connection = self._sessions.accept(transport)
            self._arrivals.begin(self._encrypt(transport, connection, host, port), transport)
            self.event_loop.hand_back()
            return
        if self.nodes.own.compression not in ("", "off"):
            self._compressible(connected, host, port)
            return
        connection = self.event_loop.adopt(connected.fileno())
        connected.detach()
        self.nodes.accepted(connection, host, port)

    def _compressible(self, connected: socket.socket, host: str, port: int) -> None:
        """Register a connection from a leaf node, which may be compressed."""
        from pelton.server.leaf.compression import CompressingTransport

        transport = CompressingTransport(self.event_loop, Pipe(connected))
        connection = self._sessions.accept(transport)
        self.nodes.accepted(connection, host, port, link=transport)
        transport.serve(connection)
        self.event_loop.kick()

    async def _encrypt(
        self, transport: "CompressingTransport", connection: Connection, host: str, port: int
    ) -> None:
        """Send INFO and do the TLS handshake with a leaf node, in the order of the settings."""
        tls = self.nodes.own.tls
        assert tls is not None
        assert self._context is not None
        first, node = tls.handshake_first, None
        offered = self.nodes.own.compression not in ("", "off")
        link = transport if offered else None
        try:
            if first and tls.fallback_ns:
                first = bool(await peek(transport.pipe, 1, tls.fallback_ns / SECOND_NS))
            if not first:
                self.event_loop.now_ns = self.event_loop.clock.now()
                node = self.nodes.accepted(connection, host, port, link=link)
                self.event_loop.kick()
                connection.set_blocked(True)
            tls_info = await secure(transport.pipe, self._context, tls, tls.timeout_ns, first=first)
        except (HandshakeFailed, PipeClosed, TimeoutError, OSError) as problem:
            transport.on_close = None
            self.log.error(f"{host}:{port} - lid:{connection.id} - TLS handshake error: {problem}")
            self.event_loop.now_ns = self.event_loop.clock.now()
            self.event_loop.disconnect(connection, "TLS Handshake Failure")
            self.event_loop.kick()
            return
        transport.on_close = None
        self.event_loop.now_ns = self.event_loop.clock.now()
        if node is None:
            self.nodes.accepted(connection, host, port, tls=tls_info, link=link)
        else:
            node.tls = tls_info
        transport.serve(connection)
        self.event_loop.kick()

    def over_websocket(
        self,
        connection: Connection,
        transport: Transport,
        host: str,
        port: int,
        tls: "TlsInfo | None",
    ) -> None:
        """Register a leaf node's connection from the WebSocket listener, after the upgrade."""
        self.nodes.accepted(connection, host, port, kind=LEAFNODE_WS, tls=tls)
        transport.serve(connection)
        self.event_loop.kick()


def server_context_of(own: LeafSettings) -> "ssl.SSLContext | None":
    """The TLS context of the listener. StartError when its files can't be used."""
    if own.tls is None:
        return None
    from pelton.server.transports.tls import server_context

    return server_context(own.tls, "leafnodes.tls")


def _own_address() -> str:
    """A likely address of this machine for other machines."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return "127.0.0.1"
    addresses = [str(address[0]) for _, _, _, _, address in found]
    outside = [each for each in addresses if not each.startswith(("127.", "::1", "fe80"))]
    return (outside or ["127.0.0.1"])[0]
