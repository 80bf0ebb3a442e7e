"""The stream of a hub into its tables: a streaming query, or a back-fill in ranges of sequences.

Both bring the same batches into the tables by the same transforms; only what begins and ends a
batch differs. So a back-fill of a stream makes the same rows as a query.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pelton.spark.session import session
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import TableError
from pelton.spark.versions import number_of

from ..tables.schemas import RAW
from .batches import mark_of, take_batch
from .sharing import FORMAT, HubMessages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from .lake import Counts, Lake

CARRIES = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.shuffle.compress": "false",
}
"""Settings for a session whose JVM only carries blocks: code made for each batch costs more than it saves."""

JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of such a JVM: its second compiler took half of the JVM's processor time, a parallel collector an eighth."""

BATCH = 500_000
"""Messages of a batch at most; a batch is in memory, a bucket of it at a time for each core."""


@dataclass(frozen=True)
class Source:
    """The stream to read, and how; ``options`` are those of ``format("jetstream")``."""

    stream: str = "EVENTS"
    servers: str = "nats://127.0.0.1:4222"
    subject: str = "plgd.>"
    options: Mapping[str, str] = field(default_factory=dict)

    def all(self, buckets: int) -> dict[str, str]:
        """All options, for blocks of so many buckets."""
        given = {"stream": self.stream, "servers": self.servers}
        if self.subject:
            given["subject"] = self.subject
        return given | dict(self.options) | {"buckets": str(buckets)}


def stream(
    spark: SparkSession,
    source: Source,
    lake: Lake,
    checkpoint: str,
    *,
    batch: int = BATCH,
    every: str | None = None,
    once: bool = False,
    begin: str = "earliest",
    told: Callable[[int, Counts], None] | None = None,
    then: Callable[[Counts], None] | None = None,
) -> StreamingQuery:
    """A query that brings a stream into the tables, which `Lake.create` has made.

    It begins with the first message, or at the sequence ``begin`` (`resuming`). ``every`` is the time between batches
    (``5 seconds``), else they follow one another; with ``once`` it ends when it has what was there.
    ``told`` is called for each batch that the tables hold. ``then`` is called before that, for
    further work with the new contents of the tables, and again after an interruption.
    """
    options = {
        "startingOffsets": begin,
        "maxOffsetsPerTrigger": str(batch),
        "maxRecordsPerPartition": str(max(1000, batch // 4)),
        "minPartitions": str(spark.sparkContext.defaultParallelism),
    } | source.all(lake.settings.buckets)
    _prepare(spark)
    rows = spark.readStream.format(FORMAT).options(**options).load()

    def take(part: DataFrame, number: int) -> None:
        counts = take_batch(lake, part, mark_of(part, number))
        if then is not None:
            then(counts)
        if told is not None:
            told(number, counts)

    writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    if once:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        writer = writer.trigger(processingTime=every)
    return writer.start()


def _prepare(spark: SparkSession) -> None:
    """Add the format; TableError for a Spark that lacks what `stream` or `take_batch` needs."""
    _check_version(spark.version)
    spark.dataSource.register(HubMessages)


def _check_version(version: str) -> None:
    # repartitionById came with 4.1, Trigger.AvailableNow with 4.2
    if number_of(version) < (4, 2):
        raise TableError(f"the tables of a hub need Spark 4.2 or newer; this is Spark {version}")


def hub_session(name: str, *, master: str, log_file: Path | None = None) -> SparkSession:
    """A session for `stream` and `backfill` alone, as `pelton.spark.session.session` makes it."""
    from pyspark import __version__

    _check_version(__version__)
    return session(name, master=master, settings=CARRIES, log_file=log_file, java=JAVA)


def ranges(first: int, last: int, batch: int) -> Iterator[tuple[int, int]]:
    """The sequences from first to last in ranges of a batch, which do not depend on where the last one ends."""
    begin = first
    while begin <= last:
        end = min(last, begin + batch - 1)
        yield begin, end
        begin = end + 1


def filling(source: Source, first: int, batch: int) -> str:
    """The name of a back-fill in the marks of its tables."""
    return f"backfill-{source.stream}-{first}-{batch}"


def last_filled(source: Source, lake: Lake, first: int, batch: int) -> int | None:
    """The batch that a back-fill of the same sequences made last; TableError for rows of another run."""
    # The raw table is the first to be committed; the batch that it holds last may lack others.
    done = lake.last_batch(RAW.name, filling(source, first, batch))
    if done is None and lake.files(RAW.name):
        raise TableError(
            f"the tables at {lake.where(RAW.name)} have rows of another run: fill new ones, or go on"
            " with the same first sequence and batch"
        )
    return done


def backfill(
    spark: SparkSession,
    source: Source,
    lake: Lake,
    *,
    first: int,
    last: int,
    batch: int = BATCH,
    told: Callable[[int, Counts], None] | None = None,
) -> int:
    """Bring the sequences from ``first`` to ``last`` into the tables; returns the number of batches.

    The tables must be new. A back-fill that was interrupted goes on where it was, if it is called with the same
    sequences and batch; others are a :class:`TableError`, as rows would be there twice.
    """
    done = last_filled(source, lake, first, batch)
    _prepare(spark)
    number = -1
    for number, (begin, end) in enumerate(ranges(first, last, batch)):
        if done is not None and number < done:
            continue
        options = source.all(lake.settings.buckets) | {
            "startingOffsets": str(begin),
            "endingOffsets": str(end),
            "maxRecordsPerPartition": str(max(1000, batch // 4)),
        }
        rows = spark.read.format(FORMAT).options(**options).load()
        counts = take_batch(lake, rows, Mark(filling(source, first, batch), number))
        if told is not None:
            told(number, counts)
    return number + 1
