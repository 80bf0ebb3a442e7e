"""Hostile servers at the leaf nodes' port: they come and go, fall silent, or break the protocol."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.ports import free_port

from .hostile import LIMITS, MEGABYTE, ended, raw, small_server, witnessed
from .leafs import wait_for

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from .process import ServerProcess

CONNECT = b'CONNECT {"name":"L%d","server_id":"S%d","headers":true,"protocol":1}\r\n'
FLAPS = 60


@pytest.fixture(scope="module")
def leaf_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, leaf_port: int) -> Iterator[ServerProcess]:
    limits = f'{LIMITS}leafnodes {{ listen: "127.0.0.1:{leaf_port}" }}\n'
    with small_server(tmp_path_factory.mktemp("leafs"), limits=limits) as process:
        process.http_port()
        yield process


def join(port: int, number: int, interest: int) -> socket.socket:
    """A leaf node that wants so many subjects; the server has taken them all in."""
    connection = raw(port)
    connection.sendall(
        CONNECT % (number, number)
        + b"".join(b"LS+ s.%d.%d\r\n" % (number % 7, i) for i in range(interest))
        + b"PING\r\n"
    )
    lines = connection.makefile("rb")
    for line in lines:
        if line == b"PING\r\n":
            connection.sendall(b"PONG\r\n")
        if line == b"PONG\r\n":
            return connection
    raise AssertionError("the server has closed the connection")


def join_as(port: int, fields: dict[str, object]) -> socket.socket:
    """A leaf node with these fields of CONNECT, which has been admitted."""
    connection = raw(port)
    shown = {"name": "leaf", "cluster": "leaf", **fields}
    connection.sendall(b"CONNECT %b\r\nPING\r\n" % json.dumps(shown).encode())
    for line in connection.makefile("rb"):
        if line == b"PONG\r\n":
            return connection
    raise AssertionError("the server has closed the connection")


def report(server: ServerProcess, path: str) -> dict[str, int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port()}/{path}") as answer:
        found: dict[str, int] = json.loads(answer.read())
        return found


def test_leafs_that_flap_leave_nothing_behind(server: ServerProcess, leaf_port: int) -> None:
    with join(leaf_port, 0, 1):
        pass
    before = report(server, "subsz")["num_subscriptions"]
    with witnessed(server, growth=48 * MEGABYTE):
        for number in range(FLAPS):
            join(leaf_port, number, 1000).close()
        with join(leaf_port, FLAPS, 1):  # those before it are gone by now
            wait_for(lambda: report(server, "leafz")["leafnodes"] == 1, "the end of the others")
    wait_for(lambda: report(server, "subsz")["num_subscriptions"] <= before + 10, "no interest")


def test_leafs_that_say_nothing_are_closed(server: ServerProcess, leaf_port: int) -> None:
    with witnessed(server, growth=24 * MEGABYTE), contextlib.ExitStack() as stack:
        silent = [stack.enter_context(raw(leaf_port)) for _ in range(200)]
        for connection in silent:
            assert ended(connection).startswith(b"INFO {")


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize(
    "said",
    [
        b"LMSG a 99999999999\r\n",
        b"LMSG a -1\r\n",
        b"LMSG\r\n",
        b"LMSG + a\r\n",
        b"HMSG a 5 3\r\nabc\r\n",
        b"LMSG a 2\r\nhiXX\r\n",
        b"LS+\r\n",
        b"LS+ " + b"a" * 100_000,
        b"\x00\xff\r\n",
        b"CONNECT {\r\n",
        b"INFO {bad\r\n",
        b"PUB a 2\r\nhi\r\n",
    ],
)
def test_lines_that_are_none_end_that_connection_only(
    server: ServerProcess, leaf_port: int, said: bytes, joined: bool
) -> None:
    with (
        witnessed(server, growth=24 * MEGABYTE),
        join(leaf_port, 7, 3) if joined else raw(leaf_port) as connection,
    ):
        connection.sendall(said)
        ended(connection)
