"""``pelton kv`` against every server there is."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.cli.kv.dump import read_values
from pelton.cli.output import payload
from pelton.sync import connect
from tests import copies
from tests.proxies import running_proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Ran
    from tests.peers import ServerProcess

    Run = Callable[..., Ran]


@pytest.fixture
def bucket(at: Run, unique: str) -> Iterator[str]:
    """A bucket of this test's own that keeps five revisions."""
    assert at("kv", "add", unique, "--history", 5).status == 0
    yield unique
    at("kv", "del", unique, "-f")


def test_a_bucket_from_birth_to_death(at: Run, peer: ServerProcess, unique: str) -> None:
    options = "--history 3 --ttl 1h --marker-ttl 5s --max-value-size 1k --max-bucket-size 1M"
    options += " --storage memory --compress --atomic --metadata team=blue --description d"
    made = at("kv", "add", unique, *options.split())
    assert made.status == 0
    assert f"Bucket {unique}\n" in made.out
    assert "History: 3\n" in made.out
    with connect(peer.url) as client:
        config = client.jetstream().key_value(unique).status().config
    assert (config.history, config.ttl, config.limit_marker_ttl) == (3, 3600 * 10**9, 5 * 10**9)
    assert (config.max_value_size, config.max_bytes, config.storage) == (1024, 2**20, "memory")
    assert (config.compression, config.allow_atomic) == (True, True)
    assert (config.metadata, config.description) == ({"team": "blue"}, "d")
    assert at("kv", "edit", unique, "--history", 7, "--description", "").status == 0
    changed = at("kv", "info", unique, "--json").json
    assert (changed["history"], changed["description"], changed["bucket"]) == (7, "", unique)
    assert changed["ttl_ns"] == 3600 * 10**9
    assert changed["stream"]["config"]["metadata"]["team"] == "blue"
    assert unique in at("kv", "ls", "-n").out.splitlines()
    assert unique in [each["bucket"] for each in at("kv", "ls", "--json").json]
    assert unique in at("kv", "list").out
    assert at("kv", "rm", unique, "-f").out == f"deleted bucket {unique} with all its values\n"
    gone = at("kv", "status", unique)
    assert (gone.status, gone.err.count("\n")) == (1, 1)
    assert f"there is no bucket '{unique}'" in gone.err


def test_values_are_put_got_and_deleted(at: Run, bucket: str) -> None:
    assert at("kv", "put", bucket, "a.b", "one").out == "one\n"
    assert at("kv", "get", bucket, "a.b").out.startswith(f"{bucket} > a.b revision: 1 created @ ")
    assert at("kv", "get", bucket, "a.b").out.endswith("\n\none\n")
    assert at("kv", "get", bucket, "a.b", "--raw").out == "one"
    assert at("kv", "update", bucket, "a.b", "two", 1, "--json").json["revision"] == 2
    refused = at("kv", "update", bucket, "a.b", "three", 1, "--json")
    assert (refused.status, refused.out) == (1, "")
    assert json.loads(refused.err)["error"]["err_code"] == 10071
    assert at("kv", "get", bucket, "a.b", "--revision", 1, "-r").out == "one"
    assert at("kv", "create", bucket, "a.b", "x").status == 1
    assert at("kv", "create", bucket, "c", "x").status == 0
    assert at("kv", "ls", bucket).out == "a.b\nc\n"
    assert at("kv", "ls", bucket, "a.>", "--json").json == ["a.b"]
    (found,) = at("kv", "ls", bucket, "a.*", "-v", "--display-value", "--json").json
    assert (found["key"], found["revision"], found["data"]) == ("a.b", 2, "two")
    assert at("kv", "revert", bucket, "a.b", 1, "-f").out == "one\n"
    assert at("kv", "del", bucket, "a.b", "-f").out == f"deleted key a.b of {bucket}\n"
    missing = at("kv", "get", bucket, "a.b")
    assert (missing.status, missing.err) == (
        1,
        f"pelton: bucket {bucket} has no value of key a.b\n",
    )
    history = at("kv", "history", bucket, "a.b", "--json").json
    assert [each["operation"] for each in history] == ["PUT", "PUT", "PUT", "DEL"]
    assert at("kv", "revert", bucket, "a.b", history[1]["revision"], "-f").out == "two\n"
    assert at("kv", "purge", bucket, "a.b", "-f").status == 0
    (left,) = at("kv", "history", bucket, "a.b", "--json").json
    assert left["operation"] == "PURGE"
    assert "PURGE" in at("kv", "history", bucket, "a.b").out
    assert at("kv", "compact", bucket, "-f", "--older-than", "0s", "--json").json == {"removed": 1}
    assert at("kv", "history", bucket, "a.b").status == 1


