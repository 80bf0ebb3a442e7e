"""``pelton server ping``, ``ls`` and ``info`` over the system account of every server there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.peers import available_servers
from tests.server.configured import configured

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Ran

    Run = Callable[..., Ran]

CONFIG = """
listen: 127.0.0.1:@port
server_name: bertha
jetstream { store_dir: "%s" }
accounts {
    $SYS { users: [ { user: admin, password: secret } ] }
    A { jetstream: enabled, users: [ { user: anna, password: secret } ] }
}
no_auth_user: anna
"""


@pytest.mark.parametrize("kind", available_servers())
def test_servers_are_asked_over_the_system_account(
    kind: str, cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with configured(kind, CONFIG % tmp_path) as running:
        monkeypatch.setenv("NATS_URL", f"nats://127.0.0.1:{running.ports['port']}")
        monkeypatch.setenv("NATS_USER", "admin")
        monkeypatch.setenv("NATS_PASSWORD", "secret")
        (pinged,) = cli("server", "ping", "--json").lines
        assert pinged["name"] == "bertha"
        assert pinged["rtt_ns"] > 0
        assert cli("server", "ping").out.startswith("bertha  rtt=")
        graph = cli("server", "ping", "1", "--id", "--graph").out
        assert graph.startswith(f"{pinged['id']}  bertha  rtt=")
        assert "1 answers: fastest" in graph
        short = cli("--timeout", "1s", "server", "ping", "2")
        assert (short.status, short.err) == (1, "pelton: 1 servers are missing\n")
        for key in ("name", "conns", "sub", "mem", "cpu", "uptime", "rtt", "slow"):
            assert cli("server", "ls", "1", "--sort", key, "-R", "--json").json
        (listed,) = cli("--timeout", "5s", "server", "list", "--json").json
        assert listed["server"]["id"] == pinged["id"]
        assert listed["statsz"]["connections"] >= 1
        assert "bertha" in cli("srv", "ls").out
        for words in ((), ("bertha",), (pinged["id"],)):
            shown = cli("server", "info", *words).out
            assert shown.startswith(f"Server bertha ({pinged['id']})\n")
            assert "JetStream: yes\n" in shown
        assert cli("server", "info", "--json").json["data"]["server_name"] == "bertha"
        gone = cli("server", "info", "gone")
        assert (gone.status, gone.out) == (1, "")
        assert "no server gone answers" in gone.err
        monkeypatch.setenv("NATS_USER", "anna")
        for verb in ("ping", "ls", "info"):
            ran = cli("server", verb)
            assert (ran.status, ran.out) == (1, ""), verb
            assert "system account" in ran.err
            assert ran.err.count("\n") == 1
    assert cli("server", "ping", "--help").out.startswith("Usage: pelton server ping")
