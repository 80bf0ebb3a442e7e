"""The tests that `make check` runs: models, planning, parsing, the engine and the core in the test's own process.

None of them connects to anything, so none waits for a server, a JVM or a timer. Every run holds this:
a test of these files that connects fails, unless it is marked `slow` or `peer`, which `make check`
leaves out.

    python -m pytest -m 'not slow and not peer' $(python -m tests.pure)
"""

from __future__ import annotations

import _socket
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("tests/api", "tests/apply", "tests/client", "tests/core", "tests/engine")
OTHERS = ("tests/test_layers.py", "tests/test_tidy.py", "tests/test_pure.py")
# Of the client's tests those without a connection.
CLIENT = {
    "batches",
    "connection",
    "guard",
    "halves",
    "intake",
    "keyvalue",
    "moving",
    "object_sources",
    "options",
    "publishing",
    "pull",
    "waiting",
    "websocket",
}
LEFT_OUT = {
    "tests/apply/test_round_trips.py",  # applies to servers
    # each call of a disk fails once: a fifth of the time of all
    "tests/engine/test_encryption_power.py",
    "tests/engine/test_failing_disk.py",
    "tests/engine/test_opening_on_failing_disk.py",
}

_name = ""  # of the test that may not connect, while it runs


def files() -> list[str]:
    """The files, as paths from the project's folder."""
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("test_*.py"))]
    named = {path.relative_to(ROOT).as_posix() for path in found}
    connecting = {
        name
        for name in named
        if name.startswith("tests/client/") and Path(name).stem.removeprefix("test_") not in CLIENT
    }
    return sorted((named | set(OTHERS)) - LEFT_OUT - connecting)


PURE = frozenset(files())


def is_pure(item: pytest.Item) -> bool:
    """Whether `make check` runs it."""
    name = item.nodeid.partition("::")[0]
    return name in PURE and not any(map(item.get_closest_marker, ("slow", "peer")))


@contextmanager
def without_connections(name: str) -> Iterator[None]:
    """Within this, a test with a name fails when it connects over a network."""
    global _name
    _name = name
    try:
        yield
    finally:
        _name = ""


def _watched(call: str) -> Callable[[socket.socket, Any], Any]:
    """A method of sockets that refuses a test's connections over a network, and else is what it was."""
    plain = getattr(_socket.socket, call)

    def method(self: socket.socket, address: Any) -> Any:
        if _name and self.family != socket.AF_UNIX:
            raise RuntimeError(f"{_name} connects to {address}: see tests/pure.py")
        return plain(self, address)

    return method


def begin() -> None:
    """Watch the connections of this process from now on.

    Not by an audit hook: `id` is an event, too, and a hook is called for each.
    """
    for call in ("connect", "connect_ex"):
        setattr(socket.socket, call, _watched(call))


if __name__ == "__main__":
    print(*files())
