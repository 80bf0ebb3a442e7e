"""Iceberg tables inside Spark: a stream kept as a table, killed between two commits, raced, read."""

from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pelton[iceberg]")
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

from pelton.spark.tables import upsert
from pelton.spark.tables.compaction import compact
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.upserts import Upserted, merge
from tests.peers import available_servers, start_server
from tests.spark.iceberg_help import address_of, properties_of, sequences, table_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

FORMAT = "jetstream_iceberg"


@pytest.fixture(scope="module")
def server():
    """One kind of server: what is tried here is the table."""
    started = start_server(available_servers((2, 9))[0])
    yield started
    started.remove()


def given(writer_or_reader, folder, form=FORMAT, **options):
    properties = {f"catalog.{name}": text for name, text in properties_of(folder).items()}
    return writer_or_reader.format(form).options(catalog="test", **properties, **options)


def saving(frame, folder, table="lake.t", mode="append", **options):
    given(frame.write, folder, **options).mode(mode).save(table)


def loading(spark, folder, table="lake.t", **options):
    return given(spark.read, folder, **options).load(table)


def faulty(folder):
    """The format with faults that files in ``folder`` ask for; by value, so that workers know it."""
    from pelton.spark.iceberg.source import IcebergDataSource
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

    class Faulty(IcebergDataSource):
        @classmethod
        def name(cls):
            return "faulty_iceberg"

        def streamWriter(self, schema, overwrite):  # noqa: N802  Spark's name
            made = super().streamWriter(schema, overwrite)
            made.__class__ = Writer
            return made

    return Faulty


def messages(spark, stream, **options):
    reader = spark.readStream.format("jetstream").option("servers", stream.url)
    reader = reader.option("stream", stream.name).option("startingOffsets", "earliest")
    return reader.options(maxOffsetsPerTrigger=100, **options).load()


def run(frame, folder, form=FORMAT, mode="append", **options):
    """One run over what there is; a failure is raised."""
    writer = given(frame.writeStream, folder, form, **options).outputMode(mode)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start("lake.t")
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return query


def test_a_stream_becomes_a_table(spark, stream, tmp_path):
    """Stopped, killed between the commit of the table and that of Spark, and started again."""
    spark.dataSource.register(faulty(str(tmp_path)))
    where = address_of(tmp_path)
    stream.fill(150)
    query = run(messages(spark, stream), tmp_path, "faulty_iceberg")
    assert len(sequences(where)) == 150
    stream.fill(250)
    (tmp_path / "die").touch()
    with pytest.raises(PySparkException, match="died between the two commits"):
        run(messages(spark, stream), tmp_path, "faulty_iceberg")
    assert len(sequences(where)) == 250  # the batch is there, and Spark does not know
    stream.fill(100)
    run(messages(spark, stream), tmp_path, "faulty_iceberg")

    table = table_of(where)
    rows = table.scan().to_arrow().sort_by("seq").to_pylist()
    stored = spark.read.format("jetstream").option("servers", stream.url)
    wanted = stored.option("stream", stream.name).load().orderBy("seq").toArrow().to_pylist()
    assert len(rows) == 500
    assert rows == wanted
    summaries = [snapshot.summary for snapshot in table.metadata.snapshots]
    assert {summary["pelton.query"] for summary in summaries} == {str(query.id)}
    batches = [int(summary["pelton.batch"]) for summary in summaries]
    assert batches == list(range(len(batches)))
    # What the batch that came again had written is removed.
    folder = Path(table.location().removeprefix("file://"))
    named = {Path(path).name for path in table.inspect.files()["file_path"].to_pylist()}
    assert {path.name for path in folder.rglob("*.parquet")} == named
    read = loading(spark, tmp_path).orderBy("seq").toArrow().to_pylist()
    assert read == wanted


