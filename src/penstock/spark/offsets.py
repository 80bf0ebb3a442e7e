"""Planning of reads, as plain functions: where to start, how far a micro-batch goes, how a range is
cut.

An offset is the sequence of the last message that was read, with the name of the stream and the
time it was created::

    {"stream": "ORDERS", "seq": 41, "born": "2026-10-16T23:04:01.123456789Z"}

``born`` tells a stream from one of the same name that was deleted and made again: sequences of the
two have nothing to do with one another. A range is ``(after, last]``; what a batch holds follows
from it alone, so that a batch that is run again gives the same rows.

Knows nothing of Spark and does no I/O: what the server said comes in as :class:`StreamState`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.spark.options import EARLIEST, LATEST
from penstock.spark.parsing import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.spark.options import Options, Position


class DataLossError(RuntimeError):
    """Messages that were still to be read are not in the stream any more."""


@dataclass(frozen=True)
class StreamState:
    """What matters of a STREAM.INFO answer. An empty stream has ``first_seq == last_seq + 1``."""

    stream: str
    born: str
    first_seq: int
    last_seq: int
    messages: int
    bytes: int


@dataclass(frozen=True)
class Offset:
    """The last sequence read of one life of a stream."""

    stream: str
    seq: int
    born: str

    def to_json(self) -> dict[str, str | int]:
        """The form Spark keeps in the checkpoint: JSON primitives only."""
        return {"stream": self.stream, "seq": self.seq, "born": self.born}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Offset:
        """Read :meth:`to_json`'s form; ValueError when a checkpoint of another source is given."""
        try:
            return cls(str(value["stream"]), int(value["seq"]), str(value["born"]))
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{value!r} is not an offset of the jetstream source") from None


@dataclass(frozen=True)
class Range:
    """The sequences ``first`` to ``last``, both included; empty when ``first > last``."""

    first: int
    last: int

    def __len__(self) -> int:
        """How many sequences; how many messages is for the server to say."""
        return max(0, self.last - self.first + 1)


def resolve_start(position: Position, state: StreamState, seq_at_time: int | None) -> int:
    """The sequence *before* the first one to read.

    ``seq_at_time`` is the first sequence stored at or after ``position.time``, None when there is
    none; only looked at for a time. Raises :class:`OptionError` for a sequence the stream is not
    near to: an offset beyond the end could not be told from one of a stream that went back.
    """
    if position.word == EARLIEST:
        return state.first_seq - 1
    if position.word == LATEST:
        return state.last_seq
    if position.sequence is not None:
        if position.sequence > state.last_seq + 1:
            raise OptionError(
                f"startingOffsets is {position.sequence},"
                f" but stream {state.stream} ends at {state.last_seq}"
            )
        return position.sequence - 1
    return state.last_seq if seq_at_time is None else seq_at_time - 1


def resolve_end(position: Position, state: StreamState, seq_at_time: int | None) -> int:
    """The last sequence to read of a batch, never beyond the stream's end. ``seq_at_time`` as in
    :func:`resolve_start`.
    """
    if position.sequence is not None:
        return min(position.sequence, state.last_seq)
    if position.time is not None and seq_at_time is not None:
        return seq_at_time - 1
    return state.last_seq


def continue_from(offset: Offset, state: StreamState, *, fail_on_data_loss: bool) -> Range:
    """The range from behind ``offset`` to the end of the stream, after a look at whether the two
    still fit.

    Raises :class:`DataLossError` when the stream is another one, went back, or lost messages not
    read yet. With ``fail_on_data_loss`` false the range is what can still be read: all of a stream
    that was made again, and what comes after the end of one that went back.
    """
    if offset.stream != state.stream:
        raise ValueError(
            f"the checkpoint is of stream {offset.stream}, not {state.stream}: use another one"
        )
    problem = None
    after = offset.seq
    if offset.born != state.born:
        problem = f"was deleted and created again (at {state.born}, before that {offset.born})"
        after = 0
    elif offset.seq > state.last_seq:
        problem = f"ends at sequence {state.last_seq}, before the last one read, {offset.seq}"
        after = state.last_seq
    elif after + 1 < state.first_seq:
        problem = f"begins at sequence {state.first_seq}; {after + 1} and later were not read yet"
    if problem and fail_on_data_loss:
        raise DataLossError(
            f"stream {state.stream} {problem}."
            " To go on with what is left, set failOnDataLoss to false"
        )
    return Range(max(after + 1, state.first_seq), state.last_seq)


def admit(available: Range, state: StreamState, options: Options) -> int:
    """The last sequence of the next micro-batch under maxOffsetsPerTrigger and maxBytesPerTrigger.

    Bytes are reckoned by the mean size of a stored message, so they are kept on the whole, not in
    each batch. At least one sequence is admitted, so that a query never stands still.
    """
    rows = len(available)
    if options.max_offsets_per_trigger is not None:
        rows = min(rows, options.max_offsets_per_trigger)
    if options.max_bytes_per_trigger is not None and state.messages:
        mean_bytes = max(1, state.bytes // state.messages)
        rows = min(rows, max(1, options.max_bytes_per_trigger // mean_bytes))
    return available.first - 1 + rows


def worth_a_batch(available: Range, waited_seconds: float, options: Options) -> bool:
    """Whether minOffsetsPerTrigger is met, or maxTriggerDelay is over. Nothing to read is never
    worth one.
    """
    if not len(available):
        return False
    least = options.min_offsets_per_trigger
    return (
        least is None
        or len(available) >= least
        or waited_seconds >= options.max_trigger_delay_seconds
    )


def cut(whole: Range, options: Options) -> list[Range]:
    """Cut a range into partitions of nearly equal length: as few as the options allow, in order,
    without gaps.

    Every sequence of ``whole`` is in exactly one of them; an empty range gives an empty list.
    """
    length = len(whole)
    if not length:
        return []
    wanted = -(-length // options.max_records_per_partition)
    count = min(length, max(wanted, options.min_partitions))
    bounds = [whole.first + length * index // count for index in range(count + 1)]
    return [Range(low, high - 1) for low, high in pairwise(bounds)]
