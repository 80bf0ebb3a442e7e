"""What tests of hostile clients have in common: a server with small limits, a witness who must not
notice anything, and memory that is looked at.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .process import PATIENCE_SECONDS, ServerProcess, Wire, running

MEGABYTE = 2**20

LIMITS = """
max_subscription_memory: 32MB
max_output_memory: 32MB
max_pending: 16MB
max_connections: 500
http: "127.0.0.1:-1"
"""


@contextlib.contextmanager
def small_server(folder: Path, *arguments: str, limits: str = LIMITS) -> Iterator[ServerProcess]:
    """A server whose limits a test can reach."""
    path = folder / "limits.conf"
    path.write_text(limits)
    with running("-c", str(path), *arguments) as server:
        yield server


def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """What the fixture `server` of a module of hostile clients is."""
    folder: Path = tmp_path_factory.mktemp("hostile")
    with small_server(folder, "-js", "-sd", str(folder / "store")) as process:
        yield process


def ended(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    got = b""
    with contextlib.suppress(OSError):
        while data := connection.recv(65536):
            got += data
    return got


def _is_served(port: int) -> bool:
    with Wire(port) as last:
        try:
            return last.ping() == b""
        except OSError:
            return False


@contextlib.contextmanager
def witnessed(server: ServerProcess, growth: int = 0) -> Iterator[Wire]:
    """Somebody else's round trips go on while the body does harm; afterwards the server
    has not grown by more than so many bytes.
    """
    port = server.port()
    before = server.memory()
    done = threading.Event()
    problems: list[BaseException] = []

    def talk() -> None:
        try:
            with Wire(port) as other:
                other.send("SUB witness 1\r\n")
                while not done.wait(0.02):
                    other.send("PUB witness 2\r\nok\r\n")
                    got = other.ping().replace(b"PING\r\n", b"")  # the server asks now and then
                    assert got == b"MSG witness 1 2\r\nok\r\n", got
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        with Wire(port) as wire:
            yield wire
        # those who were refused or cut off are gone, too, or will be as soon as the server sees it
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not _is_served(port):
            assert time.monotonic() < deadline, "nobody new is served"
    finally:
        done.set()
        thread.join()
    assert not problems, problems
    deadline = time.monotonic() + PATIENCE_SECONDS
    while growth:  # the server may not have seen yet that they are gone
        grown = server.memory() - before
        if grown < growth:
            break
        assert time.monotonic() < deadline, f"{grown // MEGABYTE} MiB more"
        time.sleep(0.02)


def raw(port: int) -> socket.socket:
    """A connection that has read nothing yet."""
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)


def sink(connection: socket.socket) -> threading.Thread:
    """Read and forget what comes, until the end."""

    def read() -> None:
        with contextlib.suppress(OSError):
            while connection.recv(1 << 20):
                pass

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def pour(connection: socket.socket, data: bytes, times: int) -> bool:
    """Send it so many times, or until the server does not take it any more; whether it took all."""
    try:
        for _ in range(times):
            connection.sendall(data)
    except OSError:
        return False
    return True
