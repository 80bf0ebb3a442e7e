"""``events``, ``top``, ``trace``, ``traffic``, ``latency``: beside every server, and at a terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.cli.live.event_texts import TEXTS, cloud_event, facts_of, line_of, title_of
from pelton.cli.live.hosts import HostNames
from pelton.cli.live.latency import distribution
from pelton.cli.live.top import COLUMNS, SORTS, Snapshots, seconds_of
from pelton.cli.live.trace import complete, lines_of, tree_of
from pelton.cli.live.traffic import kind_of
from tests import copies
from tests.cli.terminal import Terminal
from tests.nats_clusters import running_cluster, wait_until_ready
from tests.peers import available_servers
from tests.server.configured import configured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Ran
    from tests.peers import ServerProcess

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
ADMIN = {"NATS_USER": "admin", "NATS_PASSWORD": "secret"}
WINDOW = {"TERM": "xterm", "COLUMNS": "", "LINES": ""}
ALTERNATE, NORMAL = "\x1b[?1049h", "\x1b[?1049l"


@pytest.fixture(params=available_servers())
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A server with a system account."""
    with configured(request.param, CONFIG % tmp_path) as running:
        yield f"nats://127.0.0.1:{running.ports['port']}"


@contextmanager
def background(*words: object, marker: str, environment: dict[str, str]) -> Iterator[Any]:
    """A command in the background, from the time that it says the marker on stderr."""
    command = [sys.executable, "-m", "pelton.cli", *(str(each) for each in words)]
    running = copies.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    try:
        while marker not in (line := running.stderr.readline()):
            assert line, "it has ended"
        yield running
    finally:
        running.kill()
        running.wait()


# -- events


@given(
    st.sampled_from(sorted(TEXTS)),
    st.recursive(
        st.none() | st.integers() | st.booleans() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(["stream", "client", "name", "replicas", "x"]), inner, max_size=3
            )
        ),
        max_leaves=6,
    ),
)
def test_every_event_has_texts_whatever_it_holds(kind: str, content: Any) -> None:
    event = {"stream": content, "client": content, "replicas": content, "type": kind}
    for each in (event, {**event, "type": "org.example.unknown"}, {"type": kind}):
        assert title_of(each)
        assert line_of(each).startswith("[")
        assert all(text for _, text in facts_of(each))
        assert json.loads(json.dumps(cloud_event(each, "s")))["specversion"] == "1.0"


def test_advisories_as_they_come(at: Run, peer: ServerProcess, unique: str) -> None:
    words = ("events", "--js-advisory", "--no-srv-advisory", "--filter", f'stream":"{unique}"')
    environment = {"NATS_URL": peer.url}
    with background(*words, "-n", 2, marker="listening", environment=environment) as running:
        at("stream", "add", unique, "--subjects", unique, "--defaults")
        at("consumer", "add", unique, "c", "--pull", "--defaults")
        out, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert "] Stream create\n" in out
    assert f"  Stream: {unique}\n" in out
    assert "] Consumer create\n" in out


def test_events_out_of_a_stream(at: Run, unique: str) -> None:
    at("stream", "add", f"{unique}E", "--subjects", f"{unique}.event", "--defaults")
    event = {
        "type": "io.nats.jetstream.advisory.v1.max_deliver",
        "id": "one",
        "timestamp": "2026-11-24T12:00:01Z",
        "stream": "ORDERS",
        "consumer": "c",
        "stream_seq": 1234,
        "deliveries": 5,
    }
    at("pub", f"{unique}.event", json.dumps(event), "-J")
    at("pub", f"{unique}.event", json.dumps({"type": "org.example", "a": {"b": 1}}), "-J")
    words = ("events", "--stream", f"{unique}E")
    short = at(*words, "--short", "-n", 2).out.splitlines()
    assert short[0] == "12:00:01 [Delivery attempts used up] ORDERS (1,234) > c: 5 deliveries"
    assert short[1].endswith("[org.example] a.b=1")
    page = at(*words, "-n", 1).out
    assert page.startswith("[12:00:01] [one] Delivery attempts used up\n\n")
    assert "    Deliveries: 5\n" in page
    assert at(*words, "-n", 1, "--json").json == event
    assert at(*words, "-n", 1, "--filter", "EXAMPLE", "--json").json["type"] == "org.example"
    assert at(*words, "-n", 1, "--since", "1h", "--json").json == event
    cloud = at(*words, "-n", 1, "--cloudevent").json
    assert (cloud["id"], cloud["time"]) == ("one", event["timestamp"])
    assert cloud["data"]["deliveries"] == 5
    gone = at("events", "--stream", f"{unique}GONE")
    assert (gone.status, gone.out) == (1, "")
    assert "stream not found" in gone.err


