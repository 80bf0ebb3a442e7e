"""Two real servers: one follows streams of the other, through restarts and kills of both."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.compat.pair import RawClient
from tests.peers import ServerProcess, available_servers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXTERNAL = {"name": "O", "external": {"api": "$JS.hub.API", "deliver": ""}}
PATIENCE_S = 60.0


class Follower:
    """Our server with a remote `hub`, and clients of both; `start` again after a stop."""

    def __init__(self, hub: ServerProcess, config: Path) -> None:
        self.hub = hub
        config.write_text(
            f'jetstream {{ remotes {{ hub {{ url: "{hub.url}" }} }} }}\n', encoding="utf-8"
        )
        self.server = ServerProcess("pelton", arguments=["-c", str(config)])
        self.server.start()

    def at(self, server: ServerProcess, call: str, body: Any = None) -> Any:
        client = RawClient(server)
        payload = b"" if body is None else json.dumps(body).encode()
        answer = client.request(f"$JS.API.{call}", payload)
        client.close()
        assert answer is not None, call
        return json.loads(answer)

    def publish(self, count: int, start: int = 0) -> None:
        """Messages that the hub has acknowledged."""
        client = RawClient(self.hub)
        replies = [client.send(f"o.{n % 3}", b"%d" % n) for n in range(start, start + count)]
        for reply in replies:
            assert client.receive(reply), "the hub does not answer"
        client.close()

    def wait(self, stream: str, count: int) -> Any:
        """Until our stream has so many messages."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            info = self.at(self.server, f"STREAM.INFO.{stream}")
            if info["state"]["messages"] >= count:
                return info
            assert time.monotonic() < deadline, json.dumps(info)
            time.sleep(0.02)

    def payloads(self, stream: str) -> list[bytes]:
        last = self.at(self.server, f"STREAM.INFO.{stream}")["state"]["last_seq"]
        client = RawClient(self.server)
        found = []
        for seq in range(1, last + 1):
            answer = client.request(f"$JS.API.STREAM.MSG.GET.{stream}", b'{"seq":%d}' % seq)
            assert answer is not None
            found.append(json.loads(answer)["message"]["data"])
        client.close()
        return found


@pytest.fixture(params=["pelton", "nats-server"])
def follower(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Follower]:
    if request.param not in available_servers((2, 10)):
        pytest.skip(f"no {request.param} here")
    hub = ServerProcess(request.param)
    hub.start()
    found = Follower(hub, tmp_path / "follower.conf")
    try:
        yield found
    finally:
        found.server.stop()
        hub.stop()


def test_streams_of_another_server(follower: Follower) -> None:
    hub, server = follower.hub, follower.server
    created = follower.at(hub, "STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"]})
    assert "error" not in created
    follower.publish(300)
    for name, fields in (
        ("M", {"mirror": EXTERNAL}),
        ("S", {"sources": [{**EXTERNAL, "filter_subject": "o.1"}]}),
    ):
        created = follower.at(server, f"STREAM.CREATE.{name}", {"name": name, **fields})
        assert "error" not in created
    follower.wait("M", 300)
    follower.wait("S", 100)
    server.stop(kill=True)
    follower.publish(30, 300)
    server.start()
    follower.wait("M", 330)
    follower.wait("S", 110)
    hub.stop(kill=True)
    hub.start()
    follower.publish(30, 330)
    info = follower.wait("M", 360)
    assert info["mirror"]["lag"] == 0
    assert 0 <= info["mirror"]["active"] < 5_000_000_000
    assert "error" not in info["mirror"]
    follower.wait("S", 120)
    for name, count in (("M", 360), ("S", 120)):
        payloads = follower.payloads(name)
        assert len(payloads) == len(set(payloads)) == count
    assert follower.at(hub, "STREAM.INFO.O")["state"]["consumer_count"] == 0
    ours = follower.at(server, "STREAM.MSG.GET.M", {"seq": 77})["message"]
    assert ours == follower.at(hub, "STREAM.MSG.GET.O", {"seq": 77})["message"]


def test_a_remote_may_come_late(follower: Follower) -> None:
    follower.hub.stop()
    follower.at(follower.server, "STREAM.CREATE.M", {"name": "M", "mirror": EXTERNAL})
    info = follower.at(follower.server, "STREAM.INFO.M")
    assert info["mirror"]["active"] == -1
    follower.hub.start()
    follower.at(follower.hub, "STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"]})
    follower.publish(5)
    follower.wait("M", 5)
