"""A small HTTP/1.1 server for monitoring: GET and HEAD, no bodies, one answer for each request,
keep-alive.

Limits: a request head of 16 KiB, 10 seconds to send it, 256 connections at once. Knows nothing of
what is asked: a callback answers (path, query). It reads with asyncio's streams, so a slow reader
of metrics holds up nobody.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, unquote

if TYPE_CHECKING:
    import ssl

MAX_HEAD_BYTES = 16 * 1024
HEAD_SECONDS = 10.0
IDLE_SECONDS = 60.0
MAX_CONNECTIONS = 256

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Answer(NamedTuple):
    """What to send back."""

    status: int
    kind: str  # the content type
    body: bytes


Handle = Callable[[str, dict[str, str]], Answer]


class HttpServer:
    """Serves one callback on listening sockets."""

    def __init__(self, handle: Handle, failed: Callable[[str], object]) -> None:
        """handle(path, query) -> Answer; failed(text) is told of an exception in it (the client
        gets 500).
        """
        self._handle = handle
        self._failed = failed
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(
        self, sockets: list[socket.socket], context: "ssl.SSLContext | None" = None
    ) -> None:
        """Begin to serve, with TLS when there is a context."""
        for listening in sockets:
            server = await asyncio.start_server(
                self._serve, sock=listening, limit=MAX_HEAD_BYTES, ssl=context
            )
            self._servers.append(server)

    async def close(self) -> None:
        """Stop: nothing is accepted any more, open connections end."""
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        try:
            if len(self._tasks) <= MAX_CONNECTIONS:
                await self._converse(reader, writer)
        except (
            OSError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            TimeoutError,
            asyncio.CancelledError,
        ):
            pass  # the peer went away or sent nothing, or the server stops: there is nobody to tell
        finally:
            if task is not None:
                self._tasks.discard(task)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wait = HEAD_SECONDS
        while True:
            async with asyncio.timeout(wait):
                head = await reader.readuntil(b"\r\n\r\n")
            answer, keep, send_body = self._answer(head)
            writer.write(_encode(answer, keep, send_body))
            async with asyncio.timeout(HEAD_SECONDS):
                await writer.drain()
            if not keep:
                return
            wait = IDLE_SECONDS

    def _answer(self, head: bytes) -> tuple[Answer, bool, bool]:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return text_answer(400, "400 Bad Request"), False, True
        method, target, version = words
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:])
        }
        connection = headers.get("connection", "").lower()
        keep = connection != "close" and (version != "HTTP/1.0" or connection == "keep-alive")
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            keep = False  # the body is not read, so nothing after it can be
        if method not in ("GET", "HEAD"):
            return text_answer(405, "405 method not allowed"), False, True
        path, _, query = target.partition("?")
        try:
            answer = self._handle(unquote(path), dict(parse_qsl(query, keep_blank_values=True)))
        except Exception as error:
            self._failed(f"HTTP {path}: {error!r}")
            answer = text_answer(500, "500 internal error")
        return answer, keep, method == "GET"


def text_answer(status: int, text: str) -> Answer:
    """A plain sentence."""
    return Answer(status, "text/plain; charset=utf-8", text.encode())


def _encode(answer: Answer, keep: bool, send_body: bool) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Unknown')}"]
    if answer.kind == "application/json":
        lines.append("Access-Control-Allow-Origin: *")
    lines += [
        f"Content-Type: {answer.kind}",
        time.strftime("Date: %a, %d %b %Y %H:%M:%S GMT", time.gmtime()),
        f"Content-Length: {len(answer.body)}",
    ]
    if not keep:
        lines.append("Connection: close")
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    return head + answer.body if send_body else head
