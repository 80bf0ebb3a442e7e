"""Deadlines of many keys, and the key that is due next. Changing a deadline is cheap.

A heap of (deadline, key) in which only the last deadline of a key is valid. The caller passes the
time.
"""

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
STALE = 64  # outdated deadlines stay in the heap until there are so many more than current ones


class Alarm:
    """An action at a time: `ring` is called with the current time after the deadline, and returns
    the next deadline (0: none).
    """

    __slots__ = ("ring",)

    def __init__(self, ring: Callable[[int], int]) -> None:
        """`Timers.set` sets the deadline."""
        self.ring = ring


class Timers(Generic[T]):
    """Deadlines of objects that can be dictionary keys."""

    def __init__(self) -> None:
        """There are no deadlines yet."""
        self._heap: list[tuple[int, int, T]] = []
        self._current: dict[T, int] = {}
        self._order = 0  # breaks ties in the heap, so that the objects need no order
        # called with each deadline that becomes the earliest
        self.sooner: Callable[[int], None] | None = None

    def set(self, item: T, due_ns: int) -> None:
        """Set the only deadline of an object; 0: none."""
        if not due_ns:
            if self._current.pop(item, None) is not None:
                self._tidy()
        elif self._current.get(item) != due_ns:
            self._current[item] = due_ns
            self._order += 1
            heapq.heappush(self._heap, (due_ns, self._order, item))
            self._tidy()
            if self.sooner is not None and self._heap[0][1] == self._order:
                self.sooner(due_ns)

    def _tidy(self) -> None:
        """Remove outdated deadlines when they are the majority of the heap: they keep their objects
        in memory.
        """
        if len(self._heap) > 2 * len(self._current) + STALE:
            current = self._current
            self._heap = [each for each in self._heap if current.get(each[2]) == each[0]]
            heapq.heapify(self._heap)

    def pop(self, now_ns: int) -> T | None:
        """Remove and return an object whose deadline has come; None: nothing is due."""
        if self.next_ns() and self._heap[0][0] <= now_ns:
            item = heapq.heappop(self._heap)[2]
            del self._current[item]
            return item
        return None

    def next_ns(self) -> int:
        """Return the earliest deadline; 0 when there is none."""
        heap = self._heap
        while heap and self._current.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else 0

    def __len__(self) -> int:
        """Return how many objects have a deadline."""
        return len(self._current)
