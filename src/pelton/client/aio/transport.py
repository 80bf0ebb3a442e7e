"""The transport of the asyncio client: carries bytes in both directions, and reports when it is full.

Behind a SOCKS proxy its socket is opened first.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, cast

from pelton.errors import ConnectError

from ..protocol.socks import parse_proxy, talk

if TYPE_CHECKING:
    import ssl

    from ..base.addresses import Server
    from ..protocol.websocket import WebSocket
    from .backend import Backend

RECEIVE_BYTES = 16 * 1024
RECEIVE_BYTES_MAX = 256 * 1024


class Link(asyncio.BufferedProtocol):
    """One connection to one server; it reports events to its client while it is the client's link.

    Bytes are received into one buffer, which grows while they fill it. A buffer of its own for each receive
    would cost more than a short answer: the system maps and clears its memory each time.
    """

    def __init__(self, client: Backend, server: Server, *, tls: bool) -> None:
        """``tls``: encrypted from the first byte."""
        self.server = server
        self._frames: WebSocket | None = None
        if server.websocket:
            from ..protocol.websocket import WebSocket

            self._frames = WebSocket(server, client.options)
        self.tls = tls
        self.paused = False
        """Whether the transport has more than enough to write."""
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._upgrading = False
        self._aborted = False
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._writable: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop: the connection is open (again after the change to TLS)."""
        self._transport = cast(asyncio.Transport, transport)
        # ``abort`` came while the loop was still connecting, when there was nothing to abort.
        if self._aborted:
            self._transport.abort()
        elif not self._upgrading:
            if self._frames is not None:
                self._transport.write(self._frames.request())
            self._client._link_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the loop: where the next bytes are received to."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop: so many bytes are in the buffer."""
        data = self._buffer[:nbytes]
        # ``data`` stays valid: it is a view of the former buffer.
        if nbytes == len(self._buffer) < RECEIVE_BYTES_MAX:
            self._buffer = memoryview(bytearray(2 * nbytes))
        if self._frames is not None:
            self._unpack(self._frames, data)
        else:
            self._client._link_received(self, data)

    def _unpack(self, frames: WebSocket, received: memoryview) -> None:
        reason: Exception | None = None
        data = b""
        try:
            data = frames.receive(received)
        except ConnectError as error:  # of the handshake
            reason = error
        # A pong, or the answer to a close frame, is owed whatever the rest says.
        if self._transport is not None and (answers := frames.answers()):
            self._transport.write(answers)
        # What came before a close frame still counts.
        if data:
            self._client._link_received(self, data)
        if reason is None and frames.closed:
            reason = ConnectError(frames.closed)
        if reason is not None:
            self._client._link_lost(self, reason)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop: the connection is over."""
        self._settle()
        # Tasks that wait for room would wait for ever.
        self.resume_writing()
        self._client._link_lost(self, exc)

    def _settle(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        """Called by the loop: its buffer is full."""
        self.paused = True

    def resume_writing(self) -> None:
        """Called by the loop: there is room again."""
        self.paused = False
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    async def wait_writable(self) -> None:
        """Wait until there is room again, or the connection is over."""
        if not self.paused:
            return
        if self._writable is None:
            self._writable = self._loop.create_future()
        # Several tasks wait for this future: a cancel of one must not cancel it for the others.
        await asyncio.shield(self._writable)

    async def start_tls(self, context: ssl.SSLContext, hostname: str) -> None:
        """Encrypt from here on; OSError (also ssl.SSLError) when the handshake fails."""
        assert self._transport is not None
        self._upgrading = True
        try:
            transport = await self._loop.start_tls(
                self._transport, self, context, server_hostname=hostname
            )
        finally:
            self._upgrading = False
        # asyncio returns None when the connection was lost meanwhile.
        if transport is None:
            raise ConnectionResetError("closed during the TLS handshake")
        self._transport = transport
        self.tls = True

    def write(self, data: bytes) -> None:
        """Queue bytes on the transport."""
        if self._transport is not None and not self._closed.done():
            self._transport.write(data if self._frames is None else self._frames.frames(data))

    def close(self) -> None:
        """Write queued output, then close."""
        if self._transport is None:  # not connected yet
            self._aborted = True
            self._settle()
        else:
            if self._frames is not None and not self._frames.closed:
                self._transport.write(self._frames.close())
            self._transport.close()

    def abort(self) -> None:
        """Close without writing."""
        self._aborted = True
        if self._transport is None or self._upgrading:  # the loop will not tell us of its end
            self._settle()
        if self._transport is not None:
            self._transport.abort()

    def release(self) -> None:
        """Give the socket back in a forked process. The loop, whose selector is the parent's too, is not told."""
        # asyncio hands out a wrapper that cannot be closed; the socket is inside.
        wrapped = self._transport and self._transport.get_extra_info("socket")
        inner = getattr(wrapped, "_sock", None)
        if inner is not None:
            inner.close()

    async def wait_closed(self, timeout: float) -> None:
        """Wait until the transport is closed, at most ``timeout`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._closed)
                return
        # A peer that takes no bytes would keep the transport open for ever.
        self.abort()


async def open_through(loop: asyncio.AbstractEventLoop, url: str, server: Server) -> socket.socket:
    """A socket that is connected to the server; ConnectError when the proxy refuses or is not there."""
    proxy = parse_proxy(url)
    try:
        opened = await _connected(loop, proxy.host, proxy.port)
    except OSError as error:
        raise ConnectError(f"the proxy {proxy}: {error}") from None
    try:
        conversation = talk(proxy, server.host, server.port)
        data, wanted = next(conversation)
        while True:
            await loop.sock_sendall(opened, data)
            data, wanted = conversation.send(await loop.sock_recv(opened, wanted))
    except StopIteration:
        return opened
    except BaseException:
        opened.close()
        raise


async def _connected(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    error: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        opened = socket.socket(family, kind, protocol)
        # The loop's calls on sockets need that.
        opened.setblocking(False)
        try:
            await loop.sock_connect(opened, address)
        except OSError as reason:
            opened.close()
            error = reason
        except BaseException:
            opened.close()
            raise
        else:
            return opened
    raise error
