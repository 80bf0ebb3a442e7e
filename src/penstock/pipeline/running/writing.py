"""Rows into sinks, each once: a micro-batch in ``foreachBatch``, or a streaming query of one sink.

What makes a batch that comes again harmless is the sink's own memory of it::

    jetstream_delta      the table's log has (query, batch): nothing is committed
    upsert               the same; rows that are not newer change nothing
    jetstream, buckets   message ids of (query, batch, partition, row), and where to look for them
    anything else        is never one of several in a batch: Spark's own sink, a query of its own
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

from penstock.pipeline.description.model import DELTA
from penstock.spark.tables import append, upsert
from penstock.spark.tables.upserts import checkpoint_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from penstock.pipeline.description.model import Sink, Upsert

ROWS = "rows"
_QUERY_ID_CHARACTERS = 36
_NAME_MAX = 64
_COUNTS_WAITING = 32


def metric(sink: str) -> str:
    """The name under which Spark counts the rows of a sink."""
    return f"sink {sink}"


def counted(rows: DataFrame, sink: Sink) -> DataFrame:
    """The same rows, counted by Spark as they go into a sink of a query of its own."""
    return rows.observe(metric(sink.name), F.count(F.lit(1)).alias(ROWS))


class Counts:
    """Rows that went into sinks, counted by Spark on the way.

    Spark tells a count some time after the write, through a queue that may lose it, and who asks
    waits until then: so each is waited for by a thread, and none holds up a batch.
    """

    def __init__(self, tell: Callable[[str, int], None]) -> None:
        """``tell`` hears a sink and its rows, in a thread of its own."""
        self._tell = tell
        self._waiting: set[threading.Thread] = set()

    def count(self, rows: DataFrame, sink: Sink) -> tuple[DataFrame, Observation]:
        """The same rows, and what will know how many there were."""
        counting = Observation(metric(sink.name))
        return rows.observe(counting, F.count(F.lit(1)).alias(ROWS)), counting

    def written(self, sink: Sink, counting: Observation) -> None:
        """They were written: tell how many, when that is known."""
        self._waiting = {each for each in self._waiting if each.is_alive()}
        if len(self._waiting) < _COUNTS_WAITING:
            thread = threading.Thread(target=self._wait, args=(sink.name, counting), daemon=True)
            self._waiting.add(thread)
            thread.start()

    def finish(self, seconds: float) -> None:
        """Wait a while for what is not told yet."""
        deadline = time.monotonic() + seconds
        for thread in self._waiting:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _wait(self, sink: str, counting: Observation) -> None:
        with contextlib.suppress(Exception):  # the JVM has ended meanwhile
            self._tell(sink, int(counting.get[ROWS]))


def write_batch(sink: Sink, rows: DataFrame, query_id: str, batch_id: int) -> None:
    """All rows of a batch into a sink; nothing, where the sink holds this batch of this query."""
    if sink.upsert is not None:
        write_upsert(sink.upsert, rows, batch_id)
    elif sink.format == DELTA:
        options = {key: value for key, value in sink.options.items() if key.lower() != "path"}
        append(rows, batch_id, sink.place or "", query_id=query_id, **options)
    else:
        writer = rows.write.format(sink.format or "").mode("append").options(**sink.options)
        if _folded(sink.options).get("exactlyonce", "").lower() != "none":
            writer = writer.option("writeId", writer_name(query_id, sink.name))
            writer = writer.option("writeEpoch", str(batch_id))
        if (checkpoint := checkpoint_of(rows)) is not None:
            writer = writer.option("checkpointLocation", checkpoint)
        writer.save()


def write_upsert(into: Upsert, rows: DataFrame, batch_id: int) -> None:
    """The newest row of each key of a batch into a table."""
    upsert(
        rows,
        batch_id,
        into.path,
        keys=into.keys,
        sequence=into.sequence,
        delete_when=into.delete_when,
        merge_schema=into.merge_schema,
        storage=into.storage or None,
        if_behind=into.if_behind,
    )


def writer_name(query_id: str, sink: str) -> str:
    """What a query is called by the stream that a sink of it writes into."""
    if len(sink) >= _NAME_MAX - _QUERY_ID_CHARACTERS:
        sink = hashlib.blake2b(sink.encode(), digest_size=8).hexdigest()
    return f"{query_id}-{sink}"


def query_of(rows: DataFrame) -> str:
    """The id of the streaming query that hands a batch to ``foreachBatch``."""
    found: str | None = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if found is None:
        raise RuntimeError("a micro-batch without a query id: not called by foreachBatch")
    return found


def streamed(sink: Sink, rows: DataFrame, failed: Callable[[Exception], None]) -> Any:
    """A ``writeStream`` of one sink, to be named and started; ``failed`` hears what goes wrong in
    Python.
    """
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
