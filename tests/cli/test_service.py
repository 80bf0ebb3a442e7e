"""``pelton service`` against every server there is."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import copies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cli.conftest import Ran
    from tests.peers import ServerProcess

    Run = Callable[..., Ran]
    Serve = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def serve(peer: ServerProcess, unique: str) -> Iterator[Serve]:
    """Start ``pelton service serve`` with the unique name; it answers when this returns."""
    children: list[subprocess.Popen[str]] = []

    def begin(*options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "pelton.cli", "-s", peer.url, "service", "serve", unique]
        child = copies.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline().startswith(f"service {unique} (")
        return child

    yield begin
    for child in children:
        if child.poll() is None:
            child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def patient(ask: Callable[[], list[Any]], count: int) -> list[Any]:
    """Ask until so many instances answer: a busy one may miss the time for answers."""
    while len(found := ask()) < count:
        pass
    return found


def test_a_service_is_found_called_and_counted(at: Run, serve: Serve, unique: str) -> None:
    serve("--description", "d", "--metadata", "a=b", "-H", "X: y", "--version", "1.2.3")
    serve("--description", "d", "--metadata", "a=b", "-H", "X: y", "--version", "1.2.3")
    answer = at("service", "request", f"{unique}.echo", "hello", "--json").json
    assert (answer["data"], answer["headers"]["X"]) == ("hello", ["y"])
    assert at("service", "request", f"{unique}.echo", "--raw", stdin=b"\xff").out == "\udcff\n"
    by_name = at("service", "req", unique, "echo", "hi", "--count", 2, "--raw")
    assert by_name.out == "hi\nhi\n"
    assert at("service", "request", unique, "echo", "--raw", stdin=b"in").out == "in\n"
    translated = at("service", "request", f"{unique}.echo", "x", "--raw", "--translate", "tr x y")
    assert translated.out == "y\n"
    none = at("service", "request", unique, "ecco", "hi")
    assert (none.status, none.out) == (1, "")
    assert f"no service {unique} with an endpoint ecco answers" in none.err
    assert at("service", "request", unique, "echo", "a", "b").status == 2
    lines = ("service", "request", unique, "echo", "--raw", "--send-on", "newline")
    assert at(*lines, stdin=b"a {{Count}}\nb {{Count}}\r\nc").out == "a 1\nb 2\nc\n"
    plain = at("service", "request", f"{unique}.echo", "{{Count}}", "--raw", "--no-templates")
    assert plain.out == "{{Count}}\n"
    refused = at(*lines, "body")
    assert (refused.status, refused.out) == (2, "")
    assert "Endpoint echo\n" in at("service", "info", unique, "-e", "^e").out
    assert "Endpoint" not in at("service", "info", unique, "--endpoint", "^x").out
    assert at("service", "info", unique, "-e", "(").status == 2
    listed = patient(lambda: at("micro", "list", unique, "--json").json, 2)
    assert [(each["name"], each["version"], each["description"]) for each in listed] == [
        (unique, "1.2.3", "d")
    ] * 2
    ids = sorted(each["id"] for each in listed)
    assert unique in at("service", "ls").out
    assert unique in [each["name"] for each in at("service", "ls", "--json").json]
    shown = at("service", "info", unique, ids[0]).out
    assert f"ID: {ids[0]}\n" in shown
    assert "Metadata: a=b\n" in shown
    assert f"Subject: {unique}.echo\n" in shown
    both = at("service", "info", unique, ids[1], "--json").json
    assert both["info"]["id"] == both["stats"]["id"] == ids[1]
    counted = patient(lambda: at("service", "stats", unique, "--json").json, 2)
    assert sum(each["endpoints"][0]["num_requests"] for each in counted) == 10
    assert "echo" in at("service", "stats", unique).out
    pinged = patient(lambda: at("service", "ping", unique, "--json").lines, 2)
    assert sorted(each["id"] for each in pinged) == ids
    assert all(each["rtt_ns"] > 0 for each in pinged)
    assert f"{unique} {ids[0]}  rtt=" in "".join(
        patient(lambda: at("service", "ping", unique).out.splitlines(), 2)
    )


def test_a_command_answers(at: Run, serve: Serve, unique: str) -> None:
    child = serve("--command", "tr a-z A-Z", "-n", "2")
    assert at("service", "request", f"{unique}.echo", "hello").out == "HELLO\n"
    assert at("service", "request", f"{unique}.echo", "bye").out == "BYE\n"
    assert child.wait(30) == 0


def test_a_command_that_fails_is_an_error(at: Run, serve: Serve, unique: str) -> None:
    serve("--command", "exit 3", "--endpoint", "bad", "--subject", f"{unique}.x.y")
    ran = at("service", "request", f"{unique}.x.y", "hello")
    assert (ran.status, ran.out) == (1, "")
    assert "the command ended with 3" in ran.err
    counted = at("service", "stats", unique, "--json").json
    assert counted[0]["endpoints"][0]["num_errors"] == 1


def test_the_log_of_requests_is_json_lines(peer: ServerProcess, at: Run, unique: str) -> None:
    command = [sys.executable, "-m", "pelton.cli", "-s", peer.url, "service", "serve", unique]
    options = ["--response", "yes", "--json", "-n", "1"]
    with copies.Popen([*command, *options], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        while at("service", "ping", unique).status:
            assert child.poll() is None
        assert at("service", "request", f"{unique}.echo", "q").out == "yes\n"
        assert json.loads(child.stdout.readline()) == {"subject": f"{unique}.echo", "data": "q"}
        assert child.wait(30) == 0


def test_mistakes_are_told_in_one_line(at: Run, unique: str) -> None:
    for status, words, says in (
        (1, ("ping", unique), f"no service {unique} answers"),
        (1, ("info", unique), f"no service {unique} answers"),
        (1, ("stats", unique), f"no service {unique} answers"),
        (1, ("request", f"{unique}.x", "y"), f"nobody answers on {unique}.x"),
        (2, ("serve", "a b"), "expected letters"),
        (2, ("serve", unique, "--version", "one"), "expected a semantic version"),
        (2, ("serve", unique, "--response", "a", "--command", "b"), "exclude each other"),
        (2, ("ping", "a.b"), "expected letters"),
    ):
        ran = at("service", *words)
        assert (ran.status, ran.out) == (status, ""), words
        assert says in ran.err
        assert ran.err.count("\n") == 1
    assert at("service", "ls", unique, "--json").json == []
