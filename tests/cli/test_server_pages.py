"""``pelton server request`` and ``report`` over the system account of every server there is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pelton.sync import connect
from tests import copies
from tests.cli.test_server_reports import CONFIG
from tests.copies.local import LocalServer
from tests.peers import available_servers
from tests.server.configured import configured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Ran

    Run = Callable[..., Ran]

REQUESTS = {
    "variables": "version",
    "connections": "connections",
    "subscriptions": "num_subscriptions",
    "accounts": "accounts",
    "jetstream": "streams",
    "jetstream-health": "status",
    "leafnodes": "leafs",
    "routes": "routes",
    "gateways": "outbound_gateways",
    "raft": "",
    "ipqueue": "",
}


class Served(NamedTuple):
    """A running server: the command line as its system user, and a client's URL."""

    run: Run
    url: str
    kind: str


@pytest.fixture(scope="module", params=available_servers())
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    with configured(request.param, CONFIG % tmp_path_factory.mktemp("store")) as server:
        yield request.param, f"127.0.0.1:{server.ports['port']}"


@pytest.fixture
def served(running: tuple[str, str], cli: Run, monkeypatch: pytest.MonkeyPatch) -> Served:
    kind, address = running
    monkeypatch.setenv("NATS_URL", f"nats://admin:secret@{address}")
    return Served(cli, f"nats://{address}", kind)


@pytest.mark.parametrize("page", REQUESTS)
def test_pages_are_printed_as_the_server_wrote_them(served: Served, page: str) -> None:
    ran = served.run("server", "request", page)
    (answer,) = ran.lines
    assert answer["server"]["name"] == "bertha"
    assert REQUESTS[page] in {"", *answer["data"]}
    assert ran.status == 0
    identity = answer["server"]["id"]
    for words in ((1,), ("--name", "bertha"), ("--name", identity)):
        (again,) = served.run("server", "req", page, *words, "--json").json
        assert again["server"]["id"] == identity
    gone = served.run("--timeout", "1s", "server", "request", page, "--name", "gone")
    assert (gone.status, gone.out) == (1, "")
    assert "no server answers" in gone.err


def test_options_of_requests_reach_the_server(served: Served) -> None:
    run = served.run
    with connect(served.url) as client:
        client.subscribe("orders.new")
        client.rtt()
        found = run("server", "request", "connections", "--filter-account", "A", "--subscriptions")
        (one,) = found.lines[0]["data"]["connections"]
        assert one["subscriptions_list_detail"][0]["subject"] == "orders.new"
        assert run("server", "req", "conn", "--filter-user", "nobody", "--filter-empty").out == ""
        by_cid = run("server", "req", "connz", "--filter-cid", one["cid"]).lines[0]["data"]
        assert [each["cid"] for each in by_cid["connections"]] == [one["cid"]]
        wanted = ("--detail", "--filter-account", "A", "--filter-subject", "orders.new")
        (subs,) = run("server", "req", "sub", *wanted).lines
        assert "orders.new" in [each["subject"] for each in subs["data"]["subscriptions_list"]]
        page = run("server", "req", "conn", "--limit", "1", "--sort", "subs").lines[0]["data"]
        assert (len(page["connections"]), page["limit"]) == (1, 1)
    (details,) = run("server", "req", "acct", "--account", "A").lines
    assert details["data"]["account_detail"]["account_name"] == "A"
    (every,) = run("server", "req", "js", "--all").lines
    assert {each["name"] for each in every["data"]["account_details"]} >= {"A"}
    missing = run("server", "req", "healthz", "--account", "A", "--stream", "NONE").lines[0]["data"]
    assert missing["status_code"] == 404
    refused = run("server", "req", "acct", "--account", "nope")
    assert (refused.status, "error" in refused.lines[0]) == (1, True)


def test_a_client_is_disconnected(served: Served) -> None:
    with connect(served.url) as client:
        info = client.server_info
        kick = ("server", "request", "kick", info.client_id, info.server_id)
        refused = served.run(*kick, "--name", "another")
        assert refused.status == 1
        ran = served.run(*kick, "--name", info.server_name, "--limit", 5)
        assert ran.json["server"]["name"] == "bertha"
        assert "error" not in ran.json
    gone = served.run("server", "request", "kick", 999_999, info.server_id)
    assert (gone.status, gone.out) == (1, "")
    assert "no such client" in gone.err


def test_profiles_are_files(served: Served, tmp_path: Path) -> None:
    (written,) = served.run("server", "request", "profile", "heap", tmp_path, "--json").json
    (path,) = tmp_path.iterdir()
    assert written == {"server": "bertha", "file": str(path)}
    assert path.name.startswith("heap-")
    assert path.stat().st_mode & 0o077 == 0
    if served.kind == "nats-server":
        assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert served.run("server", "request", "profile", "nonsense").status == 2


