"""``pelton plgd fleet, publish, decode, reconcile, gateway`` as their users run them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pelton.plgd.codec import Envelope
from pelton.plgd.gateway import BlockingGatewayClient, ClientTls
from pelton.plgd.store import SqliteStore
from pelton.plgd.store.mongo import MongoStore
from tests.certificates import Authority
from tests.peers import ServerProcess, available_servers, running_server
from tests.plgd import vectors
from tests.plgd.mongods import running_mongod
from tests.plgd.tokens import Issuer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cli.conftest import Ran

    Run = Callable[..., Ran]

FAULTS = ["drop=0.05", "corrupt=0.02", "tail_drop=0.2"]
FLEET = ["--devices", "5", "--for", "5m", "--seed", "3", *(f"--fault={each}" for each in FAULTS)]


@pytest.fixture(params=available_servers())
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """A server for one test, because a stream of plgd.> is there once."""
    with running_server(request.param) as process:
        yield process


@pytest.fixture
def here(cli: Run, server: ServerProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command line with the server, in an empty folder."""
    monkeypatch.setenv("NATS_URL", server.url)
    monkeypatch.chdir(tmp_path)
    return cli


def test_a_fleet_is_made_published_compared_and_repaired(here: Run) -> None:
    made = here(
        "plgd", "fleet", *FLEET, "-o", "e.jsonl", "--truth", "t.jsonl", "--store", "s.db", "--json"
    )
    assert made.status == 0, made.err
    truth = [json.loads(line) for line in Path("t.jsonl").read_text().splitlines()]
    assert truth[-1] == {"kind": "summary"} | {k: v for k, v in made.json.items() if k != "seconds"}
    piped = here("plgd", "fleet", *FLEET, "-o", "-")
    assert piped.out == Path("e.jsonl").read_text()
    lost = [row for row in truth if row["kind"] == "loss" and row["aggregate_id"]]
    assert lost

    without = here("plgd", "publish", "e.jsonl")
    assert (without.status, without.err) == (
        1,
        "pelton: there is no stream EVENTS: pelton stream add EVENTS --subjects 'plgd.>'\n",
    )
    first = here("plgd", "publish", "e.jsonl", "--create", "--json").json
    assert first["published"] == made.json["delivered"]
    again = here("plgd", "publish", "-", stdin=piped.out.encode()).out
    assert (
        again
        == f"{first['published']:,} events published, 0 new; EVENTS has {first['messages']:,} messages\n"
    )

    plan = here("plgd", "reconcile", "--store", "s.db", "--dry-run", "--commands", "--json").json
    assert plan["summary"]["missing"] == len(lost)
    assert plan["summary"]["published_events"] == 0
    checked = here("plgd", "reconcile", "--store", "s.db", "--check", "--format", "csv")
    assert checked.status == 1
    assert len(checked.out.splitlines()) == len(plan["findings"]) + 1
    done = here("plgd", "reconcile", "--store", "s.db", "--commands")
    assert done.status == 0
    assert f"{len(lost):,} events and 0 states published\n" in done.out
    nothing = here("plgd", "reconcile", "--store", "s.db", "--check", "--format", "jsonl")
    assert (nothing.status, nothing.lines[-1]["summary"]["missing"]) == (0, 0)


def test_states_repair_what_they_can_and_the_rest_has_a_reason(here: Run) -> None:
    options = ["--store", "s.db", "--states", "-o", "e.jsonl"]
    assert here("plgd", "fleet", *FLEET, *options).status == 0
    assert here("plgd", "publish", "e.jsonl", "--create").status == 0
    done = here("plgd", "reconcile", "--store", "s.db")
    assert done.status == 0
    assert "not repaired: the store keeps only the state" in done.out
    none = here("plgd", "reconcile", "--store", "s.db", "--tables", ".")
    assert (none.status, "has no table 'events'" in none.err) == (1, True)
    report = here("plgd", "reconcile", "--store", "s.db", "--json").json
    assert report["summary"]["published_states"] == 0
    assert {each["state_version"] for each in report["findings"]} == {None}


