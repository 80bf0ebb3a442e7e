"""One body over both servers: start one with a configuration, connect by hand, see what it says."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

from pelton import nkeys
from tests.peers import available_servers, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.peers import ServerProcess

KINDS = available_servers()
OK = "PONG"
VIOLATION = "-ERR 'Authorization Violation'"


@contextlib.contextmanager
def configured(kind: str, folder: Path, text: str) -> Iterator[ServerProcess]:
    """A server with this configuration file."""
    path = folder / f"{kind}.conf"
    path.write_text(text)
    with running_server(kind, "-c", str(path)) as server:
        yield server


class Talk:
    """A connection whose protocol lines are written by the test."""

    def __init__(self, server: ServerProcess) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        self.data = b""
        self.info: dict[str, Any] = json.loads(self.line()[5:])

    def line(self) -> str:
        """The next line; "" when the server has closed."""
        while b"\r\n" not in self.data:
            try:
                got = self.socket.recv(65536)
            except ConnectionResetError:
                got = b""
            if not got:
                return ""
            self.data += got
        line, _, self.data = self.data.partition(b"\r\n")
        return line.decode()

    def send(self, text: str) -> None:
        self.socket.sendall(text.replace("\n", "\r\n").encode())

    def say(self, text: str) -> str:
        """Send lines; what comes back first that is no greeting, PING or +OK."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send(text)
        while (line := self.line()).startswith(("INFO", "PING", "+OK")):
            if line == "PING":
                self.send("PONG\n")
        return line

    def connect(self, **shown: Any) -> str:
        """CONNECT and PING: "PONG", or the error."""
        fields = {"verbose": False, "pedantic": False, "protocol": 1, **shown}
        return self.say(f"CONNECT {json.dumps(fields)}\nPING\n")

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def attempt(server: ServerProcess, sign: str = "", **shown: Any) -> str:
    """Connect with these fields of CONNECT, signing the nonce with a seed; what was answered."""
    with Talk(server) as talk:
        if sign:
            shown["sig"] = nkeys.sign_nonce(sign, talk.info["nonce"])
        return talk.connect(**shown)
