"""``pelton object`` against every server there is."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pelton.sync import connect
from tests import copies
from tests.ways import SEED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cli.conftest import Ran
    from tests.peers import ServerProcess

    Run = Callable[..., Ran]


@pytest.fixture
def bucket(at: Run, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An object store of this test's own, in an empty folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert at("object", "add", unique).status == 0
    yield unique
    at("object", "del", unique, "-f")


def test_a_store_from_birth_to_death(at: Run, peer: ServerProcess, unique: str) -> None:
    options = "--ttl 1h --max-bucket-size 1M --storage memory --compress --metadata team=blue"
    made = at("obj", "add", unique, *options.split())
    assert made.status == 0
    assert f"Object store {unique}\n" in made.out
    assert at("object", "edit", unique, "--description", "d", "--ttl", "2h").status == 0
    with connect(peer.url) as client:
        status = client.jetstream().object_store(unique).status()
    assert (status.description, status.ttl, status.max_bytes) == ("d", 7200 * 10**9, 2**20)
    assert (status.storage, status.compressed, status.metadata["team"]) == ("memory", True, "blue")
    assert unique in at("object", "ls", "-n").out.splitlines()
    assert unique in at("object", "ls").out
    assert unique in [each["bucket"] for each in at("object", "ls", "--json").json]
    assert at("object", "put", unique, "--name", "a", stdin=b"x").status == 0
    assert at("object", "seal", unique, stdin=b"n\n").status == 130
    assert at("object", "seal", unique, "-f", "--json").json["sealed"]
    assert at("object", "put", unique, "--name", "b", stdin=b"x").status == 1
    assert at("object", "rm", unique, "-f").out == (
        f"deleted object store {unique} with all its objects\n"
    )
    gone = at("object", "info", unique)
    assert (gone.status, gone.out) == (1, "")
    assert f"there is no object store {unique}" in gone.err


def test_files_go_there_and_back(at: Run, bucket: str) -> None:
    data = random.Random(SEED).randbytes(300_000)
    source = Path("folder/file.bin")
    source.parent.mkdir()
    source.write_bytes(data)
    stored = at(
        "object", "put", bucket, source, "--description", "d", "-H", "A: b", "--metadata", "m=n",
        "--json",
    ).json  # fmt: skip
    assert (stored["name"], stored["size"], stored["chunks"]) == ("folder/file.bin", 300_000, 3)
    assert (stored["headers"], stored["metadata"]) == ({"A": ["b"]}, {"m": "n"})
    assert at("object", "get", bucket, source).out == "wrote 293.0 KiB to file.bin\n"
    assert Path("file.bin").read_bytes() == data
    assert at("object", "get", bucket, source, "-O", "other", "--json").json["file"] == "other"
    assert Path("other").read_bytes() == data
    out = at("object", "get", bucket, source, "-O", "-").out
    assert out.encode("utf-8", "surrogateescape") == data
    assert stored["sha256"] == hashlib.sha256(data).hexdigest()
    shown = at("object", "info", bucket, source).out
    assert f"SHA-256: {stored['sha256']}" in shown
    assert "Size: 293.0 KiB" in shown
    assert "Header A: b" in shown
    small = at("object", "put", bucket, "--name", "s", "--chunk-size", 1, "--json", stdin=b"abc")
    assert small.json["chunks"] == 3
    assert at("object", "ls", bucket, "-n").out == "folder/file.bin\ns\n"
    assert [each["name"] for each in at("object", "ls", bucket, "--json").json] == [
        str(source),
        "s",
    ]
    assert re.search(r"\ns +3 B +\d{4}-", at("object", "ls", bucket).out)
    assert at("object", "update", bucket, "s", "--rename", "t", "--description", "new").status == 0
    found = at("object", "info", bucket, "t", "--json").json
    assert (found["description"], found["size"]) == ("new", 3)
    assert at("object", "del", bucket, "t", "-f", "--json").json == {
        "removed": {"bucket": bucket, "name": "t"}
    }
    assert at("object", "ls", bucket, "-n", "--deleted", "--json").json == [str(source), "t"]
    missing = at("object", "get", bucket, "t")
    assert (missing.status, missing.err) == (1, f"pelton: bucket '{bucket}' has no object 't'\n")


def test_nothing_is_replaced_without_a_question(at: Run, bucket: str) -> None:
    Path("f").write_text("one")
    assert at("object", "put", bucket, "f").status == 0
    Path("f").write_text("two")
    assert at("object", "put", bucket, "f", stdin=b"n\n").status == 130
    refused = at("object", "put", bucket, "--name", "f", stdin=b"three")
    assert (refused.status, "-f replaces it" in refused.err) == (1, True)
    assert at("object", "get", bucket, "f", stdin=b"n\n").status == 130
    assert Path("f").read_text() == "two"
    assert at("object", "get", bucket, "f", stdin=b"y\n").status == 0
    assert Path("f").read_text() == "one"
    assert at("object", "put", bucket, "--name", "f", "-f", stdin=b"three").status == 0
    assert at("object", "get", bucket, "f", "-f").status == 0
    assert Path("f").read_text() == "three"
    assert at("object", "del", bucket, "f", stdin=b"n\n").status == 130


def test_an_object_with_the_name_of_a_folder_needs_an_output(at: Run, bucket: str) -> None:
    for name in ("..", "a/..", "."):
        assert at("object", "put", bucket, "--name", name, stdin=b"x").status == 0
        ran = at("object", "get", bucket, name, "-f")
        assert (ran.status, "give --output" in ran.err) == (2, True), name
    assert at("object", "put", bucket, "--name", "../escape", stdin=b"x").status == 0
    assert at("object", "get", bucket, "../escape").status == 0
    assert Path("escape").read_text() == "x"
    assert not Path("../escape").exists()


def test_a_watch_shows_what_is_there_and_what_changes(
    at: Run, peer: ServerProcess, bucket: str
) -> None:
    at("object", "put", bucket, "--name", "a", stdin=b"xy")
    command = [sys.executable, "-m", "pelton.cli", "-s", peer.url, "object", "watch", bucket]
    child = copies.Popen([*command, "--json", "-n", "2"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert json.loads(child.stdout.readline())["name"] == "a"
    at("object", "del", bucket, "a", "-f")
    assert json.loads(child.stdout.readline())["deleted"] is True
    assert child.wait(30) == 0
    child.stdout.close()
    text = at("object", "watch", bucket, "-n", 1).out
    assert text.endswith(f"] DEL {bucket} > a\n")
    assert at("object", "watch", bucket, "--updates", "--wait", "100ms") == (0, "", "")
    assert at("object", "watch", bucket, "--no-deletes", "--wait", "100ms") == (0, "", "")


def test_a_terminal_gets_a_progress_bar(at: Run, peer: ServerProcess, bucket: str) -> None:
    import pty

    Path("f").write_bytes(bytes(1 << 20))
    for words in (("put", bucket, "f"), ("get", bucket, "f", "-f")):
        parent, child = pty.openpty()
        command = [sys.executable, "-m", "pelton.cli", "-s", peer.url, "object", *words]
        env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
        process = copies.Popen(command, stdout=subprocess.PIPE, stderr=child, env=env)
        os.close(child)
        text = b""
        while True:
            try:
                data = os.read(parent, 65536)
            except OSError:
                break
            if not data:
                break
            text += data
        os.close(parent)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(30) == 0
        assert b"MiB" in text


def test_mistakes_are_told_in_one_line(at: Run, bucket: str) -> None:
    for status, words, says in (
        (2, ("put", bucket), "--name is missing"),
        (2, ("put", bucket, "nofile"), "nofile is not a file"),
        (2, ("put", bucket, "--name", "x", "-H", "y"), "is not a header"),
        (2, ("add", "a.b"), "bucket name 'a.b'"),
        (2, ("edit", bucket), "nothing to change"),
        (2, ("update", bucket, "x"), "nothing to change"),
        (2, ("get", bucket, "x", "-O", "-", "--json"), "exclude each other"),
        (1, ("get", bucket, "x"), "has no object 'x'"),
        (1, ("update", bucket, "x", "--rename", "y"), "has no object 'x'"),
        (1, ("ls", f"{bucket}X"), "there is no object store"),
    ):
        ran = at("object", *words, stdin=b"")
        assert (ran.status, ran.out) == (status, ""), words
        assert says in ran.err
        assert ran.err.count("\n") == 1
