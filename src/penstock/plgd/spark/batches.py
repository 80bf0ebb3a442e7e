"""A batch of Spark into all tables: its messages go to their buckets, and each bucket is worked on by one task.

::

    source ──► bucket of each subject ──► shuffle ──► decode, versions, rows, files ──► one commit of each table
               (Spark, as SQL)                        (one task for each bucket)        (the driver)

"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.spark.tables.marks import Mark

from ..tables.batch import MESSAGES
from .buckets import Job, write_bucket
from .lake import ChangedTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import Column, DataFrame

    from .lake import Counts, Lake

TRIES = 5
"""How often a batch is made, while others change its tables."""

REPORT = pa.schema([("report", pa.binary())])


def bucket_column(subject: Column, buckets: int) -> Column:
    """The bucket of a subject, as `penstock.plgd.tables.buckets` has it, in Spark's own words."""
    from pyspark.sql import functions as F  # noqa: N812  the customary name

    tokens = F.split(subject, r"\.")
    count = F.size(tokens)

    def token(place: int) -> Column:
        return F.get(tokens, place)

    of_hub = (token(0) == "plgd") & (count > 4)
    key = (
        F.when(of_hub & (token(3) == "devices"), token(4))
        .when(of_hub, token(2))
        .when((token(0) == "events") & (count > 2), token(1))
        .otherwise(F.coalesce(subject, F.lit("")))
    )
    return F.pmod(F.crc32(key.cast("binary")), F.lit(buckets)).cast("int")


def messages_of(rows: DataFrame, buckets: int) -> DataFrame:
    """The columns of `MESSAGES` from those of ``format("jetstream")``."""
    from pyspark.sql import functions as F  # noqa: N812  the customary name

    headers: Any = F.col("headers")
    if "headers" not in rows.columns:
        headers = F.lit(None).cast("map<string, array<string>>")
    return rows.select(
        "stream",
        "seq",
        F.col("ts").alias("received"),
        F.coalesce("subject", F.lit("")).alias("subject"),
        headers.alias("headers"),
        "data",
        bucket_column(F.col("subject"), buckets).alias("bucket"),
    )


def worker(job: Job) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """What a task does with the messages of its buckets."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(
            [batch.cast(MESSAGES) for batch in batches], MESSAGES
        ).combine_chunks()
        for bucket in table["bucket"].unique().to_pylist():
            mine = table.filter(pa.compute.equal(table["bucket"], bucket))
            report = write_bucket(job, bucket, mine)
            yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(report)])], schema=REPORT)

    return work


def take_batch(lake: Lake, rows: DataFrame, mark: Mark) -> Counts:
    """Bring a batch of messages into all tables; a batch that they hold already changes nothing.

    ``rows`` has the columns of ``format("jetstream")``. The same mark must come with the same rows. If a compaction
    replaces files that the batch replaces, the batch is made again by what the tables hold then.
    """
    buckets = lake.settings.buckets
    shuffled = messages_of(rows, buckets).repartitionById(buckets, "bucket")
    for tries_left in reversed(range(TRIES)):
        begun = lake.begin(mark)
        prefix = f"{mark.name}-{mark.number:09}"
        job = Job(lake.places, begun.held, lake.settings, prefix, lake.targets)
        reports = shuffled.mapInArrow(worker(job), "report binary").toArrow()
        try:
            return lake.commit(begun, [pickle.loads(one) for one in reports["report"].to_pylist()])
        except ChangedTable:
            if not tries_left:
                raise
    raise AssertionError("it returns or raises")


def mark_of(rows: DataFrame, batch_id: int) -> Mark:
    """The mark of a batch that a streaming query gives to ``foreachBatch``."""
    context = rows.sparkSession.sparkContext
    query = context.getLocalProperty("sql.streaming.queryId")
    if query is None:
        raise ValueError("not called by foreachBatch of a query")
    return Mark(query, batch_id, context.getLocalProperty("spark.jobGroup.id") or "")
