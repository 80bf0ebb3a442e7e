"""Lost sequences: missing ones that no removal and no skip explains. Does not depend on files."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

INCOMPLETE = "part of an incomplete batch"
"""Why a message is lost whose batch was never on the disk as a whole."""


class Explained:
    """Sequences without a message for a known reason."""

    def __init__(self) -> None:
        """Begin without sequences."""
        self._runs: list[tuple[int, int]] = []

    def add(self, first: int, end: int) -> None:
        """Add the sequences first to end - 1."""
        self._runs.append((first, end))

    def left(self, missing: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
        """The unexplained parts of missing runs (first, count, reason), ascending, each sequence once.

        A count of 0 means that a record before the message `first` is missing; the entry stays
        unless that message is explained.
        """
        known = _joined(self._runs)
        starts = [first for first, _ in known]
        parts: list[tuple[int, int, str]] = []
        done = 0  # sequences below `done` are handled
        for first, count, reason in sorted(missing):
            if count == 0:
                k = bisect_right(starts, first) - 1
                if k < 0 or first >= known[k][1]:
                    parts.append((first, 0, reason))
                continue
            end = first + count
            first = max(first, done)
            done = max(done, end)
            k = max(bisect_right(starts, first) - 1, 0)
            while first < end:
                while k < len(known) and known[k][1] <= first:
                    k += 1
                low, high = known[k] if k < len(known) else (end, end)
                if low > first:
                    parts.append((first, min(low, end) - first, reason))
                first = max(first, high) if low < end else end
        return parts


def _joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, end in sorted(runs):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((first, end))
    return joined
