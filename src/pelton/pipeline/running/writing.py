"""Writes rows into sinks, each once: a micro-batch in ``foreachBatch``, or a query of one sink.

A repeated batch is harmless because each sink recognizes it::

    jetstream_delta      the table's log has (query, batch): nothing is committed
    upsert               the same; rows that are not newer change nothing but sums
    jetstream, buckets   message ids of (query, batch, partition, row), looked up in the stream
    anything else        never shares a batch: it is Spark's own sink in a query of its own
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation

from pelton.pipeline.description.model import DELTA, ICEBERG
from pelton.pipeline.running.counting import Counted, aggregates, counted_of
from pelton.spark.tables import append, upsert
from pelton.spark.tables.upserts import checkpoint_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from pelton.pipeline.description.model import Sink, Upsert

_QUERY = "sql.streaming.queryId"
_QUERY_ID_CHARACTERS = 36
_NAME_MAX = 64
_COUNTS_WAITING = 32


def metric(sink: str) -> str:
    """The name under which Spark counts the rows of a sink."""
    return f"sink {sink}"


def counted(rows: DataFrame, sink: Sink) -> DataFrame:
    """The same rows, counted by Spark on their way into a sink with its own query."""
    return rows.observe(metric(sink.name), *aggregates(rows, sink))


class Counts:
    """Counts of rows on their way into sinks, made by Spark.

    Spark delivers a count some time after the write, through a queue that may lose it, and reading
    the count blocks until then. So a thread waits for each count, and no count delays a batch.
    """

    def __init__(self, tell: Callable[[str, Counted], None]) -> None:
        """``tell`` gets a sink and its rows, in a separate thread."""
        self._tell = tell
        self._waiting: set[threading.Thread] = set()

    def count(self, rows: DataFrame, sink: Sink) -> tuple[DataFrame, Observation]:
        """The same rows, and an object that will know their number."""
        counting = Observation(metric(sink.name))
        return rows.observe(counting, *aggregates(rows, sink)), counting

    def written(self, sink: Sink, counting: Observation) -> None:
        """The rows were written: report their number when it is known."""
        self._waiting = {each for each in self._waiting if each.is_alive()}
        if len(self._waiting) < _COUNTS_WAITING:
            thread = threading.Thread(target=self._wait, args=(sink.name, counting), daemon=True)
            self._waiting.add(thread)
            thread.start()

    def finish(self, seconds: float) -> None:
        """Wait a while for outstanding counts."""
        deadline = time.monotonic() + seconds
        for thread in self._waiting:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _wait(self, sink: str, counting: Observation) -> None:
        with contextlib.suppress(Exception):  # the JVM may have ended
            self._tell(sink, counted_of(counting.get))


def write_batch(
    sink: Sink, rows: DataFrame, query_id: str, batch_id: int, *, writer: str | None = None
) -> None:
    """Write all rows of a batch into a sink, unless the sink has this batch of this query.

    ``writer`` is the query's name in the message ids of a sink into a stream.
    """
    if sink.upsert is not None:
        running = rows.sparkSession.sparkContext.getLocalProperty(_QUERY)
        write_upsert(sink.upsert, rows, batch_id, None if running == query_id else query_id)
    elif sink.format == DELTA:
        options = {key: value for key, value in sink.options.items() if key.lower() != "path"}
        append(rows, batch_id, sink.place or "", query_id=query_id, **options)
    else:
        into = rows.write.format(sink.format or "").mode("append").options(**sink.options)
        if sink.format == ICEBERG:
            into = into.option("txnAppId", query_id).option("txnVersion", str(batch_id))
        elif _folded(sink.options).get("exactlyonce", "").lower() != "none":
            into = into.option("writeId", writer or writer_name(query_id, sink.name))
            into = into.option("writeEpoch", str(batch_id))
        if (checkpoint := checkpoint_of(rows)) is not None:
            into = into.option("checkpointLocation", checkpoint)
        into.save()


def write_upsert(into: Upsert, rows: DataFrame, batch_id: int, query_id: str | None = None) -> None:
    """Write the newest row of each key of a batch into a table; without ``query_id`` of a query's batch."""
    upsert(
        rows,
        batch_id,
        into.path,
        query_id=query_id,
        keys=into.keys,
        sequence=into.sequence,
        sums=into.sums,
        delete_when=into.delete_when,
        keep_deleted_hours=into.keep_deleted_hours,
        history=into.history,
        merge_schema=into.merge_schema,
        storage=into.storage or None,
        catalog=into.catalog,
        catalog_properties=into.catalog_properties,
        if_behind=into.if_behind,
        maintain_every=into.maintain_every,
        keep_hours=into.keep_hours,
        on_row_error=into.on_row_error,
        error_path=into.error_path,
    )


def writer_name(query_id: str, sink: str) -> str:
    """The query's name in the message ids of a sink into a stream."""
    if len(sink) >= _NAME_MAX - _QUERY_ID_CHARACTERS:
        sink = hashlib.blake2b(sink.encode(), digest_size=8).hexdigest()
    return f"{query_id}-{sink}"


def query_of(rows: DataFrame) -> str:
    """The id of the streaming query that calls ``foreachBatch``."""
    found: str | None = rows.sparkSession.sparkContext.getLocalProperty(_QUERY)
    if found is None:
        raise RuntimeError("a micro-batch without a query id: not called by foreachBatch")
    return found


def streamed(sink: Sink, rows: DataFrame, failed: Callable[[Exception], None]) -> Any:
    """A ``writeStream`` of one sink, without name and start; ``failed`` gets errors in Python."""
    writer = counted(rows, sink).writeStream.outputMode(sink.mode)
    into = sink.upsert
    if into is None:
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
        return writer.format(sink.format or "").options(**sink.options)

    def take(batch: DataFrame, batch_id: int) -> None:
        try:
            write_upsert(into, batch, batch_id)
        except Exception as error:
            failed(error)
            raise

    return writer.foreachBatch(take)


def _folded(options: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}
