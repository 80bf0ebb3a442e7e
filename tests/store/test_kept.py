"""Stores that former versions wrote: today's server answers about them what theirs did."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from pelton.embedded import Server
from tests.store.keep import MESSAGES, asked, described, put

KEPT = sorted(Path(__file__).parent.glob("kept/*.tar.xz"))
ENCRYPTED = 'jetstream {{ store_dir: "{store}", key: "kept-for-these-tests-only" }}\n'
PLAIN = 'jetstream {{ store_dir: "{store}" }}\n'


def test_stores_are_kept() -> None:
    assert len(KEPT) >= 2


def without_servers(value: Any) -> Any:
    """The same without the version and the API level of the server that answers."""
    if isinstance(value, dict):
        own = ("_nats.ver", "_nats.level")
        return {name: without_servers(each) for name, each in value.items() if name not in own}
    return [without_servers(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.name)
def test_the_store_of_a_former_version_opens_unchanged(kept: Path, tmp_path: Path) -> None:
    with tarfile.open(kept) as archive:
        archive.extractall(tmp_path, filter="data")
    answers = json.loads((tmp_path / "answers.json").read_text())
    config = tmp_path / "server.conf"
    form = ENCRYPTED if "encrypted" in kept.name else PLAIN
    config.write_text(form.format(store=tmp_path / "store"))
    for _ in range(2):  # the second time of what today's server wrote
        with Server(config=str(config)) as server, server.connect_sync() as client:
            found = described(client)
            assert found.keys() == answers.keys()
            for stream, answer in answers.items():
                assert without_servers(found[stream]) == without_servers(answer), stream
    with Server(config=str(config)) as server, server.connect_sync() as client:
        put(client, "plain.0.more", b"")
        assert asked(client, "STREAM.INFO.PLAIN")["state"]["last_seq"] == MESSAGES + 1
        again = json.loads(
            client.request("plain.0.more", b"", headers={"Nats-Msg-Id": "id7"}, timeout=20).data
        )
        assert "error" not in again, again
