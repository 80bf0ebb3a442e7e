"""The end of pull requests under a manual clock: by the machine's clock too.

A client waits for a request as long as the request says, by the machine's clock. The server's clock
stands still, so the server would never end the request: the client would report a server that does not
answer, and a later message would go to a request that nobody waits for. So each request ends after its
time by either clock.

It reads requests as the recorder reads publishes, from the server's trace log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pelton.api.calls import PullRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.core.broker.reactor import Connection
    from pelton.server.app import Server

NEXT = b".CONSUMER.MSG.NEXT."


class PullTimeouts:
    """Ends the pull requests of one broker in time; used in the server's thread."""

    def __init__(self, later: Callable[[float, Callable[[], None]], None]) -> None:
        """``later``: call after so many seconds of the machine's clock."""
        self._later = later
        self._app: Server | None = None
        self._next: Any = None  # the trace log of the settings

    def install(self, app: Server) -> None:
        """Read what a server that has just started receives."""
        self._app = app
        self._next = app.event_loop.trace_log
        app.event_loop.trace_log = self

    def received(self, connection: Connection, line: bytes, body: bytes | None, hlen: int) -> None:
        """Called by the core for each operation of a client."""
        if self._next is not None:
            self._next.received(connection, line, body, hlen)
        if body is None or NEXT not in line:
            return
        words = line.decode("utf-8", "surrogateescape").split(" ")
        if words[0] not in ("PUB", "HPUB") or len(words) != (4 if words[0] == "PUB" else 5):
            return
        expires_ns = expiry_of(body[hlen:])
        if expires_ns > 0:
            stream, consumer = words[1].split(".")[-2:]
            self._later(expires_ns / 1e9, lambda: self._end(stream, consumer, words[2]))

    def sent(self, connection: Connection, data: bytes) -> None:
        """Called by the core for operations of the server."""
        if self._next is not None:
            self._next.sent(connection, data)

    def _end(self, stream: str, consumer: str, reply: str) -> None:
        app = self._app
        if app is None or app.jetstream is None:
            return
        for account in app.jetstream.accounts():
            entry = account.streams.get(stream)
            found = entry.consumers.get(consumer) if entry is not None else None
            if found is not None:
                found.core.expire_requests(reply)
        app.event_loop.kick()


def expiry_of(body: bytes) -> int:
    """The nanoseconds after which a request ends; 0: it has no such time."""
    try:
        return msgspec.json.decode(body, type=PullRequest).expires
    except msgspec.DecodeError:
        return 0  # a number of messages, or nothing
