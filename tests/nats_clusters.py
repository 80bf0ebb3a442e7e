"""Three nats-servers that are one cluster, for tests of what must work with it: the client, the
command line, the formats of Spark.

Each has its own store and ports; one can be killed, the one that leads a stream among them, and
started again. The server decides by vote who leads: that takes it some seconds after a kill.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

from pelton.errors import PeltonError
from tests.peers import ServerProcess, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.sync import Client

SIZE = 3
PAUSE_S = 0.1
READY_TIMEOUT_S = 60.0


class NatsCluster:
    """Started servers, by their names."""

    def __init__(self, size: int = SIZE) -> None:
        """Not started."""
        routes = [free_port() for _ in range(size)]
        urls = ",".join(f"nats://127.0.0.1:{port}" for port in routes)
        self.nodes: dict[str, ServerProcess] = {}
        for k, port in enumerate(routes):
            name = f"n{k + 1}"
            self.nodes[name] = ServerProcess(
                "nats-server",
                arguments=[
                    *("--name", name, "--cluster_name", "cluster"),
                    *("--cluster", f"nats://127.0.0.1:{port}", "--routes", urls),
                ],
            )

    @property
    def urls(self) -> str:
        """Of all its servers, as the option ``servers`` takes them."""
        return ",".join(node.url for node in self.nodes.values())

    def start(self) -> None:
        """Start all, and wait until they answer together."""
        for node in self.nodes.values():
            node.start()

    def kill_leader(self, client: Client, stream: str) -> None:
        """Kill the server that leads a stream, without warning."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not (leader := leader_of(client, stream)):
            assert time.monotonic() < deadline, f"stream {stream} has no leader"
            time.sleep(PAUSE_S)
        self.nodes[leader].stop(kill=True)

    def revive(self, client: Client, stream: str) -> None:
        """Start what was killed, and wait until each server has all of the stream."""
        for node in self.nodes.values():
            if node.process is None:
                node.start()
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not current(client, stream, len(self.nodes)):
            assert time.monotonic() < deadline, f"stream {stream} is not whole again"
            time.sleep(PAUSE_S)

    def remove(self) -> None:
        """Stop all and remove their stores."""
        for node in self.nodes.values():
            node.remove()


def cluster_of(client: Client, stream: str) -> dict[str, Any]:
    """Who leads a stream and who follows; {} while nobody answers."""
    try:
        answer = json.loads(client.request(f"$JS.API.STREAM.INFO.{stream}", timeout=2).data)
    except PeltonError:
        return {}
    found: dict[str, Any] = answer.get("cluster", {})
    return found


def leader_of(client: Client, stream: str) -> str:
    """The name of the server that leads a stream; '' while there is none."""
    return str(cluster_of(client, stream).get("leader", ""))


def current(client: Client, stream: str, size: int) -> bool:
    """Whether all servers have what the stream has."""
    found = cluster_of(client, stream)
    followers = [peer for peer in found.get("replicas", []) if peer["current"]]
    return bool(found.get("leader")) and len(followers) == size - 1


def wait_until_ready(client: Client) -> None:
    """Until JetStream has a leader and all servers are in its group."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    probe = b'{"name": "READY", "subjects": ["ready"], "num_replicas": 3, "storage": "memory"}'
    while True:
        with contextlib.suppress(PeltonError):
            answer = json.loads(client.request("$JS.API.STREAM.CREATE.READY", probe).data)
            if "error" not in answer:
                client.request("$JS.API.STREAM.DELETE.READY", b"")
                return
        if time.monotonic() > deadline:
            raise RuntimeError("the cluster has no leader")
        time.sleep(PAUSE_S)


@contextlib.contextmanager
def running_cluster() -> Iterator[NatsCluster]:
    """A cluster for the length of a ``with`` block."""
    cluster = NatsCluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.remove()
