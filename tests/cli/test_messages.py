"""``pelton pub``, ``sub``, ``req`` and ``reply``, against every server; and the templates."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.cli.messages.templates import filled, random_letters
from pelton.sync import connect
from tests import copies
from tests.proxies import running_proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Ran
    from tests.peers import ServerProcess

    Run = Callable[..., Ran]


@contextmanager
def running(peer: ServerProcess, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A command in its own process, ended behind the block; it says on stderr when it listens."""
    command = [sys.executable, "-m", "pelton.cli", "-s", peer.url, *map(str, arguments)]
    child = copies.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    try:
        assert child.stderr is not None
        assert "listening" in child.stderr.readline()
        yield child
    finally:
        child.kill()
        child.communicate()


def test_lines_templates_and_counts(at: Run, unique: str) -> None:
    assert at("stream", "add", unique, "--subjects", f"{unique}.>").status == 0
    none = at("stream", "view", unique)
    assert (none.status, none.err) == (1, f"pelton: stream {unique} has no message\n")
    lines = at("pub", "-J", "--send-on", "newline", f"{unique}.{{{{Count}}}}", stdin=b"a\nb\r\nc")
    assert lines.out.count("stored in") == 3
    view = at("stream", "view", unique, "-j").lines
    assert [(each["subject"], each["data"]) for each in view] == [
        (f"{unique}.1", "a"),
        (f"{unique}.2", "b"),
        (f"{unique}.3", "c"),
    ]
    assert "has no such message" in at("stream", "view", unique, "--subject", "other").err
    assert at("pub", "-J", "-q", "--no-templates", f"{unique}.x", "{{Count}}").out == ""
    assert at("stream", "get", unique, 4, "-r").out == "{{Count}}"
    assert at("pub", f"{unique}.y", "z", "--count", 2, "-j").json["count"] == 2
    assert at("pub", "--send-on", "newline", "x", "body").status == 2


def test_an_atomic_batch_is_stored_whole(at: Run, unique: str) -> None:
    assert at("stream", "add", unique, "--subjects", unique, "--allow-batch").status == 0
    ran = at("pub", "--atomic", "--count", 3, unique, "n {{Count}}", "-j")
    assert (ran.json["seq"], ran.json["count"]) == (3, 3)
    assert at("stream", "view", unique, "-r").out == "n 1\nn 2\nn 3\n"


def test_a_stream_is_read_from_anywhere(at: Run, unique: str, tmp_path: Path) -> None:
    assert at("stream", "add", unique, "--subjects", f"{unique}.>").status == 0
    for index in range(6):
        assert at("pub", "-Jq", f"{unique}.{'ab'[index % 2]}", f"{index}").status == 0

    def read(*options: object, subject: str = f"{unique}.>") -> list[str]:
        return at("sub", subject, "-rT", *options).out.split()

    assert read("--all") == list("012345")
    assert read("--start-sequence", 4) == list("345")
    assert read("--last-per-subject") == ["4", "5"]
    assert read("--since", "1h", subject=f"{unique}.a") == list("024")
    assert read("--all", "--count", 2) == ["0", "1"]
    assert read("--last") == ["5"]
    assert read("--all", "-I", f"{unique}.a") == list("135")
    assert read("--durable", "d", "--count", 2) == ["0", "1"]
    assert read("--durable", "d") == list("2345")
    assert at("sub", f"{unique}.>", "-T", "--all", "--subjects-only").out.split() == [
        f"{unique}.{each}" for each in "ababab"
    ]
    report = at("sub", "--stream", unique, "-T", "--all", "--report-subjects", "-j").lines
    assert {each["subject"]: each["messages"] for each in report} == {
        f"{unique}.a": 3,
        f"{unique}.b": 3,
    }
    assert at("sub", f"{unique}.a", "-T", "--all", "--dump", tmp_path / "out").status == 0
    names = sorted(each.name for each in (tmp_path / "out").iterdir())
    assert names == ["1.json", "2.json", "3.json"]
    dumped = json.loads((tmp_path / "out" / "2.json").read_text())
    assert set(dumped) == {"Subject", "Reply", "Header", "Data"}
    assert (dumped["Subject"], dumped["Data"]) == (f"{unique}.a", "Mg==")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "out" / "2.json").stat().st_mode) == 0o600
    lines = at("sub", f"{unique}.a", "-T", "--all", "--dump", "-").out.split("\0")
    assert [json.loads(each)["Data"] for each in lines if each] == ["MA==", "Mg==", "NA=="]
    # without a place to begin at: from the first message on, as nats does
    assert at("sub", "--stream", unique, "-r", "-n", 6).out.split() == list("012345")
    assert at("sub", "--stream", unique, "--direct", "-r", "-n", 6).out.split() == list("012345")
    everywhere = at("sub", "--stream", unique, "--last-per-subject", "-rT")
    assert everywhere.out.split() == ["4", "5"]
    durable = ("sub", "--stream", unique, "--durable", "unread", "--no-ack", "-r", "-n", 2)
    assert at(*durable).out.split() == ["0", "1"]
    pending = at("consumer", "info", unique, "unread", "-j").json
    assert (pending["num_ack_pending"] >= 2, pending["ack_floor"]["stream_seq"]) == (True, 0)
    assert at("sub", "--all").status == 2
    assert at("sub", f"{unique}.a", "--all", "--since", "1h").status == 2


def test_an_empty_stream_ends_at_once(at: Run, unique: str) -> None:
    assert at("stream", "add", unique).status == 0
    ran = at("sub", unique, "--all", "-T")
    assert (ran.status, ran.out) == (0, "")