def test_connects_are_events_of_the_server(url: str) -> None:
    environment = {"NATS_URL": url, **ADMIN}
    with background("events", "-n", 2, marker="AUTH.ERR", environment=environment) as running:
        copies.run([sys.executable, "-m", "pelton.cli", "-s", url, "rtt"], check=True)
        out, _ = running.communicate(timeout=60)
    assert "Client connected\n" in out
    assert "Client disconnected\n" in out
    assert "User: anna\n" in out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--no-srv-advisory",), "no events were chosen"),
        (("--stream", "S", "--all"), "--stream excludes"),
        (("--since", "1h"), "--since needs --stream"),
        (("--filter", "("), "no expression"),
    ],
)
def test_events_that_cannot_be_chosen(cli: Run, words: tuple[str, ...], text: str) -> None:
    ran = cli("events", *words)
    assert (ran.status, ran.out) == (2, "")
    assert text in ran.err


# -- trace


def test_a_trace_shows_who_gets_a_message(at: Run, peer: ServerProcess, unique: str) -> None:
    at("stream", "add", unique, "--subjects", f"{unique}.>", "--defaults")
    environment = {"NATS_URL": peer.url}
    with background(
        "sub", f"{unique}.*", "--queue", "workers", marker="listening", environment=environment
    ):
        ran = at("trace", f"{unique}.a", "hello", "-H", "K: v", "--timestamp")
        assert ran.status == 0
        assert f'JetStream action:"stored" stream:"{unique}" subject:"{unique}.a"' in ran.out
        assert f'subject:"{unique}.*" queue:"workers"' in ran.out
        assert "JetStream: 1\n" in ran.out
        told = at("trace", f"{unique}.a", "--json").json
        assert told["servers"][0]["events"][0]["type"] == "in"
    assert at("stream", "info", unique, "--json").json["state"]["messages"] == 0
    assert at("trace", f"{unique}.a", "x", "--deliver").status == 0
    assert at("stream", "info", unique, "--json").json["state"]["messages"] == 1
    alone = at("trace", f"nobody.{unique}")
    assert alone.status == 1
    assert "--X No active interest\n" in alone.out
    wrong = at("trace", "a", "-H", "Nats-Trace-Dest: b")
    assert wrong.status == 2


def _answer(hop: str, events: list[dict[str, Any]], hops: int = 0) -> dict[str, Any]:
    header = {"Nats-Trace-Hop": [hop]} if hop else {}
    return {
        "server": {"name": f"n{hop}"},
        "request": {"header": header},
        "events": events,
        "hops": hops,
    }


def test_answers_become_a_tree_in_any_order() -> None:
    far = _answer("1.1", [{"type": "in", "kind": 2}, {"type": "eg", "kind": 0, "cid": 9}])
    near = _answer("1", [{"type": "in", "kind": 1}, {"type": "eg", "kind": 2, "hop": "1.1"}], 1)
    start = _answer("", [{"type": "in", "kind": 0}, {"type": "eg", "kind": 1, "hop": "1"}], 1)
    assert not complete([far, near])
    assert not complete([start, near])
    assert complete([far, near, start])
    root = tree_of([far, near, start])
    assert root is not None
    assert list(lines_of(root)) == [
        'Client cid:0 server:"n"',
        "--> Router cid:0",
        '    Router cid:0 server:"n1"',
        "    ==> Gateway cid:0",
        '        Gateway cid:0 server:"n1.1"',
        "        --C Client cid:9",
    ]
    assert tree_of([far]) is None


