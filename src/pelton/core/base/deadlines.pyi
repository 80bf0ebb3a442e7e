"""Deadlines: a heap of (due, sequence), 16 to 24 bytes per item."""

from collections.abc import Callable

class DeadlineHeap:
    """Sequences by the time at which they are due."""

    count: int
    def __len__(self) -> int: ...
    def add(self, due_ns: int, seq: int) -> None:
        """Add an item; a sequence may have several deadlines."""
    def next_ns(self) -> int:
        """The earliest deadline; 0 without items."""
    def take(self, now_ns: int, limit: int) -> list[int]:
        """Remove and return the sequences that are due, at most `limit`, the earliest first."""
    def keep(self, stands: Callable[[int, int], bool]) -> int:
        """Drop the items for which stands(due_ns, seq) is false; return how many."""
    def dump(self, upto: int, note: int = 0) -> bytes:
        """The heap as bytes, without items above the sequence `upto`; `note` is the owner's."""
    def load(self, data: bytes) -> tuple[int, int]:
        """Add the items of a dump; return its (upto, note). ValueError when it is damaged or not a dump."""
