"""Real servers for tests: finds what is there, starts one on a free port with its own store, stops
it by its pid.

Servers: ``nats-server`` (from $NATS_SERVER, PATH or /usr/sbin), ``older``, another one (from
$NATS_SERVER_OLDER), and our own ``pelton-server``. A
nats-server of before 2.14 does less and answers otherwise: it is used only where a test says that
it can. The environment variable PELTON_TEST_SERVERS names the kinds to use, separated by commas
("pelton,nats-server"); without it, all that are found.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests import copies
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

START_TIMEOUT_S = 60.0
ALIKE = (2, 14)  # the nats-server whose behaviour Pelton has
OLDEST = (2, 10)  # that the client works with


def command_of(kind: str) -> list[str] | None:
    """How to start a server of this kind, without arguments; None when it is not here."""
    if kind == "pelton":
        if importlib.util.find_spec("pelton.server") is None or not _has_main("pelton.server"):
            return None
        return [sys.executable, "-m", "pelton.server"]
    if kind == "nats-server":
        found = os.environ.get("NATS_SERVER") or shutil.which("nats-server")
        if found is None and Path("/usr/sbin/nats-server").exists():
            found = "/usr/sbin/nats-server"
        return [found] if found else None
    if kind == "older":
        return [os.environ["NATS_SERVER_OLDER"]] if "NATS_SERVER_OLDER" in os.environ else None
    raise ValueError(f"no such kind of server: {kind!r}")


def _has_main(package: str) -> bool:
    return importlib.util.find_spec(f"{package}.__main__") is not None


@functools.cache
def version_of(kind: str) -> tuple[int, ...]:
    """What the server of this kind says its version is; () when it is not here."""
    command = command_of(kind)
    if command is None:
        return ()
    said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"v(\d+)\.(\d+)\.(\d+)", said.stdout)
    return tuple(int(part) for part in found.groups()) if found else ()


def available_servers(oldest: tuple[int, int] = ALIKE) -> list[str]:
    """The kinds of servers that tests run against here, from that version on.

    RuntimeError when $PELTON_TEST_SERVERS names one that is not here in any version.
    """
    asked = os.environ.get("PELTON_TEST_SERVERS")
    named = [kind.strip() for kind in asked.split(",")] if asked else ["pelton", "nats-server"]
    kinds = [kind for kind in named if kind]
    here = [kind for kind in kinds if version_of(kind)]
    if asked and here != kinds:
        raise RuntimeError(f"PELTON_TEST_SERVERS={asked}, but of those only {here} are here")
    return [kind for kind in here if version_of(kind) >= oldest]


@dataclass
class ServerProcess:
    """A running server; ``stop`` and ``start`` keep port and store, so that a restart can be
    tested.
    """

    kind: str
    port: int = field(default_factory=free_port)
    arguments: list[str] = field(default_factory=list)
    store: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="pelton-test-"))
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What a client connects to."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def log_path(self) -> Path:
        """What the server wrote to its standard output and error."""
        return Path(self.store) / "server.log"

    def command(self) -> list[str] | None:
        """What runs it, without options."""
        return command_of(self.kind)

    def start(self) -> None:
        """Start, and wait until it greets; RuntimeError with its log when it does not."""
        command = self.command()
        assert command is not None, f"no {self.kind} here"
        arguments = [
            "-js",
            "-a",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-sd",
            self.store,
            *self.arguments,
        ]
        with self.log_path.open("ab") as log:
            self.process = copies.Popen([*command, *arguments], stdout=log, stderr=log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._greets():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(
                    f"{self.kind} did not start: {self.log_path.read_text()[-2000:]}"
                )
            time.sleep(0.02)

    def _greets(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False

    def stop(self, *, kill: bool = False) -> None:
        """Stop the process and wait for its end; ``kill`` gives it no chance to tidy up."""
        if self.process is None:
            return
        if kill:
            self.process.kill()
        else:
            self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def remove(self) -> None:
        """Stop and remove the store."""
        self.stop(kill=True)
        shutil.rmtree(self.store, ignore_errors=True)


def start_server(kind: str, *arguments: str) -> ServerProcess:
    """A started server of this kind; the caller calls ``remove``."""
    server = ServerProcess(kind, arguments=list(arguments))
    try:
        server.start()
    except BaseException:
        server.remove()
        raise
    return server


@contextlib.contextmanager
def running_server(kind: str, *arguments: str) -> Iterator[ServerProcess]:
    """A server for the length of a ``with`` block."""
    server = start_server(kind, *arguments)
    try:
        yield server
    finally:
        server.remove()