def test_events_are_printed_for_people_and_programs(here: Run) -> None:
    assert (
        here("plgd", "publish", "--devices", 2, "--for", "2m", "--seed", 1, "--create").status == 0
    )
    rows = here("plgd", "decode", "--stream", "EVENTS", "--format", "jsonl").lines
    assert rows[0]["event_type"] in {"devicesregistered", "devicemetadataupdated"}
    lights = here(
        "plgd",
        "decode",
        "--stream",
        "EVENTS",
        "--filter",
        "changed",
        "--href",
        "/light/1",
        "--json",
    )
    assert {row["href"] for row in lights.json} == {"/light/1"}
    assert set(lights.json[0]["content"]) >= {"state", "power"}
    owner = rows[0]["message"].get("owner") or rows[0]["message"]["audit_context"]["owner"]
    own = here(
        "plgd", "decode", "--stream", "EVENTS", "--filter", "owner", "--owner", owner, "--json"
    ).json
    assert 0 < len(own) < len(rows)
    text = here("plgd", "decode", "--stream", "EVENTS", "--count", 2, "--from", 2).out.splitlines()
    assert [line.split("  ")[0] for line in text] == ["2", "3"]
    table = here("plgd", "decode", "--stream", "EVENTS", "--count", 3, "--format", "md").out
    assert len(table.splitlines()) == 5

    one = ("plgd", "decode", "--subject", vectors.CHANGED_SUBJECT, "--json")
    [golden] = here(*one, stdin=vectors.CHANGED).json
    assert golden["content"] == {"state": True, "power": 42, "name": "Light"}
    assert (golden["version"], golden["message"]["status"]) == (7, "OK")
    envelope = Envelope.FromString(vectors.CHANGED)
    envelope.version = 2**64 - 1
    [large] = here(*one, stdin=envelope.SerializeToString()).json
    assert large["version"] == 2**64 - 1
    Path("payload").write_bytes(vectors.CHANGED[:-30])
    bad = here(*one, "payload")
    assert bad.status == 1
    assert (bad.json[0]["error"], "data_base64" in bad.json[0]) == ("envelope", True)
    assert "envelope: " in here(*one[:-1], "payload").out


