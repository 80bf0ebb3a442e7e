"""What an offset is, where a read starts and ends, and whether what was not read yet is still
there; as plain functions.

An offset is, for each stream, the sequence of the last message that was read, and the time the
stream was created. Of one stream and of several::

    {"stream": "ORDERS", "seq": 41, "born": "2026-10-16T23:04:01.123456789Z"}
    {"EVENTS": {"seq": 7, "born": "..."}, "ORDERS": {"seq": 41, "born": "...", "from": 40}}

``born`` tells a stream from one of the same name that was deleted and made again: sequences of the
two have nothing to do with one another. The batch between two offsets is ``(start, end]``; where it
cannot begin behind the start (the stream joined the query with this batch, was made again, or lost
messages), ``from`` in its end says where it begins. ``next``, where it is given, is the next message
that was there for the reader when the batch was planned: what lies between was empty, so the begin
of the stream may move over it without a loss. ``mean`` is the mean size of a message where
partitions are cut by it. So all of a batch follows from its two offsets, and a batch that is run
again gives the same rows in the same partitions. ``.again`` says where the next batches end, where they
fill a hole (:mod:`penstock.spark.filling`).

Knows nothing of Spark and does no I/O: what the server said comes in as :class:`StreamState`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.spark.filling import AGAIN
from penstock.spark.parsing import OptionError
from penstock.spark.reading.positions import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.spark.reading.positions import Position

TO_GO_ON = "To go on with what is left, set failOnDataLoss to false"


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
    retention: str = "limits"

    @property
    def has_holes(self) -> bool:
        """Whether messages between the first and the last one are not there."""
        return self.last_seq - self.first_seq + 1 > self.messages

    @property
    def mean_bytes(self) -> int:
        """The mean size of a stored message, 1 at least."""
        return max(1, self.bytes // self.messages) if self.messages else 1


@dataclass(frozen=True)
class Offset:
    """The last sequence read of one life of a stream; ``begin`` and ``mean_bytes`` of the batch
    that ends here, where they had to be written down, and ``next``: no message for this reader lay
    between ``seq`` and there.
    """

    stream: str
    seq: int
    born: str
    begin: int | None = None
    mean_bytes: int | None = None
    next: int | None = None

    @property
    def place(self) -> tuple[str, int, str]:
        """Where it is, whatever else it says."""
        return self.stream, self.seq, self.born

    @property
    def passed(self) -> int:
        """Up to where, at least ``seq``, there was nothing more for this reader."""
        return self.seq if self.next is None else max(self.seq, self.next - 1)

    def to_json(self) -> dict[str, str | int]:
        """The form of a query of one stream."""
        return {"stream": self.stream, **self._fields()}

    def _fields(self) -> dict[str, str | int]:
        fields: dict[str, str | int] = {"seq": self.seq, "born": self.born}
        if self.begin is not None:
            fields["from"] = self.begin
        if self.mean_bytes is not None:
            fields["mean"] = self.mean_bytes
        if self.next is not None:
            fields["next"] = self.next
        return fields

    def bare(self) -> Offset:
        """The place and what is behind it, as a later batch starts from it."""
        return replace(self, begin=None, mean_bytes=None)


Offsets = dict[str, Offset]
"""The offset of a query: that of each stream, by its name."""


def offsets_to_json(offsets: Mapping[str, Offset], *, one_stream: bool) -> dict[str, Any]:
    """The form Spark keeps in the checkpoint; streams in the order of their names."""
    if one_stream and len(offsets) == 1:
        [offset] = offsets.values()
        return offset.to_json()
    return {name: offsets[name]._fields() for name in sorted(offsets)}


def offsets_from_json(value: Mapping[str, Any]) -> Offsets:
    """Read either form; ValueError when a checkpoint of another source is given."""
    try:
        if isinstance(value.get("stream"), str):
            return {value["stream"]: _offset(value["stream"], value)}
        return {str(name): _offset(str(name), value[name]) for name in value if name != AGAIN}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"{value!r} is not an offset of the jetstream source") from None


def _offset(stream: str, fields: Mapping[str, Any]) -> Offset:
    def number(name: str) -> int | None:
        value = fields.get(name)
        return None if value is None else int(value)

    seq, born = int(fields["seq"]), str(fields["born"])
    return Offset(stream, seq, born, number("from"), number("mean"), number("next"))


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
    """The last sequence to read, never beyond the stream's end. ``seq_at_time`` as in
    :func:`resolve_start`.
    """
    if position.sequence is not None:
        return min(position.sequence, state.last_seq)
    if position.time is not None and seq_at_time is not None:
        return seq_at_time - 1
    return state.last_seq


@dataclass(frozen=True)
class Next:
    """What is to be read of a stream next. ``problem`` says why that does not begin right behind
    the last message read, where that is a loss; ``moved`` whether it does not, loss or not.
    """

    range: Range
    moved: bool
    problem: str | None = None


def what_is_next(offset: Offset | None, state: StreamState, passed: int = 0) -> Next:
    """From behind ``offset`` to the end of the stream, after a look at whether the two still fit.

    Without an offset the stream is new to the query: all that it holds. ``passed`` is a sequence up
    to which, behind ``offset``, there was nothing for this reader when it looked, beside what the
    offset itself says of that; so far the stream's begin may move without a loss. After a loss the
    range is what can still be read: all of a stream that was made again, and what comes after the
    end of one that went back.
    """
    everything = Range(state.first_seq, state.last_seq)
    if offset is None:
        return Next(everything, moved=True)
    if offset.born != state.born:
        return Next(
            everything,
            moved=True,
            problem=f"was deleted and created again (at {state.born}, before that {offset.born})",
        )
    if offset.seq > state.last_seq:
        return Next(
            Range(state.last_seq + 1, state.last_seq),
            moved=True,
            problem=f"ends at sequence {state.last_seq}, before the last one read, {offset.seq}",
        )
    if offset.seq + 1 >= state.first_seq:
        return Next(Range(offset.seq + 1, state.last_seq), moved=False)
    problem = None
    behind = max(offset.seq, min(max(passed, offset.passed), state.last_seq)) + 1
    if behind < state.first_seq:
        problem = f"begins at sequence {state.first_seq}; {behind} and later were not read yet"
    return Next(everything, moved=True, problem=problem)


def loss(stream: str, problem: str) -> DataLossError:
    """The error for a ``problem`` of a stream."""
    return DataLossError(f"stream {stream} {problem}. {TO_GO_ON}")