@pytest.mark.slow
@pytest.mark.skipif("nats-server" not in available_servers(), reason="needs nats-server")
def test_a_trace_goes_through_a_cluster(cli: Run, unique: str) -> None:
    from pelton.sync import connect

    with running_cluster() as cluster:
        first, second = (node.url for node in list(cluster.nodes.values())[:2])
        with connect(first) as client:
            wait_until_ready(client)
        environment = {"NATS_URL": second}
        with background("sub", unique, marker="listening", environment=environment):
            deadline = time.monotonic() + 30
            while (ran := cli("-s", first, "trace", unique)).status:
                assert time.monotonic() < deadline, ran
        lines = ran.out.splitlines()
        assert any(line.startswith('--> Router "n2"') for line in lines), lines
        assert any(line.startswith('    Router "n1"') for line in lines), lines
        assert any(line.startswith('    --C Client "pelton"') for line in lines), lines
        told = cli("-s", first, "latency", "--server-b", second, "--duration", "200ms", "--json")
        assert (told.json["publish_server"], told.json["subscribe_server"]) == ("n1", "n2")


# -- latency


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=300))
def test_a_distribution_ends_with_the_largest(values: list[int]) -> None:
    ordered = sorted(values)
    lines = [line.split() for line in distribution(ordered).splitlines()[2:]]
    shown = [float(line[0]) for line in lines]
    assert shown == sorted(shown)
    assert abs(shown[-1] - ordered[-1] / 1e6) < 0.001
    assert lines[-1][1:] == ["1.0000000000", str(len(ordered)), "inf"]


