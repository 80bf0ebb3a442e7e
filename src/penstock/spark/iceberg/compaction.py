"""Compaction of Iceberg tables: few files of a good size replace many small ones, with the same rows.

The small files of each partition, oldest first, are merged up to the target size, as
:mod:`penstock.spark.tables.compaction` does it with Delta tables. The commit is a ``replace``, which says
that the rows are the same. Files stay as they are if delete files concern them, or if they have another
partitioning than the table now.

Queries that append go on meanwhile. A group is left out of the commit when another writer has removed or
changed one of its files; compaction then plans it anew. Two groups at a time are read and written, with
some batches of each in memory. Knows nothing of Spark and of marks.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Operation

from penstock.spark.iceberg.catalogs import failed, load
from penstock.spark.iceberg.commits import HERE, FilesGone, Write, add, target_of
from penstock.spark.iceberg.data_files import write_rows
from penstock.spark.tables.places import TableError
from penstock.spark.tables.rows import ahead

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from penstock.spark.iceberg.data_files import Target, WrittenFile
    from penstock.spark.iceberg.options import Address

_TRIES = 5
_COMMIT_TRIES = 8
_AT_ONCE = 2
_COMMIT_BYTES = 8 * 2**30

Group = tuple["DataFile", ...]


@dataclass(frozen=True)
class _Rewritten:
    """A group, and the files that now have its rows."""

    group: Group
    files: tuple[WrittenFile, ...]


def plan(table: Table, target_bytes: int, without: Collection[str] = ()) -> list[Group]:
    """The groups of files of which each becomes one file; ``without`` are paths of files to leave out."""
    spec_id = table.spec().spec_id
    small: dict[tuple[Any, ...], list[tuple[int, str, DataFile]]] = defaultdict(list)
    for sequence, file in _whole_files(table):
        wanted = file.spec_id == spec_id and file.file_path not in without
        if wanted and file.file_size_in_bytes < target_bytes:
            values = tuple(file.partition[place] for place in range(len(file.partition)))
            small[values].append((sequence, file.file_path, file))
    groups: list[Group] = []
    for files in small.values():
        group: list[DataFile] = []
        filled = 0
        for *_, file in sorted(files, key=lambda one: one[:2]):
            if group and filled + file.file_size_in_bytes > target_bytes:
                groups.append(tuple(group))
                group, filled = [], 0
            group.append(file)
            filled += file.file_size_in_bytes
        groups.append(tuple(group))
    return [group for group in groups if len(group) > 1]


def _whole_files(table: Table) -> Iterator[tuple[int, DataFile]]:
    """The files of the table that no delete file concerns, with the numbers of their commits."""
    newest = table.current_snapshot()
    manifests = [] if newest is None else newest.manifests(table.io)
    changed: set[str] = set()
    if any(one.content == ManifestContent.DELETES for one in manifests):
        tasks = table.scan().plan_files()
        changed = {task.file.file_path for task in tasks if task.delete_files}
    for manifest in manifests:
        if manifest.content == ManifestContent.DELETES:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            if entry.data_file.file_path not in changed:
                yield entry.sequence_number or 0, entry.data_file


def compact(address: Address, target_bytes: int) -> tuple[int, int]:
    """Merge files that are smaller than ``target_bytes``; returns the numbers of files removed and added.

    Raises :class:`TableError` when other writers change the same rows each time, or the catalog or store
    fails.
    """
    removed = added = 0
    for _ in range(_TRIES):
        table = _table(address)
        groups = plan(table, target_bytes)
        if not groups:
            return removed, added
        done = [each for part in _portions(groups) for each in rewrite(table, address, part)]
        removed += sum(len(each.group) for each in done)
        added += sum(len(each.files) for each in done)
        if len(done) == len(groups):
            return removed, added
    raise TableError(f"other writers change {address} each time before its compaction is committed")


def _table(address: Address) -> Table:
    table = load(address)
    if table is None:
        raise TableError(f"there is no table {address}")
    return table


def _portions(groups: Iterable[Group]) -> Iterator[list[Group]]:
    """Groups for one commit each: files that wait long for a commit may be removed as left-overs."""
    portion: list[Group] = []
    filled = 0
    for group in groups:
        portion.append(group)
        filled += sum(file.file_size_in_bytes for file in group)
        if filled >= _COMMIT_BYTES:
            yield portion
            portion, filled = [], 0
    if portion:
        yield portion


def rewrite(table: Table, address: Address, groups: Sequence[Group]) -> list[_Rewritten]:
    """Write the rows of each group into new files, and replace the old files in one commit.

    Returns the groups that were committed: all that no other writer has changed meanwhile.
    """
    target = target_of(table, address)
    name = f"compact-{uuid.uuid4().hex[:12]}"

    def write_anew(number: int, group: Group) -> _Rewritten:
        rows = ahead(_rows(table, address, target, group))
        return _Rewritten(group, tuple(write_rows(rows, target, f"{name}-{number:05d}-0")))

    with ThreadPoolExecutor(_AT_ONCE) as writers:
        made = list(writers.map(write_anew, range(len(groups)), groups))
    for _ in range(_COMMIT_TRIES):
        made = _standing(made, _table(address))
        if not made:
            return []
        files = [file for each in made for file in each.files]
        removed = [file for each in made for file in each.group]
        write = Write(target, files, removed=removed, operation=Operation.REPLACE)
        try:
            HERE.commit(address, write, _unless_changed)
        except FilesGone:
            continue
        return made
    return []


def _rows(table: Table, address: Address, target: Target, group: Group) -> Iterator[pa.RecordBatch]:
    """The rows of files with the columns of the table as it is now."""
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    names = list(target.names)
    schema = pa.schema(
        [field.with_name(name) for name, field in zip(names, target.files, strict=True)]
    )
    try:
        for file in group:
            # Not `to_record_batches`: that has all rows of a file in memory.
            for batch in scan._record_batches_from_scan_tasks_and_deletes([FileScanTask(file)], {}):
                yield batch.select(names).cast(schema)
    except FileNotFoundError:
        raise TableError(
            f"a file of {address} is gone: what this snapshot needs was removed"
        ) from None
    except Exception as problem:
        # Any library may raise here; the error is reported.
        raise failed("cannot read the table", address, problem) from None


def _standing(made: Iterable[_Rewritten], now: Table) -> list[_Rewritten]:
    """The groups whose files still have the rows of the table."""
    there = {file.file_path for _, file in _whole_files(now)}
    return [each for each in made if all(file.file_path in there for file in each.group)]


def _unless_changed(table: Table, write: Write) -> None:
    """One attempt of a commit, on a table that still has the rows of all files that go."""
    there = {file.file_path for _, file in _whole_files(table)}
    gone = [file.file_path for file in write.removed if file.file_path not in there]
    if gone:
        raise FilesGone(f"{len(gone)} files are not in it as they were, such as {gone[0]}")
    add(table, write)
