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
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from pelton.spark.tables.commits import Tables, check_there
from pelton.spark.tables.groups import Rewritten, Small, grouped, portions, until_all_are_done
from pelton.spark.tables.parquet import write_rows
from pelton.spark.tables.rows import ahead
from pelton.spark.tables.table import Active, FilesGoneError, Snapshot, Table, Write, unless_gone

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pelton.spark.tables.table import Where

_AT_ONCE = 2
_COMMIT_TRIES = 8
_READ_ROWS = 32 * 1024

Group = tuple[Active, ...]
_Rewritten = Rewritten[Active, Any]


def plan(table: Table, target_bytes: int, without: Collection[str] = ()) -> list[Group]:
    """The groups of files of which each becomes one file; ``without`` are names of files to leave out.

    Raises :class:`TableError` for a table that cannot be compacted.
    """
    now = table.snapshot()
    small = (
        Small(file.stored.partition, (file.order, file.logged), file.stored.size, file)
        for file in now.files.values()
        if file.stored.size < target_bytes and file.logged not in without
        if file.logged not in now.with_deletions and table.can_replace(file)
    )
    return grouped(small, target_bytes)


def compact(where: Where, target_bytes: int) -> tuple[int, int]:
    """Merge files that are smaller than ``target_bytes``; returns the numbers of files removed and
    added.

    Raises :class:`TableError` when other writers change the same rows each time.
    """
    tables = Tables()

    def attempt() -> tuple[int, list[_Rewritten]]:
        table = tables.there(where)
        groups = plan(table, target_bytes)
        parts = portions(groups, lambda file: file.stored.size)
        return len(groups), [each for part in parts for each in rewrite(tables, where, part)]

    return until_all_are_done(where, attempt)


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
