"""Two tables from one query: each line once in both, wherever between them a process dies."""

import shutil
import uuid

import duckdb
import polars
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from pelton.pipeline.logs.landing import (
    LINES_SCHEMA,
    Landing,
    batch_function,
    count_lines,
    summarise,
)
from pelton.pipeline.logs.transforms import parsed, per_minute, shipped
from pelton.spark.tables.data_files import write_rows
from pelton.spark.tables.places import place
from pelton.spark.tables.stream_tables import Batch
from tests.ways import skip_other_servers

SOURCE = "LOGS@2026"


def rows_of(first, last):
    """Lines first to last; five minutes, three programs, one of them without a name."""
    rows = [
        {
            "seq": seq,
            "ts": 1_000_000 * 60 * (seq % 5),
            "time": None if seq % 7 == 0 else 1_000_000 * (60 * (seq % 3) + seq % 60),
            "level": ("info", "error")[seq % 2],
            "program": ("a", "b", None)[seq % 3],
            "identity": "1-2-3-a-0",
            "offset": seq * 10,
            "raw": f"line {seq}",
        }
        for seq in range(first, last + 1)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=LINES_SCHEMA)


def append(landing, first, last, batch_id):
    """What the first half of a step does, without Spark."""
    where = place(landing.lines.path)
    [file] = write_rows([rows_of(first, last)], where, LINES_SCHEMA, f"q-{uuid.uuid4().hex}")
    batch = Batch("q", batch_id, SOURCE, last)
    landing.lines.append([file], batch)
    return batch


def counts_of(landing):
    rows = landing.counts.delta.to_pyarrow_table().to_pylist()
    keys = [(row["minute"], row["program"], row["level"]) for row in rows]
    assert len(set(keys)) == len(keys)
    return {key: row["lines"] for key, row in zip(keys, rows, strict=True)}


def expected_counts(last):
    counted = count_lines(pa.Table.from_batches([rows_of(1, last)])).to_pylist()
    return {(row["minute"], row["program"], row["level"]): row["lines"] for row in counted}


def test_counts_follow_lines_and_catch_up_after_a_death_between_the_two(tmp_path):
    landing = Landing(tmp_path, SOURCE)
    landing._count(append(landing, 1, 100, 0))
    assert counts_of(landing) == expected_counts(100)
    append(landing, 101, 150, 1)
    again = Landing(tmp_path, SOURCE)
    assert again.landed.rows == 150
    assert again.landed.last_seq == 150
    assert sum(counts_of(again).values()) == 100
    again.catch_up()
    again.catch_up()
    assert counts_of(again) == expected_counts(150)
    again._count(Batch("q", 1, SOURCE, 150))
    assert counts_of(again) == expected_counts(150)


def test_counts_of_a_compacted_table(tmp_path):
    landing = Landing(tmp_path, SOURCE)
    for number in range(5):
        append(landing, number * 20 + 1, number * 20 + 20, number)
    landing.lines.delta.optimize.compact()
    landing.catch_up()
    assert counts_of(landing) == expected_counts(100)


def test_another_life_of_the_stream_is_counted_for_itself(tmp_path):
    landing = Landing(tmp_path, SOURCE)
    landing._count(append(landing, 1, 10, 0))
    other = Landing(tmp_path, "LOGS@2027")
    assert other.landed.last_seq == 0
    assert other.landed.rows == 10


def test_the_summary_agrees_or_not(tmp_path):
    landing = Landing(tmp_path, SOURCE)
    landing._count(append(landing, 1, 90, 0))
    summary = summarise(landing, 90, drained=True)
    assert summary.agrees
    assert (summary.rows, summary.distinct_lines, summary.counted) == (90, 90, 90)
    assert summary.programs == [("", 30), ("a", 30), ("b", 30)]
    assert summary.levels == [("error", 45), ("info", 45)]
    assert not summarise(landing, 91, drained=True).agrees


def test_an_empty_landing_has_a_summary(tmp_path):
    assert summarise(Landing(tmp_path, SOURCE), 0, drained=True).agrees


def test_duckdb_and_polars_read_both_tables(tmp_path):
    landing = Landing(tmp_path, SOURCE)
    landing._count(append(landing, 1, 90, 0))
    lines = landing.lines.delta.to_pyarrow_dataset()
    counts = landing.counts.delta.to_pyarrow_dataset()
    joined = duckdb.sql(
        "select (select count(*) from lines), (select sum(lines) from counts),"
        " (select max(seq) from lines)"
    ).fetchall()
    assert joined == [(90, 90, 90)]
    assert lines is not counts
    frame = polars.read_delta(str(tmp_path / "counts"))
    assert frame["lines"].sum() == 90
    assert polars.read_delta(str(tmp_path / "lines")).height == 90


class Death(Exception):
    """Stands for the end of the process."""


def dies_at(landing, where):
    """Let the landing die in its next step."""
    count = landing._count

    def die(*arguments):
        raise Death

    def count_and_die(batch):
        count(batch)
        raise Death

    if where == "before the files":
        landing.step = die
    elif where == "before the commit":
        landing.lines.append = die
    elif where == "between the tables":
        landing._count = die
    elif where == "after both":
        landing._count = count_and_die


def lines_of(reader, stream, **given):
    options = {"servers": stream.url, "stream": stream.name, "includeHeaders": "true", **given}
    messages = reader.format("jetstream").options(**options).load()
    return messages.transform(shipped).transform(parsed())


def run_query(spark, stream, folder, die_at=None):
    """One life of a query over all there is; the landing as it was left."""
    landing = Landing(folder / "tables", SOURCE)
    landing.catch_up()
    dies_at(landing, die_at)
    lines = lines_of(spark.readStream, stream, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    query = (
        lines.writeStream.foreachBatch(batch_function(landing))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    if die_at is None:
        query.awaitTermination(120)
    else:
        with pytest.raises(PySparkException, match="Death"):
            query.awaitTermination(120)
    return landing


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.timeout(240)
def test_a_query_that_dies_everywhere_lands_every_message_once(spark, stream, tmp_path, request):
    skip_other_servers(request)
    stream.fill(60)
    for where in ("before the files", "before the commit", "between the tables", "after both"):
        run_query(spark, stream, tmp_path, die_at=where)
    run_query(spark, stream, tmp_path)
    # A checkpoint that is gone: everything is read again, nothing is added twice.
    stream.fill(30)
    shutil.rmtree(tmp_path / "checkpoint")
    landing = run_query(spark, stream, tmp_path)
    rows = landing.lines.delta.to_pyarrow_table()
    assert sorted(rows["seq"].to_pylist()) == list(range(1, 91))
    by_spark = lines_of(spark.read, stream).transform(per_minute).collect()
    in_table = landing.counts.delta.to_pyarrow_table().to_pylist()
    assert sum(row["lines"] for row in in_table) == 90
    assert {(row.minute, row.program, row.level): row["lines"] for row in by_spark} == {
        (row["minute"].replace(tzinfo=None), row["program"], row["level"]): row["lines"]
        for row in in_table
    }
