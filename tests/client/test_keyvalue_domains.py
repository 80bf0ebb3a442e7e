"""Buckets of another JetStream domain, reached over a leaf node, and mirrors of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pelton import ExternalStream, KeyValueConfig, StreamSource
from pelton.errors import NoRespondersError
from tests.client.shells import connected
from tests.peers import OLDEST, ServerProcess, available_servers
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT = 60


@pytest.fixture(params=available_servers(OLDEST))
def leaf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of the domain ``leaf`` whose hub has the domain ``hub``."""
    port = free_port()
    hub = tmp_path / "hub.conf"
    hub.write_text(f'jetstream {{ domain: hub }}\nleafnodes {{ listen: "127.0.0.1:{port}" }}\n')
    edge = tmp_path / "leaf.conf"
    edge.write_text(
        "jetstream { domain: leaf }\n"
        f'leafnodes {{ remotes: [ {{ url: "nats://127.0.0.1:{port}" }} ] }}\n'
    )
    servers = [
        ServerProcess(request.param, arguments=["-c", str(hub)]),
        ServerProcess(request.param, arguments=["-c", str(edge)]),
    ]
    try:
        for server in servers:
            server.start()
        yield servers[1]
    finally:
        for server in servers:
            server.remove()


def wait_for_hub(there: Any) -> None:
    """Ask until the leaf node is connected."""
    while True:
        try:
            there.account_info()
        except NoRespondersError:
            continue
        return


def test_a_bucket_of_another_domain_and_its_mirror(shell: str, leaf: ServerProcess) -> None:
    with connected(shell, leaf.url) as client:
        there, here = client.jetstream(domain="hub", timeout=WAIT), client.jetstream()
        wait_for_hub(there)
        origin = there.create_key_value(KeyValueConfig(bucket="b", history=3, storage="memory"))
        assert origin.put("a", b"1") == 1
        assert origin.update("a", b"2", 1) == 2
        assert origin.get("a").value == b"2"
        assert here.key_value_names() == []
        mirror = StreamSource(name="b", external=ExternalStream(api="$JS.hub.API"))
        copy = here.create_key_value(
            KeyValueConfig(bucket="copy", storage="memory", history=3, mirror=mirror)
        )
        with copy.watch() as watch:
            while watch.next(WAIT).revision < 2:
                continue  # the mirror was still copying
            assert copy.put("a", b"3") == 3
            entry = watch.next(WAIT)
        assert (entry.key, entry.value, entry.revision) == ("a", b"3", 3)
        assert copy.get("a").value == b"3"
        assert copy.delete("a", revision=3) == 4
        assert origin.get("a") is None
        assert origin.create("a", b"4") == 5
        assert [each.revision for each in origin.history("a")] == [3, 4, 5]