def test_the_second_driver_fails_with_a_clear_error(spark, stream, tmp_path):
    spark.dataSource.register(faulty(str(tmp_path)))
    stream.fill(500)
    (tmp_path / "race").touch()
    with pytest.raises(PySparkException, match="two drivers run on one checkpoint"):
        run(messages(spark, stream), tmp_path, "faulty_iceberg")
    assert sequences(address_of(tmp_path)) == list(range(1, 301))


def test_columns_that_come_later_and_complete_mode(spark, stream, tmp_path):
    stream.fill(100)
    rows = messages(spark, stream).select("seq", "subject")
    run(rows, tmp_path)
    stream.fill(100)
    wider = rows.withColumn("more", F.col("seq") * 2)
    with pytest.raises(PySparkException, match="column more bigint is not in the table"):
        run(wider, tmp_path)
    run(wider, tmp_path, mergeSchema="true")
    found = loading(spark, tmp_path).orderBy("seq").collect()
    assert [row.seq for row in found] == list(range(1, 201))
    assert [row.more for row in found] == [None] * 100 + [2 * seq for seq in range(101, 201)]
    totals = messages(spark, stream).groupBy("subject").agg(F.max("seq").alias("seq"))
    (tmp_path / "totals").mkdir()
    run(totals, tmp_path / "totals", mode="complete")
    assert sequences(address_of(tmp_path / "totals")) == [198, 199, 200]


def test_a_table_is_read_as_a_stream(spark, tmp_path):
    """Each row once, over runs, a compaction and new columns; a commit that changes rows ends it."""
    reader = given(spark.readStream, tmp_path, maxFilesPerTrigger=1)

    def save(first, **options):
        rows = spark.range(first, first + 20, 1, 2).selectExpr("id as seq", "id % 3 as k")
        saving(rows, tmp_path, **options)

    def follow(**options):
        rows = reader.options(**options).load("lake.t").selectExpr("seq", "k")
        writer = rows.writeStream.format("jetstream_delta").option("path", str(tmp_path / "copy"))
        writer = writer.option("checkpointLocation", str(tmp_path / "following"))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
        found = spark.read.format("jetstream_delta").load(str(tmp_path / "copy")).collect()
        return sorted(row.seq for row in found)

    save(0)
    assert follow() == list(range(20))
    save(20)
    compact(address_of(tmp_path), 2**20)
    save(40)
    assert follow() == list(range(60))
    put = pa.table({"seq": [1], "k": [99]})
    merge(put, address_of(tmp_path), keys=["seq"], sequence="k", mark=Mark("u", 0))
    with pytest.raises(
        PySparkException, match=r"snapshot \d+ of test\.lake\.t changes or removes rows"
    ):
        follow()
    save(60)
    assert follow(skipChangeCommits="true") == list(range(80))


def test_an_upsert_in_a_query(spark, stream, tmp_path):
    """The newest row of each key and sums, each batch once, although it runs again."""
    properties, done = properties_of(tmp_path), []

    def take(rows, batch):
        given = {"keys": ["subject"], "sums": ["n"], "maintain_every": 2, "merge_schema": True}
        counted = rows.selectExpr("subject", "seq", "1L as n", "cast(data as string) as data")
        more = {"catalog": "test", "catalog_properties": properties, "if_behind": "fill"}
        done.append(upsert(counted, batch, "lake.t", **given, **more))
        if batch == 2 and (tmp_path / "die").exists():
            (tmp_path / "die").unlink()
            raise RuntimeError("died before Spark noted the batch")

    def follow():
        writer = messages(spark, stream).writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    stream.fill(500)
    (tmp_path / "die").touch()
    with pytest.raises(PySparkException, match="died before Spark noted"):
        follow()
    follow()
    assert done.count(Upserted()) == 1
    stored = spark.read.format("jetstream").option("servers", stream.url)
    rows = stored.option("stream", stream.name).load()
    wanted = rows.groupBy("subject").agg(F.max("seq").alias("seq"), F.count("*").alias("n"))
    found = loading(spark, tmp_path).select("subject", "seq", "n")
    assert sorted(found.collect()) == sorted(wanted.collect())
    assert len(table_of(address_of(tmp_path)).inspect.files()) <= 2


