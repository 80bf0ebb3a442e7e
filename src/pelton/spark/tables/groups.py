"""Groups of small files that become one file each, for tables of any kind; as plain functions.

A compaction makes groups, writes each into a new file, and replaces the old files, some groups in
each commit. If another writer has changed a group in between, it is planned again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

F = TypeVar("F")
N = TypeVar("N")

TRIES = 5
COMMIT_BYTES = 8 * 2**30


@dataclass(frozen=True)
class Small(Generic[F]):
    """A small file: its partition, its place in the order, its size, and what its table knows of it."""

    partition: Hashable
    order: Any
    size: int
    file: F


@dataclass(frozen=True)
class Rewritten(Generic[F, N]):
    """A group, and the files that now have its rows."""

    group: tuple[F, ...]
    files: tuple[N, ...]


def grouped(files: Iterable[Small[F]], target_bytes: int) -> list[tuple[F, ...]]:
    """The files of each partition in groups up to a size, in order; a file alone is no group."""
    small: dict[Hashable, list[Small[F]]] = defaultdict(list)
    for each in files:
        small[each.partition].append(each)
    groups: list[tuple[F, ...]] = []
    for those in small.values():
        group: list[F] = []
        filled = 0
        for one in sorted(those, key=lambda one: one.order):
            if group and filled + one.size > target_bytes:
                groups.append(tuple(group))
                group, filled = [], 0
            group.append(one.file)
            filled += one.size
        groups.append(tuple(group))
    return [group for group in groups if len(group) > 1]


def portions(
    groups: Iterable[tuple[F, ...]], size_of: Callable[[F], int]
) -> Iterator[list[tuple[F, ...]]]:
    """Groups for one commit each: files that wait long for a commit may be removed as left-overs."""
    portion: list[tuple[F, ...]] = []
    filled = 0
    for group in groups:
        portion.append(group)
        filled += sum(map(size_of, group))
        if filled >= COMMIT_BYTES:
            yield portion
            portion, filled = [], 0
    if portion:
        yield portion


def until_all_are_done(
    where: object, attempt: Callable[[], tuple[int, Sequence[Rewritten[F, N]]]]
) -> tuple[int, int]:
    """Repeat attempts until one has done all groups that it planned; the numbers of files removed and added.

    Raises :class:`TableError` when other writers change the same rows each time.
    """
    removed = added = 0
    for _ in range(TRIES):
        planned, done = attempt()
        removed += sum(len(each.group) for each in done)
        added += sum(len(each.files) for each in done)
        if len(done) == planned:
            return removed, added
    raise TableError(f"other writers change {where} each time before its compaction is committed")
