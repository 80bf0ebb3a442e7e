"""The streaming reader of ``format("jetstream")``: micro-batches from one offset to the next.

The reader lives on the driver, in one process, as long as the query runs; only the offsets outlive
it. :mod:`pelton.spark.reading.batches` makes all decisions, from what
:mod:`pelton.spark.reading.lookups` asks the server.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pelton.spark.filling import next_end as next_end_again
from pelton.spark.older import SupportsTriggerAvailableNow
from pelton.spark.parsing import OptionError
from pelton.spark.reading.batches import (
    View,
    available,
    batch_problems,
    batch_ranges,
    empty_below,
    moved_on,
    next_end,
    refuse_loss,
    same_places,
)
from pelton.spark.reading.lookups import Lookups
from pelton.spark.reading.offsets import (
    Offset,
    offsets_from_json,
    offsets_to_json,
    resolve_end,
    resolve_start,
)
from pelton.spark.reading.partitions import Part
from pelton.spark.reading.positions import LATEST, Position
from pelton.spark.reading.tasks import PartitionReader, partitions_of
from pelton.spark.watching.lag import shadow_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.streaming.datasource import ReadLimit

    from pelton.spark.reading.offsets import Offsets, StreamState
    from pelton.spark.reading.options import Options

# How long latestOffset waits for new messages before it returns. Without a wait Spark calls it a
# hundred times per second.
_POLL_SECONDS = 0.25
_POLL_EVERY_SECONDS = 0.05
# Checking many streams may take long: the checks get at most a fifth of the time.
_REST_FACTOR = 4.0
# With filters that match nothing, an offset that stays behind would look like a loss after a
# restart. This often a batch without rows moves it on.
_MOVE_ON_SECONDS = 60.0


class JetStreamStreamReader(PartitionReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read of one stream, of several, or of those that match a pattern."""

    def __init__(self, options: Options) -> None:
        """Sends no request."""
        self._options = options
        self._lookups = Lookups(options)
        self._shadow = shadow_of(options)
        self._bound: dict[str, Offset] | None = None
        self._states: dict[str, StreamState] | None = None
        self._passed: dict[str, Offset] = {}
        self._batch_at = time.monotonic()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Fix the end of the run: later messages are for the next run."""
        self._bound = {
            state.stream: Offset(state.stream, self._ending(state), state.born)
            for state in self._look().values()
        }

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """No limit from Spark: :meth:`latestOffset` applies the limits of the options."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The offset at which a query without a checkpoint begins."""
        options = self._options
        states = self._lookups.required_states()
        for name in options.starting_offsets.streams:
            if name not in states:
                raise OptionError(f"startingOffsets is for {name}, but there is no such stream")
        begin = {}
        for name, state in states.items():
            position = options.starting_offsets.of(name, Position(word=LATEST))
            at = self._lookups.at_position(state, position)
            begin[name] = Offset(name, resolve_start(position, state, at), state.born)
        self._shadow_follows(begin)
        return self._json(begin)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The end of the next micro-batch; ``start`` itself when there is nothing to do.

        A batch that fills a hole ends where it ended before. Waits a moment for messages when there are
        none, so that idle queries ask the server only a few times per second.
        """
        begin = self._offsets(start)
        self._shadow_follows(begin)
        if self._options.ending_offsets is not None and self._bound is None:
            raise OptionError(
                "endingOffsets is for batch reads and Trigger.AvailableNow; this query has no end"
            )
        if (again := next_end_again(start)) is not None:
            self._batch_at = time.monotonic()
            return again
        deadline = time.monotonic() + (0.0 if self._bound is not None else _POLL_SECONDS)
        while True:
            looked_at = time.monotonic()
            end = self._next_end(begin)
            now = time.monotonic()
            if not same_places(begin, end) or now >= deadline:
                break
            rest = max(_POLL_EVERY_SECONDS, _REST_FACTOR * (now - looked_at))
            time.sleep(min(rest, deadline - now))
        if same_places(begin, end):
            return start
        self._batch_at = time.monotonic()
        return self._json(self._with_next(begin, end))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  Spark's name
        """The ends of all streams at the last check; Spark shows them in the query's progress."""
        if self._states is None:
            return None
        return self._json(
            {name: Offset(name, state.last_seq, state.born) for name, state in self._states.items()}
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges between two offsets, cut into partitions.

        The same offsets give the same partitions, so that a batch can run again.
        """
        begin, goal = self._offsets(start), self._offsets(end)
        ranges = batch_ranges(begin, goal)
        states = self._look(goal)
        self._tell(batch_problems(begin, ranges, goal, states))
        parts = [
            Part(
                name,
                goal[name].born,
                wanted,
                goal[name].mean_bytes,
                empty_below(begin, goal[name]),
            )
            for name, wanted in ranges.items()
            if name in states and states[name].born == goal[name].born
        ]
        return partitions_of(parts, self._options, self._options.subjects)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has processed all up to ``end``, and reports it one batch late: the shadow may
        follow.
        """
        self._shadow_follows(self._offsets(end))

    def stop(self) -> None:
        """Nothing to release: the process ends."""

    def _shadow_follows(self, committed: Offsets) -> None:
        if self._shadow is not None:
            self._shadow.advance(committed)

    def _next_end(self, begin: Offsets) -> Offsets:
        states = self._look(begin)
        if self._bound is not None:
            # A run with a fixed end takes nothing of streams that were created later.
            states = {name: each for name, each in states.items() if name in {*begin, *self._bound}}
        ends = {name: self._end(state) for name, state in states.items()}
        view = View(states, ends, self._passed_by(begin, states, ends))
        found = available(begin, view)
        self._tell(found.problems)
        waited = time.monotonic() - self._batch_at
        if self._bound is not None:
            return next_end(begin, view, float("inf"), self._options)
        end = next_end(begin, view, waited, self._options)
        if self._options.subjects and waited >= _MOVE_ON_SECONDS and same_places(begin, end):
            return moved_on(begin, view)
        return end

    def _with_next(self, begin: Offsets, end: Offsets) -> Offsets:
        """The end of a batch; with holes or filters, also the next message behind it."""
        states = self._states or {}
        found = {}
        for name, offset in end.items():
            state = states.get(name)
            if state is not None and (name not in begin or offset.place != begin[name].place):
                seq = self._lookups.next_behind(state, offset.seq, self._options.subjects)
                offset = replace(offset, next=seq)
            found[name] = offset
        return found

    def _passed_by(
        self, begin: Offsets, states: Mapping[str, StreamState], ends: Mapping[str, int]
    ) -> dict[str, int]:
        """The sequence of each stream up to which it has nothing for the filters behind ``begin``."""
        for name, offset in begin.items() if self._bound is None else ():
            state = states.get(name)
            if state is None or state.born != offset.born or ends[name] > offset.seq:
                continue
            known = self._passed.get(name)
            passed = offset.passed
            if known is not None and known.born == offset.born:
                passed = max(passed, known.seq)
            # The filters were asked for after the state was read: the answer counts only if nothing
            # was removed in between.
            if state.last_seq > passed and self._lookups.begins_by(state, passed + 1):
                self._passed[name] = Offset(name, state.last_seq, state.born)
        return {
            name: passed.seq
            for name, passed in self._passed.items()
            if name in begin and passed.born == begin[name].born
        }

    def _end(self, state: StreamState) -> int:
        """The sequence up to which a stream may be read now."""
        if self._bound is None:
            return self._lookups.end(state, self._options.subjects)
        bound = self._bound.get(state.stream)
        return bound.seq if bound is not None and bound.born == state.born else 0

    def _ending(self, state: StreamState) -> int:
        """The sequence up to which a run with a fixed end reads a stream."""
        end = self._lookups.end(state, self._options.subjects)
        if self._options.ending_offsets is None:
            return end
        position = self._options.ending_offsets.of(state.stream, Position(word=LATEST))
        at = self._lookups.at_position(state, position)
        return min(end, resolve_end(position, state, at))

    def _look(self, known: Mapping[str, object] | None = None) -> dict[str, StreamState]:
        self._states = self._lookups.states(known or ())
        return self._states

    def _offsets(self, value: dict[str, Any]) -> Offsets:
        offsets = offsets_from_json(value)
        if offsets and not any(self._options.selects(name) for name in offsets):
            raise ValueError(
                f"the checkpoint is of {', '.join(offsets)}, not of {self._options.described()}:"
                " use another one"
            )
        return offsets

    def _json(self, offsets: Offsets) -> dict[str, Any]:
        return offsets_to_json(offsets, one_stream=self._options.one_stream)

    def _tell(self, problems: Sequence[str]) -> None:
        """Raise for a loss, or warn and go on, as the options say."""
        if self._options.fail_on_data_loss:
            refuse_loss(problems)
        for problem in problems:
            warnings.warn(
                f"{problem}; the query goes on with the messages that are left", stacklevel=2
            )
