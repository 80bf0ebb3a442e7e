"""Commits that happen once: files become part of an Iceberg table together with a mark.

One commit holds both, so a table has both or neither::

    property   pelton.query.<query id>   {"number": 7, "run": ..., "rows": ..., "token": ...}
    snapshot   pelton.query, pelton.batch, pelton.token in its summary

The property decides: it stays when snapshots expire. The summary is for users, and identifies a
commit whose answer did not arrive.

A commit requires that the table's newest snapshot is the one that it was made for. ``pyiceberg`` would
repeat it on a snapshot that came between. That is right for rows and wrong for a mark: of two drivers
both would win. So a commit is tried once; then the table is loaded again, and
:mod:`pelton.spark.tables.marks` decides whether it must still be made.

Files refer to columns by number, so the table needs the columns first (:func:`prepare`). Knows nothing
of Spark.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AssertTableUUID
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT, KeyDefaultDict
from pyiceberg.utils.concurrent import ExecutorFactory

from pelton.spark.iceberg.catalogs import create, data_folder, failed, load
from pelton.spark.iceberg.data_files import Target, described
from pelton.spark.iceberg.schemas import (
    check_version,
    file_schema,
    identity_columns,
    in_files,
    needed,
    table_schema,
)
from pelton.spark.tables.marks import Found, Mark, Marks
from pelton.spark.tables.places import TableError
from pelton.spark.tables.schemas import check_partitions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from pelton.spark.iceberg.data_files import WrittenFile
    from pelton.spark.iceberg.options import Address

_Changed = tuple["ManifestFile", list[ManifestEntry]]

_TRIES = 8
# Concurrent maintenance may have removed a file of this age as a left-over.
_SURELY_THERE_SECONDS = 30 * 60
_PROPERTY = "pelton.query."
QUERY, _BATCH, _TOKEN = "pelton.query", "pelton.batch", "pelton.token"


class FilesGoneError(TableError):
    """Another writer has removed files that a commit removes: it must be made again."""


@dataclass(frozen=True)
class Write:
    """The files and the mark that become part of a table in one commit."""

    target: Target
    files: Sequence[WrittenFile] = ()
    mark: Mark | None = None
    overwrite: bool = False
    check_again: bool = True
    again_until: int = -1
    """The argument of :meth:`pelton.spark.tables.marks.Marks.held`."""
    each: bool = False
    """Whether every batch of the query leaves its mark, also batches without rows."""
    removed: Sequence[DataFile] = ()
    """Files that the commit removes; :class:`FilesGoneError` if one of them is not in the table any more."""
    operation: Operation = Operation.OVERWRITE
    """What a commit that removes files says it does; ``REPLACE`` for the same rows in other files."""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def rows(self) -> int:
        """The number of rows of all files."""
        return sum(file.rows for file in self.files)

    def property(self) -> dict[str, str]:
        """The table property that keeps the mark; none without a mark."""
        if self.mark is None:
            return {}
        note = {"number": self.mark.number, "run": self.mark.run}
        note |= {"rows": self.rows, "token": self.token}
        if self.each:
            note["each"] = True
        return {_PROPERTY + self.mark.name: json.dumps(note)}

    def summary(self) -> dict[str, str]:
        """The properties in the summary of the snapshot."""
        if self.mark is None:
            return {_TOKEN: self.token}
        return {_TOKEN: self.token, QUERY: self.mark.name, _BATCH: str(self.mark.number)}


def prepare(
    address: Address,
    schema: pa.Schema,
    *,
    partition_by: tuple[str, ...] | None = None,
    merge_schema: bool = False,
) -> Target:
    """The table with all columns that rows of ``schema`` need; created when it does not exist.

    Raises :class:`TableError` when the rows don't fit, or the catalog or store fails.
    """
    check_partitions(schema, partition_by or (), all_columns=True)
    problem: Exception | None = None
    for attempt in range(_TRIES):
        table = load(address) or create(address, schema, partition_by or ())
        check_version(table.metadata, address)
        have = identity_columns(table.spec(), table.schema(), address)
        if partition_by is not None and partition_by != have:
            there = f"by {', '.join(have)}" if have else "not at all"
            raise TableError(
                f"partitionBy is {', '.join(partition_by)}, but {address} is partitioned {there}"
            )
        found = needed(table.schema(), schema, merge=merge_schema, name=address)
        lacking = [name for name in have if name not in found.columns.names]
        if lacking:
            raise TableError(f"{address} is partitioned by {', '.join(lacking)}; rows need it, too")
        more = [*found.changed, *found.added]
        if not more:
            return _target(table, found.columns, have, address)
        try:
            with table.update_schema() as update:
                update.union_by_name(pa.schema(more))
        except CommitFailedException as raced:
            problem = raced
            time.sleep(0.01 * 2**attempt)
        except Exception as other:
            # Any library may raise here; the error is reported.
            raise failed("cannot add columns to", address, other) from None
    raise failed("cannot add columns to", address, problem)


def target_of(table: Table, address: Address) -> Target:
    """The table as it is, for files with all its columns.

    Raises :class:`TableError` for a table whose files are not written here.
    """
    check_version(table.metadata, address)
    have = identity_columns(table.spec(), table.schema(), address)
    return _target(table, table_schema(table.schema()), have, address)


def _target(
    table: Table, schema: pa.Schema, partition_by: tuple[str, ...], address: Address
) -> Target:
    return Target(
        uuid=str(table.metadata.table_uuid),
        schema_id=table.schema().schema_id,
        spec_id=table.spec().spec_id,
        names=tuple(schema.names),
        partition_by=partition_by,
        files=file_schema(table.schema(), schema.names),
        folder=data_folder(table, address),
    )


class Tables:
    """The commits that a process has made to tables.

    Commits may come from several threads; those to one table are made one after the other. Errors are
    :class:`TableError`.
    """

    def __init__(self) -> None:
        """Knows of no commit."""
        self._marks = Marks()
        self._locks: dict[Address, threading.RLock] = {}

    def commit(
        self,
        address: Address,
        write: Write,
        change: Callable[[Table, Write], object] | None = None,
        read: Callable[[], Table | None] | None = None,
    ) -> bool:
        """Make the files part of the table, all or none; False when the table holds the mark already.

        ``change`` makes one attempt, :func:`add` unless given; ``read`` gives the table as it is now, which is
        loaded otherwise. Raises when another driver runs the same query, the checkpoint is older than the
        table, the table is not the one that the files were written for, or the catalog or store fails;
        :class:`FilesGoneError` when files that it removes are not there.
        """
        _check_there(address, write)
        with self._locks.setdefault(address, threading.RLock()):
            return self._commit(address, write, change or add, read or (lambda: load(address)))

    def _commit(
        self,
        address: Address,
        write: Write,
        change: Callable[[Table, Write], object],
        read: Callable[[], Table | None],
    ) -> bool:
        problem: Exception | None = None
        for attempt in range(_TRIES):
            table = _checked(read(), address, write)
            if problem is not None and _made(table, write):
                self._marks.note(address, write.mark)
                return True  # the failure came after the commit
            found = _found(table, write.mark)
            rows = write.rows if write.check_again else None
            raced = problem is not None
            until = write.again_until
            if self._marks.held(
                address, write.mark, found, rows=rows, raced=raced, again_until=until
            ):
                self._marks.note(address, write.mark)
                return False
            try:
                change(table, write)
            except CommitFailedException as other:
                problem = other
                time.sleep(0.01 * 2**attempt)
            except FilesGoneError as gone:
                raise FilesGoneError(f"another writer has changed {address}: {gone}") from None
            except Exception as other:
                # Any library may raise here; the error is reported below.
                problem = other
                break
            else:
                self._marks.note(address, write.mark)
                return True
        if _made(_checked(load(address), address, write), write):
            self._marks.note(address, write.mark)
            return True
        raise failed("cannot commit to the table", address, problem) from None


HERE = Tables()
"""The commits of this process."""


class _OneAttempt(Transaction):
    """Changes that are committed unchanged, or not at all."""

    _known: tuple[TableMetadata, Any, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with the changes so far. It is asked many times between two changes, and copied once."""
        known, now = self._known, (self._table.metadata, self._updates)
        if known is None or known[0] is not now[0] or known[1] is not now[1]:
            known = self._known = (*now, super().table_metadata)
        return known[2]

    def commit_transaction(self) -> Table:
        """Commit once. Raises ``CommitFailedException`` when another commit came between."""
        same_table = AssertTableUUID(uuid=self.table_metadata.table_uuid)
        self._table._do_commit(
            updates=self._updates, requirements=(*self._requirements, same_table)
        )
        return self._table


