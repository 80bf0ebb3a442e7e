"""Compaction: few files of a good size replace many small ones, with the same rows.

The small files of each partition, oldest first, are merged up to the target size::

    sizes, oldest first   40 40 60 | 10 200 20 | 5          target 128
    become                80 ...                            the 200 is left; 60 10 20 5 are one

Rows do not change, so queries append during a compaction, and streams of the table skip the commit.
A group is left out of the commit when another writer has removed one of its files by changing rows;
compaction then plans it again. Files with deleted rows stay as they are, and files of another partitioning.

Two groups at a time are read and written, with some row groups in memory; each commit has some
gigabytes. Does not depend on Spark or the format.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pelton.spark.tables.commits import Tables, check_there
from pelton.spark.tables.parquet import write_rows
from pelton.spark.tables.places import TableError
from pelton.spark.tables.rows import ahead
from pelton.spark.tables.table import Active, FilesGoneError, Snapshot, Table, Write, unless_gone

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pelton.spark.tables.table import Where

TRIES = 5
COMMIT_BYTES = 8 * 2**30
_AT_ONCE = 2
_COMMIT_TRIES = 8
_READ_ROWS = 32 * 1024

Group = tuple[Active, ...]


@dataclass(frozen=True)
class _Rewritten:
    """A group, and the files that now have its rows."""

    group: Group
    files: tuple[Any, ...]


def plan(table: Table, target_bytes: int, without: Collection[str] = ()) -> list[Group]:
    """The groups of files of which each becomes one file; ``without`` are names of files to leave out.

    Raises :class:`TableError` for a table that cannot be compacted.
    """
    now = table.snapshot()
    small: dict[Any, list[Active]] = defaultdict(list)
    for file in now.files.values():
        whole = file.logged not in now.with_deletions and file.logged not in without
        if whole and file.stored.size < target_bytes and table.can_replace(file):
            small[file.stored.partition].append(file)
    groups: list[Group] = []
    for files in small.values():
        group: list[Active] = []
        filled = 0
        for one in sorted(files, key=lambda file: (file.order, file.logged)):
            if group and filled + one.stored.size > target_bytes:
                groups.append(tuple(group))
                group, filled = [], 0
            group.append(one)
            filled += one.stored.size
        groups.append(tuple(group))
    return [group for group in groups if len(group) > 1]


def _portions(groups: Iterable[Group]) -> Iterator[list[Group]]:
    """Groups for one commit each: files that wait long for a commit may be removed as left-overs."""
    portion: list[Group] = []
    filled = 0
    for group in groups:
        portion.append(group)
        filled += sum(file.stored.size for file in group)
        if filled >= COMMIT_BYTES:
            yield portion
            portion, filled = [], 0
    if portion:
        yield portion


def compact(where: Where, target_bytes: int) -> tuple[int, int]:
    """Merge files that are smaller than ``target_bytes``; returns the numbers of files removed and
    added.

    Raises :class:`TableError` when other writers change the same rows each time.
    """
    tables = Tables()
    removed = added = 0
    for _ in range(TRIES):
        groups = plan(tables.there(where), target_bytes)
        done = [each for part in _portions(groups) for each in rewrite(tables, where, part)]
        removed += sum(len(each.group) for each in done)
        added += sum(len(each.files) for each in done)
        if len(done) == len(groups):
            return removed, added
    raise TableError(f"other writers change {where} each time before its compaction is committed")


def rewrite(tables: Tables, where: Where, groups: Sequence[Group]) -> list[_Rewritten]:
    """Write the rows of each group into new files, and replace the old files in one commit.

    Returns the groups that were committed: all that no other writer has changed meanwhile.
    """
    table = tables.there(where)
    begun, columns = table.snapshot(), table.columns()
    target, rows = table.target(columns), table.rows(columns)
    name = f"compact-{uuid.uuid4().hex[:12]}"

    def write_anew(number: int, group: Group) -> _Rewritten:
        found = ahead(rows.read([file.stored for file in group], _READ_ROWS))
        return _Rewritten(group, tuple(write_rows(found, target, f"{name}-{number:05d}-0")))

    with ThreadPoolExecutor(_AT_ONCE) as writers:
        made = list(writers.map(write_anew, range(len(groups)), groups))
    for _ in range(_COMMIT_TRIES):
        made = _standing(made, begun, tables.there(where).snapshot())
        if not made:
            return []
        files = [file for each in made for file in each.files]
        removed = [file for each in made for file in each.group]
        write = Write(columns, files, removed=removed, replaces=True, same_rows=True, target=target)
        check_there(where, write)
        try:
            tables.once(where, write, partial(_commit, write))
        except FilesGoneError:
            continue
        return made
    return []


def _commit(write: Write, table: Table) -> None:
    """One attempt, on a table that still has the rows of all files that go."""
    now = table.snapshot()
    unless_gone(write.removed, now.files.keys() - now.with_deletions)
    table.commit(write)


def _standing(made: Iterable[_Rewritten], begun: Snapshot, now: Snapshot) -> list[_Rewritten]:
    """The groups whose files still have the rows of the table."""
    if now.definition != begun.definition:
        return []
    there = now.files.keys() - now.with_deletions
    return [each for each in made if all(file.logged in there for file in each.group)]
