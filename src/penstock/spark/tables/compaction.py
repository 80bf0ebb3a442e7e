"""Compaction: few files of a good size replace many small ones, with the same rows.

The small files of each partition, oldest first, are merged up to the target size::

    sizes, oldest first   40 40 60 | 10 200 20 | 5          target 128
    become                80 ...                            the 200 is left; 60 10 20 5 are one

Rows do not change, so queries that append go on meanwhile, and streams of the table skip the commit.
A group is left out of the commit when another writer has removed one of its files by changing rows;
compaction then plans it anew.

Two groups at a time are read and written, with some row groups in memory; each commit has some
gigabytes. Knows nothing of Spark.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake.exceptions import CommitFailedError

from penstock.spark.tables.commits import Write, check_there, log_to_disk
from penstock.spark.tables.data_files import DataFile, write_rows
from penstock.spark.tables.places import TableError
from penstock.spark.tables.replacing import Active, Snapshot, can_be_named, replace, snapshot
from penstock.spark.tables.rows import ahead, read_files
from penstock.spark.tables.schemas import schema_of
from penstock.spark.tables.statistics import columns_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from deltalake import DeltaTable

    from penstock.spark.tables.places import Place

_TRIES = 5
_AT_ONCE = 2
_COMMIT_TRIES = 20
_COMMIT_BYTES = 8 * 2**30
_READ_ROWS = 32 * 1024

Group = tuple[Active, ...]


@dataclass(frozen=True)
class _Rewritten:
    """A group, and the files that now have its rows."""

    group: Group
    files: tuple[DataFile, ...]


def plan(table: DeltaTable, target_bytes: int, without: Collection[str] = ()) -> list[Group]:
    """The groups of files of which each becomes one file; ``without`` are paths of files to leave out.

    Raises :class:`TableError` for a table that cannot be compacted.
    """
    return _groups(snapshot(table), target_bytes, without)


def _groups(now: Snapshot, target_bytes: int, without: Collection[str]) -> list[Group]:
    small: dict[tuple[tuple[str, str | None], ...], list[Active]] = defaultdict(list)
    for file in now.files.values():
        may = file.logged not in now.with_deletions and can_be_named(file)
        if may and file.stored.size < target_bytes and file.stored.path not in without:
            small[file.stored.partition].append(file)
    groups: list[Group] = []
    for files in small.values():
        group: list[Active] = []
        filled = 0
        for file in sorted(files, key=lambda one: (one.modified_ms, one.logged)):
            if group and filled + file.stored.size > target_bytes:
                groups.append(tuple(group))
                group, filled = [], 0
            group.append(file)
            filled += file.stored.size
        groups.append(tuple(group))
    return [group for group in groups if len(group) > 1]


def compact(table: DeltaTable, place: Place, target_bytes: int) -> tuple[int, int]:
    """Merge files that are smaller than ``target_bytes``; returns the numbers of files removed and
    added.

    Raises :class:`TableError` when other writers change the same rows each time.
    """
    removed = added = 0
    for _ in range(_TRIES):
        table.update_incremental()
        groups = plan(table, target_bytes)
        if not groups:
            return removed, added
        done = [each for part in _portions(groups) for each in rewrite(table, place, part)]
        removed += sum(len(each.group) for each in done)
        added += sum(len(each.files) for each in done)
        if len(done) == len(groups):
            return removed, added
    raise TableError(f"other writers change {place} each time before its compaction is committed")


def _portions(groups: Iterable[Group]) -> Iterator[list[Group]]:
    """Groups for one commit each: files that wait long for a commit may be removed as left-overs."""
    portion: list[Group] = []
    filled = 0
    for group in groups:
        portion.append(group)
        filled += sum(file.stored.size for file in group)
        if filled >= _COMMIT_BYTES:
            yield portion
            portion, filled = [], 0
    if portion:
        yield portion


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
