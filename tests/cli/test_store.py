"""``pelton store``: what it prints, as text and as JSON, and its exit statuses."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from pelton.cli.__main__ import main
from pelton.core.log.store_lock import FolderLock
from tests.store.stores import (
    flip,
    make_encrypted_stream,
    make_stream,
    messages_of,
    segments_of,
    tree,
)

Run = Any


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        status = main(["store", *map(str, arguments)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


def test_help_names_every_command(run: Run) -> None:
    status, out, _ = run("--help")
    assert status == 0
    for name in (
        "ls",
        "check",
        "verify",
        "repair",
        "dump",
        "backup",
        "backups",
        "restore",
        "prune",
    ):
        assert f"  {name} " in out
        assert run(name, "--help")[0] == 0


def test_a_sound_store(run: Run, tmp_path: Path) -> None:
    make_stream(tmp_path)
    before = tree(tmp_path)
    status, out, _ = run("ls", tmp_path)
    assert status == 0
    assert out.splitlines()[1].split()[:3] == ["$G", "ORDERS", "180"]
    for name in ("check", "verify"):
        status, out, _ = run(name, tmp_path)
        assert status == 0
        assert "all sound" in out
        status, out, _ = run(name, tmp_path, "--json")
        (stream,) = json.loads(out)["streams"]
        assert (stream["stream"], stream["state"], stream["messages"]) == ("ORDERS", "sound", 180)
    assert run("repair", tmp_path)[:2] == (0, "sound            $G/ORDERS  nothing to do\n")
    assert tree(tmp_path) == before


READING = (
    ("store", "ls", "{}"),
    ("store", "check", "{}"),
    ("store", "verify", "{}"),
    ("store", "repair", "{}", "--dry-run"),
    ("store", "repair", "{}"),
    ("store", "dump", "{}", "ORDERS"),
    ("store", "backup", "{}", "{}.backup"),
    ("stream", "ls", "--store", "{}"),
    ("stream", "info", "ORDERS", "--store", "{}"),
    ("sql", "--store", "{}", "select count(*) from ORDERS"),
    ("export", "--store", "{}"),
)


@pytest.mark.parametrize("words", READING, ids=" ".join)
@pytest.mark.parametrize("below", ["jetstream", "js", "a/b/js", "jetstream/jetstream"])
def test_the_store_below_a_folder_is_found(
    words: tuple[str, ...],
    below: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As if the store itself was given; nothing that another store could be is passed over."""
    make_stream(tmp_path / "data" / below)
    (tmp_path / "data" / "other").mkdir()
    said = {}
    for place in (tmp_path / "data" / below, tmp_path / "data"):
        assert main([each.format(place) for each in words]) == 0
        out = capfd.readouterr().out.replace(str(place), "")
        said[place] = re.sub(r" in [\d.]+ s, .*", "", out)
    first, second = said.values()
    if "backup" in words:
        assert "1 stream, " in second
    elif "ls" not in words or words[0] == "store":  # without the age of the last message
        assert second == first


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_folder_without_a_store_or_with_several(
    words: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    nothing = tmp_path / "data"
    (nothing / "jetstream" / "inner" / "jetstream").mkdir(parents=True)
    before = tree(tmp_path)
    assert main([each.format(nothing) for each in words]) == 1
    assert "is not a store, and there is none below it" in capfd.readouterr().err
    assert main([each.format(nothing / "gone") for each in words]) == 1
    assert "does not exist" in capfd.readouterr().err
    make_stream(nothing / "one")
    make_stream(nothing / "two")
    assert main([each.format(nothing) for each in words]) == (2 if words[0] == "store" else 1)
    err = capfd.readouterr().err
    assert f"there are 2 stores below {nothing}: {nothing}/one, {nothing}/two" in err
    assert set(before) <= set(tree(tmp_path))
    assert not (tmp_path / "data.backup").exists()


def test_a_store_without_streams_is_a_store(run: Run, tmp_path: Path) -> None:
    (tmp_path / "jetstream" / "$G" / "streams").mkdir(parents=True)
    assert run("check", tmp_path)[:2] == (0, "0 streams; all sound\n")


@pytest.mark.parametrize(("store", "given"), [("a/jetstream", "a"), ("a", "a/jetstream")])
def test_a_restore_makes_no_second_store(store: str, given: str, run: Run, tmp_path: Path) -> None:
    make_stream(tmp_path / "origin")
    assert run("backup", tmp_path / "origin", tmp_path / "backups")[0] == 0
    make_stream(tmp_path / store, "OTHER", 3)
    before = tree(tmp_path)
    status, _, err = run("restore", tmp_path / "backups", tmp_path / given)
    assert status == 2
    assert f"{tmp_path / store} is one; give that folder" in err
    assert tree(tmp_path) == before
    assert run("restore", tmp_path / "backups", tmp_path / store)[0] == 0


def test_an_encrypted_stream_is_no_damaged_one(run: Run, tmp_path: Path) -> None:
    make_encrypted_stream(tmp_path)
    for name in ("check", "verify"):
        status, out, _ = run(name, tmp_path)
        assert status == 1
        assert out.splitlines()[-1].startswith("1 stream; 1 encrypted, not all of which")


def test_a_damaged_store_is_told_and_repaired(run: Run, tmp_path: Path) -> None:
    folder = make_stream(tmp_path)
    everything = messages_of(folder)
    flip(segments_of(folder)[1], 100)
    status, out, _ = run("verify", tmp_path)
    assert status == 1
    assert "1 message lost" in out
    status, out, _ = run("dump", tmp_path, "ORDERS", "--damaged")
    assert status == 1
    assert "checksum" in out
    status, out, _ = run("dump", tmp_path, "ORDERS", "--damaged", "--json")
    assert (status, json.loads(out)["lost"][0]["count"]) == (1, 1)
    hurt = tree(tmp_path)
    status, out, _ = run("repair", tmp_path, "--dry-run")
    assert status == 0
    assert "would be corrected" in out
    assert tree(tmp_path) == hurt
    status, out, _ = run("repair", tmp_path, "--json")
    (stream,) = json.loads(out)["streams"]
    assert (status, stream["mended"], stream["after"]["state"]) == (0, 1, "sound")
    assert messages_of(folder) == everything
    assert run("verify", tmp_path)[0] == 0


def test_a_store_in_use_is_not_changed(run: Run, tmp_path: Path) -> None:
    make_stream(tmp_path / "a")
    target = tmp_path / "backups"
    lock = FolderLock(str(tmp_path / "a"))
    for arguments in (("repair", tmp_path / "a"), ("repair", tmp_path / "a", "--dry-run")):
        status, _, err = run(*arguments)
        assert status == 2
        assert "in use" in err
    assert run("backup", tmp_path / "a", target)[0] == 0
    (tmp_path / "a" / "jetstream").rename(tmp_path / "kept")
    assert run("restore", target, tmp_path / "a")[0] == 2
    lock.close()
    assert run("restore", target, tmp_path / "a")[0] == 0


def test_dump(run: Run, tmp_path: Path) -> None:
    folder = make_stream(tmp_path)
    kept = messages_of(folder)
    status, out, _ = run("dump", tmp_path, "ORDERS", "--json", "--headers")
    lines = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [line["seq"] for line in lines] == list(kept)
    assert lines[0]["data"] == kept[1].payload.decode()
    assert lines[1]["headers"] == "NATS/1.0\r\nA: b\r\n\r\n"
    _, out, _ = run("dump", tmp_path, "ORDERS", "--raw", "--from", 10, "--to", 12)
    assert out.encode() == b"".join(kept[seq].payload + b"\n" for seq in (10, 11, 12))
    _, out, _ = run("dump", tmp_path, "ORDERS", "-n", 1, "--headers")
    assert out.splitlines()[0].startswith("[#1] ORDERS.0 2023-11-14T22:13:20")
    _, out, _ = run("dump", tmp_path, "ORDERS", "--subject", "ORDERS.3", "--json")
    assert {json.loads(line)["subject"] for line in out.splitlines()} == {"ORDERS.3"}
    _, out, _ = run("dump", tmp_path, "ORDERS", "--consumers")
    assert json.loads(out)[0]["state"]["ack_floor_stream_seq"] == 100
    _, out, _ = run("dump", tmp_path, "ORDERS", "--config")
    assert json.loads(out)["config"]["subjects"] == ["ORDERS.>"]


def test_backups(run: Run, tmp_path: Path) -> None:
    folder = make_stream(tmp_path / "a")
    target = tmp_path / "backups"
    assert "180 messages up to 200" in run("backup", tmp_path / "a", target)[1]
    status, out, _ = run("backup", tmp_path / "a", target, "--json")
    assert (status, json.loads(out)["new_bytes"]) == (0, 0)
    status, out, _ = run("backups", target, "--json")
    first, second = [each["id"] for each in json.loads(out)]
    assert len(run("backups", target)[1].splitlines()) == 3
    assert run("verify", target)[0] == 0
    assert run("restore", target, tmp_path / "b", "--at", first)[0] == 0
    assert messages_of(tmp_path / "b" / folder.relative_to(tmp_path / "a")) == messages_of(folder)
    status, _, err = run("restore", target, tmp_path / "b")
    assert status == 2
    assert "already" in err
    assert run("prune", target, "--keep", 1, "--dry-run")[0] == 0
    assert "to be removed" in run("prune", target, "--keep", 1, "-y")[1]
    assert json.loads(run("backups", target, "--json")[1])[0]["id"] == second
    objects = sorted((target / "objects").rglob("?" * 64))
    flip(objects[0], 10)
    status, out, _ = run("verify", target)
    assert status == 1
    assert "damaged" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("check",),
        ("dump", "store", "NONE"),
        ("dump", "store", "ORDERS", "--from", "yesterday"),
        ("dump", "store", "ORDERS", "--raw", "--config"),
        ("backups", "store"),
        ("restore", "store", "other"),
        ("prune", "store"),
        ("nothing",),
    ],
)
def test_what_can_not_be_done_has_its_own_status(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.delenv("PELTON_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    make_stream(tmp_path / "store", count=3)
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("pelton: ")
    assert err.count("\n") == 1


def test_names_are_shown_and_not_obeyed(run: Run, tmp_path: Path) -> None:
    """Who may make a stream chooses its name: a terminal would do what it says."""
    tmp_path /= "zürich"
    make_stream(tmp_path, "a\x1b[31mb", 20)
    (tmp_path / "jetstream/$G/streams/%FF").mkdir()
    (tmp_path / "jetstream/notes.txt").write_text("somebody's")
    os.mkdir(bytes(tmp_path) + b"/jetstream/$G/streams/\xfe")
    calls = [("ls",), ("check",), ("verify",), ("repair", "--dry-run")]
    for name, *options in calls:
        status, out, _ = run(name, tmp_path, *options)
        assert status == 0
        assert "a\\x1b[31mb" in out
        assert all(line.isprintable() for line in out.splitlines())
    status, out, _ = run("dump", tmp_path, "a\x1b[31mb")
    assert status == 0
    assert "a\\x1b[31mb.1" in out.splitlines()[0] + out.splitlines()[2]
    status, out, _ = run("ls", tmp_path, "--json")
    names = [each["stream"] for each in json.loads(out)["streams"]]
    assert "a\x1b[31mb" in names
    assert out.encode()
    status, _, err = run("dump", tmp_path, "\x1b[31m")
    assert status == 2
    assert "\x1b" not in err
    status, _, err = run("backup", tmp_path, tmp_path / "b")
    assert status == 2
    assert "move it out of the store" in err
    os.rmdir(bytes(tmp_path) + b"/jetstream/$G/streams/\xfe")
    status, out, _ = run("backup", tmp_path, tmp_path / "b")
    assert status == 0
    assert "a\\x1b[31mb" in out
    status, out, _ = run("restore", tmp_path / "b", tmp_path / "c", "--stream", "a\x1b[31mb")
    assert status == 0
    assert "a\\x1b[31mb" in out


@pytest.mark.parametrize("harm", ["link", "folder"])
def test_a_stream_that_can_not_be_read_does_not_hide_the_others(
    run: Run, tmp_path: Path, harm: str
) -> None:
    bad, good = make_stream(tmp_path, "BAD"), make_stream(tmp_path, "GOOD")
    if harm == "link":
        segments_of(bad)[0].unlink()
        (bad / "log/00000000000000000001.seg").symlink_to("/nowhere")
    else:
        (bad / "log").rename(bad / "kept")
        (bad / "log").write_text("no folder")
    for name in ("check", "verify"):
        status, out, _ = run(name, tmp_path, "--json")
        assert status == 1
        states = {each["stream"]: each["state"] for each in json.loads(out)["streams"]}
        assert states == {"BAD": "not recoverable", "GOOD": "sound"}
        assert "cannot be read" in out
        assert run(name, tmp_path)[0] == 1
    assert run("ls", tmp_path)[0] == 0
    assert run("dump", tmp_path, "GOOD")[0] == 0
    assert run("backup", tmp_path, tmp_path / "b")[0] == 2
    assert run("backup", tmp_path, tmp_path / "b", "--stream", "GOOD")[0] == 0
    assert good.is_dir()


@pytest.mark.parametrize(
    "file", ["meta.json", "log/00000000000000000001.seg", "consumers/packing.json"]
)
def test_a_pipe_for_a_file_stops_no_backup(run: Run, tmp_path: Path, file: str) -> None:
    store, target = tmp_path / "s", tmp_path / "b"
    bad = make_stream(store, "BAD")
    make_stream(store, "GOOD")
    path = bad / file
    path.unlink()
    os.mkfifo(path)
    status, out, _ = run("check", store)
    assert (status, "not a regular file" in out) == (1, True)
    status, out, _ = run("backup", store, target)
    assert status == 1
    assert out.count("not a regular file") == 1
    assert f"{path}: not a regular file" in out
    assert run("backup", store, target, "--json")[0] == 1
    assert run("backup", store, target, "--stream", "GOOD")[0] == 0
    assert run("restore", target, tmp_path / "r", "--stream", "GOOD")[0] == 0
    assert messages_of(tmp_path / "r/jetstream/$G/streams/GOOD")


def test_a_backup_with_a_stream_that_can_not_be_read(run: Run, tmp_path: Path) -> None:
    store, target = tmp_path / "s", tmp_path / "b"
    bad = make_stream(store, "BAD")
    make_stream(store, "GOOD")
    for path in bad.glob("meta.json*"):
        path.write_bytes(b"{")
    status, out, _ = run("backup", store, target)
    assert status == 1
    assert "not recoverable" in out
    assert f"{bad}/meta.json: " in out
    assert len(json.loads(run("backups", target, "--json")[1])) == 1


def test_an_encrypted_stream_is_repaired_with_its_key(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_encrypted_stream(tmp_path)
    next((folder / "log").glob("*01.idx")).unlink()
    assert run("repair", tmp_path)[0] == 1
    monkeypatch.setenv("PELTON_STORE_KEY", "a key that is long enough")
    before = tree(folder)
    status, out, err = run("repair", tmp_path)
    assert (status, err) == (0, "")
    assert "log/00000000000000000001.idx" in out
    assert set(before.values()) <= set(tree(folder).values())
    status, out, _ = run("verify", tmp_path, "--json")
    (report,) = json.loads(out)["streams"]
    assert (status, report["messages"], report["problems"]) == (0, 100, [])
    assert "nothing to do" in run("repair", tmp_path)[1]
    status, out, _ = run("dump", tmp_path, "SECRET", "--raw")
    assert status == 0


def test_a_compressed_segment_that_can_not_be_read_is_left_as_it_is(
    run: Run, tmp_path: Path
) -> None:
    folder = make_stream(tmp_path, count=300, compress=True)
    path = segments_of(folder)[2]
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert run("repair", tmp_path)[0] == 1
    assert path.read_bytes() == data[: len(data) // 2]
    status, out, _ = run("repair", tmp_path)
    assert status == 1
    assert "nothing to do" in out
