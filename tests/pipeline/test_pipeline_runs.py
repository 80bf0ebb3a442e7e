"""Pipelines on Spark: every kind of part at once, run again after changes, and killed in mid-batch."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from functools import partial

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pelton.cli.__main__ import main
from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.pipeline import load, run
from pelton.pipeline.children import started_at
from pelton.pipeline.running import command, engine
from pelton.pipeline.running.frames import Frames, keeps_state, shared_nodes
from pelton.pipeline.running.live import read_live
from pelton.pipeline.running.stages import StepError
from pelton.pipeline.running.status import status_of
from pelton.pipeline.running.supervising import QueryEndedError
from pelton.pipeline.running.upgrade import upgrade_of
from pelton.pipeline.running.writing import write_batch
from tests.peers import available_servers, start_server
from tests.pipeline.test_run import workers_of
from tests.spark.jvm import EVERY_WAY
from tests.ways import FULL, SEED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FUNCTIONS = """
from pyspark.sql import functions as F


def parse(rows, factor=1):
    @F.udf("long")
    def number(data):
        return int(data) * factor if data.isdigit() else None

    return rows.select("stream", "seq", F.col("data").cast("string").alias("data"),
                       number(F.col("data").cast("string")).alias("number"))
"""

SHARED = """
pipeline: shop
defaults: {servers: URL, trigger: 0s}
sources:
  raw:   {format: jetstream, stream: IN, maxOffsetsPerTrigger: PER_BATCH}
  names: {format: jetstream_kv, bucket: names, static: true}MORE_SOURCES
steps:
  parsed:  {from: raw, python: "shop_functions:parse", with: {factor: 2}}
  checked: {from: parsed, expect: {a_number: number is not null, small: number < 1000000}}
  named:
    from: [checked, names]
    sql: >
      select seq, number, number % 3 as key, cast(value as string) as name
      from checked left join names on names.key = cast(number % 3 as string)MORE_STEPS
sinks:
  table:  {from: named, format: jetstream_delta, path: table}
  latest: {from: named, upsert: latest, keys: [key]}
  bad:    {from: checked.rejected, format: jetstream_delta, path: bad}
  back:
    {from: checked, where: number % 2 = 0, select: [cast(number as string) as data],
     format: jetstream, subject: back.x}
"""
MORE = {
    "MORE_SOURCES": """
  more:  {format: jetstream, stream: ALSO}""",
    "MORE_STEPS": """
  both:  {from: [raw, more], select: [stream, seq]}
  sum:
    from: checked
    sql: select number % 3 as key, count(*) as n, max(seq) as seq from checked group by 1""",
}
STREAMS = {"IN": "in.>", "ALSO": "also.>", "BACK": "back.>", "PROGRESS": "progress.>"}
SINKS = """\
  two:    {from: both, format: jetstream_delta, path: two}
  sums:   {from: sum, upsert: sums, keys: [key], mode: update, query: own}
