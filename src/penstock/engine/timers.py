"""Deadlines: which of many keys is due next. Setting a deadline again is cheap.

A heap of (deadline, key) in which only the latest deadline of a key counts. It has no clock.
"""

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
STALE = 64  # deadlines that hold no longer are let be, besides as many as there are


class Alarm:
    """Something to do at a time: `ring` is called with the time when its deadline has come, and
    says when it wants to be called again (0: not at all).
    """

    __slots__ = ("ring",)

    def __init__(self, ring: Callable[[int], int]) -> None:
        """Set it with `Timers.set`."""
        self.ring = ring


class Timers(Generic[T]):
    """Deadlines of things that can be dictionary keys."""

    def __init__(self) -> None:
        """No deadline."""
        self._heap: list[tuple[int, int, T]] = []
        self._current: dict[T, int] = {}
        self._order = 0  # things need no order of their own
        self.sooner: Callable[[int], None] | None = None  # told of a deadline before all others

    def set(self, thing: T, due_ns: int) -> None:
        """This deadline is the thing's only one from now on; 0: none."""
        if not due_ns:
            if self._current.pop(thing, None) is not None:
                self._tidy()
        elif self._current.get(thing) != due_ns:
            self._current[thing] = due_ns
            self._order += 1
            heapq.heappush(self._heap, (due_ns, self._order, thing))
            self._tidy()
            if self.sooner is not None and self._heap[0][1] == self._order:
                self.sooner(due_ns)

    def _tidy(self) -> None:
        """Deadlines that hold no longer keep what they are of alive: out with them when they are the
        most. Those of a day ahead would stay for a day.
        """
        if len(self._heap) > 2 * len(self._current) + STALE:
            current = self._current
            self._heap = [each for each in self._heap if current.get(each[2]) == each[0]]
            heapq.heapify(self._heap)

    def pop(self, now_ns: int) -> T | None:
        """A thing whose deadline has come, which then has none any more; None: nothing is due."""
        if self.next_ns() and self._heap[0][0] <= now_ns:
            thing = heapq.heappop(self._heap)[2]
            del self._current[thing]
            return thing
        return None

    def next_ns(self) -> int:
        """The earliest deadline; 0 when there is none."""
        heap = self._heap
        while heap and self._current.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else 0

    def __len__(self) -> int:
        """How many things have a deadline."""
        return len(self._current)
