"""The patterns of a set that overlap another pattern, in plain Python: the twin of core/protocol/overlaps.

The set is a trie. A query walks the tokens of its pattern: a literal token continues at the same token and at `*`, a
`*` at all tokens, and a `>` matches if there is anything below. `steps` counts the visited tokens.
"""

from collections.abc import Iterator, Sequence
from typing import Self

from pelton.core.plain.subjects import collide

_NOBODY = -1  # `apart`: every number counts


class TooManyStepsError(Exception):
    """A query has visited as many tokens as the bound allows."""


class _Node:
    """What follows the same tokens: nodes by their token, and the numbers of patterns that end here."""

    __slots__ = ("kids", "numbers")

    def __init__(self) -> None:
        self.kids: dict[bytes, Self] = {}
        self.numbers: list[int] = []

    def literals(self) -> Iterator[Self]:
        return (kid for token, kid in self.kids.items() if token not in (b"*", b">"))

    def below(self) -> Iterator[Self]:
        """All nodes below this one, without recursion."""
        waiting = [*self.kids.values()]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.kids.values())


def _tokens(pattern: str) -> list[bytes]:
    return pattern.encode("utf-8", "surrogateescape").split(b".")


class Patterns:
    """Patterns, each with a number."""

    def __init__(self, most_steps: int = 0) -> None:
        """`most_steps`: bound of the visited tokens of all queries together; 0: none."""
        self._root = _Node()
        self._most = most_steps
        self.steps = self.count = 0

    @property
    def nodes(self) -> int:
        """Tokens held, for tests that memory is released."""
        return sum(1 for _ in self._root.below())

    def bound(self, most_steps: int) -> None:
        """Bound the visited tokens of all later queries together; 0: no bound."""
        self._most = self.steps + most_steps if most_steps else 0

    def add(self, pattern: str, number: int) -> None:
        """Add a pattern with a number."""
        node = self._root
        for token in _tokens(pattern):
            node = node.kids.setdefault(token, _Node())
        node.numbers.append(number)
        self.count += 1

    def drop(self, pattern: str, number: int) -> bool:
        """Remove one (pattern, number) pair; whether it was there."""
        path = [(self._root, b"")]
        for token in _tokens(pattern):
            kid = path[-1][0].kids.get(token)
            if kid is None:
                return False
            path.append((kid, token))
        if number not in path[-1][0].numbers:
            return False
        path[-1][0].numbers.remove(number)
        self.count -= 1
        while len(path) > 1 and not path[-1][0].kids and not path[-1][0].numbers:
            _, token = path.pop()
            del path[-1][0].kids[token]
        return True

    def collides(self, pattern: str, apart: int = _NOBODY) -> bool:
        """Whether a subject matches this pattern and one here of another number than `apart`."""
        return any(number != apart for number in self._meeting(self._root, _tokens(pattern)))

    def colliding(self, pattern: str) -> set[int]:
        """The numbers of all patterns that some subject matches as well as this one."""
        return set(self._meeting(self._root, _tokens(pattern)))

    def covers(self, pattern: str, apart: int = _NOBODY) -> bool:
        """Whether one pattern here, of another number than `apart`, matches all that this one matches."""
        return any(number != apart for number in self._covering(self._root, _tokens(pattern)))

    def first_covering(self, pattern: str) -> int:
        """The lowest number of the patterns here that match all that this one matches; -1: there is none."""
        return min(self._covering(self._root, _tokens(pattern)), default=-1)

    # --- the numbers that answer: one after the other, so that a caller can stop at the first ---------------

    def _step(self) -> None:
        self.steps += 1
        if self._most and self.steps > self._most:
            raise TooManyStepsError(f"more than {self._most} steps")

    def _below(self, node: _Node) -> Iterator[int]:
        for lower in node.below():
            self._step()
            yield from lower.numbers

    def _meeting(self, node: _Node, rest: list[bytes]) -> Iterator[int]:
        """Patterns below this node that match a subject which the rest of the tokens matches, too."""
        waiting = [(node, 0)]
        while waiting:
            node, at = waiting.pop()
            if at == len(rest):
                yield from node.numbers
                continue
            self._step()
            token = rest[at]
            if token == b">":
                yield from self._below(node)
                continue
            tail = node.kids.get(b">")
            if tail is not None:  # it takes at least the token that is here
                yield from tail.numbers
                yield from self._below(tail)
            star = node.kids.get(b"*")
            if star is not None:
                waiting.append((star, at + 1))
            if token == b"*":
                for kid in node.literals():
                    self._step()
                    waiting.append((kid, at + 1))
            elif token in node.kids:
                waiting.append((node.kids[token], at + 1))

    def _covering(self, node: _Node, rest: list[bytes]) -> Iterator[int]:
        """Patterns below this node that match all that the rest of the tokens matches."""
        waiting = [(node, 0)]
        while waiting:
            node, at = waiting.pop()
            if at == len(rest):
                yield from node.numbers
                continue
            self._step()
            token = rest[at]
            tail = node.kids.get(b">")
            if tail is not None:
                yield from tail.numbers
                yield from self._below(tail)
            if token == b">":
                continue
            star = node.kids.get(b"*")
            if star is not None:
                waiting.append((star, at + 1))
            if token != b"*" and token in node.kids:
                waiting.append((node.kids[token], at + 1))


def first_collision(
    subjects: Sequence[str], upto: int, most_steps: int = 0
) -> tuple[int, int] | None:
    """The first pair of places (one, later) whose patterns some subject matches both, `one` below `upto`."""
    behind = Patterns(most_steps)
    first = None
    for k in range(len(subjects) - 1, -1, -1):
        if k < upto and behind.collides(subjects[k]):
            first = k
        behind.add(subjects[k], k)
    if first is None:
        return None
    return first, next(
        k for k in range(first + 1, len(subjects)) if collide(subjects[first], subjects[k])
    )


def any_covered(subjects: Sequence[str], most_steps: int = 0) -> bool:
    """Whether one pattern matches all that another one of the list matches. TooManyStepsError."""
    every = Patterns(most_steps)
    for k, subject in enumerate(subjects):
        every.add(subject, k)
    return any(every.covers(subject, k) for k, subject in enumerate(subjects))
