r"""Brings accepted sockets of clients to the core, through a PROXY header and the TLS handshake.

    accepted --plain-----------------------------------------------> EventLoop.adopt
        \--INFO or not--PROXY header--first byte?--TLS handshake--> Transport --> EventLoop.attach

Each such socket has a task with time limits.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable

from pelton.core.broker.event_loop import EventLoop
from pelton.core.broker.reactor import Connection
from pelton.core.broker.session import Sessions
from pelton.server.clients.client import Client, where
from pelton.server.clients.clients import Clients
from pelton.server.logs.log import Log
from pelton.server.logs.rate_limited_log import RateLimitedLog
from pelton.server.settings import Settings
from pelton.server.settings.tls import Tls
from pelton.server.transports.handshake import (
    Arrivals,
    HandshakeFailed,
    peek,
    secure,
    wait_readable,
)
from pelton.server.transports.pipe import Pipe, PipeClosed
from pelton.server.transports.proxy_protocol import parse_header
from pelton.server.transports.tls import server_context
from pelton.server.transports.transport import Transport
from pelton.server.units import SECOND_NS

PROXY_SECONDS = 5.0
TLS_RECORD = 0x16  # the first byte of a TLS handshake
FAILED = "TLS Handshake Failure"


class HandshakeAcceptor:
    """Accepts clients with TLS or behind a proxy."""

    def __init__(
        self,
        event_loop: EventLoop,
        sessions: Sessions,
        clients: Clients,
        settings: Settings,
        log: Log,
        sweep_by: Callable[[int], None],
    ) -> None:
        """Load the certificates: StartError when they can't be used. `sweep_by` is called with the
        due time of a new client.
        """
        self._event_loop = event_loop
        self._sessions = sessions
        self._clients = clients
        self._settings = settings
        self._log = log
        self._sweep_by = sweep_by
        self._complaints = RateLimitedLog(log, "handshake errors")
        self._arrivals = Arrivals()
        self._rate = Rate(0)
        self._context: ssl.SSLContext | None = None
        self.use(server_context(settings.tls) if settings.tls is not None else None)

    def use(self, context: ssl.SSLContext | None) -> None:
        """Set the certificates of later handshakes, after a reload."""
        self._context = context
        tls = self._settings.tls
        self._rate = Rate(tls.connection_rate_limit if tls is not None else 0)

    def close(self) -> None:
        """Close the connections that are in their handshake."""
        self._arrivals.close()

    def receive(self, connected: socket.socket, host: str, port: int) -> None:
        """Accept a socket of the clients' listener, and own it."""
        pipe = Pipe(connected)
        transport = Transport(self._event_loop, pipe)
        self._event_loop.now_ns = self._event_loop.clock.now()
        connection = self._sessions.accept(transport)
        client = self._clients.register(connection, host, port)
        self._arrivals.begin(self._arrive(pipe, transport, connection, client), transport)
        self._event_loop.hand_back()

    # -- one client

    async def _arrive(
        self, pipe: Pipe, transport: Transport, connection: Connection, client: Client
    ) -> None:
        reason = FAILED
        try:
            if await self._prepare(pipe, connection, client):
                self._begin(pipe, transport, connection, client)
            return
        except (PipeClosed, ConnectionError) as problem:
            reason = str(problem)
        except TimeoutError:
            self._log.debug(f"{where(connection, client)} - TLS handshake timeout")
        except HandshakeFailed as problem:
            tell = self._log.debug if problem.quiet else self._complain
            tell(f"{where(connection, client)} - TLS handshake error: {problem}")
        except ValueError as problem:
            self._complain(f"{where(connection, client)} - PROXY header: {problem}")
            reason = "Protocol Violation"
        except OSError as problem:
            self._log.error(f"{where(connection, client)} - {problem.strerror}")
            reason = "Read Error"
        transport.on_close = None
        self._event_loop.now_ns = self._event_loop.clock.now()
        self._event_loop.disconnect(connection, reason)
        self._event_loop.kick()

    def _complain(self, line: str) -> None:
        self._complaints.say(self._event_loop.clock.now(), line)

    async def _prepare(self, pipe: Pipe, connection: Connection, client: Client) -> bool:
        """Do everything up to the first byte of the protocol; False when the connection was closed."""
        tls, first = self._settings.tls, False
        if tls is not None and tls.handshake_first:
            wait = tls.fallback_ns / SECOND_NS
            first = not wait or bool(await peek(pipe, 1, wait))
        if not first:
            self._say_info(connection, client)
            if connection.closed:
                return False
        connection.set_blocked(True)  # no output before the handshake
        if self._settings.proxy_protocol:
            await self._read_proxy_header(pipe, client)
        if tls is not None and self._context is not None:
            encrypt = first or not self._settings.allow_non_tls
            if not encrypt:
                seen = await peek(pipe, 1, tls.timeout_ns / SECOND_NS)
                encrypt = seen[:1] == bytes([TLS_RECORD])
            if encrypt and not await self._encrypt(pipe, connection, client, tls, first=first):
                return False
        if first:
            connection.set_blocked(False)
            self._say_info(connection, client)
        return not connection.closed

    def _say_info(self, connection: Connection, client: Client) -> None:
        self._event_loop.now_ns = self._event_loop.clock.now()
        address = not self._settings.proxy_protocol
        self._clients.say_info(connection, client, address=address)
        self._event_loop.kick()

    async def _read_proxy_header(self, pipe: Pipe, client: Client) -> None:
        data, header = b"", None
        async with asyncio.timeout(PROXY_SECONDS):
            while header is None:
                got = bytes(pipe.receive())
                if not got:
                    await wait_readable(pipe)
                    continue
                data += got
                header = parse_header(data)
        pipe.unread(data[header.length :])
        if header.host:
            client.host, client.port = header.host, header.port

    async def _encrypt(
        self, pipe: Pipe, connection: Connection, client: Client, tls: Tls, *, first: bool
    ) -> bool:
        assert self._context is not None
        if not self._rate.allow():
            connection.set_blocked(False)
            text = b"Connection throttling is active. Please try again later."
            connection.fail(text, "Maximum Connections Exceeded")
            return False
        seen = await peek(pipe, 1, tls.timeout_ns / SECOND_NS)
        if seen[:1] != bytes([TLS_RECORD]):
            # The client does not use TLS: send the error in plain text.
            connection.set_blocked(False)
            connection.fail(b"Secure Connection - TLS Required", FAILED)
            self._event_loop.kick()
            raise HandshakeFailed("the first bytes are not a TLS handshake", quiet=not seen)
        client.tls = await secure(pipe, self._context, tls, tls.timeout_ns, first=first)
        self._log.debug(
            f"{where(connection, client)} - TLS version {client.tls.version}, "
            f"cipher suite {client.tls.cipher}"
        )
        return True

    def _begin(
        self, pipe: Pipe, transport: Transport, connection: Connection, client: Client
    ) -> None:
        transport.on_close = None
        self._event_loop.now_ns = self._event_loop.clock.now()
        self._clients.arrived(connection, client)
        self._sweep_by(client.due_ns)
        if pipe.tls is not None:
            transport.serve(connection)
        else:
            # From here on, the connection needs no acceptor.
            waiting = bytes(pipe.receive()) if pipe.pending else b""
            connection.transport = None
            self._event_loop.attach(connection, pipe.socket.detach())
            self._event_loop.take_in(connection, waiting)
            self._event_loop.hold(connection, False)
        self._event_loop.kick()


class Rate:
    """A limit of handshakes per second."""

    def __init__(self, limit: int) -> None:
        """`limit` 0 means no limit."""
        self._limit = limit
        self._second = 0
        self._count = 0

    def allow(self, now_ns: int | None = None) -> bool:
        """Whether one more handshake may start now."""
        if not self._limit:
            return True
        second = (time.monotonic_ns() if now_ns is None else now_ns) // SECOND_NS
        if second != self._second:
            self._second, self._count = second, 0
        self._count += 1
        return self._count <= self._limit
