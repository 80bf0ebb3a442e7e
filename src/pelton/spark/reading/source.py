"""The data source of ``format("jetstream")`` that Spark calls for reads, and batch reads.

A data source and a batch reader live as long as one read is planned, a streaming reader
(:mod:`pelton.spark.reading.streaming`) as long as its query; so only the latter may keep state.

No reader has ``pushFilters``. Spark (4.2, 4.3) keeps the filtered reader with the DataFrame that was
loaded, so another use of the DataFrame, in a later query or the same one, would read only the
filtered rows, and the reader cannot tell (:func:`pelton.spark.parsing.no_pushdown`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pelton.spark.connection import ReadError
from pelton.spark.parsing import OptionError
from pelton.spark.reading.batches import refuse_loss
from pelton.spark.reading.lookups import Lookups
from pelton.spark.reading.offsets import Offset, Range, resolve_end, resolve_start, what_is_next
from pelton.spark.reading.options import parse_options
from pelton.spark.reading.partitions import Part
from pelton.spark.reading.positions import EARLIEST, LATEST, Position
from pelton.spark.reading.schema import filter_of, projected, range_of, schema_text, subjects_of
from pelton.spark.reading.tasks import PartitionReader, partitions_of
from pelton.spark.writing.sink import StreamSink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

    from pelton.spark.reading.offsets import StreamState
    from pelton.spark.reading.options import Options


class JetStreamDataSource(StreamSink):
    """``spark.read`` and ``spark.readStream`` ``.format("jetstream")``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "jetstream"

    def schema(self) -> str:
        """The columns that the options ask for."""
        return schema_text(parse_options(self.options, streaming=True))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the messages that the streams have when the query runs."""
        options = projected(parse_options(self.options, streaming=False), schema)
        filter_of(options)  # a fault of it is told now
        return JetStreamReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """A reader that follows the streams as they grow."""
        from pelton.spark.older import for_this_spark
        from pelton.spark.reading.streaming import JetStreamStreamReader

        options = projected(parse_options(self.options, streaming=True), schema)
        if options.where:
            raise OptionError("where is for batch reads; a stream takes Spark's where()")
        ends = options.ending_offsets is not None
        return for_this_spark(JetStreamStreamReader(options), ends=ends)


class JetStreamReader(PartitionReader, DataSourceReader):
    """A batch read: its ranges are fixed when Spark plans it."""

    def __init__(self, options: Options) -> None:
        """Sends no request."""
        self._options = options
        self._lookups = Lookups(options)

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges between the two positions of each stream, cut into partitions."""
        options = self._options
        states = self._lookups.required_states()
        if not states:
            raise ReadError(f"there are no {options.described()} on {options.servers}")
        for positions in filter(None, (options.starting_offsets, options.ending_offsets)):
            for name in positions.streams:
                if name not in states:
                    raise OptionError(f"offsets are given for {name}, but there is no such stream")
        parts = [
            Part(name, state.born, self._range(state), state.mean_bytes)
            for name, state in sorted(states.items())
        ]
        return partitions_of(parts, options, subjects_of(options))

    def _range(self, state: StreamState) -> Range:
        options = self._options
        start = options.starting_offsets.of(state.stream, Position(word=EARLIEST))
        end = Position(word=LATEST)
        if options.ending_offsets is not None:
            end = options.ending_offsets.of(state.stream, end)
        after = resolve_start(start, state, self._lookups.at_position(state, start))
        last = resolve_end(end, state, self._lookups.at_position(state, end))
        lowest, highest = range_of(options)
        first, last = max(after + 1, state.first_seq, lowest), min(last, highest)
        if start.sequence is not None:
            step = what_is_next(Offset(state.stream, after, state.born), state)
            if step.problem and options.fail_on_data_loss:
                refuse_loss([f"stream {state.stream} {step.problem}"])
            first = max(step.range.first, lowest)
        if first <= last and (subjects := subjects_of(options)):
            last = min(last, self._lookups.end(state, subjects))
        return Range(first, last)
