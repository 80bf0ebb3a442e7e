"""Servers that are connected as leaf nodes, for tests: a hub and its leafs, of any kind."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from pelton.errors import PeltonError
from pelton.sync import Client, connect
from tests.peers import ALIKE, ServerProcess, free_port, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE_S = 60.0


def need(*kinds: str) -> None:
    """Skip when a kind of server is not here, or is too old to know the settings of these tests."""
    for kind in kinds:
        version = version_of(kind)
        if not version:
            where = "NATS_SERVER_OLDER" if kind == "older" else "NATS_SERVER"
            pytest.skip(f"no {kind} here: set {where} to a nats-server")
        if kind == "nats-server" and version < ALIKE:
            pytest.skip("no nats-server from 2.14 on here: set NATS_SERVER to one")


def wait_for(true: Callable[[], object], what: str = "it") -> None:
    """Until something is so; AssertionError when it does not come."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.02)


class Node:
    """One server of a chain, with a client."""

    def __init__(self, server: ServerProcess, domain: str, leaf_port: int) -> None:
        self.server = server
        self.domain = domain
        self.leaf_port = leaf_port
        self._clients: list[Client] = []

    def client(self, **options: Any) -> Client:
        # Longer than a busy machine stands still.
        patient = {"timeout": PATIENCE_S, "connect_timeout": PATIENCE_S}
        client = connect(self.server.url, **(patient | options))
        self._clients.append(client)
        return client

    def start(self) -> None:
        self.server.start()

    def stop(self, *, kill: bool = False) -> None:
        for client in self._clients:
            with contextlib.suppress(PeltonError):
                client.close()
        self._clients = []
        self.server.stop(kill=kill)

    def log(self) -> str:
        return self.server.log_path.read_text()


def node(
    kind: str,
    folder: Path,
    name: str,
    *,
    hub: Node | None = None,
    remote: str = "",
    listener: str = "",
    more: str = "",
    hub_url: str = "",
) -> Node:
    """A server that is not started yet; `remote` and `listener` go into these maps."""
    port = free_port()
    parts = [f"listen: 127.0.0.1:{port}", listener]
    if hub is not None or hub_url:
        url = hub_url or f"nats://127.0.0.1:{hub.leaf_port if hub else 0}"
        parts.append(f'remotes: [ {{ url: "{url}", {remote} }} ]')
    text = "\n".join(part for part in parts if part)
    config = folder / f"{name}.conf"
    config.write_text(
        f"server_name: {name}\njetstream {{ domain: {name} }}\nleafnodes {{\n{text}\n}}\n{more}\n",
        encoding="utf-8",
    )
    server = ServerProcess(kind, arguments=["-c", str(config)])
    return Node(server, name, port)


@contextlib.contextmanager
def running(*nodes: Node) -> Iterator[None]:
    """All of them started, in this order; all stopped at the end."""
    try:
        for each in nodes:
            each.start()
        yield
    finally:
        for each in reversed(nodes):
            each.stop()
            each.server.remove()


def linked(a: Client, b: Client, subject: str = "linked.there") -> None:
    """Wait until what is published through `a` reaches a subscriber of `b`."""
    sub = b.subscribe(subject)
    b.flush()

    def got() -> bool:
        a.publish(subject, b"?")
        a.flush()
        with contextlib.suppress(PeltonError, TimeoutError):
            return sub.next(0.05) is not None
        return False

    wait_for(got, "the connection")
    sub.unsubscribe()
    b.flush()
