"""What Spark 4.0 and 4.1 lack, for the readers and writers that are written for 4.2.

It is looked for and not concluded from the version, because Spark of a vendor may have more.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    from pyspark.sql.types import StructType

    TELLS_START = True
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
    except ImportError:  # Spark 4.0 gives Arrow batches to all that is a DataSourceArrowWriter

        class StreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
            """A writer of micro-batches that gets Arrow batches."""

    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

        TELLS_START = True
    except ImportError:  # Spark 4.0 and 4.1

        class SupportsTriggerAvailableNow:
            """Without a meaning: such a Spark runs one micro-batch."""

        TELLS_START = False

__all__ = [
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "for_this_spark",
    "from_arrow",
    "to_arrow",
]


def to_arrow(schema: StructType) -> pa.Schema:
    """Spark's schema in the types of Arrow, times in UTC."""
    # Until 4.1 the argument is another one, whose default is UTC.
    has_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    zone: dict[str, Any] = {"timezone": "UTC"} if has_zone else {}
    return to_arrow_schema(schema, **zone)


def from_arrow(schema: pa.Schema) -> StructType:
    """A schema of Arrow in Spark's types; times without a zone stay so, as is the default since 4.2."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def for_this_spark(reader: DataSourceStreamReader, *, ends: bool = False) -> DataSourceStreamReader:
    """The reader as the installed Spark can call it; ``ends`` is whether its options name an end."""
    return reader if TELLS_START else WithoutStart(reader, ends=ends)


class WithoutStart(DataSourceStreamReader):
    """A reader whose ``latestOffset`` is not told where the micro-batch begins.

    It begins where the one before was planned to end. After a restart Spark plans an empty batch
    at the newest offset of the checkpoint before it asks for anything else.
    """

    def __init__(self, reader: DataSourceStreamReader, *, ends: bool = False) -> None:
        """Calls nothing."""
        self._reader: Any = reader
        self._ends = ends
        self._first: dict[str, Any] | None = None
        self._at: dict[str, Any] | None = None
        self._begin: dict[str, Any] | None = None
        self._end: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The first offset; Spark asks for it after the first ``latestOffset``."""
        # Also asked for by a restart that repeats the first batch, which is planned to end elsewhere.
        if self._first is None:
            self._first = self._reader.initialOffset()
        return self._first

    def latestOffset(self, start: object = None, limit: object = None) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The end of the next micro-batch."""
        if self._ends:
            self._reader.prepareForTriggerAvailableNow()
            self._ends = False
        self._begin = self.initialOffset() if self._at is None else self._at
        self._end = self._reader.latestOffset(self._begin, None)
        return self._end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The parts of a micro-batch."""
        if end == self._end and start not in (self._begin, end):
            raise RuntimeError(
                f"Spark has not said that the checkpoint is at {start}: set"
                " spark.sql.streaming.triggerAvailableNowWrapper.enabled to false, and remove the"
                " newest file of the checkpoint's folder offsets"
            )
        self._at = end
        parts: Sequence[InputPartition] = self._reader.partitions(start, end)
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        rows: Iterator[pa.RecordBatch] = self._reader.read(partition)
        return rows

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has processed all up to ``end``."""
        self._reader.commit(end)

    def stop(self) -> None:
        """The query has ended."""
        self._reader.stop()
