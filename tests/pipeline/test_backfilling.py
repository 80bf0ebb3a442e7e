"""Older messages into sinks, and tables made anew: each row once, whatever is killed and run again."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

from pelton.cli.__main__ import main
from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.pipeline import load, run
from pelton.pipeline.backfilling.ranges import Ledger, Shelf, chunks, count, joined, without
from pelton.pipeline.children import Children
from pelton.pipeline.running import preview
from pelton.pipeline.running.job import taken
from pelton.spark import register
from tests.peers import available_servers, start_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.peers import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SPAN = st.tuples(st.integers(1, 30), st.integers(0, 8)).map(lambda pair: (pair[0], sum(pair)))


def sequences(spans: Any) -> list[int]:
    return [each for first, last in spans for each in range(first, last + 1)]


@given(SPAN, st.lists(SPAN), st.integers(1, 7))
def test_ranges_are_sets_of_sequences(span: Any, spans: Any, most: int) -> None:
    assert sequences(joined(spans)) == sorted(set(sequences(spans)))
    left = without(span, spans)
    assert sequences(left) == sorted(set(sequences([span])) - set(sequences(spans)))
    pieces = list(chunks(left, most))
    assert sequences(pieces) == sequences(left)
    assert all(count([piece]) <= most for piece in pieces)


def test_a_record_is_that_of_one_target_and_one_stream(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    ledger = shelf.ledger("t", "/t", "S", "born")
    ledger.current, ledger.done, ledger.next = (5, 7), [(1, 4)], 3
    shelf.keep("t", ledger)
    assert shelf.ledger("t", "/t", "S", "born") == ledger
    for other in (("/u", "S", "born"), ("/t", "R", "born"), ("/t", "S", "later")):
        assert shelf.ledger("t", *other).done == []
    ledger.rebuilt = (ledger.mark, 3, (1, 9))
    ledger.settle(2)
    assert (ledger.done, ledger.next, ledger.rebuilt) == ([(1, 4)], 3, None)
    ledger.rebuilt = (ledger.mark, 3, (1, 9))
    ledger.settle(3)
    assert (ledger.done, ledger.next, ledger.rebuilt) == ([(1, 9)], 4, None)
    assert isinstance(ledger, Ledger)
    assert len(ledger.mark) == 36


# -- with a server --------------------------------------------------------------------------------

FILE = """
pipeline: shop
defaults: {servers: "URL", trigger: 0s}
sources:
  raw: {format: jetstream, stream: IN, startingOffsets: 201, maxOffsetsPerTrigger: 50}
steps:
  parsed:
    from: raw
    columns: {number: try_cast(cast(data as string) as long)}
    select: [seq, number, number % 3 as key]
    expect: {a_number: number is not null}
  sum: {from: parsed, sql: "select key, count(*) as n, max(seq) as seq from parsed group by 1"}
sinks:
  table:  {from: parsed, format: jetstream_delta, path: table}
  bad:    {from: parsed.rejected, format: jetstream_delta, path: bad}
  latest: {from: parsed, upsert: latest, keys: [key]}
  counts: {from: parsed, upsert: counts, keys: [key], sums: [n], select: [seq, key, bigint(1) as n]}
  living: {from: parsed, upsert: living, keys: [key], deleteWhen: number % 7 = 0}
  back:   {from: parsed, select: [cast(seq as string) as data], format: jetstream, subject: back.x}
  ice:
    {from: parsed, format: jetstream_iceberg, table: shop.ice, catalog.type: sql,
     catalog.uri: "sqlite:///FOLDER/catalog.db", catalog.warehouse: "file://FOLDER/warehouse"}
  sums:   {from: sum, upsert: sums, keys: [key], mode: update, query: own}
  words:  {from: parsed, select: [string(key) as key, string(seq) as value], format: jetstream_kv, bucket: words}