def test_sub_says_where_a_message_is_in_its_stream(at: Run, unique: str) -> None:
    assert at("stream", "add", unique).status == 0
    assert at("pub", "-J", unique, "first").status == 0
    assert at("pub", "-J", unique, "second").status == 0
    ran = at("sub", unique, "--all", "-n", 2)
    assert ran.out == (
        f"[#1] {unique} stream {unique} seq 1 pending 1\nfirst\n"
        f"[#2] {unique} stream {unique} seq 2 pending 0\nsecond\n"
    )


def test_a_wait_that_ends_without_a_connection_is_an_error(
    at: Run, peer: ServerProcess, unique: str
) -> None:
    def ends(operation: bytes) -> bool:
        if operation.startswith(b"PONG"):  # the second one: the subscription is there
            client.publish(unique, b"newest")
            client.flush()
        if b"newest" not in operation:
            return False
        proxy.refuse()
        return True

    with connect(peer.url) as client, running_proxy(peer.port) as proxy:
        proxy.loses = ends
        ran = at("-s", proxy.url, "sub", unique, "--wait", "1s")
    assert proxy.lost
    assert (ran.status, ran.out) == (1, "")
    assert f"pelton: cannot connect to {proxy.url}" in ran.err
    assert "without a connection" in ran.err.splitlines()[-1]


def test_sub_shows_requests_with_their_answers(peer: ServerProcess, unique: str) -> None:
    arguments = ("sub", f"{unique}.a", f"{unique}.b", "--match-replies", "-n", 3)
    with running(peer, *arguments) as child, connect(peer.url) as nc:
        with connect(peer.url) as other:
            service = other.subscribe(f"{unique}.b")
            other.flush()
            nc.publish(f"{unique}.a", b"first")
            nc.flush()
            nc._ask(f"{unique}.b", b"second")
            nc.flush()
            service.next(60).respond(b"third")
            other.flush()
        out, _ = child.communicate(timeout=60)
    assert re.sub(r"_INBOX\S+", "INBOX", out) == (
        f"[#1] {unique}.a\nfirst\n"
        f"[#2] {unique}.b reply INBOX\nsecond\n"
        "[#3] answer to #2: INBOX\nthird\n"
    )


def test_reply_answers_in_three_ways(at: Run, peer: ServerProcess, unique: str) -> None:
    ways: dict[tuple[str, ...], str] = {
        ("{{Count}}: {{Request}}",): "1: hi",
        ("--echo",): "hi",
        ("--command", "tr a-z A-Z; echo {{1}}"): "HIx\n",
    }
    for way, expected in ways.items():
        with running(peer, "reply", f"{unique}.*", *way, "-n", 1) as child:
            ran = at("req", f"{unique}.x", "hi")
            assert ran.out == f"{expected}\n"  # the rest is on stderr
            assert ran.err.startswith("_INBOX.")
            assert child.wait(60) == 0
    assert at("reply", unique).status == 2


def test_a_request_with_many_answers(at: Run, peer: ServerProcess, unique: str) -> None:
    first = running(peer, "reply", unique, "one", "-q", "a")
    with first, running(peer, "reply", unique, "two", "-q", "b"):
        ran = at("--timeout", "20s", "req", unique, "hi", "--replies", 2, "-r")
        assert sorted(ran.out.split()) == ["one", "two"]
    assert at("req", unique, "hi").status == 1


# -- templates -------------------------------------------------------------------------------------


def fill(text: str) -> str:
    return filled(text, 7, 1_700_000_000_123_456_789, lambda: "ID", random_letters, "asked")


@given(st.text().filter(lambda text: "{{" not in text))
def test_a_text_without_places_stays(text: str) -> None:
    assert fill(text) == text


def test_every_place_is_filled() -> None:
    assert fill("{{Count}} {{ .Count }} {{ID}} {{Unix}} {{UnixNano}} {{Request}}") == (
        "7 7 ID 1700000000 1700000000123456789 asked"
    )
    assert re.fullmatch(r"\d{1,2}:\d\d[AP]M", fill("{{Time}}"))
    assert "T" in fill("{{TimeStamp}}")
    assert re.fullmatch(r"\w{5}", fill("{{Random 5}}"))
    assert 2 <= len(fill("{{Random 2 4}}")) <= 4
    assert fill('{"a": {"b": {{Count}}}} {{Other}}') == '{"a": {"b": 7}} {{Other}}'
    for wrong in ("{{Random}}", "{{Random 4 2}}", "{{Count 3}}"):
        with pytest.raises(click.UsageError):
            fill(wrong)


def test_a_line_for_each_message(at: Callable[..., Ran], unique: str) -> None:
    """As the user writes it, of messages out of a stream and of payloads of any bytes."""
    assert at("stream", "add", unique, "--subjects", f"{unique}.>", "--defaults").status == 0
    for number in range(3):
        made = at("pub", "-J", f"{unique}.a", f"body {number}", "-H", f"Kind: k{number}")
        assert made.status == 0

    def lines(form: str) -> list[str]:
        ran = at("sub", "--stream", unique, "--all", "-T", "--format", form)
        assert (ran.status, ran.err) == (0, ""), ran
        return ran.out.splitlines()

    assert lines("{seq:>3} {subject} [{header.Kind}] {size} {data}") == [
        f"{number + 1:>3} {unique}.a [k{number}] 6 body {number}" for number in range(3)
    ]
    assert lines("{{{stream}}}{header.None}\\t{tries}")[0] == f"{{{unique}}}\t1"
    assert lines("{time}")[0].startswith("20")
    assert lines("{headers}")[2] == "Kind: k2"
    assert [json.loads(each)["data"] for each in lines("json")] == ["body 0", "body 1", "body 2"]
    for wrong in ("{sequence}", "subject", "{subject", "{}"):
        ran = at("sub", "x", "--format", wrong)
        assert (ran.status, ran.err.count("\n")) == (2, 1), ran