"""


def file_of(more):
    """One query that feeds four sinks; with ``more``, two more queries."""
    text = SHARED + (SINKS if more else "")
    for name, part in MORE.items():
        text = text.replace(name, part if more else "")
    if more:
        text = 'metrics: {port: 0, subject: "progress.{name}"}' + text
    return text


FILE, LIGHT = file_of(True), file_of(False)


@pytest.fixture(scope="module")
def server():
    started = start_server(available_servers()[0])
    yield started
    started.remove()


@pytest.fixture
def js(server):
    with connect(server.url) as client:
        js = client.jetstream()
        for name, subject in STREAMS.items():
            js.create_stream(StreamConfig(name=name, subjects=[subject]))
        js.create_stream(
            StreamConfig(name="KV_names", subjects=["$KV.names.>"], max_msgs_per_subject=1)
        )
        for key in range(3):
            js.publish(f"$KV.names.{key}", f"name {key}".encode())
        yield js
        for name in (*STREAMS, "KV_names"):
            js.delete_stream(name)


def written(folder, server, text=FILE, per_batch=200):
    (folder / "shop_functions.py").write_text(FUNCTIONS)
    path = folder / "shop.yaml"
    path.write_text(text.replace("URL", server.url).replace("PER_BATCH", str(per_batch)))
    return path


def publish(js, subject, numbers):
    with js.publisher() as publisher:
        for number in numbers:
            publisher.publish(f"{subject}.x", str(number).encode())


def rows_of(folder, name):
    return DeltaTable(folder / name).to_pyarrow_table().to_pylist()


def back(js):
    last = js.stream_info("BACK").state.last_seq
    return Counter(int(js.get_message("BACK", seq).data) for seq in range(1, last + 1))


def compare(folder, js, published):
    """Every sink against what was published: message ``i`` of IN has sequence ``i + 1``."""
    numbers = {seq: int(text) * 2 for seq, text in enumerate(published, 1) if str(text).isdigit()}
    table = rows_of(folder, "table")
    assert Counter(row["seq"] for row in table) == Counter(numbers.keys())
    assert all(row["number"] == numbers[row["seq"]] for row in table)
    assert all(row["name"] == f"name {row['key']}" for row in table)
    assert {row["key"]: row["seq"] for row in rows_of(folder, "latest")} == {
        key: max(seq for seq, number in numbers.items() if number % 3 == key) for key in range(3)
    }
    bad = rows_of(folder, "bad")
    assert Counter(row["seq"] for row in bad) == Counter(
        seq for seq in range(1, len(published) + 1) if seq not in numbers
    )
    assert all("a_number" in row["rejected_because"] for row in bad)
    assert back(js) == Counter(number for number in numbers.values() if number % 2 == 0)


def test_all_parts_run_again_and_changed(tmp_path, server, js, spark):
    file = written(tmp_path, server, per_batch=500)
    first = [*range(250), "x", *range(250, 300), "y"]
    publish(js, "in", first)
    publish(js, "also", range(10))
    result = run(load(file), spark, once=True)
    compare(tmp_path, js, first)
    assert result.rows("table") == 300
    assert result.rows("bad") == 2
    both = {"a_number": 2, "small": 2}
    assert [query.rejected for query in result.queries if query.rejected] == [{"bad": both}]
    assert read_live(load(file).state)["raw"]["rejected"] == {"bad": both}
    assert upgrade_of(load(file)).changed == []
    assert {query.name for query in result.queries} == {"raw", "both", "sums"}
    assert Counter(row["stream"] for row in rows_of(tmp_path, "two")) == {"IN": 302, "ALSO": 10}
    assert sorted(row["n"] for row in rows_of(tmp_path, "sums")) == [100, 100, 100]

    again = run(load(file), spark, once=True)
    assert [query.rows for query in again.queries] == [0, 0, 0]
    compare(tmp_path, js, first)

    message = js.get_message("PROGRESS", last_by_subject="progress.shop-raw")
    assert json.loads(message.data)["event"] == "terminated"

    both = [*first, *range(300, 420)]
    publish(js, "in", both[len(first) :])
    more = (
        FILE
        + '  late: {from: parsed, where: "number is null", format: jetstream_delta, path: late}\n'
    )
    file = written(tmp_path, server, more, per_batch=500)
    assert [each.part for each in upgrade_of(load(file)).changed] == ["sinks.late"]
    run(load(file), spark, once=True)
    compare(tmp_path, js, both)
    assert sorted(row["n"] for row in rows_of(tmp_path, "sums")) == [140, 140, 140]
    assert Counter(row["data"] for row in rows_of(tmp_path, "late")) == {"x": 1, "y": 1}
    assert Counter(row["stream"] for row in rows_of(tmp_path, "two")) == {"IN": 422, "ALSO": 10}

    status = status_of(load(file))
    raw = next(query for query in status.queries if query.name == "raw")
    assert [(place.stream, place.sequence, place.lag) for place in raw.places] == [("IN", 422, 0)]
    assert next(sink.rows for sink in raw.sinks if sink.name == "table") == 420
    assert set(js.consumer_names("IN")) >= {"shop-raw", "shop-both-raw", "shop-sums"}


def test_what_spark_refuses_has_its_place_and_nothing_runs(tmp_path, server, js, spark):
    def complaint(old, new):
        file = written(tmp_path, server, FILE.replace(old, new))
        with pytest.raises(StepError) as raised:
            run(load(file), spark, once=True)
        assert not list(tmp_path.glob("*/_delta_log"))
        assert str(raised.value).startswith(f"{file}:")
        assert "\n" not in str(raised.value)
        return str(raised.value)

    assert "checked: expect.small: [UNRESOLVED_COLUMN" in complaint(
        "number < 1000000", "nunber < 1000000"
    )
    assert "steps.named: sql: " in complaint("left join names", "left join nmaes")
    assert "sums: its input keeps state" in complaint(
        "mode: update, query: own", "mergeSchema: true"
    )
    assert "returned NoneType, not a DataFrame" in complaint(
        '"shop_functions:parse", with: {factor: 2}', '"builtins:print"'
    )


@pytest.fixture
def pipeline_run(request, monkeypatch, capsys):
    """``pelton pipeline run`` to its end: exit status, what it printed, what it complained of.

    With PELTON_FULL=1 a process with a JVM of its own; else the command runs here, on the session
    that is there.
    """

    def call(*arguments):
        words = ["pipeline", "run", *map(str, arguments)]
        if FULL:
            done = subprocess.run(
                [sys.executable, "-m", "pelton.cli", *words],
                capture_output=True,
                text=True,
                timeout=240,
            )
            return done.returncode, done.stdout, done.stderr
        spark = request.getfixturevalue("spark")
        monkeypatch.setattr(command, "own_session", lambda job: contextlib.nullcontext(spark))
        capsys.readouterr()
        return main(words), *capsys.readouterr()

    return call


def test_a_failing_query_is_one_line_and_stops_the_others(
    tmp_path, server, js, spark, pipeline_run
):
    publish(js, "in", range(50))
    own = "  two: {from: raw, format: jetstream_delta, path: two, query: own}\n"
    js.delete_stream("BACK")
    js.create_stream(StreamConfig(name="BACK", subjects=["back.>"], max_msg_size=1))
    file = written(tmp_path, server, LIGHT + own)
    code, _, complaint = pipeline_run(file)
    assert code == 1
    assert complaint.count("\n") == 1, complaint
    assert "pelton: query raw: sink back: " in complaint
    assert "cannot be written: " in complaint
    assert "shop-two" not in [query.name for query in spark.streams.active]


def test_targets_are_looked_at_before_anything_is_committed(tmp_path, server, js, spark):
    """A table with other columns, a stream and a bucket that are not there: all are told, and no
    query runs."""
    publish(js, "in", range(10))
    DeltaTable.create(tmp_path / "table", pa.schema([("seq", pa.string())]))
    DeltaTable.create(tmp_path / "latest", pa.schema([("key", pa.int64()), ("seq", pa.string())]))
    js.delete_stream("BACK")
    more = """\
  kept: {from: checked, select: ["'k' as key", data as value], format: jetstream_kv, bucket: none}
  over: {from: checked, where: nunber > 1, format: jetstream_delta, path: over}