"""
APPENDED = ("table", "bad", "latest", "counts", "back", "ice")
CHOSEN = [word for name in APPENDED for word in ("--sink", name)]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    started = start_server(available_servers()[0])
    yield started
    started.remove()


@pytest.fixture
def js(server: ServerProcess) -> Iterator[Any]:
    with connect(server.url) as client:
        js = client.jetstream()
        for name, subject in (("IN", "in"), ("BACK", "back.>")):
            js.create_stream(StreamConfig(name=name, subjects=[subject]))
        js.create_key_value("words")
        yield js
        for name in ("IN", "BACK", "KV_words"):
            js.delete_stream(name)


@pytest.fixture
def file(tmp_path: Path, server: ServerProcess) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.replace("URL", server.url).replace("FOLDER", str(tmp_path)))
    return path


@pytest.fixture
def warm(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Commands use the session of the tests."""
    monkeypatch.setattr(preview, "session_of", lambda _: contextlib.nullcontext(spark))
    monkeypatch.setattr("pelton.spark.session.jvm_pid", lambda _: None)
    return spark


@pytest.fixture
def command(warm: Any, capsys: Any) -> Callable[..., tuple[int, str]]:
    def call(*words: object) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["pipeline", *map(str, words)])
        found = capsys.readouterr()
        return code, found.out + found.err

    return call


def publish(js: Any, first: int, last: int) -> None:
    """Message ``i`` of IN has sequence ``i``; every tenth is no number."""
    with js.publisher() as publisher:
        for number in range(first, last + 1):
            publisher.publish("in", b"x" if number % 10 == 0 else b"%d" % number)


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(folder / name).to_pyarrow_table().to_pylist()
    return rows


def compare(folder: Path, js: Any, seqs: list[int], *, iceberg: bool = True) -> None:
    """Each sink has the rows of these messages, once."""
    good = [seq for seq in seqs if seq % 10]
    assert Counter(row["seq"] for row in rows_of(folder, "table")) == Counter(good)
    if iceberg:
        catalog = SqlCatalog("default", uri=f"sqlite:///{folder}/catalog.db")
        ice = catalog.load_table("shop.ice").scan().to_arrow()
        assert Counter(ice["seq"].to_pylist()) == Counter(good)
    bad = [row["seq"] for row in rows_of(folder, "bad")]
    assert Counter(bad) == Counter(seq for seq in seqs if seq % 10 == 0)
    keys = {key: [seq for seq in good if seq % 3 == key] for key in range(3)}
    latest = {row["key"]: row["seq"] for row in rows_of(folder, "latest")}
    assert latest == {key: max(found) for key, found in keys.items()}
    counts = {row["key"]: row["n"] for row in rows_of(folder, "counts")}
    assert counts == {key: len(found) for key, found in keys.items()}
    last = js.stream_info("BACK").state.last_seq
    back = Counter(int(js.get_message("BACK", seq).data) for seq in range(1, last + 1))
    assert back == Counter(good)


def test_a_range_is_written_once(
    tmp_path: Path, js: Any, file: Path, command: Any, warm: Any
) -> None:
    """Before, beside and behind runs of the pipeline; the same again, and ranges that overlap."""
    publish(js, 1, 260)
    assert (
        "its query has not begun" in command("backfill", file, "--from", 1, "--to", 9, *CHOSEN)[1]
    )
    run(load(file), warm, once=True)
    compare(tmp_path, js, list(range(201, 261)))
    code, out = command("backfill", file, "--from", 1, "--to", 150, *CHOSEN, "--dry-run")
    assert code == 0
    assert "table: up to 150 messages" in out
    compare(tmp_path, js, list(range(201, 261)))
    code, out = command("backfill", file, "--from", 1, "--to", 150, *CHOSEN, "--messages", 70)
    assert code == 0, out
    assert "table: 140 of 150" in out
    compare(tmp_path, js, [*range(1, 151), *range(201, 261)])
    code, out = command("backfill", file, "--from", "earliest", "--to", 150, *CHOSEN)
    assert code == 0
    assert out.count("nothing to write; 150 sequences were back-filled before") == 6
    publish(js, 261, 280)
    run(load(file), warm, once=True)
    code, out = command("backfill", file, "--from", 100, "--to", "latest", *CHOSEN)
    assert code == 0, out
    assert "table: up to 50 messages; 80 sequences are from 201 on" in out
    assert "51 sequences were back-filled before" in out
    compare(tmp_path, js, list(range(1, 281)))
    publish(js, 281, 300)
    run(load(file), warm, once=True)
    compare(tmp_path, js, list(range(1, 301)))


