"""``pelton server cluster`` and the reports of clusters, with three nats-servers."""

from __future__ import annotations

import contextlib
import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pytest

from pelton.errors import PeltonError
from pelton.sync import connect
from tests.peers import command_of, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Ran

    Run = Callable[..., Ran]

CONFIG = """
listen: 127.0.0.1:{port}
server_name: n{number}
jetstream {{ store_dir: "{folder}/n{number}" }}
accounts {{
    $SYS {{ users: [ {{ user: admin, password: secret }} ] }}
    A {{ jetstream: enabled, users: [ {{ user: anna, password: secret }} ] }}
}}
no_auth_user: anna
cluster {{ name: C, listen: "127.0.0.1:{route}", routes: [ {routes} ] }}
"""
PATIENCE_SECONDS = 90.0
T = TypeVar("T")

pytestmark = pytest.mark.skipif(command_of("nats-server") is None, reason="needs a nats-server")


class Cluster(NamedTuple):
    """The ports of the servers n0, n1, n2, and their processes."""

    ports: list[int]
    processes: list[subprocess.Popen[bytes]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    ports, routes = [free_port() for _ in range(3)], [free_port() for _ in range(3)]
    urls = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes)
    command = command_of("nats-server")
    assert command is not None
    with contextlib.ExitStack() as stack:
        processes = []
        for number, (port, route) in enumerate(zip(ports, routes, strict=True)):
            path = tmp_path / f"n{number}.conf"
            path.write_text(
                CONFIG.format(port=port, number=number, folder=tmp_path, route=route, routes=urls)
            )
            log = stack.enter_context((tmp_path / f"n{number}.log").open("wb"))
            process = subprocess.Popen([*command, "-c", str(path)], stdout=log, stderr=log)
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)
            processes.append(process)
        yield Cluster(ports, processes)


def until(what: Callable[[], T]) -> T:
    """The first of its values that is true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (value := what()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return value


def servers(cli: Run) -> list[object]:
    ran = cli("server", "ls", "--json")
    return ran.json if ran.status == 0 else []


def test_a_cluster_is_reported_and_led(
    cluster: Cluster, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", f"nats://admin:secret@127.0.0.1:{cluster.ports[0]}")
    monkeypatch.setenv("NATS_TIMEOUT", "20s")

    def ask(*words: str) -> Any:
        """What a command of `server` prints; an empty list if it fails."""
        ran = cli("server", *words, "--json")
        return ran.json if ran.status == 0 else []

    def peers() -> list[str]:
        """The rows of the table of servers; none before there is a leader."""
        ran = cli("server", "report", "jetstream")
        parts = ran.out.split("Servers of the JetStream cluster:\n")
        return parts[1].splitlines()[1:] if len(parts) == 2 else []

    # beside load an answer may be late, and a leader may lose its office at any time
    until(lambda: len(peers()) == 3 and any("yes" in row.split()[2] for row in peers()))
    until(
        lambda: (
            [(row["server"], row["cluster"]) for row in ask("report", "jetstream")]
            == [("n0", "C"), ("n1", "C"), ("n2", "C")]
        )
    )
    until(
        lambda: (
            {(row["server"], row["name"]) for row in ask("report", "routes", "--sort", "name")}
            >= {("n0", "n1"), ("n2", "n0")}
        )
    )
    until(lambda: len(cli("server", "request", "varz", "--cluster", "C").lines) == 3)
    assert len(cli("server", "request", "varz", "--name", "n1").lines) == 1
    until(lambda: cli("server", "cluster", "step-down", stdin=b"n\n").status == 130)

    def handed_over() -> str:
        """The leader after another one; "" if there was no other within the command's time."""
        done = ask("raft", "sd", "--force")
        if not done or done["leader"] == done["previous"]:
            return ""
        assert {done["leader"], done["previous"]} <= {"n0", "n1", "n2"}
        return str(done["leader"])

    leader = until(handed_over)
    follower = next(n for n in ("n1", "n2") if n != leader)
    cluster.processes[int(follower[1])].terminate()
    cluster.processes[int(follower[1])].wait(PATIENCE_SECONDS)
    assert cli("server", "cluster", "peer-remove", "nobody", "-f").status == 1
    removed = until(lambda: ask("cluster", "rm", follower, "-f"))
    assert removed["peer"] == follower
    until(lambda: len(peers()) == 2)


def test_connections_are_balanced(
    cluster: Cluster, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", f"nats://admin:secret@127.0.0.1:{cluster.ports[0]}")
    until(lambda: len(servers(cli)) == 3)

    def counts() -> list[int]:
        found = dict.fromkeys(("n0", "n1", "n2"), 0)
        for each in cli("server", "report", "conns", "--account", "A", "-j").json:
            found[each["server"]["name"]] += 1
        return sorted(found.values())

    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(connect(f"nats://127.0.0.1:{cluster.ports[1]}")) for _ in range(6)
        ]
        until(lambda: counts() == [0, 0, 6])
        words = ("server", "cluster", "balance", "100ms", "--account", "A")
        assert cli(*words, stdin=b"n\n").status == 130
        assert cli(*words, "--idle", "1d", "-f", "-j").json["moved"] == 0
        assert cli(*words, "--server-name", "n2", "-f", "-j").json["moved"] == 0
        moved = cli(*words, "--force", "--json").json
        assert moved["moved"] == 4
        for client in clients:
            with contextlib.suppress(PeltonError):
                client.rtt()  # lets those that were disconnected notice
        until(lambda: all(client.rtt() > 0 for client in clients))
        until(lambda: sum(counts()) == 6)


