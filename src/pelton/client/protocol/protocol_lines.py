"""The protocol's lines in a stream of bytes, to show them; payloads are skipped and secrets hidden.

::

    b"PUB a 5\\r\\nhel" + b"lo\\r\\nPING\\r\\n"   ─►   "PUB a 5", "PING"
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, TypeAlias

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
