"""Users who may not do what they ask for, and servers without JetStream: the reason at once, and no time-out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.peers import available_servers
from tests.server.configured import Configured, configured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Ran

    Run = Callable[..., Ran]

CONFIG = """
listen: 127.0.0.1:@port
jetstream {{ store_dir: "{folder}" }}
authorization {{ users: [
    {{ user: mute, password: x, permissions: {{
        publish: {{ deny: ["$JS.>", "secret.>"] }}, subscribe: {{ deny: "hidden.>" }}
    }} }}
    {{ user: deaf, password: x, permissions: {{ subscribe: {{ deny: ["_INBOX.>"] }} }} }}
] }}
"""
ASKING: list[str] = [
    *(
        "stream ls",
        "stream info X",
        "stream add X --subjects x --defaults",
        "stream rm X -f",
        "stream view X",
    ),
    *("stream get X 1", "stream report", "consumer ls X", "consumer next X c", "consumer sub X c"),
    *("kv ls", "kv add B", "kv put B k v", "kv get B k", "kv ls B", "kv watch B", "object ls"),
    *("account info", "counter ls X", "explain X c", "export"),
]


@pytest.fixture(scope="module", params=available_servers())
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Configured]:
    folder = tmp_path_factory.mktemp("store")
    with configured(request.param, CONFIG.format(folder=folder)) as server:
        yield server


@pytest.mark.parametrize("user", ["mute", "deaf"])
def test_what_is_not_permitted_is_said_at_once(running: Configured, cli: Run, user: str) -> None:
    url = f"nats://{user}:x@127.0.0.1:{running.ports['port']}"
    begun = time.monotonic()
    more = ["pub secret.a x", "req secret.a x", "sub hidden.a"]
    if user == "deaf":
        more = ["req a x", "latency --duration 1s"]
    for line in ASKING + more:
        ran = cli("--timeout", "60s", "-s", url, *line.split())
        assert (ran.status, ran.out) == (1, ""), line
        assert "Permissions Violation for " in ran.err, line
        assert ran.err.splitlines()[-1].startswith("pelton: Permissions"), line
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize("kind", available_servers())
def test_a_server_without_jetstream_says_so(kind: str, cli: Run, tmp_path: Path) -> None:
    with configured(kind, "listen: 127.0.0.1:@port") as server:
        for line in ASKING:
            if line == "account info":
                continue
            ran = cli("-s", f"nats://127.0.0.1:{server.ports['port']}", *line.split())
            assert (ran.status, ran.out) == (1, ""), line
            assert ran.err == "pelton: the server does not offer JetStream (start it with -js)\n", (
                line
            )
