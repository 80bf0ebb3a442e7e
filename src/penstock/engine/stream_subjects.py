"""The subjects of all streams of one account: finds the streams that a subject or pattern meets.

One trie holds all of them, so that a create or a list does not compare every subject of every stream.
"""

from collections.abc import Iterable

from penstock.core.protocol.overlaps import Patterns
from penstock.engine.settings import MAX_STEPS
from penstock.engine.subject_checks import bounded


class StreamSubjects:
    """The subjects of all streams."""

    def __init__(self) -> None:
        """No stream yet."""
        self._patterns = Patterns()
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._free: list[int] = []

    def add(self, name: str, subjects: Iterable[str]) -> None:
        """A stream listens to these, too."""
        number = self._numbers.get(name)
        if number is None:
            number = self._free.pop() if self._free else len(self._numbers)
            self._numbers[name] = number
            self._names[number] = name
        for subject in subjects:
            self._patterns.add(subject, number)

    def drop(self, name: str, subjects: Iterable[str]) -> None:
        """A stream does not listen to these any more."""
        number = self._numbers[name]
        for subject in subjects:
            self._patterns.drop(subject, number)

    def forget(self, name: str, subjects: Iterable[str]) -> None:
        """A stream is gone; `subjects` are all that it listened to."""
        self.drop(name, subjects)
        number = self._numbers.pop(name)
        del self._names[number]
        self._free.append(number)

    def taken(self, name: str, subjects: Iterable[str]) -> bool:
        """Whether another stream gets messages of one of the subjects. 10052: it would take too
        long to find out.
        """
        apart = self._numbers.get(name, -1)
        self._patterns.bound(MAX_STEPS)
        with bounded():
            return any(self._patterns.collides(subject, apart) for subject in subjects)

    def of(self, subject: str) -> list[str]:
        """The streams that get messages of a pattern, by name."""
        self._patterns.bound(0)
        return sorted(self._names[number] for number in self._patterns.colliding(subject))
