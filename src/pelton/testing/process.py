"""A pelton-server, or another server with its flags, as a child process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import weakref
from typing import IO, TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence


class StartFailedError(RuntimeError):
    """The server did not start; the text has its output."""


class LocalServer:
    """A server on a free loopback port with JetStream on its own store.

    Example::

        with LocalServer() as server:  # pelton-server, a child process
            print(server.url)

    In `with` it waits until the server is ready, and stops it at the end. `start` after `end`,
    `kill` or `stop` restarts the server on the same port and the same store, except that `stop`
    removes a temporary store. When the object is garbage-collected, or the program ends, the server
    is killed.
    """

    POLL_SECONDS: ClassVar[float] = 0.005
    START_SECONDS: ClassVar[float] = 30.0
    STOP_SECONDS: ClassVar[float] = 30.0

    def __init__(
        self,
        *,
        options: Sequence[str] = (),
        store: str | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        """Start at once; `options` are more options of pelton-server, `store` a folder to keep.

        `command`: another server with the same flags, such as ["nats-server"].
        """
        self._options = list(options)
        self._program = list(command or [sys.executable, "-m", "pelton.server"])
        self._folder = tempfile.mkdtemp(prefix="pelton-test-")
        self._children: list[subprocess.Popen[bytes]] = []  # the running process, if any
        weakref.finalize(self, _end_all, self._children, self._folder)
        self.store = store or os.path.join(self._folder, "store")
        self.port = 0
        """The client port; known once the server is ready."""
        self.monitoring_url = ""
        """The monitoring port, if the options ask for one."""
        self._deadline = 0.0
        self.start()

    @property
    def url(self) -> str:
        """The URL for clients; empty before the server is ready."""
        return f"nats://127.0.0.1:{self.port}" if self.port else ""

    @property
    def _child(self) -> subprocess.Popen[bytes] | None:
        return self._children[0] if self._children else None

    @property
    def pid(self) -> int:
        """The process id; 0 if there is no process."""
        return self._child.pid if self._child is not None else 0

    def start(self) -> None:
        """Start the process; see `wait_ready`."""
        if self._children:
            raise RuntimeError("the server runs already")
        os.makedirs(self._folder, mode=0o700, exist_ok=True)  # `stop` has removed the folder
        command = [*self._program, "-a", "127.0.0.1"]
        command += ["-p", str(self.port or -1), "-js", "-sd", self.store]
        command += ["--ports_file_dir", self._folder, *self._options]
        with open(self._log_path, "ab") as log:
            self._children.append(self._started(command, log))
        self._deadline = time.monotonic() + self.START_SECONDS

    def _started(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def is_ready(self) -> bool:
        """Whether the server is ready. StartFailedError: it has ended or takes too long."""
        child = self._child
        if child is None:
            raise StartFailedError("the server was stopped")
        try:
            with open(os.path.join(self._folder, f"nats-server_{child.pid}.ports"), "rb") as file:
                ports = json.load(file)
        except FileNotFoundError:
            if child.poll() is not None:
                raise StartFailedError(f"the server has ended: {self.log()}") from None
            if time.monotonic() > self._deadline:
                self.kill()
                raise StartFailedError(f"the server does not come up: {self.log()}") from None
            return False
        self.port = int(ports["nats"][0].rpartition(":")[2])
        self.monitoring_url = ports.get("monitoring", [""])[0]
        return True

    def wait_ready(self) -> None:
        """Wait until the server is ready; StartFailedError."""
        while not self.is_ready():
            time.sleep(self.POLL_SECONDS)

    def log(self) -> str:
        """The log so far; "" after `stop`."""
        if not os.path.exists(self._log_path):
            return ""
        with open(self._log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    @property
    def _log_path(self) -> str:
        return os.path.join(self._folder, "log")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server."""
        if self._child is not None:
            self._child.send_signal(number)

    def end(self) -> int:
        """Stop the server normally; its exit status (0 if it was not running). Keeps the store."""
        if not self._children:
            return 0
        child = self._children.pop()
        child.terminate()
        try:
            return child.wait(self.STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()

    def kill(self) -> None:
        """Kill the server, as in a crash; keeps the store."""
        if self._children:
            child = self._children.pop()
            child.kill()
            child.wait()

    def stop(self) -> None:
        """Stop the server and remove a temporary store."""
        self.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> LocalServer:
        """Wait until the server is ready."""
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self.stop()


def _end_all(children: list[subprocess.Popen[bytes]], folder: str) -> None:
    """Kill the server: the object is gone and nobody reads the store any more."""
    for child in children:
        child.kill()
        child.wait()
    shutil.rmtree(folder, ignore_errors=True)