class _Replacing(_OverwriteFiles):
    """Files in place of others, with any operation: ``pyiceberg`` counts for some only.

    It reads each manifest once, and leaves out manifests that name only files which earlier commits removed:
    ``pyiceberg`` reads each twice, and keeps them all, so that each commit takes longer than the one before.
    """

    _parts: tuple[list[ManifestFile], list[_Changed]] | None = None

    def _divided(self) -> tuple[list[ManifestFile], list[_Changed]]:
        """The manifests that stay as they are, and those that name removed files, with their entries."""
        if self._parts is not None:
            return self._parts
        snapshot = self._transaction.table_metadata.snapshot_by_name(self._target_branch)
        evaluators = KeyDefaultDict(self._build_manifest_evaluator)  # not asked by several threads
        stay: list[ManifestFile] = []
        asked: list[ManifestFile] = []
        for manifest in snapshot.manifests(self._io) if snapshot else ():
            if not (manifest.has_added_files() or manifest.has_existing_files()):
                continue
            of_rows = manifest.content == ManifestContent.DATA
            may_name = of_rows and evaluators[manifest.partition_spec_id](manifest)
            (asked if may_name else stay).append(manifest)
        changed: list[_Changed] = []
        read = ExecutorFactory.get_or_create().map(self.fetch_manifest_entry, asked)
        for manifest, entries in zip(asked, read, strict=True):
            if any(entry.data_file in self._deleted_data_files for entry in entries):
                changed.append((manifest, entries))
            else:
                stay.append(manifest)
        self._parts = stay, changed
        return self._parts

    def _deleted_entries(self) -> list[ManifestEntry]:
        """What the commit says of the files that it removes."""
        found = [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.DELETED,
                snapshot_id=self._snapshot_id,
                sequence_number=entry.sequence_number,
                file_sequence_number=entry.file_sequence_number,
                data_file=entry.data_file,
            )
            for _, entries in self._divided()[1]
            for entry in entries
            if entry.data_file in self._deleted_data_files
        ]
        self._validate_required_deletes(found)
        return found

    def _existing_manifests(self) -> list[ManifestFile]:
        """The manifests of the files that stay."""
        stay, changed = self._divided()
        found = list(stay)
        for manifest, entries in changed:
            kept = [entry for entry in entries if entry.data_file not in self._deleted_data_files]
            if kept:
                with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
                    for entry in kept:
                        writer.existing(entry)
                found.append(writer.to_manifest_file())
        return found

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        """What the snapshot says of itself."""
        meant, self._operation = self._operation, Operation.OVERWRITE
        try:
            found = super()._summary(snapshot_properties)
        finally:
            self._operation = meant
        return found.model_copy(update={"operation": meant})