def test_a_range_is_written_beside_a_run(
    tmp_path: Path, js: Any, file: Path, command: Any, warm: Any
) -> None:
    """The queries commit to the same tables and streams meanwhile."""
    publish(js, 1, 230)
    register(warm)
    stopping = threading.Event()

    def work() -> None:
        with taken(load(file)) as job:
            job.run(warm, stopping=stopping, warn=lambda _: None)

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(work)
        try:
            deadline = time.monotonic() + 120
            while not list(tmp_path.glob("state/shop/checkpoints/*/commits/0")):
                assert not running.done(), running.result()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            with ThreadPoolExecutor(1) as publishers:
                published = publishers.submit(publish, js, 231, 900)
                words = (file, "--from", 1, "--to", "latest", *CHOSEN[:10], "--messages", 50)
                code, out = command("backfill", *words)
                published.result()
            assert code == 0, out
        finally:
            stopping.set()
        running.result()
    run(load(file), warm, once=True)
    compare(tmp_path, js, list(range(1, 901)), iceberg=False)


def test_what_cannot_be_filled_is_a_line(js: Any, file: Path, command: Any, warm: Any) -> None:
    publish(js, 1, 210)
    run(load(file), warm, once=True)

    def complaint(*words: object) -> str:
        code, out = command("backfill", file, "--from", 1, "--to", 9, *words)
        assert code == 1
        assert out.count("\n") == 1, out
        return str(out)

    assert "there is no sink tabel; did you mean table?" in complaint("--sink", "tabel")
    assert "an older row would bring back a key" in complaint("--sink", "living")
    assert "older rows would replace newer ones" in complaint("--sink", "words")
    assert "mode update replaces rows" in complaint("--sink", "sums")
    code, out = command("backfill", file, "--from", "soon", "--to", 9, "--sink", "table")
    assert code == 1
    assert "--from is 'soon', but must be earliest, latest, a sequence" in out
    text = file.read_text()
    file.write_text(text.replace("startingOffsets: 201", "startingOffsets: latest"))
    assert "put it into startingOffsets" in complaint("--sink", "table")
    file.write_text(text.replace("startingOffsets: 201, ", ""))
    code, out = command("backfill", file, "--from", 1, "--to", 9, "--sink", "table")
    assert code == 0
    assert "nothing to write; 9 sequences are from 1 on, where query raw began" in out
    held = Children(file.parent / "state" / "shop")
    assert command("backfill", file, "--from", 1, "--to", 9, "--sink", "bad")[0] == 0
    code, out = command("rebuild", file, "table")
    held.release()
    assert code == 1
    assert "in use by process" in out
    assert out.count("\n") == 1


def test_a_table_is_made_anew_in_one_commit(
    tmp_path: Path, js: Any, file: Path, command: Any, warm: Any
) -> None:
    """With other steps, while the query keeps its position; upserts with what was removed of them."""
    publish(js, 1, 260)
    run(load(file), warm, once=True)
    text = file.read_text()
    file.write_text(text.replace("select: [seq, number,", "select: [seq, number, 1 as more,"))
    before = DeltaTable(tmp_path / "table").version()
    code, out = command("rebuild", file, "table")
    assert code == 0, out
    assert "table: up to 260 messages" in out
    table = DeltaTable(tmp_path / "table")
    assert table.version() == before + 1
    rows = rows_of(tmp_path, "table")
    assert sorted(row["seq"] for row in rows) == [seq for seq in range(1, 261) if seq % 10]
    assert {row["more"] for row in rows} == {1}
    table.load_as_version(before)
    assert len(table.to_pyarrow_table()) == 54
    for name in ("counts", "living"):
        code, out = command("rebuild", file, name, "--messages", 100)
        assert code == 0, out
        assert f"{name}: 200 of 260" in out
    assert not list(tmp_path.glob("*_rebuild"))
    assert sorted(row["n"] for row in rows_of(tmp_path, "counts")) == [78, 78, 78]
    good = [seq for seq in range(1, 261) if seq % 10]
    newest = {key: max(seq for seq in good if seq % 3 == key) for key in range(3)}
    living = {key: seq for key, seq in newest.items() if seq % 7}
    assert {row["key"]: row["seq"] for row in rows_of(tmp_path, "living")} == living
    code, out = command("backfill", file, "--from", 1, "--to", 200, "--sink", "table")
    assert "nothing to write; 200 sequences were back-filled before" in out
    publish(js, 261, 300)
    file.write_text(text.replace("path: table}", "path: table, mergeSchema: true}"))
    run(load(file), warm, once=True)
    rows = rows_of(tmp_path, "table")
    assert sorted(row["seq"] for row in rows) == [seq for seq in range(1, 301) if seq % 10]
    assert sum(row["n"] for row in rows_of(tmp_path, "counts")) == 270
    js.purge_stream("IN", seq=11)
    code, out = command("rebuild", file, "table")
    assert code == 1
    assert "stream IN begins at 11: rows of messages before would be lost" in out
    assert command("rebuild", file, "table", "--allow-loss")[0] == 0
    assert min(row["seq"] for row in rows_of(tmp_path, "table")) == 11
    for name, said in (("back", "only Delta tables"), ("tabel", "did you mean table?")):
        code, out = command("rebuild", file, name)
        assert code == 1
        assert said in out


