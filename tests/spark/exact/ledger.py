"""What the server acknowledged, what was removed again, and when each message was stored.

Of each message a table that is made of the streams

=========  =================================================================================
``must``   hold it once: it was there all the time
``may``    hold it once or not: it was removed while the streams were read
``never``  hold it: it was removed before reading began
=========  =================================================================================
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.spark.exact.shapes import STREAMS, Shape, Shapes

MUST, MAY, NEVER = "must", "may", "never"


@dataclass
class StreamLedger:
    """What is known of one stream."""

    numbers: dict[int, int] = field(default_factory=dict)
    """Message by sequence, as acknowledged."""
    never: set[int] = field(default_factory=set)
    removed: set[int] = field(default_factory=set)
    """Those of `may`."""
    times_us: dict[int, int] = field(default_factory=dict)
    """When what is there was stored, as the server says."""

    def state(self, seq: int) -> str | None:
        """`must`, `may`, `never`, or None for a sequence nobody was told of."""
        if seq not in self.numbers:
            return None
        if seq in self.never:
            return NEVER
        return MAY if seq in self.removed else MUST

    def live(self) -> list[int]:
        """What must be in the stream now, in order."""
        return sorted(self.numbers.keys() - self.never - self.removed)


class Ledger:
    """What is known of all streams; producers and removers write into it at the same time."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.streams = {name: StreamLedger() for name in STREAMS}
        self.reading = False
        """Whether what is removed from now on may have been read."""
        self._lock = threading.Lock()
        self._sorted: dict[str, list[int]] = {}

    def acked(self, stream: str, seq: int, number: int) -> None:
        """The server says that it stored a message there."""
        with self._lock:
            known = self.streams[stream].numbers.setdefault(seq, number)
        if known != number:
            raise AssertionError(f"{stream} {seq} was acknowledged for {known} and for {number}")

    def remove(self, stream: str, seqs: set[int]) -> None:
        """These are going to be removed."""
        with self._lock:
            ledger = self.streams[stream]
            (ledger.removed if self.reading else ledger.never).update(seqs)

    def live(self, stream: str) -> list[int]:
        """What must be in a stream now, in order."""
        with self._lock:
            return self.streams[stream].live()

    def of_group(self, stream: str, group: str) -> set[int]:
        """The sequences now in a stream whose subject has this third token."""
        with self._lock:
            ledger = self.streams[stream]
            return {
                seq for seq in ledger.live() if f".{group}." in self.shapes(ledger.numbers[seq])[1]
            }

    def shape(self, stream: str, seq: int) -> Shape:
        """The message that was acknowledged with a sequence."""
        return self.shapes(self.streams[stream].numbers[seq])

    def count(self, state: str) -> int:
        """How many messages of all streams are in a state."""
        return sum(1 for _ in self.places(state))

    def places(self, state: str) -> Iterator[tuple[str, int]]:
        """Stream and sequence of those in a state."""
        for name, ledger in self.streams.items():
            for seq in ledger.numbers:
                if ledger.state(seq) == state:
                    yield name, seq

    def stored_between_us(self, stream: str, seq: int) -> tuple[int, int]:
        """When a message was stored, at the earliest and at the latest: the same where the server
        says it; for what is gone, the times of those around it.
        """
        times = self.streams[stream].times_us
        if seq in times:
            return times[seq], times[seq]
        known = self._sorted.get(stream)
        if known is None or len(known) != len(times):
            known = self._sorted[stream] = sorted(times)
        below, above = bisect_left(known, seq), bisect_right(known, seq)
        first = times[known[below - 1]] if below else 0
        last = times[known[above]] if above < len(known) else 2**62
        return first, last
