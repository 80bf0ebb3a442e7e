"""Compaction: few files of a good size replace many small ones, with the same rows.

The small files of each partition, oldest first, are merged up to the target size::

    sizes, oldest first   40 40 60 | 10 200 20 | 5          target 128
    become                80 ...                            the 200 is left; 60 10 20 5 are one

Rows do not change, so queries append during a compaction, and streams of the table skip the commit.
A group is left out of the commit when another writer has removed one of its files by changing rows;
compaction then plans it again.

Two groups at a time are read and written, with some row groups in memory; each commit has some
gigabytes. Does not depend on Spark.
"""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from deltalake.exceptions import CommitFailedError

from pelton.spark.tables.commits import Write, check_there, log_to_disk
from pelton.spark.tables.data_files import DataFile, write_rows
from pelton.spark.tables.groups import Rewritten, Small, grouped, portions, until_all_are_done
from pelton.spark.tables.replacing import Active, Snapshot, can_be_named, replace, snapshot
from pelton.spark.tables.rows import ahead, read_files
from pelton.spark.tables.schemas import schema_of
from pelton.spark.tables.statistics import columns_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from deltalake import DeltaTable

    from pelton.spark.tables.places import Place

_AT_ONCE = 2
_COMMIT_TRIES = 20
_READ_ROWS = 32 * 1024

Group = tuple[Active, ...]
_Rewritten = Rewritten[Active, DataFile]


def plan(table: DeltaTable, target_bytes: int, without: Collection[str] = ()) -> list[Group]:
    """The groups of files of which each becomes one file; ``without`` are paths of files to leave out.

    Raises :class:`TableError` for a table that cannot be compacted.
    """
    now = snapshot(table)
    small = (
        Small(file.stored.partition, (file.modified_ms, file.logged), file.stored.size, file)
        for file in now.files.values()
        if file.logged not in now.with_deletions and can_be_named(file)
        if file.stored.size < target_bytes and file.stored.path not in without
    )
    return grouped(small, target_bytes)


def compact(table: DeltaTable, place: Place, target_bytes: int) -> tuple[int, int]:
    """Merge files that are smaller than ``target_bytes``; returns the numbers of files removed and
    added.

    Raises :class:`TableError` when other writers change the same rows each time.
    """

    def attempt() -> tuple[int, list[_Rewritten]]:
        table.update_incremental()
        groups = plan(table, target_bytes)
        parts = portions(groups, lambda file: file.stored.size)
        return len(groups), [each for part in parts for each in rewrite(table, place, part)]

    return until_all_are_done(place, attempt)


def rewrite(table: DeltaTable, place: Place, groups: Sequence[Group]) -> list[_Rewritten]:
    """Write the rows of each group into new files, and replace the old files in one commit.

    Returns the groups that were committed: all that no other writer has changed meanwhile.
    """
    begun, schema = snapshot(table), schema_of(table)
    by = tuple(table.metadata().partition_columns)
    bounded = columns_of(table.metadata().configuration)
    prefix = f"compact-{uuid.uuid4().hex}"

    def write_anew(number: int, group: Group) -> _Rewritten:
        rows = ahead(read_files(place, [file.stored for file in group], schema, _READ_ROWS))
        name = f"{prefix}-{number:05d}"
        files = write_rows(rows, place, schema, name, partition_by=by, bounded=bounded)
        return _Rewritten(group, tuple(files))

    with ThreadPoolExecutor(_AT_ONCE) as writers:
        made = list(writers.map(write_anew, range(len(groups)), groups))
    before = table.version()
    for attempt in range(_COMMIT_TRIES):
        table.update_incremental()
        made = _standing(made, begun, snapshot(table))
        if not made:
            return []
        files = [file for each in made for file in each.files]
        removed = [file for each in made for file in each.group]
        check_there(place, files)
        write = Write(schema=schema, files=files)
        try:
            replace(table, write, removed, data_change=False, alone=False)
        except CommitFailedError:
            time.sleep(0.01 * 2 ** min(attempt, 6))
            continue
        table.update_incremental()
        log_to_disk(place, before, table.version())
        return made
    return []


def _standing(made: Iterable[_Rewritten], begun: Snapshot, now: Snapshot) -> list[_Rewritten]:
    """The groups whose files still have the rows of the table."""
    if now.definition != begun.definition:
        return []
    there = now.files.keys() - now.with_deletions
    return [each for each in made if all(file.logged in there for file in each.group)]
