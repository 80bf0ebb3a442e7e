"""Coroutines over a Pipe before its connection carries its protocol: the first bytes, the TLS handshake, the
head of an HTTP message. The callers set the time limits. `Arrivals` has the tasks of such sockets.
"""

import asyncio
import ssl
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from pelton.server.http_head import END, MAX_HEAD_BYTES
from pelton.server.transports.pipe import Pipe, PipeClosed
from pelton.server.transports.tls import TlsInfo, tls_info_of
from pelton.server.units import SECOND_NS

if TYPE_CHECKING:
    from pelton.server.settings.tls import Tls
    from pelton.server.transports.transport import Transport

FIRST_BYTES = 4096  # read at once to find out the protocol


class HandshakeFailed(Exception):
    """The client violated the handshake. `quiet`: it only opened a connection, as a probe does."""

    def __init__(self, text: str, *, quiet: bool = False) -> None:
        """The text is for the log."""
        super().__init__(text)
        self.quiet = quiet


async def wait_readable(pipe: Pipe) -> None:
    """Wait until the socket is readable. Call forget() before closing the pipe meanwhile."""
    loop = asyncio.get_running_loop()
    came: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not came.done():
            came.set_result(None)

    loop.add_reader(pipe.fileno(), tell)
    try:
        await came
    finally:
        if not pipe.closed:
            loop.remove_reader(pipe.fileno())


async def receive_head(pipe: Pipe) -> tuple[bytes, bytes] | None:
    """The head of an HTTP message without its empty line, and the bytes after it.

    None when the head is longer than MAX_HEAD_BYTES. The caller sets the time limit. Raises
    PipeClosed.
    """
    data = b""
    while END not in data:
        if len(data) > MAX_HEAD_BYTES:
            return None
        got = bytes(pipe.receive())
        data += got
        if not got:
            await wait_readable(pipe)
    head, _, rest = data.partition(END)
    return head, rest


def forget(pipe: Pipe, loop: asyncio.AbstractEventLoop) -> None:
    """Stop waiting for the socket."""
    if not pipe.closed:
        loop.remove_reader(pipe.fileno())


async def peek(pipe: Pipe, count: int, seconds: float) -> bytes:
    """The first bytes, which remain readable: at least `count`, fewer at the time limit. Raises
    PipeClosed.
    """
    data = b""
    try:
        async with asyncio.timeout(seconds):
            while len(data) < count:
                got = bytes(pipe.receive())
                data += got
                if not got:
                    await wait_readable(pipe)
    except TimeoutError:
        pass
    finally:
        pipe.unread(data)
    return data


async def shake_hands(
    pipe: Pipe,
    context: ssl.SSLContext,
    timeout_ns: int,
    *,
    server_side: bool = True,
    hostname: str | None = None,
) -> None:
    """Do the TLS handshake. Raises HandshakeFailed, TimeoutError."""
    pipe.start_tls(context, server_side=server_side, hostname=hostname)
    try:
        async with asyncio.timeout(timeout_ns / SECOND_NS):
            while not pipe.shake():
                await wait_readable(pipe)
    except PipeClosed:
        raise HandshakeFailed(
            "the client closed the connection during the handshake", quiet=True
        ) from None
    except ssl.SSLError as problem:
        raise HandshakeFailed(ssl_reason(problem)) from None


async def secure(
    pipe: Pipe, context: ssl.SSLContext, tls: "Tls", timeout_ns: int, *, first: bool = False
) -> TlsInfo:
    """Do the TLS handshake with a connecting client or server; returns its facts.

    `first`: the handshake came before INFO. HandshakeFailed, also when the certificate is not a
    pinned one, or TimeoutError.
    """
    await shake_hands(pipe, context, timeout_ns)
    assert pipe.tls is not None
    tls_info = tls_info_of(pipe.tls, first=first)
    if not tls_info.is_pinned(tls.pinned_certs):
        raise HandshakeFailed("the certificate is not in pinned_certs")
    return tls_info


class Arrivals:
    """The sockets in a handshake, with one task each."""

    def __init__(self) -> None:
        """Start without sockets."""
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, way: Coroutine[object, object, None], transport: "Transport | None") -> None:
        """Start a task for a socket. When the core has a connection for it already, closing that
        ends the task.
        """
        loop = asyncio.get_running_loop()
        task = loop.create_task(way)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if transport is not None:
            pipe = transport.pipe

            def abandon() -> None:
                forget(pipe, loop)
                task.cancel()

            transport.on_close = abandon

    def close(self) -> None:
        """Cancel all tasks."""
        for task in list(self._tasks):
            task.cancel()


def ssl_reason(problem: ssl.SSLError) -> str:
    """OpenSSL's error in words."""
    verify = getattr(problem, "verify_message", "")
    reason = (problem.reason or str(problem)).replace("_", " ").lower()
    return f"{reason}: {verify}" if verify else reason
