"""The classes Spark calls for ``format("jetstream")``.

Where each of them lives decides what it may keep: a streaming reader answers ``latestOffset`` and
``partitions`` in one process for as long as the query runs, but ``read`` is called on a pickled
copy in workers. So everything ``read`` needs is in the partition, and nothing depends on ``stop``,
which Spark does not always call.

All decisions are made in :mod:`penstock.spark.offsets`, all requests in
:mod:`penstock.spark.connection`, and messages become rows in :mod:`penstock.spark.ranges`; this
module only carries one to the other.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

from penstock.spark.lag import shadow_of
from penstock.spark.offsets import (
    Offset,
    Range,
    admit,
    continue_from,
    cut,
    resolve_end,
    resolve_start,
    worth_a_batch,
)
from penstock.spark.options import EARLIEST, LATEST, Position, parse_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from penstock.spark.offsets import StreamState
    from penstock.spark.options import Options

# How long latestOffset waits for something new before it says that there is nothing. Without it
# Spark asks a hundred times per second.
_POLL_SECONDS = 0.25
_POLL_EVERY_SECONDS = 0.05

_COLUMNS = "stream string, seq long, subject string, ts timestamp"
_HEADERS = "headers map<string,array<string>>"


@dataclass(frozen=True)
class StreamPartition(InputPartition):
    """A range of one life of a stream, and how to read it."""

    options: Options
    born: str
    range: Range


class JetStreamDataSource(DataSource):
    """``spark.read`` and ``spark.readStream`` ``.format("jetstream")``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "jetstream"

    def schema(self) -> str:
        """The columns; headers only when they are asked for."""
        asked = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return ", ".join([_COLUMNS, *([_HEADERS] if asked else []), "data binary"])

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of what is in the stream when the query runs."""
        return JetStreamReader(parse_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """A reader that goes on as the stream grows."""
        return JetStreamStreamReader(parse_options(self.options, streaming=True))


class _RangeReader:
    """``read``, which batch and streaming have in common."""

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The messages of a partition as Arrow batches; Spark gives a batch read without partitions
        a None.
        """
        from penstock.spark.ranges import read_range

        if isinstance(partition, StreamPartition):
            yield from read_range(partition.options, partition.born, partition.range)


class JetStreamReader(_RangeReader, DataSourceReader):
    """A batch read: the range is fixed when Spark plans it."""

    def __init__(self, options: Options) -> None:
        """Nothing is asked yet."""
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The range between the two positions, cut."""
        from penstock.spark.connection import stream_state

        options = self._options
        state = stream_state(options)
        start = options.starting_offsets or Position(word=EARLIEST)
        end = options.ending_offsets or Position(word=LATEST)
        after = resolve_start(start, state, _sequence_at(options, start))
        last = resolve_end(end, state, _sequence_at(options, end))
        if start.sequence is not None:
            whole = continue_from(
                Offset(state.stream, after, state.born),
                state,
                fail_on_data_loss=options.fail_on_data_loss,
            )
        else:
            whole = Range(max(after + 1, state.first_seq), state.last_seq)
        ranges = cut(Range(whole.first, min(whole.last, last)), options)
        return [StreamPartition(options, state.born, part) for part in ranges]


class JetStreamStreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read: micro-batches from one sequence to the next."""

    def __init__(self, options: Options) -> None:
        """Nothing is asked yet."""
        self._options = options
        self._shadow = shadow_of(options)
        self._bound: int | None = None
        self._available_now = False
        self._state: StreamState | None = None
        self._batch_at = time.monotonic()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Fix the end of the run: what comes later is for the next one."""
        self._available_now = True
        self._bound = self._end(self._look())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """No limit of Spark's: our own are applied in :meth:`latestOffset`."""
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Where a query without a checkpoint begins."""
        position = self._options.starting_offsets or Position(word=LATEST)
        state = self._look()
        at_time = _sequence_at(self._options, position)
        seq = resolve_start(position, state, at_time)
        return Offset(state.stream, seq, state.born).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The end of the next micro-batch: behind ``start``, or ``start`` itself when there is
        nothing to do.

        Waits a moment for messages when there are none, so that idle queries ask the server a few
        times per second.
        """
        begin = Offset.from_json(start)
        self._shadow_follows(begin)
        deadline = time.monotonic() + (0.0 if self._available_now else _POLL_SECONDS)
        while True:
            end = self._next_end(begin)
            left = deadline - time.monotonic()
            if end != begin or left <= 0:
                break
            time.sleep(min(_POLL_EVERY_SECONDS, left))
        if end != begin:
            self._batch_at = time.monotonic()
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  Spark's name
        """The end of the stream when last looked at; Spark shows it in the query's progress."""
        state = self._state
        return None if state is None else Offset(state.stream, state.last_seq, state.born).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The range between two offsets, cut. The same for the same offsets, so that a batch can be
        run again.
        """
        begin, goal = Offset.from_json(start), Offset.from_json(end)
        state = self._look()
        if goal.born != state.born or (goal.born == begin.born and goal.seq <= begin.seq):
            # The batch was planned of a stream that is gone; continue_from says so, or lets it be
            # empty.
            self._continue(begin, state)
            return []
        whole = self._continue(begin, state)
        ranges = cut(Range(whole.first, goal.seq), self._options)
        return [StreamPartition(self._options, state.born, part) for part in ranges]

    def commit(self, end: dict[str, Any]) -> None:
        """Spark is done with what is up to ``end``, a batch late: the shadow may follow."""
        self._shadow_follows(Offset.from_json(end))

    def stop(self) -> None:
        """Nothing to give back: the process ends."""

    def _shadow_follows(self, committed: Offset) -> None:
        if self._shadow is not None:
            self._shadow.advance({committed.stream: committed})

    def _next_end(self, begin: Offset) -> Offset:
        state = self._look()
        available = self._continue(begin, state)
        bound = self._end(state)
        if self._bound is not None:
            bound = min(bound, self._bound)
        available = replace(available, last=min(available.last, bound))
        waited = float("inf") if self._available_now else time.monotonic() - self._batch_at
        if not worth_a_batch(available, waited, self._options):
            moved = begin.born != state.born or begin.seq > state.last_seq
            return Offset(state.stream, state.last_seq, state.born) if moved else begin
        return Offset(state.stream, admit(available, state, self._options), state.born)

    def _continue(self, begin: Offset, state: StreamState) -> Range:
        whole = continue_from(begin, state, fail_on_data_loss=self._options.fail_on_data_loss)
        if begin.born != state.born or not begin.seq < whole.first <= begin.seq + 1:
            warnings.warn(
                f"stream {state.stream}: messages after {begin.seq} are gone;"
                f" going on with {whole.first}",
                stacklevel=2,
            )
        return whole

    def _look(self) -> StreamState:
        from penstock.spark.connection import stream_state

        self._state = stream_state(self._options)
        return self._state

    def _end(self, state: StreamState) -> int:
        from penstock.spark.connection import end_of_subject

        return end_of_subject(self._options, state)


def _sequence_at(options: Options, position: Position) -> int | None:
    from penstock.spark.connection import sequence_at

    return None if position.time is None else sequence_at(options, position.time)
