"""What damage took, less what was removed anyway. Knows nothing of files."""

from __future__ import annotations


def without(
    first: int, count: int, reason: str, known: list[tuple[int, int]]
) -> list[tuple[int, int, str]]:
    """The parts of a missing run that no removal names, as (first, count, reason).

    `known`: (first, end) of the removals, ascending.
    """
    parts: list[tuple[int, int, str]] = []
    if count == 0:
        return [(first, 0, reason)]
    end = first + count
    for low, high in known:
        if high <= first or low >= end:
            continue
        if low > first:
            parts.append((first, low - first, reason))
        first = max(first, high)
        if first >= end:
            break
    if first < end:
        parts.append((first, end - first, reason))
    return parts
