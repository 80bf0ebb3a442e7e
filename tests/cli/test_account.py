"""``pelton account``: reports, backups of everything, certificates, with every server there is."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pelton.sync import connect
from tests.cli.test_server_reports import CONFIG
from tests.peers import ServerProcess, available_servers, running_server
from tests.server.configured import configured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.client.sync import Client
    from tests.cli.conftest import Ran

    Run = Callable[..., Ran]

PATIENCE_SECONDS = 60.0
NAMES = ["KV_settings", "MEMORY", "OBJ_files", "ORDERS", "READINGS"]


@pytest.fixture(params=available_servers())
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with running_server(request.param) as process:
        yield process


@pytest.fixture
def run(cli: Run, server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("NATS_URL", server.url)
    return cli


def fill(run: Run, server: ServerProcess) -> None:
    assert run("stream", "add", "ORDERS", "--subjects", "o.>").status == 0
    assert run("stream", "add", "READINGS", "--subjects", "r.>").status == 0
    assert run("stream", "add", "MEMORY", "--subjects", "m", "--storage", "memory").status == 0
    assert run("pub", "-J", "m", "kept").status == 0
    assert run("consumer", "add", "ORDERS", "packing").status == 0
    assert run("kv", "add", "settings").status == 0
    assert run("kv", "put", "settings", "colour", "red").status == 0
    assert run("object", "add", "files").status == 0
    assert run("object", "put", "files", "--name", "big", stdin=b"x" * 300_000).status == 0
    with connect(server.url) as client, client.jetstream().publisher() as publisher:
        for number in range(500):
            publisher.publish(f"r.{number % 7}", b"%d" % number)
        publisher.publish("o.new", b"bolts")


def empty(client: Client) -> None:
    js = client.jetstream()
    for name in js.stream_names():
        js.delete_stream(name)


def state(run: Run) -> dict[str, tuple[int, int, int]]:
    found = run("stream", "report", "--json").json
    return {
        each["config"]["name"]: (
            each["state"]["messages"],
            each["state"]["last_seq"],
            each["state"]["consumer_count"],
        )
        for each in found
    }


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_everything_is_backed_up_and_restored(
    run: Run, server: ServerProcess, tmp_path: Path
) -> None:
    fill(run, server)
    before = state(run)
    folder = tmp_path / "backups" / "today"
    assert run("account", "backup", folder, stdin=b"n\n").status == 130
    assert not folder.exists()
    done = run("account", "backup", folder, "--force", "--check", "--json").json
    assert {each["stream"]: each["state"] for each in done["streams"]} == dict.fromkeys(
        NAMES, "done"
    )
    assert sorted(each.name for each in folder.iterdir()) == NAMES
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.rglob("*"))
    again = run("account", "backup", folder, "-f")
    assert (again.status, "not empty" in again.err) == (1, True)
    with connect(server.url) as client:
        empty(client)
        assert run("account", "restore", folder).status == 0
        assert state(run) == before
        assert run("kv", "get", "settings", "colour", "--raw").out.strip() == "red"
        assert run("object", "get", "files", "big", "-O", tmp_path / "big").status == 0
        assert (tmp_path / "big").read_bytes() == b"x" * 300_000
        assert run("consumer", "ls", "ORDERS", "--names").out == "packing\n"
        # what is there already is passed over; another stream of the name is told
        client.jetstream().delete_stream("READINGS")
        client.jetstream().publish("o.more", b"")
        ran = run("account", "restore", folder, "--json")
        states = {each["stream"]: each["state"] for each in ran.json["streams"]}
        assert (ran.status, states) == (
            1,
            {"KV_settings": "kept", "OBJ_files": "kept", "ORDERS": "failed", "READINGS": "done"}
            | {"MEMORY": "kept"},
        )
        assert "another stream" in ran.err


def test_an_interrupted_backup_goes_on(run: Run, server: ServerProcess, tmp_path: Path) -> None:
    fill(run, server)
    folder = tmp_path / "backup"
    assert run("account", "backup", folder, "-f").status == 0
    # as a kill leaves it: a mark, a part of an archive, a stream that was not begun
    (folder / "account.json").write_text("{}")
    (folder / "READINGS" / "stream.tar.s2").rename(folder / "READINGS" / "stream.tar.s2.part")
    shutil.rmtree(folder / "ORDERS")
    assert run("account", "restore", folder, stdin=b"n\n").status == 130
    kept = (folder / "KV_settings" / "stream.tar.s2").stat().st_mtime_ns
    ran = run("account", "backup", folder, "-f")
    assert ran.status == 0
    assert "Goes on: after an interruption" in ran.out
    assert ran.out.endswith("5 streams: 2 done, 3 kept\n")
    assert sorted(each.name for each in folder.iterdir()) == NAMES
    assert (folder / "KV_settings" / "stream.tar.s2").stat().st_mtime_ns == kept
    with connect(server.url) as client:
        empty(client)
    (folder / "READINGS" / "backup.json").unlink()
    (folder / "ALSO").mkdir()
    damaged = run("account", "restore", folder)
    assert damaged.status == 1
    for name in ("ALSO", "READINGS"):
        assert f"{name}: the folder has no whole backup of a stream\n" in damaged.err
    assert damaged.out.endswith("6 streams: 4 done, 2 failed\n")
    assert sorted(state(run)) == [name for name in NAMES if name != "READINGS"]
    assert run("account", "restore", tmp_path / "none").status == 2
    (tmp_path / "nothing").mkdir()
    assert run("account", "restore", tmp_path / "nothing").status == 1


def test_one_damaged_archive_fails_alone(run: Run, server: ServerProcess, tmp_path: Path) -> None:
    fill(run, server)
    folder = tmp_path / "backup"
    assert run("account", "backup", folder, "-f").status == 0
    with connect(server.url) as client:
        empty(client)
    archive = folder / "READINGS" / "stream.tar.s2"
    archive.write_bytes(b"no archive at all" * 100)
    # the nats command leaves an empty file for a stream in memory
    (folder / "MEMORY" / "backup.json").write_bytes(b"")
    (folder / "KV_settings" / "backup.json").write_bytes(b"no JSON")
    ran = run("account", "restore", folder)
    assert ran.status == 1
    for name in ("READINGS", "MEMORY", "KV_settings"):
        assert f"pelton: {name}: " in ran.err
    assert ran.out.endswith("5 streams: 2 done, 3 failed\n")
    assert sorted(state(run)) == ["OBJ_files", "ORDERS"]


def test_restore_places_streams(run: Run, server: ServerProcess, tmp_path: Path) -> None:
    assert run("stream", "add", "S", "--subjects", "s").status == 0
    assert run("stream", "backup", "S", tmp_path / "b", "--no-progress").status == 0
    assert run("stream", "rm", "-f", "S").status == 0
    refused = run("stream", "restore", tmp_path / "b", "--replicas", "3")
    assert refused.status == 1
    assert "replicas > 1" in refused.err
    assert state(run) == {}
    placed = run("stream", "restore", tmp_path / "b", "--tag", "fast", "--json")
    assert placed.json["config"]["placement"]["tags"] == ["fast"]


@pytest.mark.parametrize("kind", available_servers())
def test_an_account_reports_on_itself(
    kind: str, cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with configured(kind, CONFIG % tmp_path) as running:
        url = f"nats://127.0.0.1:{running.ports['port']}"
        monkeypatch.setenv("NATS_URL", url)
        with connect(url, name="worker") as client:
            subscription = client.subscribe("orders.new")
            client.publish("orders.new", b"x" * 100)
            assert subscription.next(timeout=20) is not None
            words = ("account", "report", "connections")
            found = {each["name"]: each for each in cli(*words, "--json").json}
            assert found["worker"]["in_bytes"] >= 100
            (one,) = cli("a", "rep", "conns", "--subject", "orders.*", "-j").json
            assert one["name"] == "worker"
            assert "worker" in cli(*words, "--sort", "in-bytes", "--top", "1").out
            (row,) = cli("account", "report", "stats", "--json").json
            assert (row["server"], row["connections"]) == ("bertha", 2)
            assert row["received_bytes"] >= 100
            assert cli("account", "report", "statistics").out.startswith("Server")
        closed = (*words, "--state", "closed", "--json")
        until(lambda: "worker" in [each.get("name") for each in cli(*closed).json])
        reasons = {each["reason"] for each in cli(*closed, "--closed-reason", "client").json}
        assert reasons == {"Client Closed"}
        shown = cli("account", "info").out
        assert "User: anna\n" in shown
        assert "Account: A\n" in shown
        system = cli("--user", "admin", "--password", "secret", "account", "info")
        assert (system.status, "JetStream: no" in system.out) == (0, True)