"""
    file = written(tmp_path, server, LIGHT + more)
    with pytest.raises(StepError) as raised:
        run(load(file), spark, once=True)
    js.create_stream(StreamConfig(name="BACK", subjects=["back.>"]))
    lines = str(raised.value).splitlines()
    assert all(line.startswith(f"{file}:") for line in lines)
    for line, said in zip(
        sorted(lines, key=lambda each: int(each.split(":")[1])),
        (
            r"sinks.table: .* column seq is bigint, in the table string",
            r"sinks.latest: .*column seq is .*, in the table string",
            r"sinks.back: no stream on .* takes subject back.x",
            r"sinks.kept: there is no bucket none on",
            r"sinks.over: where: \[UNRESOLVED_COLUMN",
        ),
        strict=True,
    ):
        assert re.search(said, line), line
    assert not (tmp_path / "bad").exists()
    assert DeltaTable(tmp_path / "table").version() == 0
    assert not list((tmp_path / "state").glob("*/checkpoints/*/offsets/*"))


def test_servers_are_asked_before_spark_starts(tmp_path, server, js, monkeypatch):
    """What is missing there is known at once, not after the start of a JVM."""
    monkeypatch.setattr("pelton.spark.session.session", lambda *_, **__: pytest.fail("started"))
    js.delete_stream("BACK")
    more = """\
  kept: {from: checked, select: ["'k' as key", data as value], format: jetstream_kv, bucket: none}
  file: {from: checked, select: ["'n' as name", data], format: jetstream_object, bucket: empty}
