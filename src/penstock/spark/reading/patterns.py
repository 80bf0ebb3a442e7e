"""Sets of subjects as patterns, and what of them a server can be asked for.

A pattern is a subject in which ``*`` stands for one token and ``>`` for one or more at the end. A
tuple of patterns stands for every subject that matches one of them; the empty one for none.

Knows nothing of Spark, of options or of the network.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from penstock.core.protocol.subjects import collide, subset

if TYPE_CHECKING:
    from collections.abc import Iterable

EVERYTHING = (">",)


def shortest(patterns: Iterable[str]) -> tuple[str, ...]:
    """The same set without patterns that others contain, in the order given."""
    kept: list[str] = []
    for pattern in patterns:
        if any(subset(pattern, other) for other in kept):
            continue
        kept = [other for other in kept if not subset(other, pattern)]
        kept.append(pattern)
    return tuple(kept)


def askable(patterns: Iterable[str]) -> bool:
    """Whether one consumer may have these filters: a server wants no two of them to match the same
    subject.
    """
    return not any(collide(left, right) for left, right in combinations(patterns, 2))


def cover(patterns: tuple[str, ...]) -> str:
    """One pattern that everything in the set matches, as narrow as tokens from the begin allow."""
    split = [pattern.split(".") for pattern in patterns]
    head: list[str] = []
    for tokens in zip(*split, strict=False):
        if len(set(tokens)) != 1 or tokens[0] == ">":
            break
        head.append(tokens[0])
    if all(len(tokens) == len(head) for tokens in split):
        return ".".join(head)
    if any(len(tokens) == len(head) for tokens in split):
        # One of them ends where others go on: ``a`` and ``a.b`` have no pattern of their own.
        head = head[:-1]
    return ".".join([*head, ">"])
