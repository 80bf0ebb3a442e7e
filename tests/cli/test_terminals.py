"""Command lines at a terminal, without one, interrupted, and with a reader that goes away."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pelton import ConsumerConfig, KeyValueConfig, ObjectStoreConfig, StreamConfig
from pelton.sync import connect
from tests import copies
from tests.cli.terminal import Terminal
from tests.peers import running_server
from tests.ways import skip_other_servers

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran
    from tests.peers import ServerProcess

    Run = Callable[..., Ran]


def command(peer: ServerProcess, *words: object) -> list[str]:
    """The words of a command line."""
    return [sys.executable, "-m", "pelton.cli", "-s", peer.url, *(str(each) for each in words)]


def filled(at: Run, unique: str) -> str:
    """A stream with messages, and a bucket with a key."""
    assert at("stream", "add", unique, "--subjects", f"{unique}.>", "--defaults").status == 0
    assert at("pub", f"{unique}.a", "{{Count}}", "--count", 50, "-J").status == 0
    assert at("kv", "add", f"{unique}k").status == 0
    assert at("kv", "put", f"{unique}k", "key", "value").status == 0
    return unique


LASTING: list[tuple[str, ...]] = [
    ("sub", "NAME.>"),
    ("sub", "--stream", "NAME", "--all"),
    ("consumer", "sub", "NAME", "NAMEc"),
    ("kv", "watch", "NAMEk"),
    ("object", "watch", "NAMEo"),
    ("events", "--js-advisory", "--no-srv-advisory"),
    ("traffic", "NAME.>", "-d", "0.2"),
    ("reply", "NAME-service", "answer"),
    ("bench", "sub", "NAME.x"),
    ("bench", "service", "serve", "NAME-bench"),
    ("bench", "pub", "NAME-pub", "--sleep", "10ms"),
    ("bench", "js", "consume", "--stream", "NAME", "--consumer", "NAMEb"),
    ("service", "serve", "NAMEsvc", "--response", "x"),
]


def _words(words: tuple[str, ...], unique: str) -> list[str]:
    return [each.replace("NAME", unique) for each in words]


@pytest.fixture(scope="module")
def made(peer: ServerProcess) -> str:
    """What the commands look at."""
    name = f"T{uuid.uuid4().hex[:12]}"
    with connect(peer.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
        for number in range(50):
            js.publish(f"{name}.a", b"%d" % number)
        js.create_consumer(name, ConsumerConfig(durable_name=f"{name}c", ack_policy="explicit"))
        js.create_key_value(KeyValueConfig(bucket=f"{name}k")).put("key", b"value")
        js.create_object_store(ObjectStoreConfig(bucket=f"{name}o"))
    return name


@pytest.mark.parametrize("words", LASTING, ids=lambda words: " ".join(words[:3]))
def test_ctrl_c_ends_with_130(words: tuple[str, ...], made: str, peer: ServerProcess) -> None:
    """Ctrl-C at a terminal ends every command that lasts, without a trace of Python."""
    with Terminal("-s", peer.url, *_words(words, made)) as screen:
        _connected(peer, screen)
        screen.interrupt()
        assert screen.status() == 130, screen.shown
        assert "Traceback" not in screen.shown


def _connected(peer: ServerProcess, screen: Terminal) -> None:
    """Wait until the command is connected and waits for something."""
    deadline = time.monotonic() + 60
    connected, calm = False, 0
    while calm < 10:
        assert time.monotonic() < deadline, screen.shown
        connected = connected or _is_connected(screen.pid, peer.port)
        calm = calm + 1 if connected and _sleeps(screen.pid) else 0
        screen.glance(0.05)


def _sleeps(pid: int) -> bool:
    """Whether a process waits for something."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def _is_connected(pid: int, port: int) -> bool:
    """Whether a process has a connection to the port."""
    folder = Path(f"/proc/{pid}")
    try:
        links = {os.readlink(each) for each in (folder / "fd").iterdir()}
        rows = [line.split() for line in (folder / "net/tcp").read_text().splitlines()[1:]]
    except OSError:
        return False
    mine = {row[9] for row in rows if row[2].endswith(f":{port:04X}") and row[3] == "01"}
    return any(f"socket:[{inode}]" in links for inode in mine)


ENDLESS: list[tuple[str, ...]] = [
    ("sub", "--stream", "NAME", "--all", "--raw"),
    ("sub", "--stream", "NAME", "--all", "--json"),
    ("stream", "view", "NAME", "--json"),
    ("stream", "search", "NAME", "-E", "."),
    ("kv", "watch", "NAMEk", "--json"),
    ("errors", "ls"),
    ("traffic", "NAME.>", "-d", "0.1", "--json"),
]