def add(table: Table, write: Write) -> list[DataFile]:
    """Commit the files and the mark to the table as it was loaded; returns the entries of the files."""
    target = write.target
    table.metadata = _without_history(table.metadata)
    schema = in_files(table.schemas()[target.schema_id], target.names)
    spec = table.specs()[target.spec_id]
    transaction = _OneAttempt(table)
    if write.mark is not None:
        transaction.set_properties(write.property())
        if (
            write.each and not write.files and not write.overwrite and not write.removed
        ):  # the commit has only a mark
            transaction.commit_transaction()
            return []
    removed: Sequence[DataFile] = write.removed
    if write.overwrite:
        removed = [task.file for task in table.scan().plan_files()]
    producer: Any
    if write.overwrite or removed:
        operation = write.operation if table.current_snapshot() else Operation.APPEND
        producer = _Replacing(operation, transaction, table.io, None, write.summary())
        for file in removed:
            producer.delete_data_file(file)
    else:
        snapshot = transaction.update_snapshot(snapshot_properties=write.summary())
        merged = table.properties.get("commit.manifest-merge.enabled", "").lower() == "true"
        producer = snapshot.merge_append() if merged else snapshot.fast_append()
    properties = dict(table.properties)
    files = list(described(write.files, target.folder.uri, schema, spec, properties))
    for file in files:
        producer.append_data_file(file)
    try:
        producer.commit()
    except ValidationException:
        named = {task.file for task in table.scan().plan_files()}
        gone = sorted(file.file_path for file in write.removed if file not in named)
        if not gone:
            raise
        raise FilesGoneError(f"{len(gone)} files are not in it, such as {gone[0]}") from None
    try:
        transaction.commit_transaction()
    except CommitFailedException:
        # Remove the files that were written for it, unless the commit was made and only its answer
        # did not arrive.
        if not _made(table.refresh(), write):
            producer._clean_all_uncommitted()
        raise
    return files


