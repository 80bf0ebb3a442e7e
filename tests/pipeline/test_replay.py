"""``pelton pipeline replay``: rejected messages that pass now are in every sink once, whatever is killed."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from pelton.cli.__main__ import main
from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.pipeline import load, run
from pelton.pipeline.running import preview, replaying
from pelton.pipeline.running.replaying import replay
from pelton.pipeline.running.stages import StepError
from pelton.pipeline.running.stored import ranges
from pelton.pipeline.running.writing import write_batch
from tests.peers import available_servers, start_server
from tests.ways import SEED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pelton.client.sync.jetstream import JetStream
    from tests.peers import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(600)]

FILE = """
pipeline: shop
defaults: {servers: URL, trigger: 0s}
sources:
  raw: {format: jetstream, stream: IN, maxOffsetsPerTrigger: 60}
steps:
  typed:
    from: raw
    columns:
      number: cast(CLEAN as long)
    select: [seq, number]
    expect: {positive: number >= LEAST}
    onError: reject
  even: {from: typed, expect: {even: number % 2 = 0}}
sinks:
  table: {from: typed, format: jetstream_delta, path: table}
  newest: {from: even, upsert: newest, keys: [seq]}
  odd: {from: even.rejected, format: jetstream_delta, path: odd}
  back: {from: typed, select: [cast(number as string) as data], format: jetstream, subject: back.x}
  every: {from: raw, select: [seq], format: jetstream_delta, path: every}
  bad: {from: typed.rejected, format: jetstream_delta, path: bad}