@pytest.mark.parametrize("words", ENDLESS, ids=lambda words: " ".join(words[:3]))
def test_a_reader_that_goes_away_is_no_error(
    words: tuple[str, ...], made: str, peer: ServerProcess
) -> None:
    running = copies.Popen(
        command(peer, *_words(words, made)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None
    assert running.stderr is not None
    try:
        assert running.stdout.readline()
        running.stdout.close()
        if words[0] in ("sub", "kv"):  # they write again when something happens
            for _ in range(3):
                subject, body = f"{made}.a", "more"
                copies.run(command(peer, "pub", subject, body, "-J", "-q"), check=True)
                copies.run(command(peer, "kv", "put", f"{made}k", "key", "x"), check=True)
        status = running.wait(60)
        err = running.stderr.read().decode()
    finally:
        running.kill()
        running.wait()
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    assert status in (0, -signal.SIGPIPE), err


def test_questions_at_a_terminal(at: Run, peer: ServerProcess, unique: str) -> None:
    """The questions of a new stream, a choice among streams, and whether something is meant."""
    with Terminal("-s", peer.url, "stream", "add", unique) as screen:
        screen.expect("(--subjects)")
        screen.send(f"{unique}.>")
        while "pelton stream add" not in screen.shown:
            text = screen.shown
            screen.send("")
            deadline = time.monotonic() + 60
            while screen.shown == text:
                assert time.monotonic() < deadline
                screen.more()
        assert screen.status() == 0, screen.shown
    assert at("stream", "info", unique, "--json").json["config"]["subjects"] == [f"{unique}.>"]
    with Terminal("-s", peer.url, "stream", "rm", unique) as screen:
        screen.expect("[y/N]")
        screen.send("n")
        assert screen.status() == 130
    assert at("stream", "info", unique).status == 0
    with Terminal("-s", peer.url, "stream", "rm", unique) as screen:
        screen.expect("[y/N]")
        screen.calm()
        screen.interrupt()
        assert screen.status() == 130
        assert "Traceback" not in screen.shown
    with Terminal("-s", peer.url, "stream", "info") as screen:
        screen.expect("Which stream")
        screen.send(unique)
        screen.expect(f"Stream {unique}")
        assert screen.status() == 0
    with Terminal("-s", peer.url, "stream", "rm", unique) as screen:
        screen.expect("[y/N]")
        screen.send("y")
        assert screen.status() == 0
    assert at("stream", "info", unique).status == 1


@pytest.mark.parametrize(
    "words",
    [
        ("stream", "add"),
        ("stream", "info"),
        ("stream", "rm", "NAME"),
        ("consumer", "info", "NAME"),
        ("kv", "del", "NAMEk"),
        ("object", "del", "NAMEo"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_without_a_terminal_nothing_is_asked(
    words: tuple[str, ...], made: str, peer: ServerProcess
) -> None:
    ran = copies.run(
        command(peer, *_words(words, made)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (2, ""), ran
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.startswith("pelton: ")


def test_colour_only_at_a_terminal(made: str, peer: ServerProcess) -> None:
    words = ("-s", peer.url, "stream", "ls")
    colours: dict[str, Any] = {"TERM": "xterm-256color", "COLUMNS": "160", "NO_COLOR": ""}
    with Terminal(*words, environment=colours) as screen:
        assert screen.status() == 0
        assert "\x1b[" in screen.shown
        assert made in screen.shown
    with Terminal(*words, environment={**colours, "NO_COLOR": "1"}) as screen:
        assert screen.status() == 0
        assert "\x1b[3" not in screen.shown
    piped = copies.run(command(peer, "stream", "ls"), capture_output=True, check=True)
    assert b"\x1b" not in piped.stdout


def test_a_table_follows_the_width_of_the_terminal(made: str, peer: ServerProcess) -> None:
    for columns in (60, 200):
        environment = {"TERM": "xterm", "COLUMNS": "", "NO_COLOR": "1"}
        with Terminal("-s", peer.url, "stream", "ls", environment=environment) as screen:
            screen.resize(24, columns)
            assert screen.status() == 0
            plain = re.sub(r"\x1b\[[0-9;]*m", "", screen.shown)
            assert 40 < max(map(len, plain.splitlines())) <= columns


def test_a_terminal_shows_times_to_the_second(at: Run, unique: str, peer: ServerProcess) -> None:
    """A program that reads a pipe gets them to the nanosecond."""
    assert at("kv", "add", unique).status == 0
    assert at("kv", "put", unique, "k", "v").status == 0
    piped = at("kv", "history", unique, "k").out
    whole = re.search(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d+Z", piped)
    assert whole is not None, piped
    with Terminal("-s", peer.url, "kv", "history", unique, "k") as screen:
        assert screen.status() == 0
        assert f" {whole[1]}Z " in re.sub(r"\x1b\[[0-9;]*m", "", screen.shown)


def test_a_bar_of_a_load_is_at_the_terminal_alone(peer: ServerProcess, unique: str) -> None:
    load = ("-s", peer.url, "bench", "pub", unique, "--throughput", 400, "--duration", "1s")
    with Terminal(*load, environment={"TERM": "xterm"}) as screen:
        screen.expect("/400")
        screen.expect("Pub stats: ")
        assert screen.status() == 0
    with Terminal(*load, "--no-progress", environment={"TERM": "xterm"}) as screen:
        screen.expect("Pub stats: ")
        assert "/400" not in screen.shown


def test_a_table_that_is_too_wide_is_printed_row_by_row(
    at: Run, unique: str, peer: ServerProcess
) -> None:
    """No column vanishes on a narrow terminal: each row becomes names and values."""
    made = filled(at, unique)
    environment = {"TERM": "xterm", "COLUMNS": "40", "NO_COLOR": "1"}
    with Terminal("-s", peer.url, "stream", "ls", environment=environment) as screen:
        assert screen.status() == 0
        plain = re.sub(r"\x1b\[[0-9;]*m", "", screen.shown)
        assert f"     Name: {made}\n" in plain
        assert " Messages: 50\n" in plain
    with Terminal("-s", peer.url, "stream", "report", environment=environment) as screen:
        assert screen.status() == 0
        assert f"Stream: {made}\n" in re.sub(r"\x1b\[[0-9;]*m", "", screen.shown)


def test_the_place_of_a_mistake_in_sql_is_marked_at_a_terminal(
    peer: ServerProcess, request: pytest.FixtureRequest
) -> None:
    skip_other_servers(request)
    with Terminal("-s", peer.url, "sql", "select * form X") as screen:
        screen.expect("select * form X\n")
        screen.expect("^")
        screen.expect("pelton: Parser Error")
        assert screen.status() == 2
    ran = copies.run(
        command(peer, "sql", "select * form X"), capture_output=True, text=True, check=False
    )
    assert ran.stderr.count("\n") == 1


def test_reasons_of_the_system_have_no_numbers(tmp_path: Path, peer: ServerProcess) -> None:
    for words, says in (
        (("-s", "nats://127.0.0.1:1", "rtt"), "nats://127.0.0.1:1: Connection refused"),
        (
            ("stream", "restore", tmp_path),
            f"{tmp_path} has no backup: there is no backup.json in it",
        ),
        (("stream", "backup", "X", "/proc/none"), "stream not found"),
        (("object", "put", "b", tmp_path / "none"), "none"),
    ):
        line = command(peer, *words)
        ran = copies.run(line, capture_output=True, text=True, check=False)
        assert says in ran.stderr, ran
        assert "Errno" not in ran.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("kv", "watch", "b"),
        ("object", "watch", "o"),
        ("service", "serve", "s"),
        ("sub", "x"),
        ("sub", "--stream", "KV_b"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_ctrl_c_ends_at_once_while_the_server_is_away(cli: Run, words: tuple[str, ...]) -> None:
    """Nothing waits for a server that does not answer: the time-out is longer than the test's patience."""
    with running_server("pelton") as server:
        for bucket in (("kv", "add", "b"), ("object", "add", "o")):
            assert cli("-s", server.url, *bucket).status == 0
        with Terminal("-s", server.url, "--timeout", "120s", *words) as screen:
            _connected(server, screen)
            server.stop(kill=True)
            screen.expect("(attempt 2)")
            screen.interrupt()
            assert screen.status() == 130
            assert "Traceback" not in screen.shown


def test_a_lost_connection_is_told_once(cli: Run) -> None:
    with running_server("pelton") as server:
        assert (
            cli("-s", server.url, "stream", "add", "S", "--subjects", "s", "--defaults").status == 0
        )
        assert (
            cli("-s", server.url, "consumer", "add", "S", "c", "--pull", "--defaults").status == 0
        )
        line = command(server, "consumer", "next", "S", "c", "--wait", "60s")
        with copies.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as running:
            deadline = time.monotonic() + 60
            while not (_is_connected(running.pid, server.port) and _sleeps(running.pid)):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            server.stop(kill=True)
            out, err = running.communicate(timeout=60)
            assert (running.returncode, out) == (1, "")
            assert err.count("\n") == 1, err


def test_files_of_tls_that_cannot_be_used_are_named(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    with running_server("pelton") as server:
        address = server.url.replace("nats://", "tls://")
        for options, says in (
            (("--tlsca", tmp_path / "none.pem"), "none.pem: No such file"),
            (("--tlsca", tmp_path / "empty.pem"), "the trusted certificates "),
            (
                ("--tlscert", tmp_path / "empty.pem", "--tlskey", tmp_path / "k.pem"),
                f"with the key {tmp_path / 'k.pem'}: ",
            ),
        ):
            ran = cli("-s", address, *options, "--tlsfirst", "rtt")
            assert (ran.status, ran.out) == (1, "")
            assert says in ran.err
            assert "TlsOptions" not in ran.err
            assert ran.err.count("\n") == 1


def test_only_the_names_of_facts_are_dim_and_a_bare_table_says_so() -> None:
    code = (
        "from pelton.cli.output import print_facts, print_table;"
        "print_facts('A', [('Name', 'value')]); print_table(('X',), [])"
    )
    primary, secondary = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    environment.pop("NO_COLOR", None)
    ran = copies.run([sys.executable, "-c", code], stdout=secondary, env=environment, check=True)
    os.close(secondary)
    text = b""
    with contextlib.suppress(OSError):
        while piece := os.read(primary, 4096):
            text += piece
    os.close(primary)
    assert ran.returncode == 0
    assert b"\x1b[2m  Name: \x1b[0mvalue" in text
    assert b"(none)" in text
