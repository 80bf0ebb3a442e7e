"""Tables inside Spark: batch and streaming, killed between two commits, raced, with new columns."""

import contextlib
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

from pelton.spark.tables import append, upsert
from pelton.spark.tables.places import TableError, place
from tests.spark.tables_help import sequences

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

FORMAT = "jetstream_delta"
PARTITIONS, ADAPTIVE = "spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled"


def saving(frame, path, mode="append", **options):
    frame.write.format(FORMAT).mode(mode).options(**options).save(str(path))


def loading(spark, path, **options):
    return spark.read.format(FORMAT).options(**options).load(str(path))


def test_every_type_goes_in_and_comes_out(spark, tmp_path):
    rows = spark.range(0, 100, 1, 3).selectExpr(
        "id as seq",
        "cast(id as string) as text",
        "timestamp_micros(id) as at",
        "timestamp_ntz'2026-01-01 00:00:00' as local",
        "date'2026-01-01' as day",
        "cast(id as decimal(20,3)) as money",
        "cast(id as byte) as b",
        "cast(id as float) as f",
        "id % 2 = 0 as flag",
        "cast(cast(id as string) as binary) as data",
        "map('k', array('a', null)) as headers",
        "struct(id as x, array(struct('y' as z)) as l) as nested",
    )
    saving(rows, tmp_path / "t", partitionBy="flag")
    read = loading(spark, tmp_path / "t")
    assert read.schema.simpleString() == rows.schema.simpleString()
    assert sorted(read.collect()) == sorted(rows.collect())
    saving(rows.limit(5), tmp_path / "t", mode="overwrite")
    assert loading(spark, tmp_path / "t").count() == 5
    assert loading(spark, tmp_path / "t", versionAsOf=1).count() == 100
    some = loading(spark, tmp_path / "t", columns="flag,seq")
    assert some.columns == ["flag", "seq"]
    assert spark.read.format(FORMAT).schema("seq long").load(str(tmp_path / "t")).count() == 5


def test_other_uses_of_a_table_that_was_filtered_have_all_rows(spark, tmp_path):
    for first in (0, 100, 200):
        saving(spark.range(first, first + 100, 1, 1).selectExpr("id as seq"), tmp_path / "t")
    read = loading(spark, tmp_path / "t")
    few, many = read.where("seq < 10"), read.where("seq >= 280")
    assert few.count() == 10
    assert read.count() == 300
    assert few.union(many).count() == 30
    with pytest.raises(PySparkException, match="option pushdown is 'true', but must be false"):
        loading(spark, tmp_path / "t", pushdown="true")


def test_a_batch_write_with_a_number_is_made_once(spark, tmp_path):
    rows = spark.range(10).withColumnRenamed("id", "seq")
    for _ in range(2):
        saving(rows, tmp_path / "t", txnAppId="import", txnVersion=7)
    assert sequences(place(tmp_path / "t")) == list(range(10))


def test_errors_are_one_line(spark, tmp_path):
    rows = spark.range(3).withColumnRenamed("id", "seq")
    saving(rows, tmp_path / "t")
    for options, wanted in (
        ({"mergeSchemas": "true"}, "no option 'mergeschemas'"),
        ({"partitionBy": "seq"}, "is partitioned not at all"),
        ({"txnAppId": "a"}, "txnAppId and txnVersion go together"),
    ):
        with pytest.raises(PySparkException, match=wanted):
            saving(rows, tmp_path / "t", **options)
    with pytest.raises(PySparkException, match="column other int is not in the table"):
        saving(rows.withColumn("other", F.lit(1)), tmp_path / "t")
    with pytest.raises(PySparkException, match="which a Delta table does not hold"):
        saving(spark.sql("select interval 3 days as i"), tmp_path / "u")
    with pytest.raises(PySparkException, match="there is no table at"):
        loading(spark, tmp_path / "nobody").count()
    with pytest.raises(PySparkException, match="cannot be read at version 99"):
        loading(spark, tmp_path / "t", versionAsOf=99).count()
    with pytest.raises(PySparkException, match="columns names nobody"):
        loading(spark, tmp_path / "t", columns="nobody").count()


