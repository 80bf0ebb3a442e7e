"""Sets of subjects as patterns, and the filters that a server can apply for them.

A pattern is a subject in which ``*`` stands for one token and ``>`` for one or more at the end. A
tuple of patterns stands for every subject that matches one of them; the empty tuple for none.

Does not depend on Spark, options or the network.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from pelton.core.protocol.subjects import collide, subset

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
    """Whether one consumer may have these filters: servers refuse two that match the same subject."""
    return not any(collide(left, right) for left, right in combinations(patterns, 2))


def cover(patterns: tuple[str, ...]) -> str:
    """One pattern that covers the whole set, as narrow as its leading tokens allow."""
    split = [pattern.split(".") for pattern in patterns]
    head: list[str] = []
    for tokens in zip(*split, strict=False):
        if len(set(tokens)) != 1 or tokens[0] == ">":
            break
        head.append(tokens[0])
    if all(len(tokens) == len(head) for tokens in split):
        return ".".join(head)
    if any(len(tokens) == len(head) for tokens in split):
        # One pattern ends where others go on: no pattern covers just ``a`` and ``a.b``.
        head = head[:-1]
    return ".".join([*head, ">"])
