"""The acceptors of a server: for clients with TLS or behind a proxy, and for the WebSocket listener. Their
modules are loaded only when the settings use them.
"""

import socket
from collections.abc import Callable

from msgspec.structs import replace

from pelton.core.broker.event_loop import EventLoop
from pelton.core.broker.session import Sessions
from pelton.server.clients.clients import Clients
from pelton.server.errors import StartError
from pelton.server.identity import Greeting
from pelton.server.logs.log import Log
from pelton.server.settings import Settings
from pelton.server.transports.listener import Listener, open_sockets
from pelton.server.units import join_address, reachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    import ssl

    from pelton.server.transports.handshake_acceptor import HandshakeAcceptor
    from pelton.server.transports.websocket.acceptor import WebSocketAcceptor


class Acceptors:
    """The acceptors that the settings need."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        event_loop: EventLoop,
        sessions: Sessions,
        clients: Clients,
        greeting: Greeting,
        sweep_by: Callable[[int], None],
    ) -> None:
        """Open the WebSocket listener's sockets and load certificates. Raises StartError."""
        self._settings = settings
        self._log = log
        self._greeting = greeting
        self._parts = (event_loop, sessions, clients, settings, log, sweep_by)
        self._listener: Listener | None = None
        self._handshakes: HandshakeAcceptor | None = None
        self.websocket: WebSocketAcceptor | None = None
        self._monitoring: ssl.SSLContext | None = None
        if needs_reception(settings):
            self._handshakes = self._new_handshakes()
        if settings.websocket.port:
            self.websocket = self._new_websocket()

    def _new_handshakes(self) -> "HandshakeAcceptor":
        from pelton.server.transports.handshake_acceptor import HandshakeAcceptor

        return HandshakeAcceptor(*self._parts)

    def _new_websocket(self) -> "WebSocketAcceptor":
        try:
            from pelton.server.transports.websocket.acceptor import WebSocketAcceptor
        except ModuleNotFoundError as problem:
            raise StartError(
                f"WebSockets need the package {problem.name}: pip install {problem.name}"
            ) from None
        event_loop = self._parts[0]
        acceptor = WebSocketAcceptor(*self._parts)
        options = self._settings.websocket
        sockets = open_sockets(options.host, options.port, "websocket.port")
        self._greeting.websocket_port = sockets[0].getsockname()[1]
        self._greeting.refresh(self._settings)
        self._listener = Listener(sockets, acceptor.receive, event_loop, self._log)
        return acceptor

    # -- life cycle

    def take(self, connected: socket.socket, host: str, port: int) -> bool:
        """Take over a socket of the clients' listener; False when it needs no acceptor and can go
        to the core.
        """
        if self._handshakes is None:
            return False
        self._handshakes.receive(connected, host, port)
        return True

    def open(self, loop: "asyncio.AbstractEventLoop") -> None:
        """Start the acceptors' own listeners."""
        if self._listener is None:
            return
        self._listener.open(loop)
        options = self._settings.websocket
        self._log.info(f"Listening for websocket clients on {self._url(options.host)}")
        if options.tls is None:
            self._log.warn("Websocket not configured with TLS. DO NOT USE IN PRODUCTION!")

    def close_listener(self) -> None:
        """Accept no new connections."""
        if self._listener is not None:
            self._listener.close()

    def close(self) -> None:
        """Close connections that are still in their handshake."""
        self.close_listener()
        for part in (self._handshakes, self.websocket):
            if part is not None:
                part.close()

    def announce_tls(self) -> None:
        """Log lines about TLS and WebSocket."""
        if self._settings.proxy_protocol:
            self._log.info("PROXY protocol enabled for client connections")
        if self._settings.tls is not None:
            need = "available" if self._settings.allow_non_tls else "required"
            self._log.info(f"TLS {need} for client connections")

    def urls(self) -> list[str]:
        """The WebSocket URL for clients on this machine."""
        if self.websocket is None:
            return []
        return [self._url(reachable(self._settings.websocket.host))]

    def _url(self, host: str) -> str:
        scheme = "wss" if self._settings.websocket.tls is not None else "ws"
        return f"{scheme}://{join_address(host, self._greeting.websocket_port)}"

    # -- reload

    def monitoring_context(self) -> "ssl.SSLContext | None":
        """The TLS context of monitoring over HTTPS, with the certificates of the clients' listener;
        None for HTTP.
        """
        tls = self._settings.tls
        if not self._settings.https_port or tls is None:
            return None
        from pelton.server.transports.tls import server_context

        self._monitoring = server_context(replace(tls, verify=False))
        return self._monitoring

    def use(self, contexts: "list[ssl.SSLContext | None]") -> None:
        """Apply a reload: certificates for new handshakes."""
        clients, websocket = contexts
        if self._handshakes is not None:
            self._handshakes.use(clients)
        elif needs_reception(self._settings):
            self._handshakes = self._new_handshakes()
        if self.websocket is not None:
            self.websocket.use(websocket)
        tls = self._settings.tls
        if self._monitoring is not None and tls is not None and tls.cert_file:
            # its server keeps its first context
            self._monitoring.load_cert_chain(tls.cert_file, tls.key_file)


def fresh_contexts(settings: Settings) -> "list[ssl.SSLContext | None]":
    """The TLS contexts for the acceptors' `use`: clients, WebSocket.

    They are read again because files can change without a change of their names. StartError when a
    file can't be used.
    """
    if settings.tls is None and settings.websocket.tls is None:
        return [None, None]
    from pelton.server.transports.tls import server_contexts

    return server_contexts(settings)


def needs_reception(settings: Settings) -> bool:
    """Whether client connections need an acceptor."""
    return settings.tls is not None or settings.proxy_protocol
