"""Messages of a batch divided among their buckets, as blocks of Arrow that Spark only transports.

A block has the messages of one bucket as Arrow's IPC bytes. Spark's rows are blocks, so Spark neither converts nor
copies the columns of a message, and its shuffle moves a few large values::

    reader (Python) ──► (bucket, block) ──► shuffle (JVM) ──► blocks of a bucket as one table (Python)

`HubMessages` is the source that reads a stream as blocks. Any frame with the columns of ``format("jetstream")`` becomes
blocks by `blocks_of`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from pelton.spark.older import for_this_spark
from pelton.spark.parsing import OptionError
from pelton.spark.reading.options import parse_options
from pelton.spark.reading.source import JetStreamReader
from pelton.spark.reading.streaming import JetStreamStreamReader

from ..tables.batch import MESSAGES
from ..tables.buckets import buckets_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from pelton.spark.reading.options import Options

FORMAT = "plgd_messages"
BLOCKS = pa.schema([("bucket", pa.int32()), ("block", pa.binary())])
BLOCKS_TEXT = "bucket int, block binary"
COLUMNS = ("stream", "seq", "ts", "subject", "headers", "data")
BLOCK_ROWS, BLOCK_BYTES = 64 * 1024, 32 * 2**20


def shared(batches: Iterable[pa.RecordBatch], buckets: int) -> Iterator[pa.RecordBatch]:
    """Batches with `COLUMNS` as blocks, a few for each bucket."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= BLOCK_ROWS or size >= BLOCK_BYTES:
            yield blocks(pa.Table.from_batches(held), buckets)
            held, rows, size = [], 0, 0
    if rows:
        yield blocks(pa.Table.from_batches(held), buckets)


def blocks(messages: pa.Table, buckets: int) -> pa.RecordBatch:
    """One block for each bucket that has some of the messages."""
    messages = messages.select(COLUMNS)
    subjects = pc.fill_null(messages["subject"], "").combine_chunks()
    bucket = buckets_of(subjects, buckets)
    columns = [*messages.columns, pa.array(bucket)]
    columns[COLUMNS.index("subject")] = subjects
    table = pa.table(columns, names=MESSAGES.names).cast(MESSAGES).combine_chunks()
    order = np.argsort(bucket, kind="stable")
    found, starts = np.unique(bucket[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    packed = [
        pack(table.take(pa.array(order[start:end])))
        for start, end in zip(starts.tolist(), ends, strict=True)
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(found, pa.int32()), pa.array(packed, pa.binary())], schema=BLOCKS
    )


def pack(table: pa.Table) -> bytes:
    """A block."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(block: pa.BinaryScalar) -> Iterator[pa.RecordBatch]:
    """The messages of a block; its bytes are not copied."""
    with pa.ipc.open_stream(block.as_buffer()) as reader:
        yield from reader


def blocks_of(rows: DataFrame, buckets: int) -> DataFrame:
    """The blocks of a frame: it has them, or has the columns of ``format("jetstream")``."""
    if rows.columns == BLOCKS.names:
        return rows
    from pyspark.sql import functions as F  # noqa: N812  the customary name

    if "headers" not in rows.columns:
        rows = rows.withColumn("headers", F.lit(None).cast("map<string, array<string>>"))

    def share(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return shared(batches, buckets)

    return rows.select(*COLUMNS).mapInArrow(share, BLOCKS_TEXT)


class BatchBlocks(JetStreamReader):
    """A batch read of a stream, as blocks."""

    def __init__(self, options: Options, buckets: int) -> None:
        """Sends no request."""
        super().__init__(options)
        self._buckets = buckets

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The blocks of a partition."""
        yield from shared(super().read(partition), self._buckets)


class StreamBlocks(JetStreamStreamReader):
    """A streaming read of a stream, as blocks."""

    def __init__(self, options: Options, buckets: int) -> None:
        """Sends no request."""
        super().__init__(options)
        self._buckets = buckets

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The blocks of a partition."""
        yield from shared(super().read(partition), self._buckets)


class HubMessages(DataSource):
    """``format("plgd_messages")``: the options of ``format("jetstream")``, and ``buckets``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> str:
        """A bucket and its block."""
        return BLOCKS_TEXT

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the stream's messages."""
        del schema
        return BatchBlocks(*parsed(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """A reader that follows the stream."""
        del schema
        return for_this_spark(StreamBlocks(*parsed(self.options, streaming=True)))


def parsed(given: Mapping[str, str], *, streaming: bool) -> tuple[Options, int]:
    """The options of the stream, and the number of buckets."""
    mine = {"buckets", "columns", "includeheaders", "metadata"}
    of_stream: dict[str, Any] = {k: v for k, v in given.items() if k.lower() not in mine}
    told = {name.lower(): text for name, text in given.items()}.get("buckets", "")
    if not told.isdigit():
        raise OptionError(f"option buckets is a number, not {told!r}")
    of_stream["columns"] = ", ".join(COLUMNS)
    return parse_options(of_stream, streaming=streaming), int(told)