def test_leaders_are_balanced(cluster: Cluster, cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_URL", f"nats://127.0.0.1:{cluster.ports[0]}")
    names = [f"S{number}" for number in range(6)]
    for name in names:
        subjects = ("--subjects", f"{name}.>")
        until(partial(added, cli, "stream", "add", name, *subjects, "--replicas", 3))
    for name in names:
        lead(cli, "n1", name)
    shown = cli("stream", "cluster", "balance", "--dry-run", "--json").json
    assert {each["from"] for each in shown} == {"n1"}
    assert sorted(each["to"] for each in shown) == ["n0", "n0", "n2", "n2"]
    assert {leader(cli, name) for name in names} == {"n1"}  # nothing has moved
    none = cli("stream", "cluster", "balance", "--leader", "n2")
    assert none.status == 1
    assert len(cli("stream", "find", "-n", "--server-name", "^n[01]$", "-j").json) == 6
    assert len(cli("stream", "find", "-n", "--cluster", "C", "-j").json) == 6
    moved = cli("stream", "cluster", "balance", "--expression", 'config.name != "S0"')
    assert (moved.status, moved.err) == (0, "")
    assert "S0" not in moved.out
    until(lambda: len({leader(cli, name) for name in names}) == 3)
    assert cli("stream", "cluster", "balance").status == 0
    until(lambda: "even already" in cli("stream", "cluster", "balance", "--dry-run").out)
    consumers = [f"c{number}" for number in range(3)]
    for name in consumers:
        assert cli("consumer", "add", "S0", name, "--pull", "--defaults").status == 0
        lead(cli, "n2", "S0", name)
    moved = cli("consumer", "cluster", "balance", "S0", "--json")
    assert len(moved.json) == 2, moved
    until(lambda: len({leader(cli, "S0", name) for name in consumers}) == 3)
    copies_are_compared(cli, f"nats://admin:secret@127.0.0.1:{cluster.ports[0]}", len(names))


def copies_are_compared(cli: Run, system: str, streams: int) -> None:
    """The copies of the streams and of the consumers of S0 on three servers are the same."""
    assert cli("pub", "S0.x", "x", "--count", 20, "-J").status == 0
    words = ("-s", system, "server")
    until(lambda: cli(*words, "stream-check", "--expected", 3).status == 0)
    rows = cli(*words, "stream-check", "--json").json
    assert len(rows) == 3 * streams
    assert sum(each["is_leader"] for each in rows) == streams
    assert all(each["raft_group"] and len(each["replicas"]) == 2 for each in rows)
    one = cli(*words, "stream-check", "--stream", "S0", "--health", "--csv")
    assert one.status == 0, one
    assert one.out.count("\nS0,") == 3
    assert one.out.count(",ok\n") == 3
    ran = cli(*words, "consumer-check", "--consumer", "c1", "--json")
    assert [
        each["messages"] for each in cli(*words, "stream-check", "--stream", "S0", "-j").json
    ] == [20] * 3
    assert {each["server"] for each in ran.json} == {"n0", "n1", "n2"}
    none = cli(*words, "stream-check", "--unsynced", "--json")
    assert (none.status, none.json) == (0, [])
    short = cli(*words, "stream-check", "--expected", 4, "--stream", "S0", "--timeout", "1s")
    assert (short.status, short.err) == (1, "pelton: 3 servers of 4 answer\n")
    printed = cli(*words, "request", "jetstream", "--all", "--raft").out
    for verb in ("stream-check", "consumer-check"):
        again = cli("server", verb, "--stdin", "--json", stdin=printed.encode())
        assert {each["server"] for each in again.json} == {"n0", "n1", "n2"}, again
    group = rows[0]["raft_group"]
    assert len(cli(*words, "stream-check", "--raft-group", group, "-j").json) == 3


def added(cli: Run, *words: object) -> bool:
    return cli(*words, "--defaults").status == 0


def lead(cli: Run, server: str, *names: str) -> None:
    """Make the server the leader of a stream or consumer."""
    noun = "stream" if len(names) == 1 else "consumer"

    def leads() -> bool:
        if leader(cli, *names) == server:
            return True
        cli(noun, "cluster", "step-down", *names, "--preferred", server)
        return False

    until(leads)


def leader(cli: Run, *names: str) -> str:
    """The leader of a stream or consumer; "" while there is none."""
    noun = "stream" if len(names) == 1 else "consumer"
    ran = cli(noun, "info", *names, "--json")
    return str(ran.json.get("cluster", {}).get("leader", "")) if ran.status == 0 else ""
