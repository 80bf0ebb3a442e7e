"""What Spark calls for ``format("jetstream")`` to read: the data source, and batch reads.

Where each class lives decides what it may keep: a data source and a batch reader live as long as
one read is planned, a streaming reader (:mod:`penstock.spark.reading.streaming`) as long as its query.

What ``where()`` says reaches a batch reader only when its class has ``pushFilters``; but Spark then
refuses every read unless ``spark.sql.python.filterPushdown.enabled`` is true. So there are two
classes of reader, and the option ``pushdown`` takes the one that has it. Nobody gets it without
asking: Spark (4.2, 4.3) keeps what a filter has left of a DataFrame that was loaded, and a later
query of the same DataFrame that has no filter reads only that, without a word to us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.spark.connection import ReadError
from penstock.spark.parsing import OptionError
from penstock.spark.reading.batches import refuse_loss
from penstock.spark.reading.lookups import Lookups
from penstock.spark.reading.offsets import Offset, Range, resolve_end, resolve_start, what_is_next
from penstock.spark.reading.options import parse_options
from penstock.spark.reading.partitions import Part
from penstock.spark.reading.positions import EARLIEST, LATEST, Position
from penstock.spark.reading.pushdown import Wanted, narrowed
from penstock.spark.reading.schema import projected, schema_text
from penstock.spark.reading.tasks import PartitionReader, partitions_of
from penstock.spark.writing.sink import StreamSink

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql.datasource import DataSourceStreamReader, Filter
    from pyspark.sql.types import StructType

    from penstock.spark.reading.offsets import StreamState
    from penstock.spark.reading.options import Options


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
        """A reader of what is in the streams when the query runs."""
        options = projected(parse_options(self.options, streaming=False), schema)
        return PushdownReader(options) if options.pushdown else JetStreamReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """A reader that goes on as the streams grow."""
        from penstock.spark.reading.streaming import JetStreamStreamReader

        return JetStreamStreamReader(projected(parse_options(self.options, streaming=True), schema))


class JetStreamReader(PartitionReader, DataSourceReader):
    """A batch read: its ranges are fixed when Spark plans it."""

    def __init__(self, options: Options) -> None:
        """Nothing is asked yet."""
        self._options = options
        self._lookups = Lookups(options)
        self._wanted = Wanted(options.subjects or None)

    def partitions(self) -> Sequence[InputPartition]:
        """The ranges between the two positions of each stream, cut."""
        options, wanted = self._options, self._wanted
        states = self._lookups.required_states()
        if not states:
            raise ReadError(f"there are no {options.described()} on {options.servers}")
        for positions in filter(None, (options.starting_offsets, options.ending_offsets)):
            for name in positions.streams:
                if name not in states:
                    raise OptionError(f"offsets are given for {name}, but there is no such stream")
        if wanted.subjects == ():
            return []
        parts = [
            Part(name, state.born, self._range(state), state.mean_bytes)
            for name, state in sorted(states.items())
            if wanted.streams is None or name in wanted.streams
        ]
        return partitions_of(parts, options, wanted.subjects or ())

    def _range(self, state: StreamState) -> Range:
        options, wanted = self._options, self._wanted
        start = options.starting_offsets.of(state.stream, Position(word=EARLIEST))
        end = Position(word=LATEST)
        if options.ending_offsets is not None:
            end = options.ending_offsets.of(state.stream, end)
        after = resolve_start(start, state, self._lookups.at_position(state, start))
        last = resolve_end(end, state, self._lookups.at_position(state, end))
        first = max(after + 1, state.first_seq)
        if start.sequence is not None:
            step = what_is_next(Offset(state.stream, after, state.born), state)
            if step.problem and options.fail_on_data_loss:
                refuse_loss([f"stream {state.stream} {step.problem}"])
            first = step.range.first
        first = max(first, wanted.first_seq)
        last = min(last, wanted.last_seq)
        if first <= last and wanted.not_before is not None:
            at = self._lookups.sequence_at(state, wanted.not_before)
            first = max(first, state.last_seq + 1 if at is None else at)
        if first <= last and wanted.not_after is not None:
            at = self._lookups.sequence_at(state, wanted.not_after)
            last = min(last, state.last_seq if at is None else at - 1)
        if first <= last and wanted.subjects is not None:
            last = min(last, self._lookups.end(state, wanted.subjects))
        return Range(first, last)


class PushdownReader(JetStreamReader):
    """A batch read that asks the server for less where ``where()`` wants less: right for one query
    of each DataFrame that is loaded.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Take over what can be; returns what Spark still has to look at for each row."""
        self._wanted, left = narrowed(self._wanted, filters)
        return left
