"""The acceptor of the WebSocket listener: TLS if configured, the request, and a connection of the core
whose bytes travel in frames.

    accepted --[TLS handshake]--request--response--> client: greeting, FramedTransport --> turn
                                                     /leafnode: to the leaf node service
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

from pelton.core.broker.event_loop import EventLoop
from pelton.core.broker.reactor import Connection
from pelton.core.broker.session import Sessions
from pelton.server.clients.client import Cookies
from pelton.server.clients.clients import Clients
from pelton.server.logs.log import Log
from pelton.server.logs.rate_limited_log import RateLimitedLog
from pelton.server.settings import Settings
from pelton.server.settings.websocket import Websocket
from pelton.server.transports.handshake import Arrivals, HandshakeFailed, receive_head, secure
from pelton.server.transports.pipe import Pipe, PipeClosed
from pelton.server.transports.tls import TlsInfo, server_context
from pelton.server.transports.transport import Transport
from pelton.server.transports.websocket.frames import Frames
from pelton.server.transports.websocket.upgrade import (
    Request,
    Upgrade,
    UpgradeRefused,
    agree,
    answer,
    parse_request,
    refuse,
)
from pelton.server.units import SECOND_NS

MESSAGE_PAYLOADS = 8  # a message has at most this many times max_payload
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
STRANGER_BYTES = 64 * 1024  # the limit of a message before authentication

LeafAccepted = Callable[["FramedTransport", str, int, "TlsInfo | None"], None]


class FramedTransport(Transport):
    """Connects a core connection to a pipe, through frames."""

    __slots__ = ("_frames", "_leaf", "problem")

    def __init__(
        self, event_loop: EventLoop, pipe: Pipe, frames: Frames, *, leaf: bool = False
    ) -> None:
        """As Transport; `frames` belongs to this connection. `leaf`: the other side is a server."""
        super().__init__(event_loop, pipe)
        self._leaf = leaf
        self._frames = frames
        self.problem: Callable[[str], object] | None = None  # called with errors in the frames

    def _encode(self, data: bytes) -> bytes:
        return self._frames.frames(data)

    def _received(self, connection: Connection, data: memoryview) -> None:
        frames = self._frames
        if not self._leaf:
            known = connection.ready
            frames.max_bytes = (
                message_limit(self.event_loop.max_payload) if known else STRANGER_BYTES
            )
        elif frames.max_bytes < MESSAGE_BYTES_MAX and getattr(connection.session, "joined", False):
            frames.max_bytes = MESSAGE_BYTES_MAX  # a server puts all that waits into one message
        for part in frames.feed(data):
            self.event_loop.take_in(connection, part)
        answers = frames.answers()
        if answers and not self.pipe.closed and not self.pipe.send(answers):
            self.event_loop.hold(connection, True)
        if frames.ended:
            if frames.problem and self.problem is not None:
                self.problem(frames.problem)
            self._end(frames.ended)

    def close(self) -> None:
        """The core has closed the connection: send a close frame with the reason."""
        if self.connection is not None and not self.pipe.closed:
            with contextlib.suppress(PipeClosed):  # the client may have disconnected
                self.pipe.send(self._frames.close_frame(self.connection.reason))
        super().close()


def message_limit(max_payload: int) -> int:
    """The byte limit of an incoming message, derived from that of a payload."""
    return min(max_payload * MESSAGE_PAYLOADS, MESSAGE_BYTES_MAX)


class WebSocketAcceptor:
    """Accepts sockets of the WebSocket listener."""

    def __init__(
        self,
        event_loop: EventLoop,
        sessions: Sessions,
        clients: Clients,
        settings: Settings,
        log: Log,
        sweep_by: Callable[[int], None],
    ) -> None:
        """Load the certificates. StartError when they can't be used."""
        self._event_loop = event_loop
        self._sessions = sessions
        self._clients = clients
        self._settings = settings
        self._log = log
        self._sweep_by = sweep_by
        self._complaints = RateLimitedLog(log, "websocket handshake errors")
        self._arrivals = Arrivals()
        tls = settings.websocket.tls
        self._context = server_context(tls, "websocket.tls") if tls is not None else None
        # Called with a leaf node's connection: transport, host, port, tls_info. None: leaf nodes
        # are not accepted.
        self.leaf_accepted: LeafAccepted | None = None

    @property
    def _options(self) -> Websocket:
        return self._settings.websocket

    def use(self, context: ssl.SSLContext | None) -> None:
        """Set the certificates of later handshakes, after a reload."""
        self._context = context

    def close(self) -> None:
        """Close connections that are still in their handshake."""
        self._arrivals.close()

    def receive(self, connected: socket.socket, host: str, port: int) -> None:
        """Accept a socket of the listener, and own it."""
        self._arrivals.begin(self._arrive(Pipe(connected), host, port), None)
        self._event_loop.hand_back()

    async def _arrive(self, pipe: Pipe, host: str, port: int) -> None:
        taken = False
        where = f"{host}:{port}"
        try:
            async with asyncio.timeout(self._options.handshake_timeout_ns / SECOND_NS):
                tls_info = await self._encrypt(pipe)
                upgrade = await self._ask(pipe)
            self._enter(pipe, upgrade, tls_info, host, port)
            taken = True
        except UpgradeRefused as problem:
            self._complain(f"{where} - websocket handshake error: {problem}")
            with contextlib.suppress(PipeClosed):  # the client may have disconnected
                pipe.send(refuse(problem.status))
        except HandshakeFailed as problem:
            tell = self._log.debug if problem.quiet else self._complain
            tell(f"{where} - websocket TLS handshake error: {problem}")
        except (TimeoutError, PipeClosed, OSError) as problem:
            self._log.debug(f"{where} - websocket handshake: {problem or 'timeout'}")
        finally:
            if not taken:
                pipe.close()

    def _complain(self, line: str) -> None:
        self._complaints.say(self._event_loop.clock.now(), line)

    async def _encrypt(self, pipe: Pipe) -> TlsInfo | None:
        tls = self._options.tls
        if self._context is None or tls is None:
            return None
        return await secure(pipe, self._context, tls, self._options.handshake_timeout_ns)

    async def _ask(self, pipe: Pipe) -> Upgrade:
        """Read the request and send the response."""
        request = await _read_request(pipe)
        upgrade = agree(request, self._options, secure=pipe.tls is not None)
        if not pipe.send(answer(upgrade, self._options.headers)):
            raise PipeClosed("the client does not read the response")
        return upgrade

    def _enter(
        self, pipe: Pipe, upgrade: Upgrade, tls_info: TlsInfo | None, host: str, port: int
    ) -> None:
        frames = Frames(
            STRANGER_BYTES,
            compress=upgrade.compress,
            masked_in=not upgrade.no_masking,
            browser=upgrade.browser,
        )
        transport = FramedTransport(self._event_loop, pipe, frames, leaf=upgrade.leaf)
        event_loop = self._event_loop
        event_loop.now_ns = event_loop.clock.now()
        if upgrade.leaf:
            if self.leaf_accepted is None:
                self._log.error("Not configured to accept leaf node connections")
                raise PipeClosed("the server has no leaf nodes")
            self.leaf_accepted(transport, host, port, tls_info)
            return
        connection = self._sessions.accept(transport)
        client = self._clients.register(connection, upgrade.client_ip or host, port, websocket=True)
        client.tls = tls_info
        client.cookies = self._credentials(upgrade.cookies)
        transport.problem = lambda text: self._log.debug(f"cid:{connection.id} - {text}")
        self._clients.say_info(connection, client)
        self._clients.arrived(connection, client)
        self._sweep_by(client.due_ns)
        transport.serve(connection)
        event_loop.kick()

    def _credentials(self, cookies: dict[str, str]) -> Cookies | None:
        options = self._options
        found = Cookies(
            jwt=cookies.get(options.jwt_cookie, "") if options.jwt_cookie else "",
            user=cookies.get(options.user_cookie, "") if options.user_cookie else "",
            password=cookies.get(options.pass_cookie, "") if options.pass_cookie else "",
            token=cookies.get(options.token_cookie, "") if options.token_cookie else "",
        )
        return found if found != Cookies() else None


async def _read_request(pipe: Pipe) -> Request:
    received = await receive_head(pipe)
    if received is None:
        raise UpgradeRefused(431, "the request is too long")
    head, rest = received
    if rest:
        raise UpgradeRefused(400, "client sent data before handshake is complete")
    return parse_request(head)
