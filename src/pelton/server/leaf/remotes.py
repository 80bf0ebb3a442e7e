"""The remotes: connects this server to hubs, and connects again after a connection has ended.

    pause --> resolve, dial --> LeafNodes.called --> (closed) --> pause

The pause is random between one and two times the configured one; it is longer when the hub named a
reason for closing the connection.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from random import Random
from urllib.parse import urlsplit

from pelton.core.broker.session import Sessions
from pelton.server.errors import StartError
from pelton.server.leaf.negotiation import Info, is_address, is_ip
from pelton.server.leaf.node import LeafNode
from pelton.server.leaf.nodes import LeafNodes
from pelton.server.settings.leafnodes import LeafRemote
from pelton.server.units import SECOND_NS


class Remotes:
    """One caller for each remote that is not disabled."""

    def __init__(self, nodes: LeafNodes, sessions: Sessions) -> None:
        """No connection is made before `open`."""
        self._nodes = nodes
        self._sessions = sessions
        self._callers: list[Caller] = []

    def open(self) -> None:
        """Connect to all remotes."""
        self.apply(self._nodes.own.remotes)

    def apply(self, remotes: list[LeafRemote]) -> None:
        """Replace the remotes. A remote that did not change keeps its connection."""
        wanted = [remote for remote in remotes if not remote.disabled]
        kept: list[Caller] = []
        for caller in self._callers:
            if caller.remote in wanted:
                kept.append(caller)
                wanted.remove(caller.remote)
            else:
                caller.close()
        self._callers = kept + [Caller(self._nodes, self._sessions, remote) for remote in wanted]
        for caller in self._callers:
            caller.open()

    def close(self) -> None:
        """Close the connections to all remotes, and do not connect again."""
        for caller in self._callers:
            caller.close()
        self._callers = []


class Caller:
    """Keeps one remote connected."""

    def __init__(self, nodes: LeafNodes, sessions: Sessions, remote: LeafRemote) -> None:
        """No connection is made before `open`."""
        self.remote = remote
        self._sessions = sessions
        self._nodes = nodes
        self._random = Random(os.urandom(16))
        self._urls = list(remote.urls)
        if not remote.no_randomize:
            self._random.shuffle(self._urls)
        self._next = 0
        self._task: asyncio.Task[None] | None = None
        self._node: LeafNode | None = None

    def open(self) -> None:
        """Start connecting, once."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._stay())

    def close(self) -> None:
        """Close the connection and do not connect again."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._node is not None:
            self._nodes.event_loop.disconnect(self._node.connection, "Client Closed")
            self._nodes.event_loop.kick()

    async def _stay(self) -> None:
        own = self._nodes.own
        first = True
        while True:
            attempt = 0
            while True:
                url = self._urls[self._next % len(self._urls)]
                self._next += 1
                try:
                    ended = await self._call(url)
                    break
                except OSError as problem:
                    attempt += 1
                    self._complain(url, attempt, problem, first=first)
                await asyncio.sleep(self._pause_s(own.reconnect_ns))
            await ended
            first = False
            delay_ns = self._nodes.delays.pop(id(self.remote), 0)
            await asyncio.sleep(delay_ns / SECOND_NS or own.reconnect_ns / SECOND_NS)

    def _pause_s(self, pause_ns: int) -> float:
        return pause_ns * (1 + self._random.random()) / SECOND_NS

    def _complain(self, url: str, attempt: int, problem: OSError, *, first: bool) -> None:
        where = urlsplit(url).netloc.rpartition("@")[2]
        text = (
            f'Error trying to connect as leafnode to remote server "{where}" '
            f"(attempt {attempt}): {problem.strerror or problem}"
        )
        settings = self._nodes.settings
        each = settings.connect_error_reports if first else settings.reconnect_error_reports
        if attempt == 1 or attempt % max(each, 1) == 0:
            self._nodes.log.error(text)
        else:
            self._nodes.log.debug(text)

    async def _call(self, url: str) -> "asyncio.Future[None]":
        """Connect and hand the connection to the core. The future ends with the connection. Raises
        OSError.
        """
        nodes = self._nodes
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 0
        nodes.log.debug(f'Trying to connect as leafnode to remote server on "{host}:{port}"')
        connected, address = await self._dial(host, port)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def over(node: LeafNode) -> None:
            self._node = None
            if not ended.done():
                ended.set_result(None)

        remote = self.remote
        if parts.scheme in ("ws", "wss"):
            await self._over_websocket(connected, address, url, over)
            return ended
        if parts.scheme == "tls" or remote.tls is not None or id(remote) in nodes.encrypted:
            await self._encrypt(connected, self._tls_name(url), address, url, over)
            return ended
        nodes.event_loop.now_ns = nodes.event_loop.clock.now()
        if self._compressible:
            self._call_compressible(connected, address, url, over)
            return ended
        connection = nodes.event_loop.adopt(connected.fileno())
        connected.detach()
        self._node = nodes.called(connection, address, remote, url, over)
        self._node.discovered = self._discovered
        nodes.event_loop.kick()
        return ended

    @property
    def _compressible(self) -> bool:
        mode = self.remote.compression or self._nodes.own.compression
        return mode not in ("", "off")

    def _call_compressible(
        self,
        connected: socket.socket,
        address: tuple[str, int],
        url: str,
        over: Callable[[LeafNode], None],
    ) -> None:
        from pelton.server.leaf.compression import CompressingTransport
        from pelton.server.transports.pipe import Pipe

        nodes = self._nodes
        link = CompressingTransport(nodes.event_loop, Pipe(connected))
        connection = self._sessions.accept(link)
        self._node = nodes.called(connection, address, self.remote, url, over, link=link)
        self._node.discovered = self._discovered
        link.serve(connection)
        nodes.event_loop.kick()

    async def _encrypt(
        self,
        connected: socket.socket,
        host: str,
        address: tuple[str, int],
        url: str,
        over: Callable[[LeafNode], None],
    ) -> None:
        """Do the TLS handshake, after the plain INFO or before it. Raises OSError."""
        from pelton.server.leaf.compression import CompressingTransport
        from pelton.server.settings.tls import Tls
        from pelton.server.transports.handshake import HandshakeFailed, peek, shake_hands
        from pelton.server.transports.pipe import Pipe, PipeClosed
        from pelton.server.transports.tls import client_context, tls_info_of

        nodes, tls = self._nodes, self.remote.tls or Tls()
        pipe = Pipe(connected)
        try:
            info, seconds = b"", self.remote.first_info_timeout_ns / SECOND_NS
            if not tls.handshake_first:
                while not info.endswith(b"\n"):
                    seen = await peek(pipe, 1, seconds)
                    if not seen:
                        raise TimeoutError("the server sent no INFO in time")
                    info += bytes(pipe.receive())
            context = client_context(self.remote.tls, "leafnodes.remotes.tls")
            await shake_hands(pipe, context, tls.timeout_ns, server_side=False, hostname=host)
        except (HandshakeFailed, PipeClosed, StartError, TimeoutError) as problem:
            pipe.close()
            raise OSError(f"TLS handshake error: {problem}") from None
        except BaseException:
            pipe.close()
            raise
        assert pipe.tls is not None
        nodes.event_loop.now_ns = nodes.event_loop.clock.now()
        transport = CompressingTransport(nodes.event_loop, pipe)
        link = transport if self._compressible else None
        connection = self._sessions.accept(transport)
        tls_info = tls_info_of(pipe.tls, first=tls.handshake_first)
        self._node = nodes.called(
            connection, address, self.remote, url, over, tls=tls_info, link=link
        )
        self._node.discovered = self._discovered
        transport.serve(connection)
        if info:
            nodes.event_loop.take_in(connection, info)
        nodes.event_loop.kick()

    async def _over_websocket(
        self,
        connected: socket.socket,
        address: tuple[str, int],
        url: str,
        over: Callable[[LeafNode], None],
    ) -> None:
        """Connect over WebSocket: TLS when configured, then the upgrade request. Raises OSError."""
        from pelton.server.leaf.websocket import open_websocket

        nodes, remote = self._nodes, self.remote
        pipe, frames, tls_info = await open_websocket(connected, url, remote, self._tls_name(url))
        from pelton.server.transports.websocket.acceptor import FramedTransport

        nodes.event_loop.now_ns = nodes.event_loop.clock.now()
        transport = FramedTransport(nodes.event_loop, pipe, frames, leaf=True)
        connection = self._sessions.accept(transport)
        self._node = nodes.called(connection, address, remote, url, over, tls=tls_info)
        self._node.discovered = self._discovered
        transport.serve(connection)
        nodes.event_loop.kick()

    def _discovered(self, info: Info) -> None:
        """Add the URLs of a hub's INFO; they are tried after the configured ones, with the
        configured user.
        """
        known = [urlsplit(url) for url in self.remote.urls]
        if self.remote.ignore_discovered:
            return
        there = [parts.netloc.rpartition("@")[2] for parts in known]
        user = next((p.netloc.rpartition("@")[0] for p in known if p.username is not None), "")
        scheme = known[0].scheme
        named = info.ws_connect_urls if scheme in ("ws", "wss") else info.leafnode_urls
        more = [each for each in dict.fromkeys(named or ()) if is_address(each)]
        found = [f"{scheme}://{user}@{each}" if user else f"{scheme}://{each}" for each in more]
        fresh = [url for url, each in zip(found, more, strict=True) if each not in there]
        kept = [url for url in self._urls if url in self.remote.urls]
        self._urls = kept + fresh

    def _tls_name(self, url: str) -> str:
        """The name that the hub's certificate must have.

        For a hub known by its IP address it is the name of the configured hub that announced the
        address.
        """
        host = urlsplit(url).hostname or ""
        if url in self.remote.urls or not is_ip(host):
            return host
        names = [urlsplit(each).hostname or "" for each in self.remote.urls]
        return next((name for name in names if not is_ip(name)), host)

    async def _dial(self, host: str, port: int) -> tuple[socket.socket, tuple[str, int]]:
        loop = asyncio.get_running_loop()
        timeout_ns = self.remote.dial_timeout_ns or self._nodes.own.dial_timeout_ns
        async with asyncio.timeout(timeout_ns / SECOND_NS):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            family, kind, _, _, address = self._random.choice(found)
            connected = socket.socket(family, kind)
            try:
                connected.setblocking(False)
                await loop.sock_connect(connected, address)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except BaseException:
                connected.close()
                raise
        return connected, (str(address[0]), int(address[1]))
