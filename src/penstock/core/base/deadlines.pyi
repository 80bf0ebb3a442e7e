"""What is due when: a heap of (due, sequence), 16 to 24 bytes an item."""

from collections.abc import Callable

class DeadlineHeap:
    """Sequences by the time at which they are due."""

    count: int
    def __len__(self) -> int: ...
    def add(self, due_ns: int, seq: int) -> None:
        """One more item; the same sequence may be in it with several deadlines."""
    def next_ns(self) -> int:
        """The earliest deadline; 0 without items."""
    def take(self, now_ns: int, limit: int) -> list[int]:
        """The sequences that are due, at most so many, the earliest first; they leave the agenda."""
    def keep(self, stands: Callable[[int, int], bool]) -> int:
        """Let go of the items for which stands(due_ns, seq) is false; how many went."""
    def dump(self, upto: int, note: int = 0) -> bytes:
        """As bytes, without the items above a sequence; `note` is the owner's."""
    def load(self, data: bytes) -> tuple[int, int]:
        """Take the items of a dump in; its (upto, note). ValueError when it is none, or damaged."""
