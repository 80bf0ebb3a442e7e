"""``pelton server watch api requests``, ``stream-check`` and ``consumer-check``, ``check exporter``."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pelton import StreamConfig
from pelton.cli.server.api_requests import Counter, parts
from pelton.cli.server.check_report import Metric, Report, exposition
from pelton.cli.server.copies import _consumer_state, _stream_state, judged
from pelton.sync import connect
from tests import copies
from tests.certificates import Authority
from tests.cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Ran, WithSystem
    from tests.peers import ServerProcess

    Run = Callable[..., Ran]

# -- watch api requests ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "found"),
    [
        ("$JS.API.INFO", ("INFO", "", "")),
        ("$JS.hub.API.STREAM.NAMES", ("STREAM.NAMES", "", "")),
        ("$JS.API.STREAM.INFO.ORDERS", ("STREAM.INFO", "ORDERS", "")),
        ("$JS.API.STREAM.MSG.GET.ORDERS", ("STREAM.MSG.GET", "ORDERS", "")),
        ("$JS.API.CONSUMER.CREATE.S.c.a.b.>", ("CONSUMER.CREATE", "S", "c")),
        ("$JS.API.CONSUMER.CREATE.S", ("CONSUMER.CREATE", "S", "")),
        ("$JS.API.CONSUMER.DURABLE.CREATE.S.c", ("CONSUMER.DURABLE.CREATE", "S", "c")),
        ("$JS.API.DIRECT.GET.S.a.b", ("DIRECT.GET", "S", "")),
        ("$JS.API.NONSENSE.S", None),
    ],
)
def test_the_subject_of_a_request(subject: str, found: tuple[str, str, str] | None) -> None:
    assert parts(subject) == found


def test_requests_are_counted() -> None:
    counter = Counter(re.compile("^A"), consumers=True, interval_s=60)
    for second in range(100):
        counter.take("$JS.API.STREAM.INFO.S", "A", second)
    counter.take("$JS.API.CONSUMER.INFO.S.c", "AB", 99)
    counter.take("$JS.API.STREAM.INFO.S", "B", 99)
    rows = counter.rows(100, reverse=False)
    assert [(row["type"], row["count"], row["recent"]) for row in rows] == [
        ("STREAM.INFO", 100, 59),
        ("CONSUMER.INFO", 1, 1),
    ]
    assert rows[1]["asset"] == "S > c"
    assert counter.rows(100, reverse=True)[0]["account"] == "AB"
    assert [row["recent"] for row in counter.rows(1000, reverse=False)] == [0, 0]
    together = Counter(None, consumers=False, interval_s=1)
    for name in ("a", "b"):
        together.take(f"$JS.API.CONSUMER.INFO.S.{name}", "", 1)
    assert [row["count"] for row in together.rows(1, reverse=False)] == [2]
    for number in range(11_000):
        together.take(f"$JS.API.STREAM.INFO.S{number}", "", 2)
    assert len(together.rows(2, reverse=False)) == 10_000


def test_requests_are_followed(bertha: WithSystem, cli: Run, unique: str) -> None:
    words = ("server", "watch", "api", "requests", "-s", bertha.system, "--json")
    command = [
        sys.executable,
        "-m",
        "pelton.cli",
        *words,
        "--interval",
        "100ms",
        "--account",
        "^A$",
    ]
    with copies.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        try:
            assert json.loads(watching.stdout.readline()) == []
            with connect(bertha.plain) as client:
                js = client.jetstream()
                js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
                for _ in range(3):
                    js.stream_info(unique)
            counts: dict[str, int] = {}
            while counts.get("STREAM.INFO", 0) < 3:
                rows = json.loads(watching.stdout.readline())
                counts = {row["type"]: row["count"] for row in rows if row["stream"] == unique}
                assert all(row["account"] == "A" for row in rows)
            assert counts == {"STREAM.CREATE": 1, "STREAM.INFO": 3}
        finally:
            watching.kill()
    assert (
        cli("server", "watch", "api", "requests", "--account", "(", "-s", bertha.system).status == 2
    )
    with Terminal(*words[:-1], "--count", 1, "--interval", "50ms") as screen:
        assert screen.status() == 0
        assert "Asset" in screen.shown


def test_a_copy_of_a_request_does_nothing_in_the_system_account(
    bertha: WithSystem, unique: str
) -> None:
    """An account asks for what only the system account may: nothing happens, and nobody sees a reply subject."""
    with connect(bertha.plain) as client, connect(bertha.system) as system:
        watched = system.subscribe("$JS.API.>")
        system.flush()
        js = client.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
        client.publish("$JS.API.ACCOUNT.PURGE.A", b"", reply="answer.here")
        js.stream_info(unique)
        subject = ""
        while subject != f"$JS.API.STREAM.INFO.{unique}":  # the last of what was asked
            message = watched.next(timeout=30)
            subject = message.subject
            info = message.headers["Nats-Request-Info"]
            assert json.loads(info)["acc"] == "A"
            if not message.reply.startswith("_R_"):  # nats-server names a reply of its own
                assert message.reply == ""
        assert unique in js.stream_names()


# -- stream-check ----------------------------------------------------------------------------------


def copy(server: str, **given: Any) -> dict[str, Any]:
    state = {"messages": 5, "bytes": 50, "first_seq": 1, "last_seq": 5}
    peers = [{"name": name, "current": True, "offline": False} for name in "abc" if name != "a"]
    whole = {"account": "A", "stream": "S", "server": server, "leader": "a", "clustered": True}
    return {**whole, "replicas": peers if server == "a" else [], **state, **given}


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ([{}, {}, {}], ["IN SYNC"] * 3),
        ([{}, {"last_seq": 4}, {}], ["UNSYNCED"] * 3),
        ([{"leader": ""}, {"leader": ""}, {"leader": ""}], ["LEADERLESS"] * 3),
        ([{}, {"leader": "b"}, {}], ["MULTILEADER"] * 3),
        ([{}, {"leader": ""}, {}], ["IN SYNC", "LEADERLESS", "IN SYNC"]),
        (
            [{"replicas": [{"name": "a", "current": True, "offline": False}]}, {}, {}],
            ["LEADER_IS_FOLLOWER", "IN SYNC", "IN SYNC"],
        ),
        ([{"clustered": False, "leader": ""}], ["IN SYNC"]),
    ],
)
def test_copies_are_judged(changes: list[dict[str, Any]], status: list[str]) -> None:
    copies = [copy(server, **change) for server, change in zip("abc", changes, strict=False)]
    other = copy("a", stream="T", leader="")
    rows = judged([*reversed(copies), other], _stream_state)
    assert [each["status"] for each in rows if each["stream"] == "S"] == status
    assert rows[-1]["status"] == "LEADERLESS"


def test_copies_of_consumers_are_judged() -> None:
    places = {
        f"{a}_{b}": 7 for a in ("delivered", "ack_floor") for b in ("stream_seq", "consumer_seq")
    }
    copies = [copy(server, consumer="c", num_pending=n, **places) for n, server in enumerate("abc")]
    assert {each["status"] for each in judged(copies, _consumer_state)} == {"IN SYNC"}
    copies[1]["ack_floor_stream_seq"] = 6
    assert {each["status"] for each in judged(copies, _consumer_state)} == {"UNSYNCED"}


def test_copies_on_one_server(bertha: WithSystem, cli: Run, unique: str) -> None:
    with connect(bertha.plain) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
        js.publish(f"{unique}.a", b"x")
    words = ("-s", bertha.plain, "consumer", "add", unique, "c", "--pull", "--defaults")
    assert cli(*words).status == 0
    words = ("-s", bertha.system, "server")
    ran = cli(*words, "stream-check", "--stream", unique, "--health", "--json")
    (row,) = ran.json
    assert (row["messages"], row["server"], row["status"], row["health"]) == (
        1,
        "bertha",
        "IN SYNC",
        "ok",
    )
    assert ran.status == 0
    (row,) = cli(*words, "consumer-check", "--stream", unique, "--json").json
    assert (row["consumer"], row["num_pending"], row["status"]) == ("c", 1, "IN SYNC")
    assert unique in cli(*words, "stream-check").out
    wrong = cli("server", "stream-check", "--stdin", stdin=b"{nonsense")
    assert (wrong.status, wrong.out) == (2, "")
    assert cli("server", "stream-check", "--stdin", "--health", stdin=b"").status == 2
    ran = cli("-s", bertha.plain, "server", "stream-check")
    assert (ran.status, ran.out) == (1, "")
    assert "system account" in ran.err


# -- exporter --------------------------------------------------------------------------------------


def test_metrics_of_one_name_stand_together() -> None:
    reports = [
        Report("stream", name, ok=["fine"], metrics=[Metric("messages", 3, "Messages")])
        for name in ("a", "b")
    ]
    text = exposition([*reports, Report("kv", "c", critical=["gone"])], "x")
    families = {each.name: each for each in text_string_to_metric_families(text)}
    assert {each.labels["item"] for each in families["x_stream_messages"].samples} == {"a", "b"}
    assert text.count("# TYPE x_stream_messages gauge") == 1
    assert families["x_kv_status_code"].samples[0].value == 2


def exported(config: Path, *more: object, context: ssl.SSLContext | None = None) -> str:
    """What a running exporter serves."""
    words = ["server", "check", "exporter", "--config", config, "--port", 0, *more]
    command = [sys.executable, "-m", "pelton.cli", *(str(each) for each in words)]
    with copies.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        try:
            line = running.stderr.readline()
            found = re.search(r"served at (\S+)", line)
            assert found, line
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(found[1] + "x", context=context)
            for _ in range(2):  # the connection is used again
                with urllib.request.urlopen(found[1], context=context) as answer:
                    text = str(answer.read().decode())
            return text
        finally:
            running.kill()


def test_checks_are_exported(at: Run, peer: ServerProcess, unique: str, tmp_path: Path) -> None:
    assert at("stream", "add", unique, "--subjects", f"{unique}.>", "--defaults").status == 0
    assert at("pub", f"{unique}.a", "x", "--count", 3, "-J").status == 0
    assert at("context", "add", "here", "--server", peer.url).status == 0
    config = tmp_path / "checks.yaml"
    config.write_text(
        f"""
