"""How far the next micro-batch goes, over all streams of a query; as plain functions.

``maxOffsetsPerTrigger`` and ``maxBytesPerTrigger`` are shared fairly: no stream gets less than
another one unless it has no more to give, and where there is not enough for one message each, they
take turns. Whose turn it is follows from the offsets, so it survives restarts.

Knows nothing of Spark and does no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.spark.reading.offsets import (
    TO_GO_ON,
    DataLossError,
    Offset,
    Offsets,
    Range,
    what_is_next,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.spark.reading.offsets import StreamState
    from penstock.spark.reading.options import Options


@dataclass(frozen=True)
class Available:
    """What the streams hold beyond an offset: a range of each, which of them do not begin right
    behind it, and what was lost, in words.
    """

    ranges: dict[str, Range]
    moved: frozenset[str]
    problems: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Sequences of all streams."""
        return sum(len(each) for each in self.ranges.values())


@dataclass(frozen=True)
class View:
    """What is known of the streams when a batch is planned.

    ``states`` are those of the selected streams that are there. ``ends`` bound how far each may be
    read, where that is less than its last sequence. ``passed`` as in
    :func:`penstock.spark.reading.offsets.what_is_next`, by stream.
    """

    states: Mapping[str, StreamState]
    ends: Mapping[str, int] = field(default_factory=dict)
    passed: Mapping[str, int] = field(default_factory=dict)


def available(begin: Mapping[str, Offset], view: View) -> Available:
    """What there is to read behind ``begin``. Streams that ``begin`` does not have join; those that
    are not there any more are a problem.
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
    """Raise :class:`DataLossError` when there is any."""
    if problems:
        raise DataLossError(f"{'; '.join(problems)}. {TO_GO_ON}")


def worth_a_batch(sequences: int, waited_seconds: float, options: Options) -> bool:
    """Whether minOffsetsPerTrigger is met, or maxTriggerDelay is over. Nothing to read is never
    worth one.
    """
    if not sequences:
        return False
    least = options.min_offsets_per_trigger
    return (
        least is None or sequences >= least or waited_seconds >= options.max_trigger_delay_seconds
    )


def share(wanted: Sequence[int], total: int, turn: int) -> list[int]:
    """Parts of ``total`` for those who want so much each: as even as can be, all of it as long as
    anybody wants more. What cannot be divided goes to the next ones from ``turn`` on, one each.
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
    """How many sequences of each range, in order of streams' names, the next batch takes.

    Bytes are reckoned by the mean size of a stored message, so they are kept on the whole, not in
    each batch; a stream that may give anything gives one message at least, so that a query never
    stands still.
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
    """The end of the next micro-batch; equal to ``begin`` in all places when there is nothing to
    do.

    Loss is not refused here (see :func:`refuse_loss`): the end begins anew where it has to. That
    is written down at once, also when the batch has no rows yet: what comes later must not be
    mistaken for what was read already.
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
            continue  # it joins at its first message
        if taken[name] or (name in found.moved and (joins or not _same_life(begin[name], state))):
            begins = first if name in found.moved else None
            end[name] = Offset(name, first - 1 + taken[name], state.born, begins)
            if options.max_bytes_per_partition is not None:
                end[name] = replace(end[name], mean_bytes=state.mean_bytes)
        else:
            end[name] = begin[name].bare()
    return end


def _same_life(offset: Offset, state: StreamState) -> bool:
    """Whether the stream holds what was read, or its end was moved on from there."""
    return offset.born == state.born and offset.seq <= state.last_seq


def moved_on(begin: Mapping[str, Offset], view: View) -> Offsets:
    """The end of a batch without rows that goes over what was seen to hold nothing, so that it is
    not taken for a loss when it is dropped while nobody looks.
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
    """What a batch reads of each stream, from its two offsets alone; streams that give nothing are
    left out.
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
    """The sequence below which a batch that ends at ``goal`` was seen to hold nothing, 0 where that
    is not known.
    """
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
    """What of a planned batch cannot be read any more, in words."""
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
