"""Server processes for tests that speak to one over TCP: ours, and nats-server where there is one.

A server is started on a free port of 127.0.0.1 with a store folder of its own. Knows the flags that
both servers share and nothing else about them.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

START_SECONDS = 20
STOP_SECONDS = 20


def nats_server() -> str | None:
    """The nats-server to compare with: $NATS_SERVER, on PATH, or where Debian puts it."""
    named = os.environ.get("NATS_SERVER")
    return named or shutil.which("nats-server") or shutil.which("/usr/sbin/nats-server")


def penstock_server() -> list[str]:
    """Our server as a user starts it; as a module where the package is not installed."""
    script = Path(sys.executable).with_name("penstock-server")
    return [str(script)] if script.exists() else [sys.executable, "-m", "penstock.server"]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Server:
    """A server process that can be stopped, killed and started again on the same port and store."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.log = folder / "server.log"
        flags = ["-js", "-sd", str(folder / "store"), "-a", "127.0.0.1", "-p", str(self.port)]
        self.command = [*command, *flags]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and return when it greets a client."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), 1) as client,
            ):
                if client.recv(4).startswith(b"INFO"):
                    return
            time.sleep(0.01)  # for the process to come up, not for time to pass
        raise RuntimeError(f"{self.command} did not start:\n{self.log.read_text()[-2000:]}")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it and wait; its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def restart(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.stop(how)
        self.start()


@contextlib.contextmanager
def running(command: list[str], folder: Path) -> Iterator[Server]:
    """A server for the length of a `with`."""
    server = Server(command, folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