def test_older_messages_have_their_own_fields(
    tmp_path: Path, js: Any, file: Path, command: Any, warm: Any
) -> None:
    """A step with a schema from data finds fields that only older messages have."""
    for number in range(1, 21):
        js.publish("in", json.dumps({"id": number} | ({"old": 1} if number < 6 else {})).encode())
    head = (
        file.read_text()
        .partition("steps:")[0]
        .replace("startingOffsets: 201", "startingOffsets: 11")
    )
    steps = """steps: {seen: {from: raw, json: {infer: 10}, select: [seq, "value.*"]}}
sinks: {table: {from: seen, format: jetstream_delta, path: table, mergeSchema: true}}
"""
    file.write_text(head + steps)
    run(load(file), warm, once=True)
    words = (file, "--from", "earliest", "--to", "latest", "--messages", 4)
    code, out = command("backfill", *words)
    assert code == 0, out
    rows = sorted(rows_of(tmp_path, "table"), key=lambda row: int(row["seq"]))
    assert [(row["id"], row["old"]) for row in rows] == [
        (number, 1 if number < 6 else None) for number in range(1, 21)
    ]
    assert command("rebuild", file, "table")[0] == 0
    assert sorted(rows_of(tmp_path, "table"), key=lambda row: int(row["seq"])) == rows


def commits(folder: Path) -> int:
    return len(list((folder / "table" / "_delta_log").glob("*.json")))


def noted(folder: Path) -> int:
    path = folder / "state" / "shop" / "backfill" / "table.json"
    return int(json.loads(path.read_text())["next"]) if path.exists() else 0


@pytest.mark.parametrize("what", ["backfill", "rebuild"])
def test_a_command_that_is_killed_is_run_again(
    tmp_path: Path, js: Any, file: Path, command: Any, warm: Any, what: str
) -> None:
    """Killed between the commit of a chunk and its note, or right before it."""
    publish(js, 1, 220)
    run(load(file), warm, once=True)
    first = commits(tmp_path)
    words = ["backfill", "--from", "1", "--to", "200", "--sink", "table", "--messages", "20"]
    if what == "rebuild":
        words = ["rebuild", "table"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pelton.cli", "pipeline", words[0], str(file), *words[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 240
    while commits(tmp_path) < first + (3 if what == "backfill" else 1):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.kill()
    process.communicate()
    print("commits", commits(tmp_path) - first, "noted", noted(tmp_path))
    if what == "rebuild":
        code, out = command(*words[:1], file, *words[1:])
    else:
        code, out = command("backfill", file, *words[1:])
    assert code == 0, out
    code, out = command("backfill", file, "--from", "1", "--to", "200", "--sink", "table")
    assert "nothing to write" in out
    seqs = [row["seq"] for row in rows_of(tmp_path, "table")]
    assert Counter(seqs) == Counter(seq for seq in range(1, 221) if seq % 10)
    publish(js, 221, 230)
    run(load(file), warm, once=True)
    seqs = [row["seq"] for row in rows_of(tmp_path, "table")]
    assert Counter(seqs) == Counter(seq for seq in range(1, 231) if seq % 10)
