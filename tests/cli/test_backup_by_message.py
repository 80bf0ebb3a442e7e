"""``stream backup --resume``: a backup of single messages, interrupted anywhere, restores the stream."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from pelton import ConsumerConfig, StreamConfig
from pelton.sync import connect
from tests import copies
from tests.ways import SEED, length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pelton.sync import JetStream
    from tests.peers import ServerProcess

    from .conftest import Ran

    Run = Callable[..., Ran]


@pytest.fixture
def js(peer: ServerProcess) -> Iterator[JetStream]:
    with connect(peer.url) as client:
        yield client.jetstream()


def fill(js: JetStream, name: str, draw: random.Random, count: int) -> None:
    js.create_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
    with js.publisher() as publisher:
        for number in range(count):
            headers = {"A": "b"} if draw.random() < 0.3 else None
            publisher.publish(f"{name}.{draw.randrange(3)}", draw.randbytes(30), headers=headers)
            if number == 0:
                publisher.flush()
    for seq in {*draw.sample(range(2, count), 5), count}:
        js.delete_message(name, seq)
    js.create_consumer(name, ConsumerConfig(durable_name="c", ack_policy="explicit"))
    messages = js.consumer(name, "c").fetch(6)
    for message in messages[:3]:
        message.ack_sync()
    js.create_consumer(name, ConsumerConfig(durable_name="n", ack_policy="none"))
    js.consumer(name, "n").fetch(4)
    js.create_consumer(name, ConsumerConfig(name="e", ack_policy="explicit"))  # not durable


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def rows(js: JetStream, name: str) -> list[Any]:
    found = []
    for columns in js.read_columns(name, 1, js.stream_info(name).state.last_seq + 1):
        found += columns.rows()
    return found


def test_it_restores_the_stream(at: Run, js: JetStream, unique: str, tmp_path: Path) -> None:
    fill(js, unique, random.Random(SEED), 60)
    stored, state = rows(js, unique), js.stream_info(unique).state
    floors = [js.consumer_info(unique, name).ack_floor.stream_seq for name in "cn"]
    ran = at("stream", "backup", unique, tmp_path / "b", "--resume")
    assert ran.status == 0, ran.err
    assert sorted(each.name for each in (tmp_path / "b").iterdir()) == [
        "backup.json",
        "stream.tar.s2",
    ]
    js.delete_stream(unique)
    ran = at("stream", "restore", tmp_path / "b")
    assert ran.status == 0, ran.err
    now = js.stream_info(unique).state
    assert rows(js, unique) == stored
    assert (now.messages, now.last_seq) == (state.messages, state.last_seq)
    assert js.consumer_names(unique) == ["c", "n"]
    assert [js.consumer_info(unique, name).ack_floor.stream_seq for name in "cn"] == floors
    following = js.consumer(unique, "c").fetch(2)
    assert following[0].metadata.stream_seq == next(row[0] for row in stored if row[0] > floors[0])
    assert at("stream", "backup", unique, tmp_path / "b", "--resume").status == 2
    assert at("stream", "backup", unique, tmp_path / "x", "--resume", "--check").status == 2


def test_killed_anywhere_it_goes_on(
    js: JetStream, peer: ServerProcess, unique: str, tmp_path: Path
) -> None:
    draw = random.Random(SEED)
    fill(js, unique, draw, length(15_000, 40_000))
    stored = rows(js, unique)
    folder = tmp_path / "b"
    command = [sys.executable, "-m", "pelton.cli", "-s", peer.url, "stream", "backup", unique]
    deadline = time.monotonic() + 120
    kills = 0
    while True:
        begun = size_of(folder / "messages.part")
        child = copies.Popen([*command, str(folder), "--resume"])
        while child.poll() is None and kills < length(2, 3):
            if size_of(folder / "messages.part") > begun:
                child.send_signal(signal.SIGKILL)
        if child.wait() == 0 and kills:
            break
        assert time.monotonic() < deadline
        if child.returncode == 0:  # it was done before it could be killed
            shutil.rmtree(folder)
        else:
            assert child.returncode == -signal.SIGKILL
            kills += 1
            if (folder / "stream.tar.s2").exists() and not (folder / "backup.part.json").exists():
                shutil.rmtree(folder)  # only its end was missing
    js.delete_stream(unique)
    made = copies.run([*command[:-2], "restore", str(folder)], check=False)
    assert made.returncode == 0
    assert rows(js, unique) == stored


def test_interrupted_behind_its_archive_it_goes_on(
    at: Run, js: JetStream, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pelton.cli.streams import backup_by_message as module

    fill(js, unique, random.Random(7), 30)
    stored, folder = rows(js, unique), tmp_path / "b"
    with monkeypatch.context() as patch:
        patch.setattr(module, "FACTS", "missing/backup.json")
        assert at("stream", "backup", unique, folder, "--resume").status == 1
    assert (folder / "stream.tar.s2").exists()
    ran = at("stream", "backup", unique, folder, "--resume")
    assert ran.status == 0, ran.err
    js.delete_stream(unique)
    assert at("stream", "restore", folder).status == 0
    assert rows(js, unique) == stored


@pytest.mark.parametrize("cut", [0.0, 0.4, 1.0])
def test_what_is_noted_counts(
    at: Run, js: JetStream, unique: str, tmp_path: Path, cut: float
) -> None:
    """Bytes behind the note are read again; with fewer bytes than noted it begins anew."""
    draw = random.Random(7)
    fill(js, unique, draw, 30)
    stored = rows(js, unique)
    folder = tmp_path / "b"
    from pelton.cli.streams import backup_by_message as module

    progress = module.Progress(js.stream_info(unique).created)
    (columns,) = js.read_columns(unique, 1, 12)
    entries = [
        module.packed(subject, ts, seq, head, data)
        for seq, ts, subject, head, data in columns.rows()
    ]
    progress.take(columns, sum(map(len, entries)))
    folder.mkdir()
    (folder / "messages.part").write_bytes(b"".join(entries) + b"junk")
    (folder / "backup.part.json").write_bytes(module.msgspec.json.encode(progress))
    os.truncate(folder / "messages.part", int((progress.offset + 4) * cut))
    assert at("stream", "backup", unique, folder, "--resume").status == 0
    js.delete_stream(unique)
    assert at("stream", "restore", folder).status == 0
    assert rows(js, unique) == stored


def test_another_stream_of_that_name(at: Run, js: JetStream, unique: str, tmp_path: Path) -> None:
    js.create_stream(StreamConfig(name=unique, subjects=[unique]))
    (tmp_path / "messages.part").write_bytes(b"")
    (tmp_path / "backup.part.json").write_text(json.dumps({"created": 7}))
    ran = at("stream", "backup", unique, tmp_path, "--resume")
    assert (ran.status, "another stream" in ran.err) == (2, True), ran
    (tmp_path / "backup.part.json").write_text("{")
    assert at("stream", "backup", unique, tmp_path, "--resume").status == 2
