"""One read of a partition: its position, and whether the stream still has all that was planned.

:meth:`Reading.look` checks three things after requests to the server: the stream was not created
again, it does not end before the partition does, and where it begins. A deleted message leaves a
hole, and the read passes over holes. But when the stream's first sequence moves into a hole that the
read saw, or past it, messages may have been removed before they were read. That is a loss, unless
the hole was there before::

    planned                1 . . . 5 6 . 8      the plan says: nothing below 5
    at the first look      1 . . . 5 6 . 8      the server lists the holes: 2, 3, 4, 7
    read                           5 6 . 8
    the stream by then                   8      7 was a hole before: no loss

With a subject filter the same holds for the sequences between two messages that match. Whether a
message that was removed there would have matched is unknown.

Does not depend on transports, Arrow or Spark.
"""

from __future__ import annotations

import warnings
from itertools import filterfalse
from typing import TYPE_CHECKING

from pelton.spark.connection import state_of, stream_info
from pelton.spark.reading.offsets import TO_GO_ON, DataLossError

if TYPE_CHECKING:
    from pelton.client.base.models import StreamInfo
    from pelton.core.bulk.columns import Columns
    from pelton.spark.reading.plan import ReadPlan

HOLES_MAX = 10_000
"""The read does not ask a stream with more holes for the list of them."""


class StreamGone(Exception):
    """The planned stream is gone, and the options say that this is no failure."""


class Reading:
    """The position of a read of one partition: every sequence below ``position`` is done."""

    def __init__(self, plan: ReadPlan) -> None:
        """Sends no request."""
        self.plan = plan
        self.position = plan.range.first
        self.last = plan.range.last
        self.info: StreamInfo | None = None
        """The server's last answer about the stream."""
        self.front: int | None = None
        """The first sequence of the stream at a moment after the current messages were read, if
        known.
        """
        self.closing: StreamInfo | None = None
        """The server's answer about the stream after all messages were read, if known."""
        self._holes: frozenset[int] | None = None
        """The holes of the partition at the first look, as far as the server listed them."""

    @property
    def over(self) -> bool:
        """Whether nothing is left to read."""
        return self.position > self.last

    def look(self) -> StreamInfo:
        """Ask the server for the state of the stream, and check it.

        Raises ReadError; DataLossError when the stream was created again or ends before the partition does.
        When losses are no failure, it raises StreamGone for a stream that was created again.
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
        """Take the next rows.

        Raises as :meth:`look`, and DataLossError when the stream's first sequence has moved into a gap
        before or between the rows that was no hole at the first look.
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
        """Pass over the sequences up to ``last``: the stream had none of them when it began at
        ``front``.
        """
        if self.front is not None and self.front > self.position and self.position <= last:
            self._lose_between(self.position, min(last, self.front - 1))
        self.position = max(self.position, last + 1)

    def end(self) -> None:
        """End the read: no message follows.

        Raises as :meth:`take` for messages that are missing at the end, and DataLossError when the server
        reports messages of the partition as lost to damage of its disk.
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
        warnings.warn(f"{text}; the read goes on with the messages that are left", stacklevel=3)
