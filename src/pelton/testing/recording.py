"""The record of publishes, deliveries and acks, newest last.

It is the server's trace log, written to lists in place of lines. The lists are bounded: the oldest
entries go first, and ``lost`` counts them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pelton.api.subjects import AckSubject, parse_ack
from pelton.core.protocol.wire import decode_headers
from pelton.server.clients.client import Client

if TYPE_CHECKING:
    from pelton.core.broker.reactor import Connection
    from pelton.server.app import Server

KEPT = 100_000
ACK_PREFIX = "$JS.ACK."


@dataclass(frozen=True)
class Published:
    """A message that a client published."""

    subject: str
    data: bytes
    headers: dict[str, list[str]]
    reply: str
    client: str
    """The name of the client's connection, or its number."""
    time_ns: int


@dataclass(frozen=True)
class Delivered:
    """A message of a consumer that was sent to a client."""

    ack: AckSubject
    subject: str
    data: bytes
    client: str
    time_ns: int


@dataclass(frozen=True)
class Acked:
    """An ack of any kind: ``body`` begins with +ACK, -NAK, +TERM or +WPI; empty means +ACK."""

    ack: AckSubject
    body: bytes
    client: str
    time_ns: int


class Recorder:
    """The record of one broker; filled in the server's thread."""

    def __init__(self) -> None:
        """Nothing is recorded yet."""
        self.published: deque[Published] = deque(maxlen=KEPT)
        self.delivered: deque[Delivered] = deque(maxlen=KEPT)
        self.acked: deque[Acked] = deque(maxlen=KEPT)
        self.lost = 0
        self._app: Server | None = None
        self._next: Any = None  # the trace log of the settings

    def install(self, app: Server) -> None:
        """Record what a server that has just started receives and sends."""
        self._app = app
        self._next = app.event_loop.trace_log
        app.event_loop.trace_log = self

    def clear(self) -> None:
        """Forget everything."""
        self.published.clear()
        self.delivered.clear()
        self.acked.clear()
        self.lost = 0

    def _now_ns(self) -> int:
        assert self._app is not None
        return self._app.event_loop.now_ns

    def received(self, connection: Connection, line: bytes, body: bytes | None, hlen: int) -> None:
        """Called by the core for each operation of a client."""
        if self._next is not None:
            self._next.received(connection, line, body, hlen)
        words = line.split(b" ")
        if body is None or words[0] not in (b"PUB", b"HPUB"):
            return
        subject = words[1].decode("utf-8", "surrogateescape")
        client = client_name(connection)
        if subject.startswith(ACK_PREFIX):
            ack = parse_ack(subject)
            if ack is not None:
                self._keep(self.acked, Acked(ack, body[hlen:], client, self._now_ns()))
            return
        with_reply = len(words) == (4 if words[0] == b"PUB" else 5)
        reply = words[2].decode("utf-8", "surrogateescape") if with_reply else ""
        headers = headers_of(body[:hlen])
        message = Published(subject, body[hlen:], headers, reply, client, self._now_ns())
        self._keep(self.published, message)

    def sent(self, connection: Connection, data: bytes) -> None:
        """Called by the core for operations of the server."""
        if self._next is not None:
            self._next.sent(connection, data)
        at = 0
        while at < len(data):
            end = data.find(b"\r\n", at)
            if end < 0:
                return
            words = data[at:end].split()
            at = end + 2
            if not words or words[0] not in (b"MSG", b"HMSG"):
                continue
            size = int(words[-1])
            hlen = int(words[-2]) if words[0] == b"HMSG" else 0
            if len(words) == (5 if words[0] == b"MSG" else 6):
                ack = parse_ack(words[3].decode("utf-8", "surrogateescape"))
                if ack is not None:
                    subject = words[1].decode("utf-8", "surrogateescape")
                    body = data[at + hlen : at + size]
                    name = client_name(connection)
                    found = Delivered(ack, subject, body, name, self._now_ns())
                    self._keep(self.delivered, found)
            at += size + 2

    def _keep(self, kept: deque[Any], entry: object) -> None:
        if len(kept) == kept.maxlen:
            self.lost += 1
        kept.append(entry)


def client_name(connection: Connection) -> str:
    """The name that the client gave in CONNECT, or its number."""
    client = connection.session
    name = client.name if isinstance(client, Client) else ""
    return name or f"connection {connection.id}"


def headers_of(block: bytes) -> dict[str, list[str]]:
    """The headers of a message; none when the block is no header block."""
    if not block:
        return {}
    try:
        return decode_headers(block)[2]
    except ValueError:
        return {}