@pytest.mark.parametrize(
    ("line", "status", "text"),
    [
        ("decode --stream EVENTS x", 2, "excludes"),
        ("decode --stream EVENTS --filter nope", 2, "no filter 'nope'; there are all, owner"),
        ("decode missing.jsonl", 1, "cannot read missing.jsonl"),
        ("decode --stream NONE", 1, "pelton stream add NONE --subjects 'plgd.>'"),
        ("publish missing.jsonl", 1, "cannot read missing.jsonl"),
        ("fleet --devices -1", 2, "must not be negative"),
        ("fleet --hub 3", 2, "a version such as"),
        ("fleet --fault drop=2", 2, "no probability"),
        ("fleet --fault nope=1", 2, "no fault 'nope'"),
        ("fleet --fault outage=x-1", 2, "--fault"),
        ("fleet --states", 2, "--states needs --store"),
        ("fleet --store .", 2, "is a directory"),
        ("reconcile", 2, "give --store or --gateway"),
        ("reconcile --store a --gateway b", 2, "give --store or --gateway"),
        ("reconcile --store none.db", 1, "there is no event store none.db"),
        ("reconcile --gateway 127.0.0.1:1", 2, "needs --token"),
        ("reconcile --gateway 127.0.0.1:1 --token x", 2, "no token"),
        ("reconcile --gateway http://hub:1 --token x", 2, "--gateway is host:port"),
        ("gateway --store e.db --jwks none --plaintext --listen x", 2, "--listen is host:port"),
        ("gateway --store e.db --jwks none --cert bytes --key bytes", 1, "--cert bytes is no PEM"),
        ("decode bytes", 1, "bytes: not text: events are lines of JSON"),
        ("publish bytes --create", 1, "bytes: not text: events are lines of JSON"),
        ("reconcile --gateway 127.0.0.1:1 --token-file none", 1, "cannot read the token none"),
        ("gateway --store none.db --jwks none --plaintext", 1, "cannot read --jwks none"),
        ("gateway --store none.db --jwks none", 2, "give --cert and --key, or --plaintext"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(here: Run, line: str, status: int, text: str) -> None:
    Path("bytes").write_bytes(b"\xff\xfe")
    ran = here("plgd", *line.split())
    assert (ran.status, ran.err.count("\n"), ran.out) == (status, 1, "")
    assert text in ran.err


def test_a_line_that_is_no_event_is_named(here: Run) -> None:
    Path("bad.jsonl").write_text('{"subject":"a","data_base64":"AA=="}\n\n{"subject":"a"}\n')
    for command in (
        ("decode", "bad.jsonl", "--format", "jsonl"),
        ("decode", "-", "--format", "jsonl"),
    ):
        ran = here("plgd", *command, stdin=Path("bad.jsonl").read_bytes())
        assert ran.status == 1
        assert ":3: not an event as JSON" in ran.err


def test_a_gateway_gives_back_what_the_stream_lost(
    here: Run, server: ServerProcess, tmp_path: Path
) -> None:
    assert here("plgd", "fleet", *FLEET, "-o", "e.jsonl", "--store", "s.db").status == 0
    assert here("plgd", "publish", "e.jsonl", "--create").status == 0
    with SqliteStore("s.db") as store:
        owner = next(iter(store.aggregates())).owner
    issuer, authority = Issuer(), Authority(tmp_path)
    own = authority.server()
    Path("keys.json").write_text(issuer.key_set())
    Path("token").write_text(issuer.token(owner) + "\n")
    command = [sys.executable, "-m", "pelton.cli", "plgd", "gateway", "--store", "s.db", "--json"]
    command += [
        "--listen",
        "127.0.0.1:0",
        "--jwks",
        "keys.json",
        "--cert",
        own.cert_file,
        "--key",
        own.key_file,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path)
    try:
        assert process.stdout is not None
        heard: dict[str, Any] = json.loads(process.stdout.readline())
        target = f"127.0.0.1:{heard['port']}"
        ca = Path(authority.ca_file).read_bytes()
        with BlockingGatewayClient(target, issuer.token(owner), tls=ClientTls(ca)) as calls:
            assert list(calls.devices())
        common = ["--gateway", target, "--token-file", "token", "--commands"]
        trusted = [*common, "--ca", authority.ca_file]
        plan = here("plgd", "reconcile", *trusted, "--dry-run", "--json").json
        by_store = here(
            "plgd",
            "reconcile",
            "--store",
            "s.db",
            "--owner",
            owner,
            "--dry-run",
            "--commands",
            "--json",
        ).json
        assert plan["summary"] == by_store["summary"]
        done = here("plgd", "reconcile", *trusted, "--json").json
        assert done["summary"]["published_events"] == plan["summary"]["missing"]
        assert here("plgd", "reconcile", *trusted, "--check").status == 0
        wrong = here("plgd", "reconcile", *common)
        assert (wrong.status, "UNAVAILABLE" in wrong.err) == (1, True)
        other = here("plgd", "reconcile", *trusted, "--owner", "somebody")
        assert other.status == 2
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stdout is not None
        process.stdout.close()


def test_a_store_in_mongodb_is_the_truth_as_well(here: Run) -> None:
    assert here("plgd", "fleet", *FLEET, "-o", "e.jsonl", "--store", "s.db", "--states").status == 0
    assert here("plgd", "publish", "e.jsonl", "--create").status == 0
    with running_mongod("ours") as mongod:
        with SqliteStore("s.db", history=False) as store, MongoStore.connect(mongod.url) as copy:
            copy.fill((state, []) for state in store.aggregates())
        options = ["--dry-run", "--commands", "--json"]
        by_file = here("plgd", "reconcile", "--store", "s.db", *options).json
        by_url = here("plgd", "reconcile", "--store", mongod.url, *options).json
        assert by_file == by_url
        assert by_url["summary"]["missing"] > 0
    down = here("plgd", "reconcile", "--store", f"{mongod.url}?serverSelectionTimeoutMS=200")
    assert (down.status, down.err.startswith("pelton: MongoDB: ")) == (1, True)
