"""Real server processes for tests: start, wait (bounded) until they answer, talk, stop."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO

from tests import copies

PATIENCE_SECONDS = 60.0


class GoneError(AssertionError):
    """What was waited for did not come."""


class ServerLog:
    """What a child writes to its stderr, read all the time so that the child never waits for a
    reader. The beginning and the newest lines are kept; what a very long log has between them is
    counted and forgotten.
    """

    HEAD = 1 << 20
    TAIL = 4 << 20

    def __init__(self, pipe: IO[bytes]) -> None:
        self._head, self._tail = bytearray(), bytearray()
        self._left_out = 0
        self._ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._reader.start()

    def _read(self, pipe: IO[bytes]) -> None:
        with pipe:
            while data := os.read(pipe.fileno(), 65536):
                with self._changed:
                    self._keep(data)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _keep(self, data: bytes) -> None:
        room = self.HEAD - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if (more := len(self._tail) - self.TAIL) > 0:
            more = self._tail.find(b"\n", more) + 1 or more
            del self._tail[:more]
            self._left_out += more

    @property
    def text(self) -> str:
        with self._changed:
            gap = b"\n[%d bytes left out]\n" % self._left_out if self._left_out else b""
            return bytes(self._head + gap + self._tail).decode(errors="replace")

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the log has a match of the pattern."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._changed:
            while not (found := re.search(pattern, self.text)):
                if self._ended or not self._changed.wait(deadline - time.monotonic()):
                    raise GoneError(f"no {pattern!r} in the log:\n{self.text}")
        return found

    def join(self) -> None:
        """Wait until the child has closed it."""
        self._reader.join(PATIENCE_SECONDS)


class ServerProcess:
    """A pelton-server as a child process, or another child that has been started."""

    def __init__(
        self,
        *arguments: str,
        env: dict[str, str] | None = None,
        child: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.child = child or copies.Popen(
            [sys.executable, "-m", "pelton.server", *arguments],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )
        assert self.child.stderr is not None
        self.log = ServerLog(self.child.stderr)

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def text(self) -> str:
        """The log so far; all of it after the end."""
        return self.log.text

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the log has a match of the pattern."""
        return self.log.wait_for(pattern)

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
        """Wait until it has ended; all of its log is in text."""
        try:
            status = self.child.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
            raise GoneError(f"the server did not end:\n{self.text}") from None
        self.log.join()
        return status

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
