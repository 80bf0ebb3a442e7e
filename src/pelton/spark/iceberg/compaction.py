"""Compaction of Iceberg tables: few files of a good size replace many small ones, with the same rows.

The small files of each partition, oldest first, are merged up to the target size, as
:mod:`pelton.spark.tables.compaction` does it with Delta tables. The commit is a ``replace``, which says
that the rows are the same. Files stay as they are if delete files concern them, or if they have another
partitioning than the table now.

Queries append during a compaction. A group is left out of the commit when another writer has removed or
changed one of its files; compaction then plans it again. Two groups at a time are read and written, with
some batches of each in memory. Does not depend on Spark or marks.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Operation

from pelton.spark.iceberg.catalogs import failed, load
from pelton.spark.iceberg.commits import HERE, FilesGoneError, Write, add, target_of
from pelton.spark.iceberg.data_files import WrittenFile, write_rows
from pelton.spark.tables.groups import Rewritten, Small, grouped, portions, until_all_are_done
from pelton.spark.tables.places import TableError
from pelton.spark.tables.rows import ahead

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from pelton.spark.iceberg.data_files import Target
    from pelton.spark.iceberg.options import Address

_COMMIT_TRIES = 8
_AT_ONCE = 2

Group = tuple["DataFile", ...]
_Rewritten = Rewritten["DataFile", WrittenFile]


def plan(table: Table, target_bytes: int, without: Collection[str] = ()) -> list[Group]:
    """The groups of files of which each becomes one file; ``without`` are paths of files to leave out."""
    spec_id = table.spec().spec_id
    small = (
        Small(
            tuple(file.partition[place] for place in range(len(file.partition))),
            (sequence, file.file_path),
            file.file_size_in_bytes,
            file,
        )
        for sequence, file in _whole_files(table)
        if file.spec_id == spec_id and file.file_path not in without
        if file.file_size_in_bytes < target_bytes
    )
    return grouped(small, target_bytes)


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

    def attempt() -> tuple[int, list[_Rewritten]]:
        table = _table(address)
        groups = plan(table, target_bytes)
        parts = portions(groups, lambda file: int(file.file_size_in_bytes))
        return len(groups), [each for part in parts for each in rewrite(table, address, part)]

    return until_all_are_done(address, attempt)


def _table(address: Address) -> Table:
    table = load(address)
    if table is None:
        raise TableError(f"there is no table {address}")
    return table


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
        except FilesGoneError:
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
            f"a file of {address} was removed, although this snapshot needs it"
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
        raise FilesGoneError(f"{len(gone)} files are not in it as they were, such as {gone[0]}")
    add(table, write)
