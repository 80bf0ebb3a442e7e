"""What happens on a connection: the events that its state machine gives to its caller, and the lines of
the protocol, for people who want to see them.

In a stream of bytes payloads are skipped and secrets hidden::

    b"PUB a 5\\r\\nhel" + b"lo\\r\\nPING\\r\\n"   ─►   "PUB a 5", "PING"
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from ..base.message import BaseMessage

if TYPE_CHECKING:
    from pelton.errors import PeltonError

    from ..base.addresses import Server
    from ..base.mailbox import Interest
    from .info import ServerInfo


class Connected(NamedTuple):
    """The handshake is done; subscriptions and kept output are about to be sent."""

    info: ServerInfo
    again: bool
    """Whether there was a connection before this one."""


class TlsRequired(NamedTuple):
    """The caller must wrap the transport in TLS now, then call ``tls_established``."""

    server: Server


class InfoChanged(NamedTuple):
    """The server sent INFO again: other addresses, another payload limit, or lame duck mode."""

    info: ServerInfo


class LameDuck(NamedTuple):
    """The server is about to stop."""

    info: ServerInfo


class Pong(NamedTuple):
    """The answer to the ping of ``waiter``."""

    waiter: object


class ServerComplaint(NamedTuple):
    """A -ERR that does not end the connection, or an operation that was not sent because one would end it."""

    error: PeltonError


class Ended(NamedTuple):
    """A subscription received its last message."""

    interest: Interest


class Abandoned(NamedTuple):
    """The object that takes the messages of a subscription was garbage collected."""

    interest: Interest


class Disconnected(NamedTuple):
    """The connection is over; ``waiters`` are those of unanswered pings."""

    error: PeltonError | None
    waiters: list[object]


Event: TypeAlias = (
    BaseMessage
    | Connected
    | TlsRequired
    | InfoChanged
    | LameDuck
    | Pong
    | ServerComplaint
    | Ended
    | Abandoned
    | Disconnected
)


Direction: TypeAlias = Literal["in", "out"]
OnProtocol: TypeAlias = Callable[[Direction, str], object]
"""Gets each line of the protocol: "in" from the server, "out" to it."""

_PAYLOAD = re.compile(rb"H?(?:PUB|MSG)[ \t]", re.IGNORECASE)
_SECRET = re.compile(r'("(?:pass|auth_token|jwt|sig)"\s*:\s*)"(?:[^"\\]|\\.)*"')
LINE_MAX = 1024 * 1024


class Lines:
    """Splits the bytes of one direction."""

    def __init__(self) -> None:
        """At the beginning of a line."""
        self._held = b""
        self._skip = 0  # bytes of a payload, and its line end, that are still to come

    def feed(self, data: bytes) -> list[str]:
        """The lines that end in these bytes."""
        found: list[str] = []
        at = 0
        while at < len(data):
            if self._skip:
                taken = min(self._skip, len(data) - at)
                self._skip -= taken
                at += taken
                continue
            end = data.find(b"\n", at)
            if end < 0:
                # Bounded: a peer that does not speak NATS may never send a line end.
                self._held = (self._held + data[at:])[:LINE_MAX]
                break
            line = (self._held + data[at:end]).rstrip(b"\r")
            self._held = b""
            at = end + 1
            if _PAYLOAD.match(line):
                size = line.split()[-1]
                self._skip = int(size) + 2 if size.isdigit() else 0
            found.append(hide_secrets(line.decode("utf-8", "replace")))
        return found


def hide_secrets(line: str) -> str:
    """The line with ``***`` for passwords, tokens, JWTs and signatures."""
    return _SECRET.sub(r'\1"***"', line) if line[:7].upper() == "CONNECT" else line


class ProtocolLines:
    """Tells a function each line of a connection."""

    def __init__(self, tell: OnProtocol) -> None:
        """``tell`` gets the direction and the line."""
        self._tell = tell
        self.restart()

    def restart(self) -> None:
        """A new connection begins."""
        self._in, self._out = Lines(), Lines()

    def received(self, data: bytes | memoryview) -> None:
        """Bytes came from the server."""
        for line in self._in.feed(bytes(data)):
            self._tell("in", line)

    def sent(self, data: bytes) -> None:
        """Bytes go to the server."""
        for line in self._out.feed(data):
            self._tell("out", line)