def test_bytes_come_from_standard_input_and_go_out_as_they_are(at: Run, bucket: str) -> None:
    data = b"\x00\xff\x1b[31m\n"
    assert at("kv", "put", bucket, "k", stdin=data).status == 0
    assert at("kv", "get", bucket, "k", "--raw").out.encode("utf-8", "surrogateescape") == data
    assert "\x1b" not in at("kv", "get", bucket, "k").out
    assert at("kv", "get", bucket, "k", "--json").json["data_base64"] == "AP8bWzMxbQo="
    assert at("kv", "update", bucket, "k", "--revision", 1, stdin=b"new").out == "new\n"


def test_a_key_expires(at: Run, unique: str) -> None:
    assert at("kv", "add", unique, "--marker-ttl", "10s").status == 0
    assert at("kv", "create", unique, "k", "v", "--ttl", "1s").status == 0
    newest = {"operation": "PUT"}
    while newest["operation"] == "PUT":
        (newest,) = at("kv", "watch", unique, "k", "-n", 1, "--json").lines
    assert (newest["operation"], newest["marker_reason"]) == ("PURGE", "MaxAge")
    at("kv", "del", unique, "-f")


def test_a_watch_begins_where_it_is_told(at: Run, bucket: str) -> None:
    for value in ("one", "two"):
        at("kv", "put", bucket, "k", value)
    at("kv", "del", bucket, "k", "-f")
    at("kv", "put", bucket, "other", "x")

    def seen(count: int, *options: object) -> list[tuple[str, str]]:
        ran = at("kv", "watch", bucket, *options, "-n", count, "--json")
        assert ran.status == 0
        return [(each["operation"], each.get("data", "")) for each in ran.lines]

    assert seen(2) == [("DEL", ""), ("PUT", "x")]
    assert seen(1, "--no-deletes") == [("PUT", "x")]
    assert seen(3, "k", "--history") == [("PUT", "one"), ("PUT", "two"), ("DEL", "")]
    assert seen(2, "--revision", 3) == [("DEL", ""), ("PUT", "x")]
    assert at("kv", "watch", bucket, "--updates", "--wait", "100ms") == (0, "", "")
    text = at("kv", "watch", bucket, "other", "-n", 1).out
    assert text.startswith("[")
    assert text.endswith(f"] PUT {bucket} > other: x\n")


def test_a_wait_that_ends_without_a_connection_is_an_error(
    at: Run, peer: ServerProcess, bucket: str
) -> None:
    at("kv", "put", bucket, "k", "newest")

    def ends(operation: bytes) -> bool:
        if b"newest" not in operation:
            return False
        proxy.refuse()
        return True

    with running_proxy(peer.port) as proxy:
        proxy.loses = ends
        ran = at("-s", proxy.url, "kv", "watch", bucket, "--wait", "1s")
    assert proxy.lost
    assert (ran.status, ran.out) == (1, "")
    assert f"pelton: cannot connect to {proxy.url}" in ran.err
    assert "without a connection" in ran.err.splitlines()[-1]


