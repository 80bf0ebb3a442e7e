"""What damage took, less what was removed anyway. Knows nothing of files."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Explained:
    """Sequences of which it is known why there is no message."""

    def __init__(self) -> None:
        """None yet."""
        self._runs: list[tuple[int, int]] = []

    def add(self, first: int, end: int) -> None:
        """Those from first to end - 1."""
        self._runs.append((first, end))

    def left(self, missing: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
        """The parts of missing runs (first, count, reason) that nothing explains, ascending, each
        sequence once. A count of 0 says that something before a message is gone; it stays as long
        as that message was not removed.
        """
        known = _joined(self._runs)
        starts = [first for first, _ in known]
        parts: list[tuple[int, int, str]] = []
        done = 0  # everything below was looked at
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
