"""The command line beside servers that are not as usual: with TLS, with streams and consumers that
can't be read, gone for a while, without the domain that was asked for.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from pelton.cli.__main__ import main
from pelton.sync import connect
from tests import copies
from tests.certificates import Authority
from tests.copies.local import LocalServer
from tests.server.configured import configured

Capture = pytest.CaptureFixture[str]


def encrypted(tmp_path: Path) -> str:
    """A store with stream PLAIN, and SECRET that needs a key; SECRET's message is "kept"."""
    store = str(tmp_path / "store")
    config = tmp_path / "key.conf"
    config.write_text('jetstream { key: "a key that is long enough" }\n')
    with (
        LocalServer(store=store, options=["-c", str(config)]) as server,
        connect(server.url) as client,
    ):
        client.request("$JS.API.STREAM.CREATE.SECRET", b'{"name": "SECRET", "subjects": ["s"]}')
        client.jetstream().publish("s", b"kept")
    with LocalServer(store=store) as plain, connect(plain.url) as client:
        client.request("$JS.API.STREAM.CREATE.PLAIN", b'{"name": "PLAIN", "subjects": ["p"]}')
    return store


def test_streams_that_can_not_be_read_are_listed_and_not_removed(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = encrypted(tmp_path)
    with LocalServer(store=store) as server:
        monkeypatch.setenv("NATS_URL", server.url)
        assert main(["stream", "ls"]) == 1
        out = capsys.readouterr().out
        assert "PLAIN" in out
        assert "Offline streams" in out
        (line,) = (line for line in out.splitlines() if line.startswith("SECRET"))
        assert "key" in line
        assert main(["stream", "ls", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == ["PLAIN", "SECRET"]
        assert main(["stream", "ls", "--names"]) == 0
        assert capsys.readouterr().out.splitlines() == ["PLAIN", "SECRET"]
        assert main(["stream", "rm", "-f", "SECRET"]) == 1
        assert "--offline removes it" in capsys.readouterr().err
    with LocalServer(store=store, options=["-c", str(tmp_path / "key.conf")]) as server:
        monkeypatch.setenv("NATS_URL", server.url)
        assert main(["stream", "get", "SECRET", "1", "--raw"]) == 0
        assert capsys.readouterr().out == "kept"
    with LocalServer(store=store) as server:
        monkeypatch.setenv("NATS_URL", server.url)
        assert main(["stream", "rm", "-f", "--offline", "SECRET"]) == 0
        assert main(["stream", "ls"]) == 1  # the server with the key had encrypted PLAIN, too
        assert "SECRET" not in capsys.readouterr().out.split("removed stream SECRET")[1]


def test_consumers_that_can_not_be_read_are_listed(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    with LocalServer(store=str(store)) as server:
        monkeypatch.setenv("NATS_URL", server.url)
        assert main(["stream", "add", "S"]) == 0
        assert main(["consumer", "add", "S", "good"]) == 0
        assert main(["consumer", "add", "S", "bad"]) == 0
        server.end()
        broken = list(store.rglob("consumers/bad.json*"))
        assert broken
        for path in broken:
            path.write_bytes(b"{")
        server.start()
        server.wait_ready()
        capsys.readouterr()
        assert main(["consumer", "ls", "S"]) == 1
        out = capsys.readouterr().out
        assert "good" in out
        assert "Offline consumers" in out
        assert main(["consumer", "ls", "S", "--names"]) == 1
        assert capsys.readouterr().out.splitlines() == ["bad", "good"]
        assert main(["consumer", "ls", "S", "--json"]) == 1
        assert json.loads(capsys.readouterr().out) == ["bad", "good"]
        assert main(["consumer", "rm", "-f", "S", "bad"]) == 1
        assert "--offline removes it" in capsys.readouterr().err
        assert main(["consumer", "rm", "-f", "S", "bad", "--offline"]) == 0
        assert main(["consumer", "ls", "S"]) == 0


def test_a_domain_that_nobody_has_is_named(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalServer() as server:
        monkeypatch.setenv("NATS_URL", server.url)
        assert main(["--domain", "HUB", "stream", "ls"]) == 1
        assert 'does not know the JetStream domain "HUB"' in capsys.readouterr().err


def test_tls_by_options_and_by_the_environment(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    server, mine = authority.server(), authority.client("mine")
    text = f"""listen: 127.0.0.1:@port
        tls {{ cert_file: "{server.cert_file}", key_file: "{server.key_file}"
               ca_file: "{authority.ca_file}", verify: true, handshake_first: true }}"""
    with configured("pelton", text) as running:
        url = f"nats://localhost:{running.ports['port']}"
        base = ["-s", url, "--timeout", "5s"]
        options = ["--tlsca", authority.ca_file, "--tlsfirst"]
        shown = [*options, "--tlscert", mine.cert_file, "--tlskey", mine.key_file]
        assert main([*base, *shown, "pub", "a", "b"]) == 0
        assert main([*base, *options, "pub", "a", "b"]) == 1  # no certificate of its own
        assert main([*base, *options, "--tlscert", mine.cert_file, "pub", "a", "b"]) == 2
        assert "go together" in capsys.readouterr().err
        for name, value in (
            ("NATS_CA", authority.ca_file),
            ("NATS_CERT", mine.cert_file),
            ("NATS_KEY", mine.key_file),
        ):
            monkeypatch.setenv(name, value)
        assert main([*base, "--tlsfirst", "pub", "a", "b"]) == 0


def test_sub_goes_on_after_a_restart_of_the_server() -> None:
    with LocalServer(options=["-m", "-1"]) as server:
        child = copies.Popen(
            [sys.executable, "-m", "pelton.cli", "-s", server.url, "sub", "a", "-n", "2", "-r"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert child.stdout is not None
        assert child.stderr is not None
        for body in (b"one", b"two"):
            while "a" not in subscriptions(server):
                assert child.poll() is None, child.stderr.read()
            with connect(server.url) as client:
                client.publish("a", body)
            assert child.stdout.readline() == body + b"\n"
            server.kill()
            server.start()
            server.wait_ready()
        assert child.wait(30) == 0
        told = child.stderr.read().decode()
        assert f"pelton: connected to {server.url} again" in told
        child.stdout.close()
        child.stderr.close()


def subscriptions(server: LocalServer) -> list[str]:
    """The subjects that clients of the server subscribe to now."""
    with urllib.request.urlopen(f"{server.monitoring_url}/connz?subs=1") as answer:
        connections = json.load(answer)["connections"]
    return [each for connection in connections for each in connection.get("subscriptions_list", [])]
