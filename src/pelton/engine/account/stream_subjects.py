"""The subjects of all streams of one account: finds the streams that a subject or pattern matches.

One trie holds all of them, so that a create or a list does not compare every subject of every
stream.
"""

from collections.abc import Iterable

from pelton.core.protocol.overlaps import Patterns
from pelton.engine.base.settings import MAX_STEPS
from pelton.engine.base.subject_checks import bounded


class StreamSubjects:
    """The subjects of all streams."""

    def __init__(self) -> None:
        """There are no streams yet."""
        self._patterns = Patterns()
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._free: list[int] = []
        self._sorted: list[str] | None = (
            None  # None: a stream came or went since names() was called
        )

    def names(self) -> list[str]:
        """Return the names of all streams, sorted once for all requests until a stream comes or goes."""
        if self._sorted is None:
            self._sorted = sorted(self._numbers)
        return self._sorted

    def add(self, name: str, subjects: Iterable[str]) -> None:
        """Add subjects of a stream."""
        number = self._numbers.get(name)
        if number is None:
            number = self._free.pop() if self._free else len(self._numbers)
            self._numbers[name] = number
            self._names[number] = name
            self._sorted = None
        for subject in subjects:
            self._patterns.add(subject, number)

    def drop(self, name: str, subjects: Iterable[str]) -> None:
        """Remove subjects of a stream."""
        number = self._numbers[name]
        for subject in subjects:
            self._patterns.drop(subject, number)

    def forget(self, name: str, subjects: Iterable[str]) -> None:
        """Remove a stream; `subjects` are all of its subjects."""
        self.drop(name, subjects)
        number = self._numbers.pop(name)
        del self._names[number]
        self._free.append(number)
        self._sorted = None

    def taken(self, name: str, subjects: Iterable[str]) -> bool:
        """Return whether another stream gets messages of one of the subjects. 10052: the comparison
        takes too long.
        """
        apart = self._numbers.get(name, -1)
        self._patterns.bound(MAX_STEPS)
        with bounded():
            return any(self._patterns.collides(subject, apart) for subject in subjects)

    def of(self, subject: str) -> list[str]:
        """Return the names of the streams that get messages of a pattern, sorted."""
        self._patterns.bound(0)
        return sorted(self._names[number] for number in self._patterns.colliding(subject))
