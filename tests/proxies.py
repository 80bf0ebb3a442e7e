"""A TCP proxy between a client and a server, which loses what a test tells it to lose.

It splits the bytes of the server into whole operations, so that single messages can be left out.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Proxy:
    """Forwards connections to ``port``; ``loses`` tells which operations of the server get lost."""

    def __init__(self, port: int) -> None:
        self.port = free_port()
        self.loses: Callable[[bytes], bool] = lambda _: False
        self.lost: list[bytes] = []
        self._target = port
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def url(self) -> str:
        """What a client connects to."""
        return f"nats://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break all connections."""
        for pair in self._pairs:
            for each in pair:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def refuse(self) -> None:
        """Break all connections and take no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def close(self) -> None:
        """Take no more connections, and wait until all are over."""
        self.refuse()
        for thread in self._threads:
            thread.join(timeout=20)
            assert not thread.is_alive()

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            self._pairs.append((near, far))
            self._start(self._to_server, near, far)
            self._start(self._to_client, far, near)

    def _to_server(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(65536):
                far.sendall(data)
        with contextlib.suppress(OSError):
            far.shutdown(socket.SHUT_RDWR)

    def _to_client(self, far: socket.socket, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for operation in operations(far):
                if self.loses(operation):
                    self.lost.append(operation)
                else:
                    near.sendall(operation)
        with contextlib.suppress(OSError):
            near.shutdown(socket.SHUT_RDWR)


def operations(server: socket.socket) -> Iterator[bytes]:
    """The operations of a server, each with its payload."""
    held = b""
    while True:
        line, end, _ = held.partition(b"\r\n")
        size = len(line) + len(end)
        if end and line.startswith((b"MSG ", b"HMSG ")):
            size += int(line.rpartition(b" ")[2]) + 2
        if end and len(held) >= size:
            yield held[:size]
            held = held[size:]
            continue
        data = server.recv(65536)
        if not data:
            return
        held += data


@contextlib.contextmanager
def running_proxy(port: int) -> Iterator[Proxy]:
    """A proxy for the length of a ``with`` block."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