"""
    text = LIGHT.replace("stream: IN", "stream: NOWHERE") + more
    file = written(tmp_path, server, text)
    try:
        with pytest.raises(StepError) as raised:
            run(load(file), once=True)
    finally:
        js.create_stream(StreamConfig(name="BACK", subjects=["back.>"]))
    lines = str(raised.value).splitlines()
    assert all(line.startswith(f"{file}:") for line in lines)
    for part in (
        "sources.raw: there is no stream NOWHERE on",
        "sinks.back: no stream on",
        "sinks.kept: there is no bucket none on",
        "sinks.file: there is no object store empty on",
    ):
        assert any(part in line for line in lines), lines


def test_a_target_that_was_put_back_ends_the_pipeline_before_anything_is_written(
    tmp_path, server, js, spark
):
    """Tables from an older backup, a stream made anew: both numbers, all targets at once; and a sink
    may go on all the same."""
    file = written(tmp_path, server, LIGHT)
    publish(js, "in", range(100))
    run(load(file), spark, once=True)
    for name in ("table", "latest"):
        shutil.copytree(tmp_path / name, tmp_path / f"older {name}")
    publish(js, "in", range(100, 200))
    run(load(file), spark, once=True)
    for name in ("table", "latest"):
        shutil.rmtree(tmp_path / name)
    shutil.move(tmp_path / "older table", tmp_path / "table")
    js.delete_stream("BACK")
    js.create_stream(StreamConfig(name="BACK", subjects=["back.>"]))
    publish(js, "in", ["x"])
    with pytest.raises(StepError) as raised:
        run(load(file), spark, once=True)
    table, latest, stream = str(raised.value).splitlines()
    assert "sinks.table: " in table
    assert "holds batch 0 of query" in table
    assert "it held batch 1" in table
    assert "sinks.latest: there is no table at" in latest
    assert "sinks.back: stream BACK on" in stream
    assert "it was created again" in stream
    assert not (tmp_path / "bad" / "_delta_log" / f"{1:020}.json").exists()
    [raw] = status_of(load(file)).queries
    told = {sink.name: sink.problem for sink in raw.sinks}
    assert "it held batch 1" in told["table"]
    assert "there is no table at" in told["latest"]
    assert not told["bad"]
    begin = LIGHT.replace("path: table}", "path: table, ifBehind: begin}")
    begin = begin.replace("keys: [key]}", "keys: [key], ifBehind: begin}")
    begin = begin.replace("subject: back.x}", "subject: back.x, ifBehind: begin}")
    run(load(written(tmp_path, server, begin)), spark, once=True)
    publish(js, "in", range(200, 210))
    run(load(written(tmp_path, server, begin)), spark, once=True)
    assert len(rows_of(tmp_path, "table")) == 110
    assert len(rows_of(tmp_path, "bad")) == 1


def dies_behind(name, batches):
    """Writes batches as the engine does, and dies when a sink has taken so many."""
    taken = []

    def write(sink, *arguments, **options):
        write_batch(sink, *arguments, **options)
        taken.append(sink.name)
        if taken.count(name) == batches:
            raise RuntimeError("told to die")

    return write


def test_a_table_that_was_put_back_is_filled_beside_sinks_that_have_all_rows(
    tmp_path, server, js, spark, monkeypatch
):
    """Batches come again for one of four sinks; the run dies in the middle of that: it is killed with
    PELTON_FULL=1, and else fails between two sinks."""
    text = LIGHT.replace("path: table}", "path: table, ifBehind: fill}")
    file = written(tmp_path, server, text, per_batch=20)
    publish(js, "in", ["x", *range(1, 20)])
    run(load(file), spark, once=True)
    shutil.copytree(tmp_path / "table", tmp_path / "older table")
    publish(js, "in", range(20, 80))
    run(load(file), spark, once=True)
    shutil.rmtree(tmp_path / "table")
    shutil.move(tmp_path / "older table", tmp_path / "table")
    before = version(tmp_path, "table")
    if FULL:
        killed = Killed(file, tmp_path)
        killed.kill_when(lambda: version(tmp_path, "table") > before + 1)
    else:
        with monkeypatch.context() as patch:
            patch.setattr(engine, "write_batch", dies_behind("table", 2))
            with pytest.raises(QueryEndedError, match="told to die"):
                run(load(file), spark, once=True)
        assert version(tmp_path, "table") == before + 2
    assert len(rows_of(tmp_path, "table")) < 79
    publish(js, "in", range(80, 90))
    run(load(file), spark, once=True)
    seqs = sorted(row["seq"] for row in rows_of(tmp_path, "table"))
    assert seqs == list(range(2, 91))
    assert len(rows_of(tmp_path, "bad")) == 1
    assert js.stream_info("BACK").state.messages == 89
    latest = {row["key"]: row["seq"] for row in rows_of(tmp_path, "latest")}
    assert sorted(latest.values()) == [88, 89, 90]


def test_what_may_be_a_mistake_is_a_warning(tmp_path, server, js, spark):
    publish(js, "in", range(10))
    publish(js, "also", range(10))
    text = """
