"""``pelton server config reload`` and ``pelton server account`` with every server there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pelton.errors import PeltonError
from pelton.sync import connect
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
    A {
        jetstream: enabled, users: [ { user: anna, password: secret } ]
        exports: [ { service: "help.>", accounts: [B] } ]
        mappings: { "old.*": [ { destination: "new.$1", weight: 40%% } ] }
    }
    B {
        users: [ { user: bob, password: secret } ]
        imports: [ { service: { account: A, subject: "help.>" }, to: "a.help.>" } ]
    }
}
"""


@pytest.mark.parametrize("kind", available_servers())
def test_a_server_reads_its_configuration_again(
    kind: str, cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with configured(kind, CONFIG % tmp_path) as running:
        address = f"127.0.0.1:{running.ports['port']}"
        monkeypatch.setenv("NATS_URL", f"nats://admin:secret@{address}")
        with pytest.raises(PeltonError):
            connect(f"nats://new:secret@{address}").close()
        text = running.config.read_text()
        running.write(text.replace("user: bob", "user: new"))
        assert cli("server", "config", "reload", "bertha", stdin=b"n\n").status == 130
        assert cli("server", "config", "reload", "bertha", stdin=b"").status == 2
        identity = cli("server", "ls", "--json").json[0]["server"]["id"]
        done = cli("server", "config", "reload", identity, "--force", "--json").json
        assert done["reloaded"]
        connect(f"nats://new:secret@{address}").close()
        running.write(text.replace("listen:", "nonsense_key:"))
        broken = cli("server", "config", "reload", "bertha", "-f")
        assert (broken.status, broken.out) == (1, "")
        assert broken.err.startswith("pelton: bertha: ")
        gone = cli("--timeout", "1s", "server", "config", "reload", "gone", "-f")
        assert (gone.status, gone.err) == (1, "pelton: no server gone answers\n")


@pytest.mark.parametrize("kind", available_servers())
def test_accounts_are_shown_and_purged(
    kind: str, cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with configured(kind, CONFIG % tmp_path) as running:
        address = f"127.0.0.1:{running.ports['port']}"
        monkeypatch.setenv("NATS_URL", f"nats://admin:secret@{address}")
        shown = cli("server", "account", "info", "A").out
        assert shown.startswith("Account A\n")
        assert "new.$1 (40 %)" in shown
        assert "Export of a service: help.> for B" in shown
        assert "help.> of A as a.help.>" in cli("server", "acct", "i", "B").out
        assert cli("server", "account", "info", "A", "-j").json["account_name"] == "A"
        gone = cli("server", "account", "info", "nope")
        assert (gone.status, gone.out) == (1, "")
        assert cli("server", "account", "info", "A", "--host", "bertha").status == 0
        with connect(f"nats://anna:secret@{address}") as client:
            stream = b'{"name": "S", "subjects": ["s"]}'
            client.request("$JS.API.STREAM.CREATE.S", stream)
            assert client.jetstream().stream_names() == ["S"]
            assert cli("server", "account", "purge", "A", stdin=b"no\n").status == 130
            assert client.jetstream().stream_names() == ["S"]
            done = cli("server", "account", "purge", "A", "-f", "-j").json
            assert done == {"account": "A", "initiated": True}
            assert client.jetstream().stream_names() == []
        assert cli("--domain", "D", "server", "account", "purge", "A", "-f").status == 2
