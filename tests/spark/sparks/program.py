"""What a job does on a version of Spark: ``python program.py PLAN.json``, started by ``__main__``.

It reads a stream in small batches into a table until it is killed (``"kill": true``); the last run
goes on from there, and does the rest.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.pipeline import load, run
from pelton.spark import register
from pelton.spark.session import end_session, session
from pelton.spark.tables.upserts import upsert

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

PER_BATCH = 40
KEYS = 7


def subject_of(seq: int) -> str:
    return f"orders.{seq % KEYS}"


class Job:
    """Steps that share a server and a folder."""

    def __init__(self, spark: SparkSession, plan: dict[str, Any]) -> None:
        self.spark = spark
        self.count: int = plan["count"]
        self.server = {"servers": plan["url"]}
        self.folder = Path(plan["folder"])
        self.client = connect(plan["url"])
        self.js = self.client.jetstream()
        self.available_now = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)

    def read(self, reader: Any, **options: object) -> DataFrame:
        given = {**self.server, "stream": "ORDERS", "startingOffsets": "earliest", **options}
        rows: DataFrame = reader.format("jetstream").options(**given).load()
        return rows

    def publish(self, count: int) -> None:
        with self.js.publisher() as publisher:
            for seq in range(self.count + 1, self.count + count + 1):
                publisher.publish(subject_of(seq), b"%d" % seq, headers={"Seq": str(seq)})
        self.count += count

    def is_once(self, seqs: Iterable[int]) -> None:
        found = Counter(seqs)
        assert found == Counter(range(1, self.count + 1)), (
            f"missing {sorted(set(range(1, self.count + 1)) - found.keys())}, doubled or foreign"
            f" {[(seq, times) for seq, times in found.items() if times > 1 or seq > self.count]}"
        )

    # --- steps

    def batch_read(self) -> None:
        rows = self.read(self.spark.read, includeHeaders="true", metadata="true").collect()
        self.is_once(row.seq for row in rows)
        for row in rows:
            assert (row.stream, row.subject) == ("ORDERS", subject_of(row.seq))
            assert bytes(row.data) == b"%d" % row.seq
            assert row.headers == {"Seq": [str(row.seq)]}
            assert row.ts is not None
            assert row.ts_ns // 1000 == round(row.ts.timestamp() * 1_000_000)
            assert row.size > 0
            assert row.born

    def table(self) -> Any:
        """The query that is killed, stopped and started again."""
        rows = self.read(
            self.spark.readStream, maxOffsetsPerTrigger=PER_BATCH, maxRecordsPerPartition=20
        )
        return (
            rows.selectExpr("seq", "subject", "ts", "data")
            .writeStream.format("jetstream_delta")
            .option("path", str(self.folder / "orders"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
        )

    def table_rows(self) -> DataFrame:
        return self.spark.read.format("jetstream_delta").load(str(self.folder / "orders"))

    def table_after_a_kill(self) -> None:
        self._until_all(self.table().start())

    def table_after_a_stop(self) -> None:
        self.publish(100)
        self._until_all(self.table().start())

    def _until_all(self, query: Any) -> None:
        query.processAllAvailable()
        most = max(int(each["numInputRows"]) for each in query.recentProgress)
        query.stop()
        assert most == PER_BATCH, f"a batch of {most}"
        self.is_once(row.seq for row in self.table_rows().select("seq").collect())

    def table_of_what_is_there(self) -> None:
        """Below 4.2 an available-now query has one batch: it is run until one has no rows."""
        self.publish(100)
        runs = []
        while not runs or runs[-1]:
            query = self.table().trigger(availableNow=True).start()
            query.awaitTermination()
            runs.append([int(each["numInputRows"]) for each in query.recentProgress])
            runs[-1] = [rows for rows in runs[-1] if rows]
        assert runs == ([[40, 40, 20], []] if self.available_now else [[40], [40], [20], []]), runs
        self.is_once(row.seq for row in self.table_rows().select("seq").collect())

    def copy_of_the_table(self) -> None:
        """The table as a stream, into a stream."""
        self.js.create_stream(StreamConfig(name="COPY", subjects=["copy.>"]))
        rows = self.spark.readStream.format("jetstream_delta").option("maxFilesPerTrigger", 4)
        query = (
            rows.load(str(self.folder / "orders"))
            .selectExpr("concat('copy.', subject) as subject", "data")
            .writeStream.format("jetstream")
            .options(**self.server, stream="COPY")
            .option("checkpointLocation", str(self.folder / "copying"))
            .start()
        )
        query.processAllAvailable()
        assert len([each for each in query.recentProgress if each["numInputRows"]]) > 2
        query.stop()
        copied = self.read(self.spark.read, stream="COPY", subject="copy.>").collect()
        self.is_once(int(row.data) for row in copied)

    def upsert(self) -> None:
        path = str(self.folder / "newest")
        rows = self.read(self.spark.readStream, maxOffsetsPerTrigger=200).select("subject", "seq")
        query = rows.writeStream.foreachBatch(
            lambda part, number: upsert(part, number, path, keys=["subject"])
        )
        query = query.option("checkpointLocation", str(self.folder / "upserting")).start()
        query.processAllAvailable()
        query.stop()
        found = self.spark.read.format("jetstream_delta").load(path).collect()
        newest = range(self.count - KEYS + 1, self.count + 1)
        assert {row.subject: row.seq for row in found} == {subject_of(seq): seq for seq in newest}
        assert len(found) == KEYS

    def batch_writes(self) -> None:
        """A stream and a table, each written as a batch and read."""
        self.js.create_stream(StreamConfig(name="MADE", subjects=["made.>"]))
        rows = self.table_rows()
        made = rows.selectExpr("concat('made.', subject) as subject", "data")
        made.write.format("jetstream").options(**self.server, stream="MADE").mode("append").save()
        again = self.read(self.spark.read, stream="MADE", subject="made.>").collect()
        self.is_once(int(row.data) for row in again)
        rows.write.format("jetstream_delta").mode("append").save(str(self.folder / "made"))
        again = self.spark.read.format("jetstream_delta").load(str(self.folder / "made")).collect()
        self.is_once(int(row.data) for row in again)

    def pipeline(self) -> None:
        """A pipeline that takes what is there, in several micro-batches."""
        file = self.folder / "orders.yaml"
        file.write_text(
            f"pipeline: orders\ndefaults: {{servers: {self.server['servers']!r}}}\n"
            "sources:\n  raw: {format: jetstream, stream: ORDERS, maxOffsetsPerTrigger: 300}\n"
            "sinks:\n  landed: {from: raw, format: jetstream_delta, path: landed}\n"
        )
        result = run(load(file), self.spark, once=True)
        assert result.rows("landed") == self.count
        landed = self.spark.read.format("jetstream_delta").load(str(self.folder / "landed"))
        self.is_once(row.seq for row in landed.collect())

    def iceberg(self) -> None:
        """A table of Iceberg: written as a stream, read as a batch."""
        catalog = {
            "catalog.type": "sql",
            "catalog.uri": f"sqlite:///{self.folder}/catalog.db",
            "catalog.warehouse": (self.folder / "warehouse").as_uri(),
        }
        rows = self.read(self.spark.readStream, maxOffsetsPerTrigger=200).select(
            "seq", "ts", "data"
        )
        query = rows.writeStream.format("jetstream_iceberg").options(
            **catalog, table="sales.orders"
        )
        query = query.option("checkpointLocation", str(self.folder / "freezing")).start()
        query.processAllAvailable()
        query.stop()
        read = self.spark.read.format("jetstream_iceberg").options(**catalog)
        self.is_once(row.seq for row in read.load("sales.orders").collect())

    def bucket(self) -> None:
        """A bucket: written as a stream, its state read as a batch, its changes as a stream."""
        self.js.create_key_value("devices")
        rows = self.read(self.spark.readStream, maxOffsetsPerTrigger=200)
        query = rows.selectExpr("subject as key", "data as value").writeStream.format(
            "jetstream_kv"
        )
        query = query.options(**self.server, bucket="devices")
        query = query.option("checkpointLocation", str(self.folder / "putting")).start()
        query.processAllAvailable()
        query.stop()
        given = {**self.server, "bucket": "devices"}
        found = self.spark.read.format("jetstream_kv").options(**given).load().collect()
        newest = range(self.count - KEYS + 1, self.count + 1)
        assert {row.key: int(row.value) for row in found} == {
            subject_of(seq): seq for seq in newest
        }
        changes = self.spark.readStream.format("jetstream_kv").options(**given)
        query = changes.option("maxOffsetsPerTrigger", 3).load().writeStream.format("memory")
        query = query.queryName("changes").start()
        query.processAllAvailable()
        query.stop()
        assert self.spark.table("changes").select("key").distinct().count() == KEYS


def main(plan: dict[str, Any]) -> None:
    """One of the runs."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        spark = session("sparks")
    assert spark.version == pyspark.__version__ == plan["version"], spark.version
    register(spark)  # once more, which does no harm
    job = Job(spark, plan)
    said = [str(each.message) for each in told if "micro-batch" in str(each.message)]
    assert len(said) == (0 if job.available_now else 1), said
    steps = [
        job.table_after_a_kill,
        job.table_after_a_stop,
        job.table_of_what_is_there,
        job.copy_of_the_table,
        job.upsert,
        job.batch_writes,
        job.pipeline,
        job.iceberg,
        job.bucket,
    ]
    if plan["kill"]:
        steps = [job.batch_read] if plan["first"] else []
    for step in steps:
        step()
        print(f"right: {step.__name__.replace('_', ' ')}", flush=True)
    if plan["kill"]:
        job.table().start().awaitTermination()
    end_session(spark)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