context: here
checks:
  - name: orders
    kind: stream
    reuse_connection: true
    properties: {{stream_name: {unique}, messages_critical: 5, sources_seen_critical: 1.5}}
  - {{name: up, kind: connection, properties: {{connect_time_warning: 60, server_rtt_critical: 60}}}}
  - {{name: usage, kind: jetstream, reuse_connection: true, properties: {{check_replicas: false}}}}
  - {{name: gone, kind: consumer, properties: {{stream_name: {unique}, consumer_name: none}}}}
  - {{name: nowhere, kind: kv, context: none, properties: {{bucket: b}}}}
  - {{name: last, kind: message, properties: {{stream: {unique}, subject: "{unique}.>", content_regex: x}}}}
"""
    )
    authority = Authority(tmp_path)
    issued = authority.server()
    text = exported(
        config,
        *("--https-certificate", issued.cert_file, "--https-key", issued.key_file),
        context=ssl.create_default_context(cafile=authority.ca_file),
    )
    codes = {
        sample.labels["item"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.name.endswith("_status_code")
    }
    assert codes == {"orders": 2, "up": 0, "usage": 0, "gone": 2, "nowhere": 2, "last": 0}
    assert 'nats_server_check_stream_messages{item="orders"} 3' in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("checks: {", "while parsing"),
        ("context: x", "a list `checks` is missing"),
        ("check: []\nchecks: []", "unknown key 'check'; did you mean \"checks\"?"),
        (
            "checks: [{kind: streem}]",
            "check 1: there is no kind 'streem'; did you mean \"stream\"?",
        ),
        ("checks: [{kind: kv, propertys: {}}]", 'did you mean "properties"?'),
        ("checks: [{kind: kv, properties: {buckett: x}}]", 'did you mean "bucket"?'),
        ("checks: [{kind: kv, properties: {}}]", "Missing option '--bucket'"),
        ("checks: [{kind: meta, properties: {expect_servers: x}}]", "is not a whole number"),
        ("checks: [{kind: connection}, {kind: connection}]", "there are two checks"),
    ],
)
def test_mistakes_of_a_file_of_checks(cli: Run, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    ran = cli("server", "check", "exporter", "--config", tmp_path / "c.yaml")
    assert (ran.status, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1