pipeline: shop
defaults: {servers: URL, trigger: 0s}
sources:
  raw: {format: jetstream, stream: IN, subject: elsewhere.>}
  old: {format: jetstream, stream: ALSO, startingOffsets: 9, endingOffsets: 5, static: true}
steps:
  timed: {from: raw, watermark: ts 10 minutes}
  hourly: {from: timed, sql: "select window(ts, '1 hour') as hour, count(*) as n from timed group by 1"}
  both: {from: [raw, old], sql: select raw.seq from raw left join old on old.seq = raw.seq}
sinks:
  hours: {from: hourly, format: jetstream_delta, path: hours, query: own}
  table: {from: both, format: jetstream_delta, path: table}
"""
    with pytest.warns(UserWarning, match=r"shop\.yaml") as warned:
        run(load(written(tmp_path, server, text)), spark, once=True)
    said = "\n".join(str(each.message) for each in warned)
    assert ":5: sources.raw: stream IN takes no subject elsewhere.>" in said
    assert (
        ":6: sources.old: of stream ALSO nothing is read: it ends at 5, before it begins at 9"
        in said
    )
    assert (
        ":12: sinks.hours: groups that its watermark has not passed are not written by --once"
        in said
    )


class Killed:
    """``pelton pipeline run --once`` as a process, with what it left behind when it is killed."""

    def __init__(self, file, folder):
        self.folder = folder
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "pelton.cli",
                "pipeline",
                "run",
                str(file),
                "--once",
                "--json",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill_when(self, what, seconds=240):
        deadline = time.monotonic() + seconds
        while not what():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        self.process.kill()
        self.process.communicate()


def version(folder, name):
    log = folder / name / "_delta_log"
    return len(list(log.glob("*.json"))) if log.exists() else 0


def commits(folder):
    found = folder / "state" / "shop" / "checkpoints" / "raw" / "commits"
    return len(list(found.glob("[0-9]*"))) if found.exists() else 0


def one_sink_has_it(folder, js, before):
    """Between two sinks of a batch: the first has it, Spark has not noted it."""
    return version(folder, "table") > commits(folder) + 1


def the_stream_has_some(folder, js, before):
    """Later: the sink into a stream has rows of a batch that is not noted."""
    return js.stream_info("BACK").state.last_seq > before and commits(folder) >= 2


MOMENTS = [one_sink_has_it, the_stream_has_some]


def test_killed_in_mid_batch_each_row_is_in_each_sink_once(tmp_path, server, js, pipeline_run):
    """In `make test` at one of the moments, which the seed draws."""
    published = [*range(300), "x", *range(300, 400), "y"]
    publish(js, "in", published)
    file = written(tmp_path, server, LIGHT, per_batch=60)
    for moment in MOMENTS if FULL else [MOMENTS[SEED % 2]]:
        before = js.stream_info("BACK").state.last_seq
        Killed(file, tmp_path).kill_when(partial(moment, tmp_path, js, before))
        assert version(tmp_path, "latest") <= version(tmp_path, "table")
    record = json.loads((tmp_path / "state" / "shop" / "children.json").read_text())
    code, printed, complaint = pipeline_run(file, "--once", "--json")
    assert code == 0, complaint
    events = [json.loads(line) for line in printed.splitlines()]
    assert all(started_at(pid) != started for pid, started in record.values())
    compare(tmp_path, js, published)
    assert events[-1]["event"] == "summary"
    assert {event["event"] for event in events} >= {"started", "progress", "terminated", "summary"}


@EVERY_WAY
def test_workers_may_be_killed_and_ctrl_c_stops_after_the_batch(tmp_path, server, js):
    publish(js, "in", range(300))
    file = written(tmp_path, server, LIGHT, per_batch=20)
    process = subprocess.Popen(
        [sys.executable, "-m", "pelton.cli", "pipeline", "run", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )

    def wait_for(batches):
        deadline = time.monotonic() + 240
        while version(tmp_path, "table") < batches:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.05)

    wait_for(3)
    jvm, _ = json.loads((tmp_path / "state" / "shop" / "children.json").read_text())["jvm"]
    for worker in workers_of(jvm):
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    wait_for(6)
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    assert "Summary" in out
    assert "stopped; the next run continues from here" in out
    assert "raw: running" in out


RUNNING = """
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor


