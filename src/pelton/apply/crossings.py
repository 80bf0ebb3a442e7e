"""Subjects that two streams would both store, which no server allows: found when the plan is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.core.protocol.overlaps import Patterns, TooManyStepsError
from pelton.core.protocol.subjects import collide

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST_STEPS = 1_000_000


def crossings(
    there: Mapping[str, Sequence[str]], coming: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """Why streams of ``coming`` cannot have their subjects, beside those ``there`` and those before them.

    Both are the subjects of each stream. Subjects that cross too often to be compared are left to the server.
    """
    found: dict[str, str] = {}
    taken = Patterns(_MOST_STEPS)
    names = [*there, *coming]
    try:
        for number, name in enumerate(names):
            subjects = coming[name] if number >= len(there) else there[name]
            if number >= len(there) and (reason := _reason(taken, names, subjects, there, coming)):
                found[name] = reason
                continue
            for subject in subjects:
                taken.add(subject, number)
    except TooManyStepsError:
        pass
    return found


def _reason(
    taken: Patterns,
    names: Sequence[str],
    subjects: Sequence[str],
    there: Mapping[str, Sequence[str]],
    coming: Mapping[str, Sequence[str]],
) -> str:
    for at, subject in enumerate(subjects):
        for other in subjects[:at]:
            if collide(other, subject):
                return f'its subjects "{other}" and "{subject}" overlap'
        for number in sorted(taken.colliding(subject)):
            owner = names[number]
            theirs = coming[owner] if number >= len(there) else there[owner]
            other = next(each for each in theirs if collide(each, subject))
            return f'its subject "{subject}" overlaps with "{other}" of stream {owner}'
    return ""
