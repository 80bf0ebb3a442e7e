"""Coroutines over a Pipe before its connection speaks its protocol: the first bytes, the TLS handshake,
the head of an HTTP message. The callers set the time limits. `Arrivals` are the tasks of such sockets.
"""

import asyncio
import ssl
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from penstock.server.http_head import END, MAX_HEAD_BYTES
from penstock.server.transports.pipe import Pipe, PipeClosed
from penstock.server.transports.tls import TlsInfo, is_pinned, tls_info_of
from penstock.server.units import SECOND_NS

if TYPE_CHECKING:
    from penstock.server.settings.tls import Tls
    from penstock.server.transports.transport import Transport

FIRST_BYTES = 4096  # read at once while looking what comes


class HandshakeFailed(Exception):
    """The client violated the handshake. `quiet`: it only opened a connection, as a probe does."""

    def __init__(self, text: str, *, quiet: bool = False) -> None:
        """The text is for the log."""
        super().__init__(text)
        self.quiet = quiet


async def wait_readable(pipe: Pipe) -> None:
    """Wait until the socket is readable. Before closing the pipe meanwhile, call forget()."""
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
    """The head of an HTTP message without its empty line, and the bytes that came behind it; None when
    the head is longer than MAX_HEAD_BYTES. The caller sets the time limit. PipeClosed.
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
    """The first bytes, which stay to be read: at least `count`, or what came in time. PipeClosed."""
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
    """The TLS handshake; HandshakeFailed, or TimeoutError."""
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
    """The TLS handshake with somebody who calls us, and what it has told; `first`: nothing was said
    before it. HandshakeFailed, also when the certificate is not one of those that are pinned, or
    TimeoutError.
    """
    await shake_hands(pipe, context, timeout_ns)
    assert pipe.tls is not None
    tls_info = tls_info_of(pipe.tls, first=first)
    if not is_pinned(tls_info, tls.pinned_certs):
        raise HandshakeFailed("the certificate is not in pinned_certs")
    return tls_info


class Arrivals:
    """Sockets on their way to the core, a task each."""

    def __init__(self) -> None:
        """There are none."""
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, way: Coroutine[object, object, None], transport: "Transport | None") -> None:
        """Let one go its way; if the core has a connection for it already, closing that ends it."""
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
        """Give up all of them."""
        for task in list(self._tasks):
            task.cancel()


def ssl_reason(problem: ssl.SSLError) -> str:
    """What OpenSSL found, in words."""
    verify = getattr(problem, "verify_message", "")
    reason = (problem.reason or str(problem)).replace("_", " ").lower()
    return f"{reason}: {verify}" if verify else reason