def counting(spark):
    """A stream of ten rows per batch."""
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10)
    return rate.option("numPartitions", 2).load().withColumnRenamed("value", "seq")


def run(frame, path, checkpoint, format_name=FORMAT, seconds=30.0, until=None, **options):
    """Run a query until ``until`` says so, or it fails."""
    writer = frame.writeStream.format(format_name).options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).start(str(path))
    try:
        for _ in range(int(seconds * 10)):
            if query.awaitTermination(0.1) or (until is not None and until()):
                break
    finally:
        query.stop()
    return query


def has_rows(path, count):
    def check():
        return DeltaTable.is_deltatable(str(path)) and len(sequences(place(path))) >= count

    return check


def faulty(folder):
    """The format with faults that files in ``folder`` ask for; by value, so that workers know it."""
    from pelton.spark.delta.source import DeltaDataSource
    from pelton.spark.tables.writer import TableStreamWriter

    class Writer(TableStreamWriter):
        def commit(self, messages, batchId):  # noqa: N803  Spark's name
            if batchId == 2 and Path(folder, "race").exists():
                Path(folder, "race").unlink()
                from pelton.spark.tables.commits import Tables
                from pelton.spark.tables.marks import Mark

                files = [file for message in messages for file in message.files]
                mark = Mark(messages[0].query_id, batchId, "the other driver")
                Tables().commit(self._options.where, self._write(files, mark))
            super().commit(messages, batchId)
            if batchId == 2 and Path(folder, "die").exists():
                Path(folder, "die").unlink()
                raise RuntimeError("died between the two commits")

    class Faulty(DeltaDataSource):
        @classmethod
        def name(cls):
            return "faulty_delta"

        def streamWriter(self, schema, overwrite):  # noqa: N802  Spark's name
            made = super().streamWriter(schema, overwrite)
            made.__class__ = Writer
            return made

    return Faulty


def test_killed_between_the_commit_of_the_table_and_that_of_spark(spark, tmp_path):
    spark.dataSource.register(faulty(str(tmp_path)))
    table, checkpoint = tmp_path / "t", tmp_path / "c"
    (tmp_path / "die").touch()
    rows = counting(spark)
    with pytest.raises(PySparkException, match="died between the two commits"):
        run(rows, table, checkpoint, "faulty_delta")
    assert sequences(place(table)) == list(range(30))
    run(rows, table, checkpoint, "faulty_delta", until=has_rows(table, 60))
    found = sequences(place(table))
    assert len(found) >= 60
    assert found == list(range(len(found)))
    noted = [h for h in DeltaTable(table).history() if "pelton" in h]
    assert len({note["pelton"]["run"] for note in noted}) == 2


def test_the_second_driver_fails_with_a_clear_error(spark, tmp_path):
    spark.dataSource.register(faulty(str(tmp_path)))
    table, checkpoint = tmp_path / "t", tmp_path / "c"
    (tmp_path / "race").touch()
    with pytest.raises(PySparkException, match="two drivers run on one checkpoint"):
        run(counting(spark), table, checkpoint, "faulty_delta")
    assert sequences(place(table)) == list(range(30))


def test_columns_that_come_later(spark, tmp_path):
    table, checkpoint = tmp_path / "t", tmp_path / "c"
    run(counting(spark), table, checkpoint, until=has_rows(table, 20))
    wider = counting(spark).withColumn("more", F.col("seq") * 2)
    with pytest.raises(PySparkException, match="column more bigint is not in the table"):
        run(wider, table, checkpoint)
    run(wider, table, checkpoint, mergeSchema="true", until=has_rows(table, 60))
    read = loading(spark, table)
    found = sorted(read.select("seq", "more").collect())
    assert [row.seq for row in found] == list(range(len(found)))
    assert found[0].more is None
    assert found[-1].more == 2 * found[-1].seq
    assert DeltaTable(table).to_pyarrow_table().num_rows == len(found)


