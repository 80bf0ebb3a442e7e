"""A batch of Spark into all tables: its messages go to their buckets, and one task processes each
bucket.

::

    source ──► blocks of each bucket ──► shuffle ──► decode, versions, rows, files ──► one commit of each table
               (`sharing`)                           (one task for each bucket)        (the driver)

"""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pelton.spark.tables.marks import Mark
from pelton.spark.tables.table import FilesGoneError

from ..tables.batch import MESSAGES
from .buckets import Job, write_bucket
from .sharing import blocks_of, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

    from .lake import Counts, Lake

TRIES = 5
"""How often a batch is made, while others change its tables."""

MUCH_BYTES = 64 * 2**20

REPORT = pa.schema([("report", pa.binary())])


def worker(job: Job) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """The work of a task on the messages of its buckets."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with giving_back():
            found = by_bucket(batches)
            for bucket in list(found):
                mine = pa.Table.from_batches(found.pop(bucket), MESSAGES).combine_chunks()
                report = write_bucket(job, bucket, mine)
                del mine
                yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(report)])], schema=REPORT)

    return work


def by_bucket(batches: Iterator[pa.RecordBatch]) -> dict[int, list[pa.RecordBatch]]:
    """The messages of the blocks that a task gets."""
    found: dict[int, list[pa.RecordBatch]] = {}
    for batch in batches:
        for bucket, block in zip(batch["bucket"].to_pylist(), batch["block"], strict=True):
            found.setdefault(bucket, []).extend(unpacked(block))
    return found


@contextmanager
def giving_back() -> Iterator[None]:
    """Give memory that the work has freed back to the system, if it was much.

    Arrow's allocator keeps such memory, in each worker about twice as much as the state.
    """
    pool = pa.default_memory_pool()
    before = pool.total_bytes_allocated()
    try:
        yield
    finally:
        if pool.total_bytes_allocated() - before >= MUCH_BYTES:
            pool.release_unused()


def take_batch(lake: Lake, rows: DataFrame, mark: Mark) -> Counts:
    """Bring a batch of messages into all tables; a batch that they hold already changes nothing.

    ``rows`` are blocks of this number of buckets, or have the columns of ``format("jetstream")``. The same mark
    must come with the same rows. If a compaction replaces files that the batch replaces, the batch
    is made again from the new files.
    """
    buckets = lake.settings.buckets
    shuffled = blocks_of(rows, buckets).repartitionById(buckets, "bucket")
    for tries_left in reversed(range(TRIES)):
        begun = lake.begin(mark)
        prefix = f"{mark.name}-{mark.number:09}"
        job = Job(lake.targets, begun.held, lake.settings, prefix)
        reports = shuffled.mapInArrow(worker(job), "report binary").toArrow()
        try:
            return lake.commit(begun, [pickle.loads(one) for one in reports["report"].to_pylist()])
        except FilesGoneError:
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
