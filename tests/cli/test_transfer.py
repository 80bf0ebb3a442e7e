"""``stream export`` and ``import``: through files and back, whatever interrupts them."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from pelton import StreamConfig
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

EXPECTED = "Nats-Expected-Last-Sequence"


@pytest.fixture
def js(peer: ServerProcess) -> Iterator[JetStream]:
    with connect(peer.url) as client:
        yield client.jetstream()


def make(js: JetStream, name: str, seed: int, count: int = 60) -> list[tuple[Any, ...]]:
    """A stream with messages of all kinds; what it holds."""
    draw = random.Random(seed)
    retention = draw.choice(["limits", "workqueue"])
    js.create_stream(StreamConfig(name=name, subjects=[f"{name}.>"], retention=retention))
    for number in range(count):
        data = draw.choice([draw.randbytes(20), b"", b'{"n": %d}' % number, "grüße\n".encode()])
        headers = {}
        if draw.random() < 0.5:
            headers = {"A": [str(number), "second"], "b-C": "wörter"}
        msg_id = f"{name}-{number}" if draw.random() < 0.3 else None
        js.publish(f"{name}.{draw.choice(['a', 'b.c', 'ü'])}", data, headers=headers, msg_id=msg_id)
    for seq in draw.sample(range(1, count + 1), count // 10):
        js.delete_message(name, seq)
    return held(js, name)


def held(js: JetStream, name: str) -> list[tuple[Any, ...]]:
    """Subject without the stream, headers without the guard, and payload of each message."""
    found = []
    last = js.stream_info(name).state.last_seq
    seq = 1
    while seq <= last:
        try:
            message = js.get_message(name, seq, next_by_subject=">")
        except Exception as error:
            assert "no message" in str(error)  # noqa: PT017  # the end
            break
        headers = {k: v for k, v in message.headers.lists().items() if k != EXPECTED}
        found.append((message.subject.partition(".")[2], headers, message.data))
        seq = message.seq + 1
    return found


FORMS = [
    ("x.jsonl", ()),
    ("x.parquet", ()),
    ("x.natsarc", ()),
    ("folder", ("--format", "parquet", "--rows-per-file", "7")),
    ("backup", ("--format", "archive")),
]


@pytest.mark.parametrize(("file", "options"), FORMS, ids=[each[0] for each in FORMS])
def test_there_and_back(
    at: Run,
    js: JetStream,
    unique: str,
    tmp_path: Path,
    file: str,
    options: tuple[str, ...],
) -> None:
    stored = make(js, unique, SEED)
    path = tmp_path / file
    ran = at("stream", "export", unique, path, *options, "--json")
    assert (ran.status, ran.json["messages"]) == (0, len(stored)), ran.err
    assert at("stream", "export", unique, path, *options).status == 2  # is there
    js.create_stream(StreamConfig(name=f"{unique}c", subjects=[f"{unique}c.>"]))
    ran = at("stream", "import", f"{unique}c", path, "--map", f"{unique}.>:{unique}c.>", "--json")
    assert (ran.status, ran.json) == (
        0,
        {"stream": f"{unique}c", "imported": len(stored), "left_out": 0},
    )
    assert held(js, f"{unique}c") == stored
    assert not list(tmp_path.glob("*.import"))


def test_an_archive_is_a_backup_of_this_server(
    at: Run, js: JetStream, unique: str, tmp_path: Path
) -> None:
    """A part of a stream, restored with its sequences and times."""
    make(js, unique, 7)
    last = js.get_message(unique, js.stream_info(unique).state.last_seq)
    assert (
        at(
            *("stream", "export", unique, tmp_path / "b", "--format", "archive"),
            *("--subject", f"{unique}.b.*", "--subject", last.subject, "--from", 10),
        ).status
        == 0
    )
    lines = at("stream", "export", unique, "-", "--from", 10).lines
    wanted = [
        each
        for each in lines
        if each["subject"] == last.subject or each["subject"].startswith(f"{unique}.b.")
    ]
    js.delete_stream(unique)
    ran = at("stream", "restore", tmp_path / "b")
    assert ran.status == 0, ran.err
    assert at("stream", "export", unique, "-").lines == wanted


def test_ranges(at: Run, js: JetStream, unique: str) -> None:
    js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.*"]))
    for number in range(10):
        js.publish(f"{unique}.{number % 2}", b"")
    middle = at("stream", "get", unique, 5, "--json").json["time"]

    def seqs(*options: object) -> list[int]:
        return [each["seq"] for each in at("stream", "export", unique, "-", *options).lines]

    assert seqs("--from", 3, "--to", 5) == [3, 4, 5]
    assert seqs("--from", middle) == [5, 6, 7, 8, 9, 10]
    assert seqs("--to", middle) == [1, 2, 3, 4]
    assert seqs("--subject", f"{unique}.1", "--from", 4) == [4, 6, 8, 10]
    assert seqs("--since", "1h", "--to", 2) == [1, 2]
    assert seqs("--from", 11) == []
    assert at("stream", "export", unique, "-", "--from", "yesterday").status == 2
    assert at("stream", "export", unique, "-", "--from", 1, "--since", "1h").status == 2


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_an_interrupted_export_goes_on(
    at: Run, js: JetStream, unique: str, tmp_path: Path, form: str
) -> None:
    make(js, unique, SEED)
    draw = random.Random(SEED)
    whole = at("stream", "export", unique, "-").lines
    if form == "jsonl":
        path, options = tmp_path / "x.jsonl", ()
        assert at("stream", "export", unique, path).status == 0
        text = path.read_bytes()
        path.rename(tmp_path / "x.jsonl.part")
        os.truncate(tmp_path / "x.jsonl.part", draw.randrange(len(text) + 1))
    else:
        path, options = tmp_path / "x", ("--format", "parquet", "--rows-per-file", "5")
        assert at("stream", "export", unique, path, *options).status == 0
        files = sorted(path.iterdir())
        for each in files[draw.randrange(len(files)) :]:
            each.unlink()
        (path / "next.part").write_bytes(b"PAR1")
    assert at("stream", "export", unique, path, *options, "--resume").status == 0
    if form == "jsonl":
        assert path.read_bytes() == text
        assert at("stream", "export", unique, path, "--resume").status == 2  # is complete
    else:
        from pyarrow import parquet

        assert parquet.read_table(path)["seq"].to_pylist() == [each["seq"] for each in whole]
        assert not list(path.glob("*.part"))


@pytest.mark.parametrize(
    "words",
    [
        ("stream", "export", "NAME", "FILE"),
        ("sql", "select * from NAME", "--format", "parquet", "--output", "FILE"),
    ],
    ids=lambda words: words[0],
)
def test_ctrl_c_leaves_no_parquet_file_and_no_complaint(
    at: Run,
    js: JetStream,
    unique: str,
    tmp_path: Path,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    make(js, unique, 0)
    file = tmp_path / "x.parquet"
    complaints: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr("sys.unraisablehook", complaints.append)
        patch.setattr("pyarrow.parquet.ParquetWriter.write_batch", interrupted)
        named = {"NAME": unique, "FILE": file, "select * from NAME": f"select * from {unique}"}
        ran = at(*(named.get(word, word) for word in words))
        gc.collect()
    assert (ran.status, file.exists(), complaints) == (130, False, [])


def test_a_killed_import_goes_on(
    js: JetStream, peer: ServerProcess, unique: str, tmp_path: Path
) -> None:
    """However often it is killed, and wherever: each message is there once, in order."""
    count = length(8_000, 20_000)
    js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
    js.publish(f"{unique}.before", b"before")
    path = tmp_path / "x.jsonl"
    with path.open("w") as file:
        for number in range(count):
            file.write(json.dumps({"subject": f"{unique}.x", "data": str(number)}) + "\n")
    draw = random.Random(SEED)
    command = [sys.executable, "-m", "pelton.cli", "-s", peer.url, "stream", "import", unique]
    deadline = time.monotonic() + 120
    kills = 0
    while True:
        before = js.stream_info(unique).state.last_seq
        child = copies.Popen([*command, str(path)], stderr=subprocess.PIPE)
        stop = before + draw.randrange(1, count // 3)
        while child.poll() is None and time.monotonic() < deadline:
            if kills < length(2, 4) and js.stream_info(unique).state.last_seq > stop:
                child.send_signal(signal.SIGKILL)
                kills += 1
                break
        child.wait()
        assert child.stderr is not None
        text = child.stderr.read().decode()
        child.stderr.close()
        assert time.monotonic() < deadline
        if child.returncode == 0:
            break
        # messages of the killed one may still arrive, which stops the next one
        assert child.returncode == -signal.SIGKILL or "somebody else" in text, text
    assert kills
    messages = [row for columns in js.read_columns(unique, 2, count + 9) for row in columns.rows()]
    assert [int(row[4]) for row in messages] == list(range(count))


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


def test_messages_that_the_stream_has_are_left_out(
    at: Run, js: JetStream, unique: str, tmp_path: Path
) -> None:
    js.create_stream(StreamConfig(name=unique, subjects=[unique]))
    draw = random.Random(SEED)
    there = set(draw.sample(range(100), 30))
    for number in there:
        js.publish(unique, b"%d" % number, msg_id=str(number))
    rows = [
        {"subject": unique, "data": str(number), "headers": {"Nats-Msg-Id": [str(number)]}}
        for number in range(100)
    ]
    ran = at("stream", "import", unique, lines(tmp_path / "x.jsonl", rows), "--json")
    assert (ran.status, ran.json["imported"], ran.json["left_out"]) == (0, 70, 30), ran.err
    new = [int(data) for _, _, data in held(js, unique)[30:]]
    assert new == [number for number in range(100) if number not in there]


def test_somebody_else_publishes(at: Run, js: JetStream, unique: str, tmp_path: Path) -> None:
    js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"], max_msg_size=100))
    rows = [{"subject": f"{unique}.a", "data": str(number)} for number in range(10)]
    rows[6]["data"] = "long" * 100
    path = lines(tmp_path / "x.jsonl", rows)
    ran = at("stream", "import", unique, path)
    assert ran.status == 1
    assert "message 7" in ran.err
    assert "6 messages are imported" in ran.err
    ran = at("stream", "import", unique, path, "--map", "a:b")
    assert (ran.status, "--restart" in ran.err) == (2, True)
    ran = at("stream", "import", unique, path, "--on-refusal", "skip", "--json")
    assert (ran.status, ran.json["imported"], ran.json["imported_before"]) == (0, 3, 6), ran.err
    assert len(held(js, unique)) == 9
    assert at("stream", "import", unique, path).status == 1
    js.publish(f"{unique}.a", b"foreign")
    ran = at("stream", "import", unique, path)
    assert (ran.status, "somebody else" in ran.err) == (1, True), ran
    js.delete_stream(unique)
    js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
    ran = at("stream", "import", unique, path)
    assert (ran.status, "earlier stream" in ran.err) == (2, True), ran
    assert at("stream", "import", unique, path, "--restart").status == 0


def test_options_of_an_import(at: Run, js: JetStream, unique: str, tmp_path: Path) -> None:
    js.create_stream(StreamConfig(name=unique, subjects=[f"{unique}.>"]))
    rows = [
        {
            "subject": "old.eu",
            "seq": 7,
            "time": "2026-01-01T00:00:00Z",
            "data": "x",
            "headers": {"A": ["1"], "B": ["2"], EXPECTED: ["3"]},
        },
        {"subject": "other", "seq": 8, "time": "2026-01-02T00:00:00Z", "data_base64": "/w=="},
    ]
    path = lines(tmp_path / "x.jsonl", rows)
    ran = at("stream", "import", unique, path, "--dry-run", "--subject", "old.*", "--json")
    assert ran.json == {"messages": 1}
    ran = at(
        *("stream", "import", unique, path, "--map", f"old.*:{unique}.$1.x", "--map"),
        *(f"other:{unique}.y", "--drop-header", "B", "--time-header", "T", "--seq-header", "S"),
        "--no-guard",
    )
    assert ran.status == 0, ran.err
    time_of = [f"2026-01-0{day}T00:00:00Z" for day in (1, 2)]
    assert held(js, unique) == [
        ("eu.x", {"A": ["1"], "T": [time_of[0]], "S": ["7"]}, b"x"),
        ("y", {"T": [time_of[1]], "S": ["8"]}, b"\xff"),
    ]
    assert EXPECTED not in js.get_message(unique, 1).headers
    stdin = b'{"subject": "a", "data": "b"}\n'
    ran = at("stream", "import", unique, "-", "--publish-to", f"{unique}.one", stdin=stdin)
    assert ran.status == 0
    assert held(js, unique)[2] == ("one", {}, b"b")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"{", "line 1"),
        (b'{"subject": "a", "data": "b"}\n[]', "line 2"),
        (b'{"subject": 1}', "line 1"),
        (b'{"subject": "a", "data": "b", "data_base64": ""}', "line 1"),
        (b'{"subject": "a", "headers": {"A": [1]}}', "line 1"),
        (b'{"subject": "a", "headers": {"A:": ["1"]}}', "line 1"),
        (b'{"subject": "a", "time": "x"}', "line 1"),
        (b'{"data": "a"}', "--publish-to"),
    ],
)
def test_a_file_with_a_mistake(
    at: Run, js: JetStream, unique: str, tmp_path: Path, text: bytes, told: str
) -> None:
    js.create_stream(StreamConfig(name=unique, subjects=[unique]))
    (tmp_path / "x.jsonl").write_bytes(text)
    ran = at("stream", "import", unique, tmp_path / "x.jsonl")
    assert (ran.status, told in ran.err) == (2, True), ran
    assert ran.err.count("\n") == 1


def test_files_that_are_none(at: Run, js: JetStream, unique: str, tmp_path: Path) -> None:
    js.create_stream(StreamConfig(name=unique, subjects=[unique]))
    for name in ("x.jsonl", "x.parquet", "x.natsarc", "x", "x.csv"):
        assert at("stream", "import", unique, tmp_path / name).status == 2
    (tmp_path / "y.parquet").write_bytes(b"PAR")
    (tmp_path / "y.natsarc").write_bytes(b"PAR")
    assert at("stream", "import", unique, tmp_path / "y.parquet").status == 2
    assert at("stream", "import", unique, tmp_path / "y.natsarc").status == 1
    assert at("stream", "export", unique, tmp_path / "y.txt").status == 2
    assert at("stream", "export", unique, tmp_path / "y.parquet", "--resume").status == 2
    assert at("stream", "export", "nothing", tmp_path / "z.jsonl").status == 1
    assert not (tmp_path / "z.jsonl.part").exists()