def test_complete_mode_replaces_and_a_stream_reads_what_was_added(spark, tmp_path):
    bronze, silver = tmp_path / "bronze", tmp_path / "silver"
    run(counting(spark), bronze, tmp_path / "c1", until=has_rows(bronze, 40))
    many = len(sequences(place(bronze)))
    growing = spark.readStream.format(FORMAT).option("maxFilesPerTrigger", 3).load(str(bronze))
    writer = growing.writeStream.format(FORMAT).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "c2"))
    query = writer.start(str(silver))
    assert query.awaitTermination(60)
    assert sequences(place(silver)) == list(range(many))
    assert query.lastProgress["batchId"] >= 2
    DeltaTable(bronze).optimize.compact()
    saving(
        spark.range(many, many + 5).selectExpr("id as seq", "timestamp_micros(0) as timestamp"),
        bronze,
    )
    query = writer.start(str(silver))
    assert query.awaitTermination(60)
    assert sequences(place(silver)) == list(range(many + 5))
    totals = growing.groupBy().agg(F.count("*").alias("seq"))
    writer = totals.writeStream.format(FORMAT).outputMode("complete").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "c3")).start(str(tmp_path / "gold"))
    assert query.awaitTermination(60)
    assert sequences(place(tmp_path / "gold")) == [many + 5]
    saving(spark.range(1).selectExpr("id as seq"), bronze, mode="overwrite")
    writer = growing.writeStream.format(FORMAT).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "c2")).start(str(silver))
    with pytest.raises(PySparkException, match="changes or removes rows"):
        query.awaitTermination(60)


def test_upserts_and_several_tables_from_one_batch(spark, tmp_path):
    gold, bad = tmp_path / "gold", tmp_path / "bad"
    done = []

    def land(rows, batch_id):
        keyed = rows.selectExpr("seq % 4 as device", "seq", "seq % 7 = 0 as gone")
        done.append(upsert(keyed, batch_id, gold, keys=["device"], delete_when="gone"))
        append(rows.where("seq % 5 = 0"), batch_id, bad)
        if batch_id == 2 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            raise RuntimeError("died behind both")

    def start():
        writer = counting(spark).writeStream.foreachBatch(land)
        return writer.option("checkpointLocation", str(tmp_path / "c")).start()

    with pytest.raises(PySparkException, match="died behind both"):
        start().awaitTermination(60)
    query = start()
    try:
        for _ in range(300):
            if query.awaitTermination(0.1) or len(done) >= 7:
                break
    finally:
        query.stop()
    batches = len(done) - 1
    found = sequences(place(bad))
    assert found == list(range(0, max(found) + 1, 5))
    model = {}
    for seq in range(batches * 10):
        model.pop(seq % 4, None)
        if seq % 7:
            model[seq % 4] = seq
    rows = DeltaTable(gold).to_pyarrow_table().to_pylist()
    last = DeltaTable(gold).transaction_version(query.id)
    assert last in (batches - 1, batches)
    if last == batches - 1:
        assert {row["device"]: row["seq"] for row in rows} == model
    nulls = spark.sql("select 1 as device, cast(null as long) as seq")
    with pytest.raises(TableError, match="must not be null"):
        upsert(nulls, 0, tmp_path / "n", keys=["device"], query_id="q")
    with pytest.raises(TableError, match="upsert needs the column key"):
        upsert(nulls, 0, tmp_path / "n", keys=["key"], query_id="q")