def test_latencies_are_measured(at: Run, peer: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "histogram.txt"
    words = ("latency", "--rate", 400, "--duration", "250ms", "--size", 64)
    found = at(*words, "--server-b", peer.url, "--histogram", file, "--json").json
    assert found["messages"] == 100
    figures = found["latency_ns"]
    assert 0 < figures["min"] <= figures["p50"] <= figures["p99.9"] <= figures["max"]
    assert found["seconds"] >= 0.24
    assert file.read_text().splitlines()[0].split()[:2] == ["Value", "Percentile"]
    assert "50 %: " in at(*words).out
    assert at("latency", "--size", 7).status == 2


# -- top


@given(st.integers(0, 10**6), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_durations_of_servers_are_understood(days: int, hours: int, minutes: int, s: int) -> None:
    assert (
        seconds_of(f"{days}d{hours}h{minutes}m{s}s")
        == days * 86400 + hours * 3600 + minutes * 60 + s
    )


def test_small_durations_are_understood() -> None:
    assert seconds_of("336µs") == pytest.approx(336e-6)
    assert seconds_of("4.853248ms") == pytest.approx(4.853248e-3)
    assert seconds_of("") == seconds_of("soon") == 0


def test_rates_are_differences_of_snapshots() -> None:
    found = Snapshots()

    def page(cid: int, messages: int) -> dict[str, Any]:
        return {"data": {"connections": [{"cid": cid, "in_msgs": messages, "out_bytes": 10}]}}

    found.take({"data": {"in_msgs": 100}}, page(1, 50), 10.0)
    assert found.connections[0]["rates"]["in_msgs"] == 0
    found.take({"data": {"in_msgs": 300}}, page(1, 90), 14.0)
    assert found.connections[0]["rates"] == {
        "in_msgs": 10,
        "out_msgs": 0,
        "in_bytes": 0,
        "out_bytes": 0,
    }
    assert found.rates["in_msgs"] == 50
    found.take({"data": {"in_msgs": 0}}, page(2, 7), 15.0)  # the server has started again
    assert found.rates["in_msgs"] == found.connections[0]["rates"]["in_msgs"] == 0


def test_top_without_a_terminal(url: str, cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_URL", url)
    for name, value in ADMIN.items():
        monkeypatch.setenv(name, value)
    for sort in SORTS:
        once = cli("top", "bertha", "--once", "--sort", sort, "--subs")
        assert once.status == 0, once.err
        assert once.out.startswith("Server bertha ")
        assert "pelton" in once.out
    two = cli("top", "-r", 2, "-d", 0.1, "--json").lines
    assert [each["server"]["name"] for each in two] == ["bertha", "bertha"]
    assert two[1]["connections"][0]["rates"]["out_msgs"] > 0
    assert cli("top", "--once", "--format", "csv").out.startswith("Host,CID,Name")
    gone = cli("top", "gone", "--once")
    assert (gone.status, gone.out) == (1, "")


def test_top_writes_a_snapshot(
    url: str, cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {**ADMIN, "NATS_URL": url}.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / "top"
    done = cli("top", "--lookup", "-o", file, "--delimiter", ";")
    assert (done.status, done.out) == (0, ""), done.err
    lines = file.read_text().splitlines()
    head = lines.index(";".join(COLUMNS))
    assert lines[0].startswith("Server bertha ")
    assert {line.count(";") for line in lines[head + 1 :]} == {len(COLUMNS) - 1}
    assert cli("top", "-o", file, "--format", "csv").status == 0
    assert file.read_text().startswith(",".join(COLUMNS))
    assert cli("top", "-o", file).status == 0
    assert file.read_text().startswith("Server bertha ")
    assert cli("top", "-o", file, "--json").status == 0
    assert json.loads(file.read_text())["server"]["name"] == "bertha"
    refused = cli("top", "--delimiter", ";")
    assert (refused.status, refused.out) == (2, "")
    assert cli("top", "-o", tmp_path / "none" / "top").status != 0


def test_hosts_have_their_names_once_dns_has_said_them() -> None:
    slow, asked = threading.Event(), []

    def ask(address: str) -> str:
        asked.append(address)
        if address == "10.0.0.9":
            slow.wait(30)
        return f"host{address[-1]}"

    names = HostNames(ask)
    names.learn(["10.0.0.1", "10.0.0.2", ""], 30)
    assert [names.name(f"10.0.0.{at}") for at in (1, 2, 3)] == ["host1", "host2", "10.0.0.3"]
    names.learn(["10.0.0.9", "10.0.0.1"], 0)
    assert names.name("10.0.0.9") == "10.0.0.9"
    slow.set()
    names.learn([], 30)
    assert names.name("10.0.0.9") == "host9"
    assert sorted(asked) == ["10.0.0.1", "10.0.0.2", "10.0.0.9"]


def test_top_at_a_terminal(url: str) -> None:
    with Terminal("top", "-d", 0.2, environment={**WINDOW, **ADMIN, "NATS_URL": url}) as screen:
        screen.resize(20, 150)
        screen.expect(ALTERNATE)
        screen.expect("Server bertha")
        screen.expect("by cid")
        screen.press("o")
        screen.expect("by start")
        screen.press("s")
        screen.expect("Subscriptions")
        screen.press(" ")
        screen.expect("(paused)")
        before = screen.expect("q: end")
        screen.resize(30, 60)
        after = screen.expect("q: end")
        assert max(map(len, after.split("\n"))) < max(map(len, before.split("\n"))) + 60
        screen.press("q")
        screen.expect(NORMAL)
        assert screen.status() == 0


def test_narrow_windows_show_whole_columns(url: str) -> None:
    narrow = {**WINDOW, **ADMIN, "NATS_URL": url, "COLUMNS": "80"}
    with Terminal("top", "-d", 0.2, environment=narrow) as screen:
        screen.resize(20, 80)
        screen.expect("by cid")
        shown = re.sub(r"\x1b\[[\d;]*m", "", screen.expect("q: end"))
        assert re.search(r"Host +CID +Name", shown)
        assert re.search(r"127\.0\.0\.1:\d+ +\d+ ", shown)
        assert "\N{HORIZONTAL ELLIPSIS}" not in shown
        screen.press("q")
        assert screen.status() == 0


def test_ctrl_c_leaves_the_terminal_as_it_was(url: str) -> None:
    for words in (("top", "-d", 0.2), ("traffic", "-d", 0.2)):
        with Terminal(*words, environment={**WINDOW, **ADMIN, "NATS_URL": url}) as screen:
            screen.expect(ALTERNATE)
            screen.expect("CPU" if words[0] == "top" else "Messages per second")
            screen.interrupt()
            screen.expect(NORMAL)
            assert screen.status() == 130
            assert "Traceback" not in screen.shown


# -- traffic


@pytest.mark.parametrize(
    ("subject", "reply", "kind"),
    [
        ("$SYS.REQ.SERVER.PING", "x", "system"),
        ("$JS.API.INFO", "x", "js_api"),
        ("$JS.ACK.S.c.1", "", "js_ack"),
        ("$NRG.V.abc", "", "raft"),
        ("$JSC.R.x", "", "cluster"),
        ("orders", "x", "requests"),
        ("orders", "", "other"),
    ],
)
def test_kinds_of_messages(subject: str, reply: str, kind: str) -> None:
    assert kind_of(subject, reply) == kind


def test_traffic_counts_messages(at: Run, peer: ServerProcess, unique: str) -> None:
    environment = {"NATS_URL": peer.url}
    publishing = ("bench", "pub", f"{unique}.a", "--throughput", 200, "--duration", "8s")
    with background(*publishing, marker="Starting", environment=environment):
        rows = at("traffic", f"{unique}.>", "-d", 0.5, "-n", 3, "--json").lines
    assert len(rows) == 3
    assert max(row["other"] for row in rows) > 100
    assert all(row["messages"] == row["other"] for row in rows)
    assert max(row["bytes"] for row in rows) > 128 * 100
    plain = at("traffic", f"{unique}.>", "-d", 0.1, "-n", 1).out
    assert plain.split()[:2] == ["Requests", "JS"]


# -- sub, in ways of its own


def test_a_stream_is_read_with_direct_gets(at: Run, unique: str) -> None:
    at("stream", "add", unique, "--subjects", f"{unique}.>", "--allow-direct", "--defaults")
    for body in ("one", "two"):
        at("pub", f"{unique}.a", body, "-J", "-H", "K: v")
    at("pub", f"{unique}.b", "three", "-J")
    words = ("sub", "--stream", unique, "--direct", "-T", "--json")
    found = at(*words, "--all").lines
    assert [each["data"] for each in found] == ["one", "two", "three"]
    assert found[0]["headers"] == {"K": ["v"]}
    assert [each["data"] for each in at(*words, "--start-sequence", 2).lines] == ["two", "three"]
    last = at(*words, "--last-per-subject").lines
    assert sorted(each["data"] for each in last) == ["three", "two"]
    only = at("sub", f"{unique}.a", "--direct", "-T", "--all", "--raw", "-n", 1)
    assert only.out == "one\n"
    assert at("consumer", "ls", unique, "--json").json == []
    assert at(*words, "--durable", "c").status == 2
    assert at("sub", "a.b", "--graph", "--all").status == 2


def test_messages_are_counted_by_subscription(at: Run, peer: ServerProcess, unique: str) -> None:
    words = ("sub", f"{unique}.>", f"{unique}.a", "--report-subscriptions", "-n", 3, "--json")
    command = [sys.executable, "-m", "pelton.cli", "-s", peer.url, *map(str, words)]
    running = copies.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        while running.poll() is None:
            at("pub", f"{unique}.a", "x")
        out, _ = running.communicate(timeout=60)
    finally:
        running.kill()
    rows = [json.loads(line) for line in out.splitlines()]
    assert sum(each["messages"] for each in rows) == 3
    assert {each["subscription"] for each in rows} == {f"{unique}.>", f"{unique}.a"}


def test_a_graph_of_messages(at: Run, peer: ServerProcess, unique: str) -> None:
    with Terminal(
        "-s", peer.url, "sub", unique, "--graph", environment={"TERM": "xterm"}
    ) as screen:
        screen.expect("messages")
        screen.calm()
        screen.interrupt()
        assert screen.status() == 130


def test_the_protocol_is_shown_without_secrets(at: Run, unique: str) -> None:
    ran = at("--trace", "--user", "somebody", "--password", "geheim", "pub", unique, "hello")
    assert ran.status == 0
    assert f">>> PUB {unique} 5\n" in ran.err
    assert "<<< INFO {" in ran.err
    assert "geheim" not in ran.err


def test_events_of_an_import_have_another_prefix(at: Run, peer: ServerProcess, unique: str) -> None:
    words = ("--js-event-prefix", f"{unique}.events", "events", "--js-advisory")
    more = ("--no-srv-advisory", "-n", 1, "--json")
    command = [sys.executable, "-m", "pelton.cli", "-s", peer.url, *map(str, words + more)]
    running = copies.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        while running.poll() is None:
            at("pub", f"{unique}.events.ADVISORY.x", '{"type": "one"}')
        out, _ = running.communicate(timeout=60)
    finally:
        running.kill()
    assert json.loads(out) == {"type": "one"}