"""
STRICT = {"CLEAN": "cast(data as string)", "LEAST": "0"}
LENIENT = {"CLEAN": "trim('x', cast(data as string))", "LEAST": "-5"}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    started = start_server(available_servers()[0])
    yield started
    started.remove()


@pytest.fixture
def js(server: ServerProcess) -> Iterator[JetStream]:
    with connect(server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="IN", subjects=["in.>"]))
        js.create_stream(StreamConfig(name="BACK", subjects=["back.>"]))
        yield js
        js.delete_stream("IN")
        js.delete_stream("BACK")


@pytest.fixture
def written(tmp_path: Path, server: ServerProcess) -> Callable[..., Path]:
    def write(values: dict[str, str], text: str = FILE) -> Path:
        for name, value in {"URL": server.url, **values}.items():
            text = text.replace(name, value)
        path = tmp_path / "shop.yaml"
        path.write_text(text)
        return path

    return write


def publish(js: JetStream, payloads: list[str]) -> None:
    with js.publisher() as publisher:
        for payload in payloads:
            publisher.publish("in.x", payload.encode())


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(folder / name).to_pyarrow_table().to_pylist()
    return rows


def number_of(payload: str, *, lenient: bool) -> int | None:
    try:
        number = int(payload.strip("x") if lenient else payload)
    except ValueError:
        return None
    return number if number >= (-5 if lenient else 0) else None


def compare(folder: Path, js: JetStream, payloads: list[str], replayed: set[int]) -> None:
    """Every sink: ``replayed`` are the messages that the lenient steps have processed."""
    good, bad = {}, set()
    for seq, payload in enumerate(payloads, 1):
        number = number_of(payload, lenient=False)
        if number is None:
            bad.add(seq)
            number = number_of(payload, lenient=True) if seq in replayed else None
        if number is not None:
            good[seq] = number
    table = rows_of(folder, "table")
    assert Counter(row["seq"] for row in table) == Counter(good.keys())
    assert {row["seq"]: row["number"] for row in table} == good
    even = {seq for seq, number in good.items() if number % 2 == 0}
    assert Counter(row["seq"] for row in rows_of(folder, "newest")) == Counter(even)
    assert Counter(row["seq"] for row in rows_of(folder, "odd")) == Counter(good.keys() - even)
    last = js.stream_info("BACK").state.last_seq
    back = Counter(int(js.get_message("BACK", seq).data) for seq in range(1, last + 1))
    assert back == Counter(good.values())
    every = Counter(row["seq"] for row in rows_of(folder, "every"))
    assert every == Counter(range(1, len(payloads) + 1))
    assert Counter(row["seq"] for row in rows_of(folder, "bad")) == Counter(bad)


PAYLOADS = ["1", "x2", "-3", "4", "junk", "-9", "x7", "8", "-4"]
PASS = {2, 3, 7, 9}


def test_what_passes_now_is_written_once(
    tmp_path: Path, written: Any, js: JetStream, spark: Any
) -> None:
    publish(js, PAYLOADS)
    run(load(written(STRICT)), spark, once=True)
    compare(tmp_path, js, PAYLOADS, set())
    pipeline = load(written(LENIENT))
    would = replay(pipeline, spark, "bad", dry_run=True)
    assert (would.rejected, would.before, would.replayed, would.rows) == (6, 0, 4, {})
    assert would.failing == ("message 5 of IN", "message 6 of IN")
    compare(tmp_path, js, PAYLOADS, set())
    some = replay(pipeline, spark, "bad", where="seq < 3")
    assert (some.rejected, some.replayed) == (1, 1)
    assert some.rows == {"table": 1, "newest": 1, "odd": 0, "back": 1}
    compare(tmp_path, js, PAYLOADS, {2})
    js.delete_message("IN", 7)
    rest = replay(pipeline, spark, "bad")
    assert (rest.rejected, rest.before, rest.replayed) == (6, 1, 2)
    assert rest.gone == ("message 7 of IN: it is not in the stream any more",)
    assert rest.rows == {"table": 2, "newest": 1, "odd": 1, "back": 2}
    again = replay(pipeline, spark, "bad")
    assert (again.before, again.replayed, again.rows) == (3, 0, {})
    compare(tmp_path, js, PAYLOADS, {2, 3, 9})
    # The pipeline goes on beside it.
    publish(js, more := ["x10", "y", "12"])
    run(load(written(STRICT)), spark, once=True)
    assert replay(load(written(LENIENT)), spark, "bad").replayed == 1
    compare(tmp_path, js, [*PAYLOADS, *more], {2, 3, 9, 10})


def test_a_replay_that_dies_goes_on(
    tmp_path: Path, written: Any, js: JetStream, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random payloads; it dies behind random sinks, and then writes the rest under the same marks."""
    generator = random.Random(SEED)
    print("seed", SEED)
    kinds = ["{}", "x{}", "-{}", "y{}"]
    payloads = [generator.choice(kinds).format(generator.randrange(12)) for _ in range(40)]
    publish(js, payloads)
    run(load(written(STRICT)), spark, once=True)
    monkeypatch.setattr(replaying, "AT_ONCE", 9)
    pipeline = load(written(LENIENT))
    left = 0

    def write(*arguments: Any, **options: Any) -> None:
        nonlocal left
        write_batch(*arguments, **options)
        left -= 1
        if left == 0:
            raise RuntimeError("told to die")

    for _ in range(2):
        left = generator.randrange(1, 7)
        with monkeypatch.context() as patch:
            patch.setattr(replaying, "write_batch", write)
            with contextlib.suppress(StepError):
                replay(pipeline, spark, "bad")
    replay(pipeline, spark, "bad")
    passing = {
        seq
        for seq, payload in enumerate(payloads, 1)
        if number_of(payload, lenient=True) is not None
    }
    compare(tmp_path, js, payloads, passing)


