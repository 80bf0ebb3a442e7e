"""A small HTTP/1.1 server for monitoring: GET and HEAD, no bodies, keep-alive.

Limits: a request head of 16 KiB, 10 seconds to send it (and for the TLS handshake before), 256
connections, 128 of one address. A new connection is always accepted: at the limit, the server closes
the connection that has been silent longest, of the address with the most connections. So a probe gets
its answer while other clients hold connections open. A callback answers (path, query). Long answers are
made in slices, one slice per round of the event loop, whoever asked. Connections use asyncio's streams, so
a client that reads slowly delays no other client.
"""

import asyncio
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pelton.server.auth.failure_delay import group
from pelton.server.http_head import END, MAX_HEAD_BYTES, parse_head
from pelton.server.http_target import parse_target
from pelton.server.transports.listener import listen

if TYPE_CHECKING:
    import ssl

HEAD_SECONDS = 10.0
IDLE_SECONDS = 60.0
MAX_CONNECTIONS = 256
MAX_OF_ADDRESS = 128
# Accepted per round of the event loop: few, so that a new connection is read, which takes some
# rounds, before others take its place.
ACCEPTED_AT_ONCE = 8
LOOK_AWAY_SECONDS = 0.5

_REASONS = {
    200: "OK",
    307: "Temporary Redirect",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Answer(NamedTuple):
    """The response to a request."""

    status: int
    kind: str  # the content type
    body: bytes
    location: str = ""  # of a redirect


# A generator makes the answer in slices: it yields between them, and returns the answer.
Handle = Callable[[str, dict[str, str]], Answer | Generator[None, None, Answer]]


class Visit:
    """A connection of the monitoring port."""

    __slots__ = ("address", "begun", "socket", "task")

    def __init__(self, connected: socket.socket, address: str) -> None:
        """A connection that was just accepted."""
        self.socket = connected
        self.address = address  # the address under which it counts
        self.task: asyncio.Task[None] | None = None
        self.begun = False  # its task owns the socket


class Seats:
    """The open connections by address, the most recently active one last."""

    def __init__(self, most: int, most_of_address: int) -> None:
        """Start without connections."""
        self._most = most
        self._most_of_address = most_of_address
        self._of: dict[str, OrderedDict[Visit, None]] = {}
        self._taken = 0

    def take(self, visit: Visit) -> Visit | None:
        """Add a connection; returns the connection to close in its place, or None."""
        own = self._of.setdefault(visit.address, OrderedDict())
        own[visit] = None
        self._taken += 1
        if len(own) > self._most_of_address:
            crowd = own
        elif self._taken > self._most:
            crowd = max(self._of.values(), key=len)
        else:
            return None
        evicted = next(iter(crowd))
        self.leave(evicted)
        return evicted

    def refresh(self, visit: Visit) -> None:
        """Record that a connection has sent a whole request."""
        own = self._of.get(visit.address)
        if own is not None and visit in own:
            own.move_to_end(visit)

    def leave(self, visit: Visit) -> None:
        """Remove a connection; ignored when it is not there."""
        own = self._of.get(visit.address)
        if own is None or visit not in own:
            return
        del own[visit]
        self._taken -= 1
        if not own:
            del self._of[visit.address]


class HttpServer:
    """Serves one callback on listening sockets."""

    def __init__(self, handle: Handle, failed: Callable[[str], object]) -> None:
        """handle(path, query) -> Answer. When it raises, failed(text) is called and the client gets
        500.
        """
        self._handle = handle
        self._failed = failed
        self._listening: list[socket.socket] = []
        self._context: ssl.SSLContext | None = None
        self._seats = Seats(MAX_CONNECTIONS, MAX_OF_ADDRESS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._slicing = asyncio.Lock()

    async def open(
        self, sockets: list[socket.socket], context: "ssl.SSLContext | None" = None
    ) -> None:
        """Serve on bound sockets, with TLS when a context is given. StartError when another process
        has listened on a port since it was bound.
        """
        self._context = context
        self._listening = sockets
        for listening in sockets:
            listen(listening, "-m")
            self._watch(listening)

    async def close(self) -> None:
        """Accept no further connections and close the open ones."""
        listening, self._listening = self._listening, []
        for each in listening:
            asyncio.get_running_loop().remove_reader(each.fileno())
            each.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- accepting connections

    def _watch(self, listening: socket.socket) -> None:
        if listening in self._listening:
            loop = asyncio.get_running_loop()
            loop.add_reader(listening.fileno(), self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Accept waiting connections, a few per round."""
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connected, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no free descriptor: the socket stays readable, so stop watching it
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening.fileno())
                loop.call_later(LOOK_AWAY_SECONDS, self._watch, listening)
                return
            connected.setblocking(False)
            visit = Visit(connected, group(str(address[0])))
            visit.task = asyncio.get_running_loop().create_task(self._serve(visit))
            visit.task.add_done_callback(partial(self._gone, visit))
            self._tasks.add(visit.task)
            evicted = self._seats.take(visit)
            if evicted is not None and evicted.task is not None:
                evicted.task.cancel()

    def _gone(self, visit: Visit, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._seats.leave(visit)
        if not visit.begun:
            visit.socket.close()

    async def _serve(self, visit: Visit) -> None:
        visit.begun = True
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_HEAD_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport: asyncio.Transport | None = None
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                transport, _ = await loop.connect_accepted_socket(
                    lambda: protocol, visit.socket, ssl=self._context
                )
            writer = asyncio.StreamWriter(transport, protocol, reader, loop)
            await self._converse(reader, writer, visit)
            transport.close()
        except (
            OSError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            TimeoutError,
            asyncio.CancelledError,
        ):
            # the client closed or was silent, the connection was replaced, or the server stops
            if transport is not None:
                transport.abort()

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, visit: Visit
    ) -> None:
        wait = HEAD_SECONDS
        while True:
            async with asyncio.timeout(wait):
                head = await reader.readexactly(1)
            async with asyncio.timeout(HEAD_SECONDS):
                head += await reader.readuntil(END)
            self._seats.refresh(visit)
            answer, keep, send_body = await self._answer(head)
            writer.write(_encode(answer, keep, send_body))
            async with asyncio.timeout(HEAD_SECONDS):
                await writer.drain()
            if not keep:
                return
            wait = IDLE_SECONDS
            await asyncio.sleep(0)  # the next request may be buffered: let other tasks run

    async def _answer(self, head: bytes) -> tuple[Answer, bool, bool]:
        asked = parse_head(head)
        request = asked.request()
        if request is None:
            return text_answer(400, "400 Bad Request"), False, True
        method, target, version = request
        connection = asked.last("connection").lower()
        keep = connection != "close" and (version != "HTTP/1.0" or connection == "keep-alive")
        has_length = "content-length" in asked.headers and asked.last("content-length") != "0"
        if has_length or "transfer-encoding" in asked.headers:
            keep = False  # the server reads no bodies, so it can't find a request behind one
        if method not in ("GET", "HEAD"):
            return text_answer(405, "405 method not allowed"), False, True
        wanted = parse_target(target)
        if wanted is None:
            return text_answer(400, "400 Bad Request"), False, True
        if wanted.elsewhere:
            return _redirect(wanted.elsewhere), keep, method == "GET"
        try:
            made = self._handle(wanted.path, wanted.query)
            answer = await self._finished(made) if isinstance(made, Generator) else made
        except Exception as error:
            self._failed(f"HTTP {wanted.path}: {error!r}")
            answer = text_answer(500, "500 internal error")
        return answer, keep, method == "GET"

    async def _finished(self, work: Generator[None, None, Answer]) -> Answer:
        async with self._slicing:
            while True:
                try:
                    next(work)
                except StopIteration as done:
                    answer: Answer = done.value
                    return answer
                finally:
                    await asyncio.sleep(0)


def text_answer(status: int, text: str) -> Answer:
    """A plain text answer."""
    return Answer(status, "text/plain; charset=utf-8", text.encode())


def _redirect(location: str) -> Answer:
    from html import escape  # few servers send such a page

    page = f'<a href="{escape(location)}">Temporary Redirect</a>.\n\n'
    return Answer(307, "text/html; charset=utf-8", page.encode(), location)


def _encode(answer: Answer, keep: bool, send_body: bool) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Unknown')}"]
    if answer.kind == "application/json":
        lines.append("Access-Control-Allow-Origin: *")
    if answer.location:
        lines.append(f"Location: {answer.location}")
    lines += [
        f"Content-Type: {answer.kind}",
        time.strftime("Date: %a, %d %b %Y %H:%M:%S GMT", time.gmtime()),
        f"Content-Length: {len(answer.body)}",
    ]
    if not keep:
        lines.append("Connection: close")
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    return head + answer.body if send_body else head