class Sum(StatefulProcessor):
    def init(self, handle):
        self._sum = handle.getValueState("sum", "total long")

    def handleInputRows(self, key, rows, timers):
        total = self._sum.get()[0] if self._sum.exists() else 0
        for part in rows:
            total += int(part.number.sum())
        self._sum.update((total,))
        yield pd.DataFrame({"parity": [key[0]], "total": [total]})

    def close(self):
        pass


def running(rows):
    odd = rows.selectExpr("cast(data as string) % 2 as parity", "cast(cast(data as string) as long) as number")
    odd = odd.selectExpr("cast(parity as int) as parity", "number")
    return odd.groupBy("parity").transformWithStateInPandas(
        Sum(), "parity int, total long", "append", "none")
"""


def test_transform_with_state_has_its_store(tmp_path, server, js, spark):
    """Spark allows it with RocksDB alone, which is not the default; the state goes on in the next run."""
    (tmp_path / "running_sums.py").write_text(RUNNING)
    file = tmp_path / "sums.yaml"
    file.write_text(f"""
pipeline: sums
sources: {{raw: {{format: jetstream, stream: IN, servers: "{server.url}", startingOffsets: earliest}}}}
steps: {{summed: {{from: raw, python: "running_sums:running"}}}}
sinks:
  sums: {{from: summed, format: jetstream_delta, path: sums, query: own}}
""")
    before = spark.conf.get("spark.sql.streaming.stateStore.providerClass")
    for batch in (range(10), range(10, 20)):
        publish(js, "in", batch)
        run(load(file), spark, once=True)
    rows = DeltaTable(tmp_path / "sums").to_pyarrow_table().to_pylist()
    assert sorted((row["parity"], row["total"]) for row in rows) == [
        *((0, 20), (0, 90)),
        *((1, 25), (1, 100)),
    ]
    assert spark.conf.get("spark.sql.streaming.stateStore.providerClass") == before


def test_steps_of_state_are_seen(tmp_path, server, js, spark):
    pipeline = load(written(tmp_path, server))
    frames = Frames(pipeline, spark)
    trunk = frames.node("raw")
    assert keeps_state(frames.sink(pipeline.sinks["table"]), trunk) == []
    assert keeps_state(frames.sink(pipeline.sinks["bad"]), trunk) == []
    assert keeps_state(frames.sink(pipeline.sinks["sums"]), trunk) == ["Aggregate"]


def test_what_several_sinks_read_is_kept_once(tmp_path, server):
    pipeline = load(written(tmp_path, server))
    sinks = pipeline.sinks
    shared = [sinks[name] for name in ("table", "latest", "bad", "back")]
    assert shared_nodes(pipeline, frozenset({"raw"}), shared) == {"checked", "named"}
    assert shared_nodes(pipeline, frozenset({"raw"}), shared[:1]) == set()
    assert shared_nodes(pipeline, frozenset({"raw"}), [sinks["table"], sinks["bad"]]) == {"checked"}


def test_a_batch_function_travels(spark, tmp_path):
    """Functions of modules beside the file work on workers that cannot import them."""
    from pelton.pipeline.description.functions import carry_modules, function_of
    from pelton.pipeline.description.model import Call

    text = """
        from pyspark.sql import functions as F
        def helper(x): return x + 1
        def step(rows):
            return rows.select(F.udf(lambda x: helper(x), "long")("id").alias("id"))
        """
    (tmp_path / "carried_steps.py").write_text(textwrap.dedent(text))
    function = function_of(Call("carried_steps", "step"), tmp_path)
    carry_modules(tmp_path)
    assert function(spark.range(3)).toArrow() == pa.table({"id": [1, 2, 3]})
