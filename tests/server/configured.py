"""A server of either kind with a configuration file, for tests of listeners and their TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests import copies
from tests.peers import command_of, free_port

PATIENCE_SECONDS = 60.0


class Configured:
    """A running server; `log` is what it has said, `ports` are those that `{name}` stood for."""

    def __init__(self, kind: str, config: str) -> None:
        self.kind = kind
        self._folder = tempfile.TemporaryDirectory(prefix="pelton-test-")
        self.path = Path(self._folder.name)
        self.ports = {name: free_port() for name in ("port", "ws", "http", "leaf")}
        self.config = self.path / "server.conf"
        self.write(config)
        command = command_of(kind)
        assert command is not None
        with (self.path / "log").open("wb") as log:
            self.process = copies.Popen(
                [*command, "-D", "-c", str(self.config)], stdout=log, stderr=log
            )
        self.wait_for("Server is ready")

    def write(self, config: str) -> None:
        """Replace the file; ``@port`` and the like stand for free ports."""
        for name, port in self.ports.items():
            config = config.replace(f"@{name}", str(port))
        self.config.write_text(f"{config}\n")

    @property
    def log(self) -> str:
        return (self.path / "log").read_text(errors="replace")

    def wait_for(self, text: str, count: int = 1) -> None:
        """Until the log has a text so many times."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.log.count(text) < count:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(f"no {text!r} in the log:\n{self.log}")
            time.sleep(0.01)

    def connect(self, name: str = "port") -> socket.socket:
        """A connected socket with a time limit."""
        return socket.create_connection(("127.0.0.1", self.ports[name]), PATIENCE_SECONDS)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(PATIENCE_SECONDS)


@contextlib.contextmanager
def configured(kind: str, config: str) -> Iterator[Configured]:
    """A server for the length of a block; ours has to end well and may not have tripped."""
    server = Configured(kind, config)
    try:
        yield server
        assert server.process.poll() is None, server.log
    finally:
        status = server.stop()
        log = server.log
        server._folder.cleanup()
    if kind == "pelton":
        assert status == 0, log
        for trouble in ("Internal error", "Traceback", "never retrieved"):
            assert trouble not in log, log


def line_of(connection: socket.socket) -> bytes:
    """One line, byte by byte, so that nothing behind it is taken."""
    data = b""
    while not data.endswith(b"\n"):
        got = connection.recv(1)
        if not got:
            break
        data += got
    return data


def rest_of(connection: socket.socket) -> bytes:
    """Everything until it is closed."""
    data = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while got := connection.recv(65536):
            data += got
    return data