def test_a_watch_follows_changes(peer: ServerProcess, at: Run, bucket: str) -> None:
    at("kv", "put", bucket, "k", "first")
    command = [sys.executable, "-m", "pelton.cli", "-s", peer.url, "kv", "watch", bucket]
    child = copies.Popen([*command, "--json", "-n", "2"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert json.loads(child.stdout.readline())["data"] == "first"
    at("kv", "put", bucket, "k", "second")
    assert json.loads(child.stdout.readline())["data"] == "second"
    assert child.wait(30) == 0
    child.stdout.close()


def test_a_dump_is_loaded_as_it_was(at: Run, bucket: str, tmp_path: Path) -> None:
    values = {"a": b"text", "b.c": b"\xff\x00", "d": b"", "e": "ü\n".encode()}
    for key, value in values.items():
        at("kv", "put", bucket, key, stdin=value)
    at("kv", "del", bucket, "d", "-f")
    del values["d"]
    for form in ((), ("--json",)):
        file = tmp_path / "dump"
        file.write_text(at("kv", "dump", bucket, *form).out)
        other = f"{bucket}{len(form)}"
        assert at("kv", "add", other).status == 0
        assert at("kv", "put", other, "a", "mine").status == 0
        kept = at("kv", "load", other, file, "--keep", "--json").json
        assert kept == {"bucket": other, "stored": 2, "kept": 1}
        assert at("kv", "get", other, "a", "-r").out == "mine"
        assert at("kv", "load", other, stdin=file.read_bytes()).out == (
            f"stored 3 keys in bucket {other}\n"
        )
        found = read_values(at("kv", "dump", other).out.encode(), "-")
        assert found == values
        at("kv", "del", other, "-f")
    assert [each["key"] for each in at("kv", "dump", bucket, "b.*").lines] == ["b.c"]


def test_nothing_of_a_file_with_a_mistake_is_loaded(at: Run, bucket: str) -> None:
    for text, says in (
        ('{"key": "a", "data": "x"}\n{"key": "b"}\n', 'line 2: expected the text "data"'),
        ('{"key": "a", "data": "x"}\n[]\n', "line 2: expected an object"),
        ('{"key": "a", "data": "x"}\n{"key": "a", "data": "y"}\n', "occurs twice"),
        ('{"key": "a", "data": "x"}\n{"key": "b", "data_base64": "?"}\n', "line 2"),
        ('{"key": "a", "data": "x"}\n{', "not JSON"),
        ('{"key": "a", "data": "x"}\n{"key": "a b", "data": "x"}', "cannot be a key"),
    ):
        ran = at("kv", "load", bucket, stdin=text.encode())
        assert ran.status == 2, text
        assert says in ran.err
        assert at("kv", "ls", bucket).out == ""


KEYS = st.text("abc/_=-", min_size=1)


@given(st.dictionaries(KEYS, st.binary()))
def test_any_values_survive_a_dump(values: dict[str, bytes]) -> None:
    rows = [{"key": key, **payload(value)} for key, value in values.items()]
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    assert read_values(lines.encode(), "-") == values
    assert read_values(json.dumps(rows).encode(), "-") == values


def test_deleting_asks_first(at: Run, bucket: str) -> None:
    at("kv", "put", bucket, "k", "v")
    for words in (
        ("del", bucket, "k"),
        ("purge", bucket, "k"),
        ("del", bucket),
        ("compact", bucket),
    ):
        assert at("kv", *words, stdin=b"n\n").status == 130
    assert at("kv", "get", bucket, "k", "-r").out == "v"
    assert at("kv", "del", bucket, "k", stdin=b"y\n").status == 0
    assert at("kv", "get", bucket, "k").status == 1


def test_a_mirror_becomes_a_bucket_of_its_own(at: Run, bucket: str) -> None:
    copy = f"{bucket}copy"
    at("kv", "put", bucket, "k", "v")
    assert at("kv", "add", copy, "--mirror", bucket, "--storage", "m").status == 0
    deadline = time.monotonic() + 60
    while at("kv", "get", copy, "k", "-r").out != "v":
        assert time.monotonic() < deadline
    edited = at("kv", "edit", copy, "--no-mirror")
    assert edited.status == 0, edited.err
    at("kv", "put", copy, "k", "own")
    assert at("kv", "get", copy, "k", "-r").out == "own"
    assert at("kv", "get", bucket, "k", "-r").out == "v"


def test_mistakes_are_told_in_one_line(at: Run, bucket: str) -> None:
    at("kv", "put", bucket, "k", "v")
    for status, words, says in (
        (2, ("put", bucket, "a b", "x"), "cannot be a key"),
        (2, ("add", "a.b"), "cannot be the name of a bucket"),
        (2, ("add", "x", "--history", 65), "65 is out of range (1 to 64)"),
        (2, ("add", "x", "--metadata", "y"), "NAME=VALUE"),
        (2, ("add", "x", "--mirror-domain", "y"), "needs --mirror"),
        (2, ("add", "x", "--republish-source", "y"), "--republish-destination is missing"),
        (2, ("edit", bucket), "nothing to change"),
        (2, ("edit", bucket, "--mirror-domain", "y"), "needs --mirror"),
        (2, ("edit", bucket, "--mirror", "y", "--no-mirror"), "exclude each other"),
        (1, ("edit", bucket, "--mirror", f"{bucket}Y"), "mirror"),
        (2, ("update", bucket, "k", "v"), "give the expected revision"),
        (2, ("watch", bucket, "--history", "--updates"), "give one of"),
        (1, ("get", bucket, "k", "--revision", 99), "no value of key k at revision 99"),
        (1, ("revert", bucket, "k", 1, "-f"), "is the newest"),
        (1, ("create", bucket, "n", "v", "--ttl", "5s"), "limit_marker_ttl"),
        (1, ("put", f"{bucket}X", "k", "v"), "there is no bucket"),
    ):
        ran = at("kv", *words)
        assert (ran.status, ran.out) == (status, ""), words
        assert ran.err.count("\n") == 1
        assert says in ran.err


def test_sources_are_added_to_a_bucket(at: Run, unique: str) -> None:
    for name in ("A", "B", ""):
        assert at("kv", "add", f"{unique}{name}", "--storage", "memory").status == 0
        assert at("kv", "put", f"{unique}{name}", f"k{name}", f"of {name}").status == 0
    copied = at("kv", "edit", unique, "--source", f"{unique}A", "--source", f"{unique}B", "--json")
    assert copied.status == 0, copied.err
    sources = copied.json["stream"]["config"]["sources"]
    assert [each["name"] for each in sources] == [f"KV_{unique}A", f"KV_{unique}B"]
    deadline = time.monotonic() + 60
    while at("kv", "ls", unique).out.split() != ["k", "kA", "kB"]:
        assert time.monotonic() < deadline
    one = at("kv", "edit", unique, "--source", f"{unique}B", "--description", "d", "--json")
    assert len(one.json["stream"]["config"]["sources"]) == 1
    assert at("kv", "get", unique, "kA", "--raw").out.startswith("of A")