def test_a_killed_replay_goes_on(tmp_path: Path, written: Any, js: JetStream, spark: Any) -> None:
    publish(js, PAYLOADS)
    run(load(written(STRICT)), spark, once=True)
    file = written(LENIENT)
    versions = DeltaTable(tmp_path / "table").version()
    process = subprocess.Popen(
        [sys.executable, "-m", "pelton.cli", "pipeline", "replay", str(file), "bad"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + 240
    while DeltaTable(tmp_path / "table").version() == versions:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.communicate()
    [record] = (tmp_path / "state/shop/replays/bad").glob("*.json")
    assert json.loads(record.read_text())["messages"] == [["IN", seq] for seq in sorted(PASS)]
    done = replay(load(file), spark, "bad")
    assert done.before == 4
    compare(tmp_path, js, PAYLOADS, PASS)


def test_a_stream_that_was_made_again_has_other_messages(
    tmp_path: Path, written: Any, js: JetStream, spark: Any
) -> None:
    publish(js, PAYLOADS)
    run(load(written(STRICT)), spark, once=True)
    js.delete_stream("IN")
    js.create_stream(StreamConfig(name="IN", subjects=["in.>"]))
    publish(js, ["50"] * 6)
    found = replay(load(written(LENIENT)), spark, "bad")
    assert found.replayed == 0
    assert "message 2 of IN: the stream has another message there now" in found.gone
    assert "message 7 of IN: the stream ends at 6" in found.gone
    compare(tmp_path, js, PAYLOADS, set())


def test_what_cannot_be_replayed(tmp_path: Path, written: Any, js: JetStream, spark: Any) -> None:
    def refused(text: str, sink: str, **options: Any) -> str:
        with pytest.raises(StepError) as raised:
            replay(load(written(STRICT, text)), spark, sink, **options)
        return str(raised.value)

    assert "there is no sink bda; did you mean bad?" in refused(FILE, "bda")
    assert "sinks.table: it is not a table of the rejected rows" in refused(FILE, "table")
    assert "sinks.bad: there is no table at" in refused(FILE, "bad").replace(": [", ": ")
    all_rows = FILE + "  all: {from: both, format: jetstream_delta, path: all}\n"
    both = all_rows.replace("sinks:\n", "  both: {from: [typed, raw], select: [seq]}\nsinks:\n")
    assert "sinks.all: it also gets rows that do not pass typed" in refused(both, "bad")
    twice = both.replace("[typed, raw]", "[typed, typed.rejected]")
    assert "sinks.all: it also gets rows that do not pass typed" in refused(twice, "bad")
    counted = FILE.replace("    onError: reject\n", "").replace("sinks:\n", COUNT) + COUNTED
    assert "sinks.counted: its input keeps state over the stream" in refused(counted, "bad")
    publish(js, PAYLOADS)
    run(load(written(STRICT)), spark, once=True)
    assert "`sek` cannot be resolved" in refused(FILE, "bad", where="sek > 1")
    several = FILE.replace(
        "    from: raw\n",
        "    from: raw\n    sql: select *, explode(array(1, 2)) as part from raw\n",
    )
    said = refused(several, "bad")
    assert "makes 2 rows in steps.typed, some of which may have passed" in said


COUNT = (
    "  count: {from: typed, sql: 'select number, count(*) as n from typed group by 1'}\nsinks:\n"
)
COUNTED = "  counted: {from: count, upsert: counted, keys: [number], sequence: n, query: own}\n"


def test_the_command(
    tmp_path: Path,
    written: Any,
    js: JetStream,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    publish(js, PAYLOADS)
    run(load(written(STRICT)), spark, once=True)
    file = str(written(LENIENT))
    monkeypatch.setattr(preview, "session_of", lambda *_, **__: contextlib.nullcontext(spark))
    capsys.readouterr()
    assert main(["pipeline", "replay", file, "bad", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["replayed"], found["dry_run"]) == (4, True)
    js.delete_message("IN", 2)
    assert main(["pipeline", "replay", file, "bad"]) == 0
    printed = capsys.readouterr()
    assert "replayed now: 3" in " ".join(printed.out.split())
    assert "warning: message 2 of IN: it is not in the stream any more" in printed.err
    assert main(["pipeline", "replay", file, "table"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_ranges_hold_all_numbers_and_few_others() -> None:
    generator = random.Random(SEED)
    print("seed", SEED)
    for _ in range(200):
        numbers = set(generator.sample(range(1, 1000), generator.randrange(60)))
        most = generator.randrange(1, 20)
        found = ranges(numbers, most)
        assert len(found) <= most
        assert all(sum(first <= each <= last for first, last in found) == 1 for each in numbers)
        assert all(a[1] + 1 < b[0] for a, b in pairwise(found))
        assert all({first, last} <= numbers for first, last in found)
