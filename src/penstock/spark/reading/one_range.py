"""One read of a partition: how far it is, and whether what it is to read is still the stream it was
planned for, with all it had.

Three things are looked at whenever the server is asked, with :meth:`Reading.look`: that the stream
was not made again, that it does not end before the partition does, and where it begins. A message
that was deleted leaves a hole, and holes are passed over. But where the stream's begin has come
into a hole that the read saw, or past it, messages may have been dropped before they were read: a
loss, unless the hole was there before::

    planned                1 . . . 5 6 . 8      the plan says below which sequence nothing was: 5
    at the first look      1 . . . 5 6 . 8      the server lists what is not there: 2, 3, 4, 7
    read                           5 6 . 8
    the stream by then                   8      nobody dropped 7: no loss

With a subject filter the same holds for what lies between two messages that match; whether one of
those dropped would have matched, nobody can say any more.

Knows nothing of transports, Arrow or Spark.
"""

from __future__ import annotations

import warnings
from itertools import filterfalse
from typing import TYPE_CHECKING

from penstock.spark.connection import state_of, stream_info
from penstock.spark.reading.offsets import TO_GO_ON, DataLossError

if TYPE_CHECKING:
    from penstock.client.models import StreamInfo
    from penstock.core.bulk.columns import Columns
    from penstock.spark.reading.plan import ReadPlan

HOLES_MAX = 10_000
"""A stream with more holes is not asked where they are."""


class StreamGone(Exception):
    """What the read was planned for is not there any more, and that is no failure."""


class Reading:
    """Where a read of one partition is: every sequence below ``position`` is done with."""

    def __init__(self, plan: ReadPlan) -> None:
        """Nothing is asked yet."""
        self.plan = plan
        self.position = plan.range.first
        self.last = plan.range.last
        self.info: StreamInfo | None = None
        """What the server said of the stream last."""
        self.front: int | None = None
        """Where the stream began at a moment when what is at hand was read already, if known."""
        self.closing: StreamInfo | None = None
        """What the server said of the stream when everything was read already, if known."""
        self._holes: frozenset[int] | None = None
        """What of the partition was not there at the first look, as far as the server said."""

    @property
    def over(self) -> bool:
        """Whether nothing is left to read."""
        return self.position > self.last

    def look(self) -> StreamInfo:
        """Ask the server what the stream is now.

        Raises ReadError; DataLossError when the stream was made again or went back behind the end
        of the partition, or, when losses are no failure, StreamGone for the former.
        """
        plan = self.plan
        info = self.info = stream_info(plan.servers, plan.stream)
        if self._holes is None:
            self._holes = frozenset()
            if plan.fail_on_data_loss and 0 < info.state.num_deleted <= HOLES_MAX:
                info = self.info = stream_info(plan.servers, plan.stream, deleted_details=True)
                wanted = plan.range
                self._holes = frozenset(
                    seq for seq in info.state.deleted if wanted.first <= seq <= wanted.last
                )
        state = state_of(info)
        if state.born != plan.born:
            self._lose(f"was deleted and created again (at {state.born}, before that {plan.born})")
            raise StreamGone
        if state.last_seq < self.last:
            self._lose(f"ends at sequence {state.last_seq}; it went on to {self.last} before")
            self.last = max(self.position - 1, state.last_seq)
        return info

    def take(self, columns: Columns) -> None:
        """The next rows are these. Raises as :meth:`look`, and DataLossError when the stream's
        begin has come into what is missing before or between them, and was not missing before.
        """
        after = self.position - 1
        sequences = columns.seq.view("q")
        self.position = sequences[-1] + 1
        if not self.plan.fail_on_data_loss or sequences[-1] - after == len(sequences):
            return
        begin = state_of(self.look()).first_seq if self.front is None else self.front
        if begin > after + 1:
            for seq in sequences:
                if seq > after + 1:
                    self._lose_between(after + 1, min(seq, begin) - 1)
                after = seq
                if after + 1 >= begin:
                    return

    def pass_over(self, last: int) -> None:
        """No message is left up to there: the stream is read as it was when it began at ``front``."""
        if self.front is not None and self.front > self.position and self.position <= last:
            self._lose_between(self.position, min(last, self.front - 1))
        self.position = max(self.position, last + 1)

    def end(self) -> None:
        """Nothing comes any more. Raises as :meth:`take` for what is missing at the end, and
        DataLossError when the server says that damage to its disk has cost messages of the
        partition.
        """
        info = self.look() if self.closing is None else self.closing
        begin = state_of(info).first_seq
        if begin > self.position and self.position <= self.last:
            self._lose_between(self.position, min(self.last, begin - 1))
        lost = info.state.lost.msgs if info.state.lost is not None else None
        wanted = self.plan.range
        damaged = [seq for seq in lost or () if wanted.first <= seq <= wanted.last]
        if damaged:
            self._lose(f"lost {len(damaged)} messages from {damaged[0]} on to damage of its disk")

    def _lose_between(self, first: int, last: int) -> None:
        first = max(first, self.plan.empty_below)
        holes = self._holes or frozenset()
        lost = filterfalse(holes.__contains__, range(first, last + 1))
        first = next(lost, last + 1)
        if first > last:
            return
        what = f"dropped messages from {first} to {last} before they were read"
        if self.plan.subjects:
            what += f" (which of them were on {', '.join(self.plan.subjects)} cannot be told)"
        self._lose(what)

    def _lose(self, what: str) -> None:
        text = f"stream {self.plan.stream} {what}"
        if self.plan.fail_on_data_loss:
            raise DataLossError(f"{text}. {TO_GO_ON}")
        warnings.warn(f"{text}; going on with what is left", stacklevel=3)
