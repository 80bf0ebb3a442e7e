"""TCP ports of the loopback for the servers of tests, each given to one process at a time.

A port that the kernel chose (a socket bound to port 0, and closed again) may be given to somebody
else before the server of a test listens there: to another process that asks, or to the near end of
any connection. So ports are taken from below the range that the kernel chooses from, in blocks::

    10000 | block 0 | block 1 | ...          | 32768  the kernel's own
            held by the process that bound the abstract Unix socket of that name, as long as it lives
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

FIRST = 10_000
BLOCK = 200
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def kernels_first() -> int:
    """The lowest port that the kernel gives to those who ask for any."""
    try:
        return int(RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return FIRST


def is_free(port: int) -> bool:
    """Whether nobody has this port of the loopback now, and nobody has had it a minute ago."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def kernels_choice() -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Block:
    """Ports that no other process takes from here while this one lives; none where all are held."""

    def __init__(self, name: str = "pelton-test-ports", first: int = FIRST) -> None:
        self.process = os.getpid()
        self.ports = range(0)
        self._holder = socket.socket(socket.AF_UNIX)
        self._taken = 0
        count = max(0, (kernels_first() - first) // BLOCK)
        for step in range(count):
            number = (self.process + step) % count
            try:
                self._holder.bind(f"\0{name}-{number}")
            except OSError:
                continue
            self.ports = range(first + number * BLOCK, first + (number + 1) * BLOCK)
            return

    def take(self) -> int:
        """The next one that is free: another one each time, until all were given."""
        for _ in self.ports:
            port = self.ports[self._taken % BLOCK]
            self._taken += 1
            if is_free(port):
                return port
        return kernels_choice()

    def close(self) -> None:
        """Let others have the block."""
        self._holder.close()


_own: list[Block] = []


def free_port() -> int:
    """A TCP port of the loopback that nobody listens on, and that nobody else is given."""
    if not _own or _own[0].process != os.getpid():  # a forked process needs its own
        _own[:] = [Block()]
    return _own[0].take()
