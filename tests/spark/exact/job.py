"""The driver that is killed: ``python -m tests.spark.exact.job PLAN.json``.

The plan is a list of steps, done one after the other. Each says on standard output when it begins
(its query runs) and when it is over; a step that goes on ``forever`` is never over.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pelton.spark.session import session
from pelton.spark.tables import upsert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


KEYS = 97
"""So many keys has each stream in a table of counts."""


def main(plan: Path) -> None:
    """Carry out a plan."""
    told = json.loads(plan.read_text())
    warnings.filterwarnings("ignore", message=".*recognizes a message id for.*")
    spark = session("exact", master=told["master"], settings=told.get("settings"))
    print("session", flush=True)
    work(spark, told["steps"])


def work(spark: SparkSession, steps: list[dict[str, Any]]) -> None:
    """Do steps one after the other."""
    kinds = {"table": table, "batch": batch, "copy": copy, "copy-batch": copy_batch}
    for step in steps:
        (kinds | {"upsert": upsert_rows})[step["kind"]](spark, step)
        print(f"over {step['name']}", flush=True)


def _streams(reader: Any, step: dict[str, Any], **more: str) -> DataFrame:
    options = {
        "servers": step["url"],
        "stream": step["streams"],
        "includeHeaders": "true",
        "startingOffsets": "earliest",
        "maxRecordsPerPartition": step["partition_rows"],
        **more,
    }
    rows: DataFrame = reader.format("jetstream").options(**options).load()
    return rows


def _run(writer: Any, step: dict[str, Any]) -> None:
    writer = writer.option("checkpointLocation", step["checkpoint"])
    if not step["forever"]:
        writer = writer.trigger(availableNow=True)
    query = writer.start()
    print(f"began {step['name']}", flush=True)
    query.awaitTermination()


def table(spark: SparkSession, step: dict[str, Any]) -> None:
    """Streams into a table, in micro-batches. Messages are removed meanwhile, so a batch that comes
    again may have fewer rows: what the table holds counts.
    """
    rows = _streams(spark.readStream, step, maxOffsetsPerTrigger=step["per_trigger"])
    sink = rows.writeStream.format("jetstream_delta").option("path", step["table"])
    _run(sink.option("checkReplay", "false"), step)


def batch(spark: SparkSession, step: dict[str, Any]) -> None:
    """Streams into a table, in one batch."""
    print(f"began {step['name']}", flush=True)
    rows = _streams(spark.read, step)
    rows.write.format("jetstream_delta").mode("append").save(step["table"])


def _as_copies(rows: DataFrame, step: dict[str, Any]) -> DataFrame:
    return rows.selectExpr(f"concat('{step['prefix']}', subject) as subject", "headers", "data")


def _sink(step: dict[str, Any]) -> dict[str, str]:
    return {"servers": step["url"], "stream": step["stream"], "exactlyOnce": step["once"]}


def copy(spark: SparkSession, step: dict[str, Any]) -> None:
    """A table into a stream, in micro-batches."""
    reader = spark.readStream.format("jetstream_delta").option("partitionBytes", step["task_bytes"])
    rows = reader.option("maxFilesPerTrigger", step["files_per_trigger"]).load(step["table"])
    _run(_as_copies(rows, step).writeStream.format("jetstream").options(**_sink(step)), step)


def copy_batch(spark: SparkSession, step: dict[str, Any]) -> None:
    """A table into a stream, in one batch that can be run again."""
    print(f"began {step['name']}", flush=True)
    rows = spark.read.format("jetstream_delta").load(step["table"])
    sink = _as_copies(rows, step).write.format("jetstream").options(**_sink(step))
    sink.option("writeId", step["write_id"]).mode("append").save()


def upsert_rows(spark: SparkSession, step: dict[str, Any]) -> None:
    """A table into an Iceberg table with the newest row of each key and the number of its rows, in micro-batches."""
    reader = spark.readStream.format("jetstream_delta")
    rows = reader.option("maxFilesPerTrigger", step["files_per_trigger"]).load(step["table"])

    def take(part: DataFrame, batch: int) -> None:
        upsert(
            part.selectExpr("stream", f"seq % {KEYS} as k", "seq", "1L as n"),
            batch,
            step["upserted"],
            keys=["stream", "k"],
            sums=["n"],
            maintain_every=5,
            keep_hours=1,
            catalog_properties=step["catalog"],
        )

    _run(rows.writeStream.foreachBatch(take), step)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