def test_every_type_goes_in_and_comes_out(spark, tmp_path):
    rows = spark.range(0, 100, 1, 3).selectExpr(
        "id as seq",
        "cast(id as string) as `text of 1`",
        "timestamp_micros(id) as at",
        "timestamp_ntz'2026-01-01 00:00:00' as local",
        "date'2026-01-01' as day",
        "cast(id as decimal(20,3)) as money",
        "cast(id as int) as i",
        "cast(id as float) as f",
        "id % 2 = 0 as flag",
        "cast(cast(id as string) as binary) as data",
        "map('k', array('a', null)) as headers",
        "struct(id as x, array(struct('y' as z)) as l) as nested",
    )
    saving(rows, tmp_path, partitionBy="flag,day")
    read = loading(spark, tmp_path)
    assert read.schema.simpleString() == rows.schema.simpleString()
    assert sorted(read.collect()) == sorted(rows.collect())
    before = table_of(address_of(tmp_path)).current_snapshot().snapshot_id
    saving(rows.limit(5), tmp_path, mode="overwrite")
    assert loading(spark, tmp_path).count() == 5
    assert loading(spark, tmp_path, snapshotId=before).count() == 100
    assert loading(spark, tmp_path, columns="flag,seq").columns == ["flag", "seq"]
    small = rows.selectExpr("seq", "cast(seq as tinyint) as i")
    saving(
        small.withColumn("flag", F.lit(True)).withColumn("day", F.lit(None).cast("date")), tmp_path
    )
    assert loading(spark, tmp_path).where("day is null and i = 7").count() == 1


def test_a_batch_write_with_a_number_is_made_once(spark, tmp_path):
    rows = spark.range(10).withColumnRenamed("id", "seq")
    for _ in range(2):
        saving(rows, tmp_path, txnAppId="import", txnVersion=7)
    assert sequences(address_of(tmp_path)) == list(range(10))


def test_errors_are_one_line(spark, tmp_path):
    rows = spark.range(3).withColumnRenamed("id", "seq")
    saving(rows, tmp_path)
    for options, wanted in (
        ({"mergeSchemas": "true"}, "no option 'mergeschemas'"),
        ({"partitionBy": "seq"}, "is partitioned not at all"),
        ({"txnAppId": "a"}, "txnAppId and txnVersion go together"),
        ({"table": "orders"}, r"must be namespace\.name"),
    ):
        with pytest.raises(PySparkException, match=wanted):
            saving(rows, tmp_path, **options)
    with pytest.raises(PySparkException, match="which an Iceberg table does not hold"):
        saving(spark.sql("select interval 3 days as i"), tmp_path, "lake.u")
    with pytest.raises(PySparkException, match=r"there is no table test\.lake\.nobody"):
        loading(spark, tmp_path, "lake.nobody").count()
    with pytest.raises(PySparkException, match="has no snapshot 99"):
        loading(spark, tmp_path, snapshotId=99).count()
    with pytest.raises(PySparkException, match="columns names nobody"):
        loading(spark, tmp_path, columns="nobody").count()
    with pytest.raises(PySparkException, match="URI missing") as caught:
        rows.write.format(FORMAT).option("catalog.s3.secret-access-key", "hush").mode(
            "append"
        ).save("a.b")
    assert "hush" not in str(caught.value)


def test_a_query_maintains_its_table(spark, tmp_path):
    files = []
    for batch in range(4):
        rows = spark.range(batch * 10, batch * 10 + 10, 1, 2).withColumnRenamed("id", "seq")
        saving(rows, tmp_path, txnAppId="q", txnVersion=batch, maintainEvery=2, retention="1h")
        files.append(len(table_of(address_of(tmp_path)).inspect.files()))
    # Commits 2, 4 and 6 are batches; each is followed by a commit that joins all files.
    assert files == [2, 1, 1, 1]
    assert sequences(address_of(tmp_path)) == list(range(40))
