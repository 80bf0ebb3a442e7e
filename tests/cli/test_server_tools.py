"""``pelton server passwd``, ``mappings``, ``generate`` and ``run``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import bcrypt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pelton.cli.server.tools import bcrypt_hash
from pelton.engine.base.transforms import parse
from pelton.errors import PeltonError
from pelton.server.auth.passwords import check_bcrypt
from pelton.sync import connect
from tests import copies
from tests.cli.terminal import Terminal
from tests.peers import available_servers, command_of, free_port
from tests.server.configured import configured

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Ran

    Run = Callable[..., Ran]


# -- passwd


def test_passwords_from_every_place(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = cli("server", "passwd", "-p", "correct horse", "-c", "4")
    assert ran.out.startswith("$2a$04$")
    assert bcrypt.checkpw(b"correct horse", ran.out.strip().encode())
    made = cli("server", "passwd", "--generate", "--cost", "4", "--json").json
    assert len(made["password"]) == 22
    assert bcrypt.checkpw(made["password"].encode(), made["hash"].encode())
    assert re.search(r"bcrypt hash: \$2a\$11", cli("server", "pass", "-g").out)
    piped = cli("server", "mkpasswd", "-c", "4", stdin=b"from a pipe\n")
    assert bcrypt.checkpw(b"from a pipe", piped.out.strip().encode())
    monkeypatch.setenv("PASSWORD", "from the environment")
    ran = cli("server", "password", "-c", "4")
    assert bcrypt.checkpw(b"from the environment", ran.out.strip().encode())


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("-p", "too short"), 1, "at least 10"),
        (("-p", "x" * 73), 1, "at most 72"),
        (("-p", "é" * 40), 1, "at most 72"),
        (("-p", "correct horse", "-g"), 2, "exclude"),
        (("-p", "correct horse", "-c", "3"), 2, "range"),
        (("-p", "correct horse", "-c", "32"), 2, "range"),
    ],
)
def test_passwords_that_can_not_be(
    cli: Run, words: tuple[str, ...], status: int, text: str
) -> None:
    ran = cli("server", "passwd", *words)
    assert (ran.status, ran.out) == (status, "")
    assert text in ran.err
    assert ran.err.count("\n") == 1


def test_nobody_gives_a_password(cli: Run) -> None:
    assert cli("server", "passwd", stdin=b"").status == 2


@given(
    st.text(
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=10, max_size=18
    )
)
@settings(max_examples=20, deadline=None)
def test_our_server_takes_the_hash(password: str) -> None:
    assert check_bcrypt(bcrypt_hash(password, 4), password)
    assert not check_bcrypt(bcrypt_hash(password, 4), password + "!")


def test_a_password_is_typed_twice_and_not_shown() -> None:
    with Terminal("server", "passwd", "-c", "4") as terminal:
        terminal.expect("Enter password")
        terminal.send("correct horse")
        terminal.expect("Re-enter password")
        terminal.send("wrong horse")
        terminal.expect("Enter password")
        terminal.send("correct horse")
        terminal.expect("Re-enter password")
        terminal.send("correct horse")
        terminal.expect("$2a$04$")
        assert terminal.status() == 0
        assert "horse" not in terminal.shown
    with Terminal("server", "passwd") as terminal:
        terminal.expect("Enter password")
        terminal.interrupt()
        assert terminal.status() == 130


# -- mappings


def test_mappings_by_arguments_and_from_a_pipe(cli: Run) -> None:
    words = ("server", "mapping", "orders.*.*", "o.$2.{{wildcard(1)}}")
    assert cli(*words, "orders.a.b", "orders.c.d").out == "o.b.a\no.d.c\n"
    ran = cli(*words, "orders.a.b", "other")
    assert (ran.status, ran.out) == (1, "o.b.a\n")
    assert "other does not match" in ran.err
    assert cli(*words, "--json", "other").lines == [{"subject": "other", "mapped": None}]
    assert cli(*words, stdin=b"orders.x.y\n\norders.1.2\n").out == "o.y.x\no.2.1\n"
    wrong = cli("server", "mappings", "a.*", "b.{{wildcard(2)}}", "a.x")
    assert (wrong.status, wrong.out) == (2, "")
    assert "wildcard index out of range" in wrong.err
    assert cli("server", "mappings", "a.*").status == 2


_TOKEN = st.text("abcXYZ019-_", min_size=1, max_size=5)


@given(st.lists(_TOKEN, min_size=2, max_size=4), st.integers(1, 7))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_mappings_are_those_of_streams(cli: Run, tokens: list[str], buckets: int) -> None:
    source = ".".join("*" for _ in tokens)
    destination = f"to.{{{{partition({buckets},1,2)}}}}.$2"
    subject = ".".join(tokens)
    expected = parse(source, destination).apply(subject)
    ran = cli("server", "mappings", "--", source, destination, subject)
    assert ran.out == f"{expected}\n"


def test_mappings_are_asked_for_at_a_terminal() -> None:
    with Terminal("server", "mappings") as terminal:
        terminal.expect("Source subject pattern")
        terminal.send("a.*")
        terminal.expect("Destination subject pattern")
        terminal.send("b.$1")
        terminal.expect("Subject")
        terminal.send("a.x")
        terminal.expect("b.x")
        terminal.expect("Subject")
        terminal.send("c")
        terminal.expect("c does not match")
        terminal.send("")
        assert terminal.status() == 0


# -- generate


@pytest.mark.parametrize("kind", available_servers())
def test_a_generated_configuration_serves(cli: Run, tmp_path: Path, kind: str) -> None:
    port, monitor = free_port(), free_port()
    path = tmp_path / "a b.conf"
    ran = cli(
        "server", "generate", path, "--name", "g1", "--listen", f"127.0.0.1:{port}", "--store",
        tmp_path / "store", "--max-storage", "1G", "--user", "anna", "--system-user",
        "root:correct horse", "--monitor", f"127.0.0.1:{monitor}", "--json",
    )  # fmt: skip
    made = ran.json
    assert made["file"] == str(path)
    assert list(made["passwords"]) == ["anna"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with configured(kind, path.read_text()):
        urls = {
            "anna": f"nats://anna:{made['passwords']['anna']}@127.0.0.1:{port}",
            "root": f"nats://root:correct%20horse@127.0.0.1:{port}",
        }
        with connect(urls["anna"], connect_timeout=60) as client:  # the server checks with bcrypt
            assert client.server_info.server_name == "g1"
            client.jetstream().account_info()
        listed = cli("-s", urls["root"], "server", "ls", "--json").json
        assert listed[0]["statsz"]["jetstream"]["config"]["max_storage"] == 1 << 30


@pytest.mark.parametrize("kind", available_servers())
def test_a_generated_configuration_for_everybody(cli: Run, tmp_path: Path, kind: str) -> None:
    port = free_port()
    words = ("--listen", f"127.0.0.1:{port}", "--system-user", "root:correct horse")
    text = cli("server", "gen", "-", *words).out
    with configured(kind, text), connect(f"nats://127.0.0.1:{port}") as client:
        client.publish("a", b"b")
        client.rtt()
    assert list(tmp_path.glob("*.conf")) == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--listen", "host:notaport"), "not a port"),
        (("--tls-cert", __file__), "go together"),
        (("--tls-verify",), "--tls-cert"),
        (("--operator", __file__, "--user", "a"), "exclude"),
        (("--operator", "NOBODY"), "no operator NOBODY"),
        (("--resolver", "folder"), "--operator"),
        (("--remote", "::::"), "remote"),
    ],
)
def test_configurations_that_can_not_be(
    cli: Run, tmp_path: Path, words: tuple[str, ...], text: str
) -> None:
    ran = cli("server", "generate", tmp_path / "x.conf", *words)
    assert ran.status in (1, 2)
    assert ran.out == ""
    assert text in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_configuration_is_not_replaced_unasked(cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text("mine")
    assert cli("server", "generate", tmp_path, stdin=b"n\n").status == 130
    assert path.read_text() == "mine"
    assert cli("server", "generate", tmp_path, "--force").status == 0
    assert path.read_text() == 'listen: "127.0.0.1:4222"\n'
    assert cli("server", "generate", tmp_path / "none" / "x").status == 1


def test_a_configuration_is_asked_for_at_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    with Terminal("server", "generate", path, "--name", "n1") as terminal:
        for question, answer in (
            ("--listen", "127.0.0.1:4300"),
            ("--jetstream", "y"),
            ("--store", "data"),
            ("--user", "anna"),
            ("--system-user", ""),
            ("--monitor", ""),
        ):
            terminal.expect(question)
            terminal.send(answer)
        terminal.expect("password of anna: ")
        assert terminal.status() == 0
    text = path.read_text()
    assert 'server_name: "n1"' in text
    assert '"store_dir": "data"' in text


# -- run


def test_a_server_for_trying_things_out(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }
    contexts = tmp_path / "config" / "nats" / "context"
    words = [sys.executable, "-m", "pelton.cli"]

    def ask(*arguments: str) -> str:
        done = copies.run(
            [*words, *arguments], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    told = []
    for clean in ((), ("--clean",)):
        with copies.Popen(
            [*words, "server", "run", "dev", "--jetstream", "--json", *clean],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as server:
            assert server.stdout is not None
            assert server.stderr is not None
            text = ""
            while not text.endswith("\n}\n"):
                text += server.stdout.readline()
            told.append(json.loads(text))
            for line in server.stderr:
                if "Server is ready" in line:
                    break
            if not clean:
                ask("--context", "dev", "stream", "add", "S", "--subjects", "s")
            assert ask("--context", "dev", "stream", "ls", "--names") == "S\n"
            (listed,) = json.loads(ask("--context", "dev_system", "server", "ls", "--json"))
            assert listed["server"]["name"] == "dev"
            server.send_signal(signal.SIGINT)
            server.stderr.read()
            assert server.wait(60) == 0
    assert told[0] == told[1]  # the same port and passwords
    assert [user["context"] for user in told[0]["users"]] == ["dev", "dev_service", "dev_system"]
    assert list(contexts.iterdir()) == []


@pytest.mark.parametrize("kind", available_servers())
def test_a_server_that_joins_others(kind: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }
    words = [sys.executable, "-m", "pelton.cli"]
    hub = """listen: 127.0.0.1:@port
        authorization { users: [ { user: "hu b", password: "pass:word" } ] }
        leafnodes { listen: "127.0.0.1:@leaf" }"""
    with configured(kind, hub) as running:
        save = ["context", "add", "hub", "--server", f"nats://127.0.0.1:{running.ports['port']}"]
        save += ["--user", "hu b", "--password", "pass:word"]
        copies.run([*words, *save], env=environment, check=True, capture_output=True)
        extend = ["--context", "hub", "server", "run", "edge", "--extend", "--clean"]
        extend += ["--leaf-port", str(running.ports["leaf"]), "--json"]
        with copies.Popen(
            [*words, *extend],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as edge:
            assert edge.stderr is not None
            assert edge.stdout is not None
            text = ""
            while not text.endswith("\n}\n"):
                text += edge.stdout.readline()
            local = json.loads(text)
            for line in edge.stderr:
                if "Server is ready" in line:
                    break
            running.wait_for("Leafnode connection created")
            user = local["users"][0]
            near = local["url"].replace("://", f"://{user['user']}:{user['password']}@")
            far = f"nats://127.0.0.1:{running.ports['port']}"
            login = {"user": "hu b", "password": "pass:word"}
            with connect(far, **login) as one, connect(near) as other:
                subscription = one.subscribe("from.edge")
                one.rtt()
                deadline = time.monotonic() + 60
                while True:  # until the leaf node knows of the subscription
                    other.publish("from.edge", b"hello")
                    other.rtt()
                    with contextlib.suppress(PeltonError):
                        assert subscription.next(timeout=0.2).data == b"hello"
                        break
                    assert time.monotonic() < deadline
            edge.send_signal(signal.SIGINT)
            edge.stderr.read()
            assert edge.wait(60) == 0


def test_a_port_that_is_none(cli: Run) -> None:
    assert cli("server", "run", "--port", "0").status == 2
    assert cli("server", "run", "--extend").status == 2


def test_the_peer_is_real() -> None:
    assert all(command_of(kind) for kind in available_servers())
