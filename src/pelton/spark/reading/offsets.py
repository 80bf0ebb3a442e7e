"""Offsets, the start and end of a read, and checks for lost messages; as plain functions.

An offset has, for each stream, the sequence of the last message that was read and the time at which
the stream was created. For one stream and for several::

    {"stream": "ORDERS", "seq": 41, "born": "2026-10-16T23:04:01.123456789Z"}
    {"EVENTS": {"seq": 7, "born": "..."}, "ORDERS": {"seq": 41, "born": "...", "from": 40}}

``born`` tells a stream from one of the same name that was deleted and created again: the sequences
of the two are unrelated. The batch between two offsets is ``(start, end]``. Where it cannot begin
after the start (the stream joined the query with this batch, was created again, or lost messages),
``from`` in its end says where it begins. ``next`` is the next message that the stream had for the
reader when the batch was planned: the sequences before it held nothing for the reader, so the
stream's first sequence may move over them without a loss. ``mean`` is the mean size of a message, when
partitions are cut by it. So the two offsets determine the batch, and a batch that runs again gives
the same rows in the same partitions. ``.again`` has the ends of the next batches while the query
fills a hole (:mod:`pelton.spark.filling`).

Does not depend on Spark, and does no I/O: the caller gives the server's answers as :class:`StreamState`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pelton.spark.filling import AGAIN
from pelton.spark.parsing import OptionError
from pelton.spark.reading.positions import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pelton.spark.reading.positions import Position

TO_GO_ON = "To go on with what is left, set failOnDataLoss to false"


class DataLossError(RuntimeError):
    """Messages that were still to be read are not in the stream any more."""


@dataclass(frozen=True)
class StreamState:
    """The needed fields of a STREAM.INFO answer. An empty stream has ``first_seq == last_seq + 1``."""

    stream: str
    born: str
    first_seq: int
    last_seq: int
    messages: int
    bytes: int
    retention: str = "limits"

    @property
    def has_holes(self) -> bool:
        """Whether sequences between the first and the last one have no message."""
        return self.last_seq - self.first_seq + 1 > self.messages

    @property
    def mean_bytes(self) -> int:
        """The mean size of a stored message, at least 1."""
        return max(1, self.bytes // self.messages) if self.messages else 1


@dataclass(frozen=True)
class Offset:
    """The last sequence read of one life of a stream.

    ``begin`` and ``mean_bytes`` are those of the batch that ends here, where they had to be written
    down. Between ``seq`` and ``next`` the stream held no message for this reader.
    """

    stream: str
    seq: int
    born: str
    begin: int | None = None
    mean_bytes: int | None = None
    next: int | None = None

    @property
    def place(self) -> tuple[str, int, str]:
        """The stream, the sequence and the life, without the other fields."""
        return self.stream, self.seq, self.born

    @property
    def passed(self) -> int:
        """The sequence, at least ``seq``, up to which the stream held nothing more for this reader."""
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
        """The place and ``next``, as a later batch starts from it."""
        return replace(self, begin=None, mean_bytes=None)


Offsets = dict[str, Offset]
"""The offset of a query: the offset of each stream, by its name."""


def offsets_to_json(offsets: Mapping[str, Offset], *, one_stream: bool) -> dict[str, Any]:
    """The form that Spark keeps in the checkpoint; streams in the order of their names."""
    if one_stream and len(offsets) == 1:
        [offset] = offsets.values()
        return offset.to_json()
    return {name: offsets[name]._fields() for name in sorted(offsets)}


def offsets_from_json(value: Mapping[str, Any]) -> Offsets:
    """Parse either form; ValueError for a checkpoint of another source."""
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
        """The number of sequences; only the server knows the number of messages."""
        return max(0, self.last - self.first + 1)


def resolve_start(position: Position, state: StreamState, seq_at_time: int | None) -> int:
    """The sequence *before* the first one to read.

    ``seq_at_time`` is the first sequence stored at or after ``position.time``, None when there is none;
    it is used only for a time. Raises :class:`OptionError` for a sequence above the stream's next one,
    which could not be told from an offset of a stream that went back.
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
    """The last sequence to read, never beyond the stream's end.

    ``seq_at_time`` as in :func:`resolve_start`.
    """
    if position.sequence is not None:
        return min(position.sequence, state.last_seq)
    if position.time is not None and seq_at_time is not None:
        return seq_at_time - 1
    return state.last_seq


@dataclass(frozen=True)
class Next:
    """The next range to read of a stream.

    ``moved`` says whether it does not begin right behind the last message read. ``problem`` says why,
    when that is a loss.
    """

    range: Range
    moved: bool
    problem: str | None = None


def what_is_next(offset: Offset | None, state: StreamState, passed: int = 0) -> Next:
    """The range from behind ``offset`` to the end of the stream, and whether messages are missing.

    Without an offset the stream is new to the query, and the range is all that it holds. ``passed`` is a
    sequence up to which the stream was seen to hold nothing for this reader behind ``offset``, in
    addition to ``offset.next``; the stream's first sequence may move up to there without a loss. After a
    loss the range has the messages that can still be read: all of a stream that was created again, and
    those behind the end of a stream that went back.
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