def _without_history(metadata: TableMetadata) -> TableMetadata:
    """The metadata of the table without old snapshots.

    A transaction copies its metadata many times. The commit has only changes, which the catalog applies
    to its metadata.
    """
    heads = {ref.snapshot_id for ref in metadata.refs.values()} | {metadata.current_snapshot_id}
    snapshots = [each for each in metadata.snapshots if each.snapshot_id in heads]
    return metadata.model_copy(update={"snapshots": snapshots, "snapshot_log": []})


def _checked(table: Table | None, address: Address, write: Write) -> Table:
    """The table, if it is the one that the files were written for."""
    if table is None or str(table.metadata.table_uuid) != write.target.uuid:
        happened = "removed" if table is None else "created again"
        raise TableError(f"the table {address} was {happened} while rows for it were written")
    if table.spec().spec_id != write.target.spec_id:
        raise TableError(
            f"the table {address} was partitioned differently while rows for it were written; run the"
            " batch again"
        )
    return table


def _check_there(address: Address, write: Write) -> None:
    """Check that old files still exist: a table must not name files that maintenance removed."""
    before_ms = int((time.time() - _SURELY_THERE_SECONDS) * 1000)
    old = [file.path for file in write.files if file.written_ms < before_ms]
    found = write.target.folder.files().get_file_info(old) if old else []
    gone = [info.path for info in found if not info.is_file]
    if gone:
        raise TableError(
            f"{len(gone)} files of this batch were removed from {address} before their commit, as"
            " by maintenance that keeps less than a batch takes"
        )


def _found(table: Table, mark: Mark | None) -> Found | None:
    """The last number of the mark's name in the table."""
    kept = None if mark is None else table.properties.get(_PROPERTY + mark.name)
    if kept is None:
        return None
    note = json.loads(kept)
    return Found(int(note["number"]), note.get("rows"), bool(note.get("each")))


def batch_of(table: Table | None, query: str) -> int | None:
    """The last batch of a query that the table holds; None when it holds none."""
    found = None if table is None else _found(table, Mark(query, 0))
    return None if found is None else found.number


def last_of(table: Table | None, query: str) -> Found | None:
    """The last batch of a query that the table holds, with the note of its commit."""
    return None if table is None else _found(table, Mark(query, 0))


def _made(table: Table, write: Write) -> bool:
    """Whether the table has exactly this commit."""
    if write.mark is not None:
        kept = table.properties.get(_PROPERTY + write.mark.name, "{}")
        if json.loads(kept).get("token") == write.token:
            return True
    summaries = (snapshot.summary for snapshot in table.metadata.snapshots)
    return any(found is not None and found[_TOKEN] == write.token for found in summaries)
