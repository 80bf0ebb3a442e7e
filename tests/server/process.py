"""Real server processes for tests: start, wait (bounded) until they answer, talk, stop."""

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

PATIENCE_SECONDS = 20.0


class GoneError(AssertionError):
    """What was waited for did not come."""


class ServerProcess:
    """A penstock-server as a child process; its stderr is read as it comes."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "penstock.server", *arguments],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )
        self.text = ""

    @property
    def pid(self) -> int:
        return self.child.pid

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the log has a match of the pattern."""
        assert self.child.stderr is not None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = re.search(pattern, self.text)
            if found:
                return found
            left = deadline - time.monotonic()
            ready = select.select([self.child.stderr], [], [], max(left, 0))[0]
            data = os.read(self.child.stderr.fileno(), 65536) if ready else b""
            if not data:
                raise GoneError(f"no {pattern!r} in the log:\n{self.text}")
            self.text += data.decode()

    def port(self) -> int:
        """The port for clients, once it listens."""
        self.wait_for("Server is ready")
        return int(self.wait_for(r"Listening for client connections on \S+:(\d+)")[1])

    def http_port(self) -> int:
        """The port for monitoring."""
        return int(self.wait_for(r"Starting http monitor on \S+:(\d+)")[1])

    def signal(self, number: signal.Signals) -> None:
        self.child.send_signal(number)

    def end(self) -> int:
        """Wait until it has ended; the rest of its log is in text."""
        assert self.child.stderr is not None
        try:
            _, rest = self.child.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.communicate()
            raise GoneError(f"the server did not end:\n{self.text}") from None
        self.text += rest.decode()
        return self.child.returncode

    def stop(self) -> int:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
        return self.end()

    def cpu(self) -> float:
        """Seconds of processor time so far: the same work costs about the same beside a load."""
        return time.clock_gettime(~self.pid << 3 | 2)  # another process's: clock_getcpuclockid(3)

    def memory(self) -> int:
        """Resident bytes."""
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def running(*arguments: str, env: dict[str, str] | None = None) -> Iterator[ServerProcess]:
    """A server on a free loopback port; it is stopped and has to end well."""
    server = ServerProcess("-a", "127.0.0.1", "-p", "-1", *arguments, env=env)
    try:
        server.port()
        yield server
    finally:
        status = server.stop()
    assert status == 0, server.text
    assert "Internal error" not in server.text, server.text


class Wire:
    """A bare connection: bytes in, bytes out."""

    def __init__(self, port: int, *, hello: str | None = '{"verbose":false}') -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        self.data = b""
        self.info = json.loads(self.line()[5:])
        if hello is not None:
            self.send(f"CONNECT {hello}\r\n")

    def send(self, text: str | bytes) -> None:
        self.socket.sendall(text.encode() if isinstance(text, str) else text)

    def read_until(self, mark: bytes) -> bytes:
        """Everything up to and with the mark."""
        self.answer_ping()
        while mark not in self.data:
            got = self.socket.recv(65536)
            if not got:
                raise GoneError(f"closed before {mark!r}, after {self.data!r}")
            self.data += got
            self.answer_ping()
        head, _, self.data = self.data.partition(mark)
        return head + mark

    def answer_ping(self) -> None:
        """On a slow day the server's own PING comes between: it is answered and not shown."""
        while self.data.startswith(b"PING\r\n"):
            self.data = self.data[6:]
            with contextlib.suppress(OSError):
                self.send("PONG\r\n")

    def line(self) -> str:
        return self.read_until(b"\r\n").decode().rstrip("\r\n")

    def ping(self) -> bytes:
        """A round trip; what came before the PONG."""
        self.send("PING\r\n")
        return self.read_until(b"PONG\r\n")[:-6]

    def rest(self) -> bytes:
        """Everything until the server closes."""
        with contextlib.suppress(ConnectionResetError):
            while got := self.socket.recv(65536):
                self.data += got
        self.answer_ping()
        data, self.data = self.data, b""
        return data

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
