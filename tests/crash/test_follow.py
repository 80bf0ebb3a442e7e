"""A server that is killed while streams follow each other: nothing is lost, nothing comes twice."""

from __future__ import annotations

import json
import random
import time
from typing import Any

from tests.compat.pair import RawClient
from tests.peers import ServerProcess
from tests.ways import length

LIVES = length(3, 4)
BATCH = length(1000, 3000)
PATIENCE_S = 60.0
FOLLOWERS: dict[str, dict[str, Any]] = {
    "M": {"mirror": {"name": "O"}},
    "S": {"sources": [{"name": "O"}]},
    "L": {"sources": [{"name": "O"}], "max_msgs": 1},
}


def api(client: RawClient, call: str, body: Any = None) -> Any:
    answer = client.request(f"$JS.API.{call}", b"" if body is None else json.dumps(body).encode())
    assert answer is not None, call
    return json.loads(answer)


def settle(client: RawClient) -> None:
    """Wait until every follower has everything."""
    deadline = time.monotonic() + PATIENCE_S
    for name, fields in FOLLOWERS.items():
        while True:
            info = api(client, f"STREAM.INFO.{name}")
            follows = info["mirror"] if "mirror" in fields else info["sources"][0]
            if follows["lag"] == 0 and follows["active"] >= 0:
                break
            assert time.monotonic() < deadline, info
            time.sleep(0.02)


def test_killed_while_following() -> None:
    rng = random.Random(5)
    server = ServerProcess("pelton")
    server.start()
    try:
        client = RawClient(server)
        api(client, "STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"]})
        for name, fields in FOLLOWERS.items():
            assert "error" not in api(client, f"STREAM.CREATE.{name}", {"name": name, **fields})
        for life in range(LIVES):
            for n in range(BATCH):
                client.send(f"o.{n % 7}", b"%d.%d" % (life, n))
            time.sleep(rng.random() / 20)
            server.stop(kill=True)
            client.close()
            server.start()
            client = RawClient(server)
        settle(client)
        states = {name: api(client, f"STREAM.INFO.{name}")["state"] for name in ("O", *FOLLOWERS)}
        last = states["O"]["last_seq"]
        assert last > 0
        assert states["O"]["messages"] == last
        # none was lost and none came twice, so the numbers are the same, also where only one is kept
        assert {name: state["last_seq"] for name, state in states.items()} == dict.fromkeys(
            states, last
        )
        for seq in [*range(1, last, max(last // 300, 1)), last]:
            there, mirrored, sourced = (
                api(client, f"STREAM.MSG.GET.{name}", {"seq": seq})["message"]
                for name in ("O", "M", "S")
            )
            assert mirrored == there
            assert sourced["data"] == there["data"]
        client.close()
    finally:
        server.remove()
