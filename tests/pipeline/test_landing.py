"""The pipeline of ``pelton run``: each line once in both tables, wherever it dies; and the summary."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pelton.client.base.models import StreamConfig
from pelton.pipeline import run
from pelton.pipeline.logs import names
from pelton.pipeline.logs.parts import bundled
from pelton.pipeline.logs.settings import Settings
from pelton.pipeline.logs.tables import Landed, LogTables
from pelton.pipeline.running import engine
from pelton.pipeline.running.supervising import QueryEndedError
from tests.pipeline.test_pipeline_runs import dies_behind
from tests.ways import skip_other_servers

LINES = [
    b"Sep 22 04:45:01 box a: b",
    b"Sep 22 04:45:59 box a: c",
    b"Sep 22 04:45:59 box a: error",
    b"2026-10-16 23:04:01 status installed x",
    b"free",
]


def held(folder, name):
    return DeltaTable(folder / name).to_pyarrow_table().to_pylist()


def test_the_summary_agrees_or_not(tmp_path):
    tables = LogTables(tmp_path)
    empty = tables.summarise(0, drained=True, unread={})
    assert empty.agrees
    assert tables.landed() == Landed(0, 0)
    rows = [{"seq": seq, "identity": "1-2-3-a-0", "offset": seq * 10} for seq in range(1, 91)]
    write_deltalake(tmp_path / "lines", pa.Table.from_pylist(rows))
    counts = [
        {"program": program, "level": level, "lines": 15, "seq": 90}
        for program in ("a", "b", "")
        for level in ("info", "error")
    ]
    write_deltalake(tmp_path / "counts", pa.Table.from_pylist(counts))
    assert tables.landed() == Landed(90, 90)
    summary = tables.summarise(90, drained=True, unread={"x.log": "gone"})
    assert summary.agrees
    assert (summary.rows, summary.distinct_lines, summary.counted) == (90, 90, 90)
    assert summary.programs == [("", 30), ("a", 30), ("b", 30)]
    assert summary.levels == [("error", 45), ("info", 45)]
    assert summary.unread == {"x.log": "gone"}
    assert not tables.summarise(91, drained=True, unread={}).agrees


@pytest.fixture
def publish(client):
    """Publishes lines as the shipper does, on a stream of this test."""
    js = client.jetstream()
    js.create_stream(StreamConfig(name=names.STREAM, subjects=[f"{names.SUBJECT_PREFIX}.>"]))

    def lines(count):
        first = js.stream_info(names.STREAM).state.last_seq
        for at in range(first, first + count):
            headers = {names.IDENTITY_HEADER: "1-2-3-a-0", names.OFFSET_HEADER: str(at)}
            js.publish("logs.box.x", LINES[at % len(LINES)], headers=headers)

    yield lines
    js.delete_stream(names.STREAM)


def counts_of(lines):
    """Lines per minute, program and level, and the last sequence of each."""
    counted: Counter[tuple[datetime, str, str]] = Counter()
    last = {}
    for row in lines:
        minute = (row["time"] or row["ts"]).replace(second=0, microsecond=0)
        key = minute, row["program"] or "", row["level"]
        counted[key] += 1
        last[key] = max(last.get(key, 0), row["seq"])
    return {key: (number, last[key]) for key, number in counted.items()}


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.timeout(240)
def test_a_pipeline_that_dies_everywhere_lands_every_message_once(
    spark, server, publish, tmp_path, request, monkeypatch
):
    skip_other_servers(request)
    settings = Settings(
        nats_port=int(server.url.rpartition(":")[2]),
        http_port=0,
        store=tmp_path,
        logs=None,
        once=True,
        server_command=(),
        trigger_seconds=0.0,
    )
    pipeline = bundled(settings)
    assert list(pipeline.sinks) == ["lines", "counts"]
    for where, sink in (("nowhere", ""), ("between the tables", "lines"), ("after both", "counts")):
        publish(30)
        with monkeypatch.context() as patch:
            patch.setattr(engine, "write_batch", dies_behind(sink, 1))
            if where == "nowhere":
                run(pipeline, spark, once=True)
                continue
            with pytest.raises(QueryEndedError, match="told to die"):
                run(pipeline, spark, once=True)
        tables = LogTables(settings.tables)
        many = 60 if sink == "lines" else 90
        assert tables.landed() == Landed(many, many)
        assert tables.summarise(many, drained=True, unread={}).agrees == (sink == "counts")
        run(pipeline, spark, once=True)
    publish(30)
    run(pipeline, spark, once=True)
    lines = held(settings.tables, "lines")
    assert sorted(row["seq"] for row in lines) == list(range(1, 121))
    assert {row["time"] for row in lines if row["program"] == "dpkg"} == {
        datetime(2026, 10, 16, 23, 4, 1, tzinfo=UTC)
    }
    counts = held(settings.tables, "counts")
    assert counts_of(lines) == {
        (row["minute"], row["program"], row["level"]): (row["lines"], row["seq"]) for row in counts
    }
    assert len(counts) == len(counts_of(lines))
    assert LogTables(settings.tables).summarise(120, drained=True, unread={}).agrees


def test_the_columns_of_both_tables():
    """``docs/topics/pipeline.md`` names them."""
    page = (Path(__file__).parents[2] / "docs" / "topics" / "pipeline.md").read_text()
    settings = Settings(4222, 8222, Path("/store"), None, False, (), 1.0)
    pipeline = bundled(settings)
    assert all(f"`{name}`" in page for name in pipeline.steps["parsed"].select)
    assert pipeline.sinks["lines"].place == "/store/tables/lines"
    assert pipeline.trigger_seconds == 1.0