def test_reports_compare_servers(served: Served) -> None:
    run = served.run
    with connect(served.url) as client:
        client.subscribe("orders.new")
        client.publish("orders.new", b"x" * 1000)
        client.rtt()
        accounts = {
            each["account"]: each for each in run("server", "report", "accounts", "-j").json
        }
        assert accounts["A"]["connections"] == 1
        assert accounts["A"]["in_bytes"] >= 1000
        assert accounts["$SYS"]["connections"] == 1
        table = run("server", "report", "acct", "--sort", "in-bytes").out.splitlines()
        assert table[0].split()[:2] == ["Account", "Connections"]
        assert [line.split()[0] for line in table[1:]] == ["$SYS", "A", "Total"]
        turned = run("server", "report", "acct", "--sort", "in-bytes", "-R").out.splitlines()
        assert [line.split()[0] for line in turned[1:]] == ["A", "$SYS", "Total"]
        top = run("server", "report", "acct", "--sort", "in-bytes", "--top", "1", "-j").json
        assert [each["account"] for each in top] == ["A"]
        (one,) = run("server", "report", "accounts", "A", "-j").json
        assert one["cid"] == client.server_info.client_id
        every = run("server", "report", "connections", "--sort", "cid", "-j").json
        assert [each["cid"] for each in every] == sorted(each["cid"] for each in every)
        assert "Total of 2 connections" in run("server", "rep", "conns").out
        found = run("server", "report", "conn", "--account", "A", "--subject", "orders.*", "-j")
        assert [each["cid"] for each in found.json] == [one["cid"]]
    assert run("server", "report", "conn", "--subject", "x").status == 2
    closed = run("server", "report", "conn", "--state", "closed", "--closed-reason", "client", "-j")
    assert one["cid"] in [each["cid"] for each in closed.json]
    assert run("server", "report", "mem", "-j").json["bertha"] > 1 << 20
    assert run("server", "report", "cpu").out.splitlines()[1].startswith("bertha")


def test_reports_of_jetstream_health_and_links(served: Served, unique: str) -> None:
    run = served.run
    with connect(served.url) as client:
        body = {"name": unique, "subjects": [unique], "metadata": {}, "allow_msg_ttl": True}
        client.request(f"$JS.API.STREAM.CREATE.{unique}", json.dumps(body).encode())
        client.jetstream().publish(unique, b"one")
    (row,) = run("server", "report", "jetstream", "-j").json
    assert (row["server"], row["streams"] > 0, row["messages"] > 0) == ("bertha", True, True)
    (own,) = run("server", "report", "js", "--account", "A", "-j").json
    assert (own["streams"], own["messages"]) == (row["streams"], row["messages"])
    assert run("server", "report", "jsz", "-l").out.count("bertha") == 3
    (healthy,) = run("server", "report", "health", "-j").json
    assert healthy["status"] == "ok"
    sick = run("server", "report", "health", "--account", "A", "--stream", "NONE")
    assert sick.status == 1
    assert "404" in sick.out
    for page in ("leafnodes", "routes", "gateways"):
        assert run("server", "report", page, "-j").json == []
        assert run("server", "report", page).out.startswith("Server")
    found = run("server", "report", "downgrade", "0", "-j")
    assert {"account": "A", "stream": unique, "consumer": "", "api_level": 1} in found.json
    assert found.status == 1
    assert run("server", "report", "downgrade", "99").status == 0


def test_servers_are_watched(served: Served) -> None:
    run = served.run
    for noun, column in (("accounts", "conns"), ("jetstream", "storage"), ("servers", "mem")):
        ran = run("server", "watch", noun, "--count", "2", "--interval", "10ms", "--json")
        assert [bool(rows) and column in rows[0] for rows in ran.lines] == [True, True], ran.err
        assert run("server", "watch", noun, "--count", "1").out.count("\n") >= 2
    (sample,) = run("server", "graph", "bertha", "--count", "1", "--interval", "10ms", "-j").lines
    assert sample["connections"] == 1
    drawn = run("server", "graph", "bertha", "--jetstream", "--count", "1", "--interval", "10ms")
    assert "storage " in drawn.out
    assert run("--timeout", "1s", "server", "graph", "gone").err.count("\n") == 1


def test_a_watch_goes_on_after_a_restart(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text("accounts { $SYS { users: [ { user: admin, password: secret } ] } }\n")
    with LocalServer(options=["-c", str(config)]) as server:
        url = server.url.replace("://", "://admin:secret@")
        words = [sys.executable, "-m", "pelton.cli", "-s", url, "--timeout", "500ms", "server"]
        words += ["watch", "servers", "--interval", "50ms", "--json"]
        with copies.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watching:
            assert watching.stdout is not None
            assert json.loads(watching.stdout.readline())[0]["connections"] == 1
            server.kill()
            server.start()
            server.wait_ready()
            with connect(url) as client:
                client.subscribe("a")
                while json.loads(watching.stdout.readline())[0]["connections"] != 2:
                    assert watching.poll() is None
            watching.send_signal(signal.SIGINT)
            watching.stdout.read()
            assert watching.wait(60) == 130


def test_a_user_of_another_account_is_told(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_URL", served.url)
    for words in (("request", "varz"), ("report", "cpu"), ("watch", "servers")):
        ran = served.run("--timeout", "1s", "server", *words)
        assert (ran.status, ran.out) == (1, ""), words
        assert "system account" in ran.err
