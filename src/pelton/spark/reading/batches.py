"""The end of the next micro-batch over all streams of a query, as plain functions.

``maxOffsetsPerTrigger`` and ``maxBytesPerTrigger`` are shared fairly: a stream gets less than another
one only when it has no more messages. When the limit is less than one message per stream, the
streams take turns; the turn follows from the offsets, so it survives restarts.

Does not depend on Spark, and does no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pelton.spark.reading.offsets import (
    TO_GO_ON,
    DataLossError,
    Offset,
    Offsets,
    Range,
    what_is_next,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pelton.spark.reading.offsets import StreamState
    from pelton.spark.reading.options import Options


@dataclass(frozen=True)
class Available:
    """The messages that the streams hold behind an offset, as one range for each stream.

    ``moved`` names the streams whose range does not begin right behind the offset; ``problems`` are
    sentences about messages that can't be read any more.
    """

    ranges: dict[str, Range]
    moved: frozenset[str]
    problems: tuple[str, ...] = ()

    def __len__(self) -> int:
        """The number of sequences of all streams."""
        return sum(len(each) for each in self.ranges.values())


@dataclass(frozen=True)
class View:
    """The state of the streams when a batch is planned.

    ``states`` has the selected streams that exist. ``ends`` has the sequence up to which a stream may be
    read, where that is less than its last sequence. ``passed`` is the argument of
    :func:`pelton.spark.reading.offsets.what_is_next`, by stream.
    """

    states: Mapping[str, StreamState]
    ends: Mapping[str, int] = field(default_factory=dict)
    passed: Mapping[str, int] = field(default_factory=dict)


def available(begin: Mapping[str, Offset], view: View) -> Available:
    """The ranges to read behind ``begin``.

    A stream that ``begin`` does not have joins; a stream of ``begin`` that is gone is a problem.
    """
    ranges, moved = {}, set()
    problems = [
        f"stream {name}, read up to {begin[name].seq}, is not there any more, or not asked for"
        for name in sorted(begin.keys() - view.states.keys())
    ]
    for name, state in sorted(view.states.items()):
        step = what_is_next(begin.get(name), state, view.passed.get(name, 0))
        last = min(step.range.last, view.ends.get(name, state.last_seq))
        ranges[name] = Range(step.range.first, max(last, step.range.first - 1))
        if step.moved:
            moved.add(name)
        if step.problem:
            problems.append(f"stream {name} {step.problem}")
    return Available(ranges, frozenset(moved), tuple(problems))


def refuse_loss(problems: Sequence[str]) -> None:
    """Raise :class:`DataLossError` when there is a problem."""
    if problems:
        raise DataLossError(f"{'; '.join(problems)}. {TO_GO_ON}")


def worth_a_batch(sequences: int, waited_seconds: float, options: Options) -> bool:
    """Whether minOffsetsPerTrigger is met, or maxTriggerDelay is over; False when there is nothing
    to read.
    """
    if not sequences:
        return False
    least = options.min_offsets_per_trigger
    return (
        least is None or sequences >= least or waited_seconds >= options.max_trigger_delay_seconds
    )


def share(wanted: Sequence[int], total: int, turn: int) -> list[int]:
    """Divide ``total`` among streams that want ``wanted`` each, as evenly as possible.

    All of ``total`` is given out as long as a stream wants more. The remainder goes to the streams from
    ``turn`` on, one each.
    """
    if sum(wanted) <= total:
        return list(wanted)
    level, left, waiting = 0, total, sorted(want for want in wanted if want)
    for done, want in enumerate(waiting):
        level = left // (len(waiting) - done)
        if want > level:
            break
        left -= want
    given = [min(want, level) for want in wanted]
    left = total - sum(given)
    for step in range(len(wanted)):
        place = (turn + step) % len(wanted)
        if left and wanted[place] > level:
            given[place] += 1
            left -= 1
    return given


def admit(found: Available, begin: Mapping[str, Offset], view: View, options: Options) -> list[int]:
    """The number of sequences of each range, in order of the streams' names, for the next batch.

    Bytes are estimated from the mean size of a stored message, so the limit holds on average, not for
    each batch. A stream that has a share of maxOffsetsPerTrigger gives at least one message, so that a
    query never stands still.
    """
    names = sorted(found.ranges)
    rows = [len(found.ranges[name]) for name in names]
    if not names:
        return rows
    turn = sum(offset.seq for offset in begin.values()) % len(names)
    if options.max_offsets_per_trigger is not None:
        rows = share(rows, options.max_offsets_per_trigger, turn)
    if options.max_bytes_per_trigger is not None:
        means = [view.states[name].mean_bytes for name in names]
        sizes = [count * mean for count, mean in zip(rows, means, strict=True)]
        parts = share(sizes, options.max_bytes_per_trigger, turn)
        rows = [
            min(count, max(1, part // mean))
            for count, part, mean in zip(rows, parts, means, strict=True)
        ]
    return rows


def next_end(
    begin: Mapping[str, Offset], view: View, waited_seconds: float, options: Options
) -> Offsets:
    """The end of the next micro-batch; at the same places as ``begin`` when there is nothing to do.

    Losses raise nothing here (see :func:`refuse_loss`): the end begins again where it has to. Such an end
    is written down at once, also when the batch has no rows yet, so that messages that come later are
    not mistaken for messages that were read already.
    """
    found = available(begin, view)
    names = sorted(found.ranges)
    if worth_a_batch(len(found), waited_seconds, options):
        taken = dict(zip(names, admit(found, begin, view, options), strict=True))
    else:
        taken = dict.fromkeys(names, 0)
    end: Offsets = {}
    for name in names:
        state, first = view.states[name], found.ranges[name].first
        joins = name not in begin
        if joins and not found.ranges[name]:
            continue  # the stream joins at its first message
        if taken[name] or (name in found.moved and (joins or not _same_life(begin[name], state))):
            begins = first if name in found.moved else None
            end[name] = Offset(name, first - 1 + taken[name], state.born, begins)
            if options.max_bytes_per_partition is not None:
                end[name] = replace(end[name], mean_bytes=state.mean_bytes)
        else:
            end[name] = begin[name].bare()
    return end


def _same_life(offset: Offset, state: StreamState) -> bool:
    """Whether the stream is the one of the offset and has not gone back behind it."""
    return offset.born == state.born and offset.seq <= state.last_seq


def moved_on(begin: Mapping[str, Offset], view: View) -> Offsets:
    """The end of a batch without rows that moves over sequences which hold nothing for the reader.

    Otherwise the reader would take them for lost when they are removed while the query does not run.
    """
    end: Offsets = {}
    for name, offset in begin.items():
        seq = view.passed.get(name, 0)
        end[name] = Offset(name, seq, offset.born, seq + 1) if seq > offset.seq else offset.bare()
    return end


def same_places(left: Mapping[str, Offset], right: Mapping[str, Offset]) -> bool:
    """Whether two offsets are at the same sequences of the same lives of the same streams."""
    return left.keys() == right.keys() and all(
        left[name].place == right[name].place for name in left
    )


def batch_ranges(begin: Mapping[str, Offset], end: Mapping[str, Offset]) -> dict[str, Range]:
    """The range of each stream that a batch reads, from its two offsets alone; without empty
    ranges.
    """
    ranges = {}
    for name, goal in sorted(end.items()):
        start = begin.get(name)
        first = goal.begin
        if first is None:
            first = start.seq + 1 if start is not None and start.born == goal.born else 1
        if first <= goal.seq:
            ranges[name] = Range(first, goal.seq)
    return ranges


def empty_below(begin: Mapping[str, Offset], goal: Offset) -> int:
    """The sequence below which a batch that ends at ``goal`` was seen to hold nothing, or 0."""
    start = begin.get(goal.stream)
    if start is None or start.born != goal.born or start.next is None:
        return 0
    return start.next


def batch_problems(
    begin: Mapping[str, Offset],
    ranges: Mapping[str, Range],
    end: Mapping[str, Offset],
    states: Mapping[str, StreamState],
) -> list[str]:
    """Sentences about the ranges of a planned batch that cannot be read any more."""
    problems = []
    for name, wanted in ranges.items():
        state, goal = states.get(name), end[name]
        if state is None:
            problems.append(
                f"stream {name}, to be read from {wanted.first} to {wanted.last}, is not there any"
                " more"
            )
            continue
        passed = min(empty_below(begin, goal) - 1, wanted.last)
        step = what_is_next(Offset(name, wanted.first - 1, goal.born), state, passed)
        if step.problem:
            problems.append(f"stream {name} {step.problem}")
        elif state.last_seq < goal.seq:
            problems.append(f"stream {name} ends at sequence {state.last_seq}, not at {goal.seq}")
    return problems