def test_sums_and_regular_maintenance(spark, tmp_path):
    """Each batch counts once, and a row that goes aside does not count."""
    side = tmp_path / "side"
    given = {"keys": ["key"], "sums": ["n"], "query_id": "q", "maintain_every": 2, "keep_hours": 1}
    aside = {"on_row_error": "side", "error_path": side}
    for batch in (0, 1, 1, 2):
        rows = spark.range(batch * 10, batch * 10 + 10).selectExpr(
            "id % 3 as key",
            "id as seq",
            "if(id % 7 = 0, null, 1L) as n",
            "cast(if(id = 5, x'ff', x'41') as string) as word",
        )
        with pytest.warns(UserWarning, match="1 row") if batch == 0 else contextlib.nullcontext():
            upsert(rows, batch, tmp_path / "sums", **given, **aside)
        plain = rows.select("seq")
        append(plain, batch, tmp_path / "all", query_id="q", maintainEvery="2", retention="1h")
    held = DeltaTable(tmp_path / "sums").to_pyarrow_table().to_pylist()
    wanted = {key: [seq for seq in range(key, 30, 3) if seq != 5] for key in range(3)}
    assert {row["key"]: (row["seq"], row["n"]) for row in held} == {
        key: (max(seqs), sum(seq % 7 > 0 for seq in seqs)) for key, seqs in wanted.items()
    }
    assert sequences(place(tmp_path / "all")) == list(range(30))
    # Of keys, sequence and sums alone Spark makes the totals otherwise, unless a row goes aside.
    upsert(rows.drop("word"), 0, tmp_path / "few", keys=["key"], sums=["n"], query_id="q")
    held = DeltaTable(tmp_path / "few").to_pyarrow_table().to_pylist()
    assert {tuple(row.values()) for row in held} == {(2, 29, 4), (0, 27, 2), (1, 28, 2)}
    bad = rows.selectExpr("if(seq = 25, cast(x'ff' as string), word) as word", "seq", "n")
    with pytest.warns(UserWarning, match="1 row"):
        upsert(bad, 0, tmp_path / "word", keys=["word"], sums=["n"], query_id="q", **aside)
    held = DeltaTable(tmp_path / "word").to_pyarrow_table().to_pylist()
    assert [tuple(row.values()) for row in held] == [("A", 29, 7)]
    # Version 2 has batch 1, version 3 one file of both batches; 4 has batch 2, and 5 one file again.
    files = [len(DeltaTable(tmp_path / "all", version=each).file_uris()) for each in range(2, 6)]
    assert files[1::2] == [1, 1]
    assert files[0] > 1
    assert DeltaTable(tmp_path / "all").version() == 5
    assert list((tmp_path / "sums" / "_delta_log").glob("*.checkpoint.parquet"))
    for bad, options in (
        ("word is string", {"sums": ["word"]}),
        ("key is bigint", {"sums": ["key"]}),
        ("needs the column m", {"sums": ["m"]}),
        ("leave out one", {"sums": ["n"], "delete_when": "n > 1"}),
    ):
        with pytest.raises(TableError, match=bad):
            upsert(rows, 3, tmp_path / "sums", keys=["key"], query_id="q", **options)


def test_an_upsert_of_a_few_rows_has_a_few_tasks(spark, tmp_path):
    """Though a session has 200 partitions for a shuffle, and a batch of a query is not adaptive."""
    kept = {name: spark.conf.get(name) for name in (PARTITIONS, ADAPTIVE)}
    spark.conf.set(PARTITIONS, "64")
    spark.conf.set(ADAPTIVE, "false")
    context = spark.sparkContext
    context.setJobGroup("a few rows", "upsert")
    try:
        rows = spark.range(30).selectExpr("id % 3 as key", "id as seq")
        upsert(rows, 1, tmp_path / "few", keys=["key"], query_id="q")
        assert spark.conf.get(ADAPTIVE) == "false"
    finally:
        for name, value in kept.items():
            spark.conf.set(name, value)
        context.setLocalProperty("spark.jobGroup.id", None)
    held = DeltaTable(tmp_path / "few").to_pyarrow_table().to_pylist()
    assert {row["key"]: row["seq"] for row in held} == {0: 27, 1: 28, 2: 29}
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("a few rows")]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    tasks = [found.numTasks for each in stages if (found := tracker.getStageInfo(each)) is not None]
    assert tasks
    assert sum(tasks) < 10, tasks
