"""Iceberg tables for the engine, through ``pyiceberg``.

A snapshot's sequence number is the version of the table; the engine knows those of the main branch. The process keeps
a loaded table, with the files of its snapshot once they were asked for: a commit of this process adds and removes
files there, and nothing is read. Where a catalog says where a table's metadata is, an unchanged table is not loaded.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import types
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType
from pyiceberg.utils.concurrent import ExecutorFactory

from pelton.spark.iceberg.catalogs import (
    create,
    data_folder,
    failed,
    load,
    location_of,
    storage_of,
)
from pelton.spark.iceberg.commits import BATCH, PROPERTY, QUERY, attempt, made
from pelton.spark.iceberg.data_files import Target
from pelton.spark.iceberg.expiry import expire
from pelton.spark.iceberg.schemas import (
    check_version,
    file_schema,
    identity_columns,
    needed,
    table_schema,
    widened,
)
from pelton.spark.tables.key_matching import ordered
from pelton.spark.tables.marks import Found, Mark
from pelton.spark.tables.parquet import partition_text
from pelton.spark.tables.places import TableError
from pelton.spark.tables.schemas import check_partitioned, table_type
from pelton.spark.tables.table import Active, Snapshot, StoredFile, Table, TableFormat, Totals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table as Loaded
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

    from pelton.spark.iceberg.options import Address
    from pelton.spark.tables.evolution import Evolution
    from pelton.spark.tables.maintenance import Plan
    from pelton.spark.tables.table import KeyedRows, Write


class IcebergFormat(TableFormat):
    """Iceberg tables of a catalog."""

    kind = "an Iceberg table"
    failures = (Exception,)  # any library below pyiceberg may raise
    columns_first = True
    divisible = False

    def open(self, where: Address, known: Table | None) -> Iceberg | None:
        """Load the table, unless the catalog has the same metadata as before."""
        if isinstance(known, Iceberg) and location_of(where) == known.table.metadata_location:
            return known
        table = load(where)
        return None if table is None else Iceberg(where, table)

    def at(self, where: Address, version: int | None, time: datetime | None) -> Iceberg | None:
        """Load the table; ``version`` is the id of a snapshot."""
        table = load(where)
        if table is None:
            return None
        if version is not None:
            found = table.snapshot_by_id(version)
        else:
            assert time is not None
            found = table.snapshot_as_of_timestamp(int(time.timestamp() * 1000))
        if found is None:
            asked = f"snapshot {version}" if version is not None else f"snapshot of {time}"
            raise TableError(f"the table {where} has no {asked}, or no longer")
        return Iceberg(where, table, (found,))

    def create(self, where: Address, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """With its namespace."""
        create(where, schema, partition_by)

    def target(self, where: Address, schema: pa.Schema, partition_by: Sequence[str]) -> Target:
        """None: files need the numbers that the table gives to columns."""
        raise self.missing(where)

    def raced(self, problem: Exception) -> bool:
        """By the error of ``pyiceberg``."""
        return isinstance(problem, CommitFailedException)

    def failed(self, doing: str, where: Address, problem: object) -> TableError:
        """Without the values of properties, which may be secret."""
        return failed(doing, where, problem)

    def missing(self, where: Address) -> TableError:
        """With the name."""
        return TableError(f"there is no table {where}")

    def fit(self, kind: pa.DataType) -> pa.DataType:
        """Without 8 and 16 bit integers."""
        return widened(table_type(kind))


ICEBERG = IcebergFormat()


@dataclass(frozen=True, repr=False)
class IcebergRows:
    """Reads files by the numbers of their columns, and leaves out deleted rows."""

    name: str
    metadata: TableMetadata
    io: FileIO
    fields: Schema
    columns: pa.Schema

    def read(self, files: Iterable[StoredFile], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Each file as ``pyiceberg`` reads it."""
        scan = ArrowScan(self.metadata, self.io, self.fields, AlwaysTrue())
        for file in files:
            try:
                for batch in self._of(scan, file.entry):
                    named = batch.select(self.columns.names).cast(self.columns)
                    for begin in range(0, named.num_rows, batch_rows):
                        yield named.slice(begin, batch_rows)
            except FileNotFoundError:
                raise TableError(
                    f"a file that this snapshot of {self.name} needs was removed."
                    " Read a newer snapshot, or keep snapshots for longer"
                ) from None

    def _of(self, scan: ArrowScan, task: FileScanTask) -> Iterator[pa.RecordBatch]:
        deleted = _read_all_delete_files(self.io, [task]) if task.delete_files else {}
        # Not `to_record_batches`: that has all rows of a file in memory.
        yield from scan._record_batches_from_scan_tasks_and_deletes([task], deleted)


class Iceberg(Table):
    """A table as ``pyiceberg`` has loaded it."""

    def __init__(
        self,
        where: Address,
        table: Loaded,
        pinned: tuple[IcebergSnapshot | None] | None = None,
    ) -> None:
        """``pinned`` is the snapshot to read; the newest unless given."""
        self.where: Address = where
        self.table = table
        self._pinned = pinned
        self._of: tuple[str, int | None] | None = None
        self._files: dict[str, Active] = {}
        self._deletions: frozenset[str] = frozenset()

    @property
    def head(self) -> IcebergSnapshot | None:
        """The snapshot that is read; None without rows."""
        return self.table.current_snapshot() if self._pinned is None else self._pinned[0]

    def _fields(self) -> Schema:
        head = self.head
        if self._pinned is None or head is None or head.schema_id is None:
            return self.table.schema()
        return self.table.schemas()[head.schema_id]

    def id(self) -> str:
        """That of the metadata."""
        return str(self.table.metadata.table_uuid)

    def version(self) -> int:
        """The sequence number; format 1 numbers no commits."""
        if self._pinned is not None:
            return 0 if self.head is None else self.head.sequence_number or 0
        metadata = self.table.metadata
        return int(getattr(metadata, "last_sequence_number", len(metadata.snapshots)))

    def columns(self) -> pa.Schema:
        """A type that Spark's rows lack stays unchanged."""
        return table_schema(self._fields())

    def partition_by(self) -> tuple[str, ...]:
        """Raises :class:`TableError` for a partitioning by anything but values."""
        return identity_columns(self.table.spec(), self.table.schema(), self.where)

    def last(self, query: str) -> int | None:
        """By the table's property."""
        found = self.found(Mark(query, 0))
        return None if found is None else found.number

    def found(self, mark: Mark) -> Found | None:
        """By the table's property."""
        kept = self.table.properties.get(PROPERTY + mark.name)
        if kept is None:
            return None
        note = json.loads(kept)
        return Found(int(note["number"]), note.get("rows"), bool(note.get("each")))

    def made(self, write: Write) -> bool:
        """By the token in the property and in snapshots."""
        return made(self.table, write)

    def check(self, write: Write) -> Evolution:
        """Compare columns and partitions."""
        check_version(self.table.metadata, self.where)
        have = self.partition_by()
        check_partitioned(write.partition_by, have, self.where)
        found = needed(self.table.schema(), write.schema, merge=write.merge_schema, name=self.where)
        lacking = [name for name in have if name not in found.columns.names]
        if lacking:
            raise TableError(
                f"{self.where} is partitioned by {', '.join(lacking)}; rows need it, too"
            )
        return found

    def check_rules(self) -> None:
        """There are none."""

    def check_keys(self, batch: KeyedRows) -> None:
        """An empty text is no null."""

    def _check_target(self, target: Any) -> None:
        """Raise :class:`TableError` unless it is the table that files were written for."""
        if self.id() != target.uuid:
            raise TableError(
                f"the table {self.where} was created again while rows for it were written"
            )
        if self.table.spec().spec_id != target.spec_id:
            raise TableError(
                f"the table {self.where} was partitioned differently while rows for it were written;"
                " run the batch again"
            )

    def widen(self, write: Write) -> None:
        """Add columns, and widen numbers."""
        found = self.check(write)
        if more := [*found.changed, *found.added]:
            with self.table.update_schema() as update:
                update.union_by_name(pa.schema(more))

    def target(self, columns: pa.Schema) -> Target:
        """With the numbers of the columns."""
        check_version(self.table.metadata, self.where)
        return Target(
            uuid=self.id(),
            schema_id=self.table.schema().schema_id,
            spec_id=self.table.spec().spec_id,
            names=tuple(columns.names),
            partition_by=self.partition_by(),
            files=file_schema(self.table.schema(), columns.names),
            folder=data_folder(self.table, self.where),
        )

    def check_readable(self) -> None:
        """``pyiceberg`` refuses what it cannot read."""

    def files(self) -> list[StoredFile]:
        """By their commits."""
        found = sorted(self._active().values(), key=lambda file: (file.order, file.logged))
        return [file.stored for file in found]

    def snapshot(self, bounds_of: Sequence[str] = ()) -> Snapshot:
        """As the manifests have them."""
        files = self._active()
        metadata = self.table.metadata
        definition = (
            *(self.id(), metadata.format_version, self.table.schema().schema_id),
            self.table.spec().spec_id,
        )
        if bounds_of:
            numbers = {
                field.name: (field.field_id, ordered(kind.type))
                for field, kind in zip(self._fields().fields, self.columns(), strict=True)
                if field.name in bounds_of and (ordered(kind.type) or types.is_string(kind.type))
            }
            files = {
                name: replace(file, bounds=_bounds(file.stored.entry.file, numbers))
                for name, file in files.items()
            }
        return Snapshot(files, self._deletions, definition)

    def _active(self) -> dict[str, Active]:
        """The files of the snapshot by their addresses, read once."""
        head = self.head
        of = (self.id(), None if head is None else head.snapshot_id)
        if self._of != of:
            try:
                self._files, self._deletions = self._read(head)
            except Exception as problem:
                # Any library may raise here; the error is reported.
                raise failed("cannot plan a read of", self.where, problem) from None
            self._of = of
        return self._files

    def _read(self, head: IcebergSnapshot | None) -> tuple[dict[str, Active], frozenset[str]]:
        if head is None:
            return {}, frozenset()
        io = self.table.io
        manifests = head.manifests(io)
        of_rows = [one for one in manifests if one.content == ManifestContent.DATA]
        read = ExecutorFactory.get_or_create().map(
            lambda one: one.fetch_manifest_entry(io), of_rows
        )
        entries = [entry for each in read for entry in each]
        tasks: dict[str, FileScanTask] = {}
        if len(of_rows) < len(manifests):
            planned = self.table.scan(snapshot_id=head.snapshot_id).plan_files()
            tasks = {task.file.file_path: task for task in planned}
        described = self._describer()
        files = {}
        for entry in entries:
            file = entry.data_file
            task = tasks.get(file.file_path) or FileScanTask(file)
            files[file.file_path] = Active(
                file.file_path, described(task), entry.sequence_number or 0, file.record_count
            )
        deletions = frozenset(path for path, task in tasks.items() if task.delete_files)
        return files, deletions

    def _describer(self) -> Any:
        """A function that describes files as those of every format are."""
        schema, folder = self.table.schema(), data_folder(self.table, self.where)
        specs: dict[int, list[tuple[str, pa.DataType]]] = {}
        for number, spec in self.table.specs().items():
            names = [schema.find_column_name(field.source_id) for field in spec.fields]
            plain = all(isinstance(field.transform, IdentityTransform) for field in spec.fields)
            if plain and None not in names:
                arrow = table_schema(schema)
                specs[number] = [(str(name), arrow.field(name).type) for name in names]

        def describe(task: FileScanTask) -> StoredFile:
            file = task.file
            columns = specs.get(file.spec_id, [])
            partition = tuple(
                (name, _text(file.partition[place], kind))
                for place, (name, kind) in enumerate(columns)
            )
            path = file.file_path.removeprefix(f"{folder.uri}/")
            return StoredFile(path, file.file_size_in_bytes, partition, entry=task)

        return describe

    def can_replace(self, file: Active) -> bool:
        """A file of an earlier partitioning stays."""
        return bool(file.stored.entry.file.spec_id == self.table.spec().spec_id)

    def rows(self, columns: pa.Schema) -> IcebergRows:
        """With the metadata of files and columns, without the history, which grows."""
        by_name = {field.name: field for field in self._fields().fields}
        missing = [name for name in columns.names if name not in by_name]
        if missing:
            raise TableError(f"{self.where} has no column {', '.join(missing)}")
        metadata = self.table.metadata.model_copy(
            update={"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}}
        )
        fields = Schema(*(by_name[name] for name in columns.names))
        return IcebergRows(str(self.where), metadata, storage_of(self.table), fields, columns)

    def totals(self) -> Totals:
        """By the summary of the snapshot."""
        told = None if self.head is None else self.head.summary
        if told is None:
            return Totals(0, 0, 0)
        names = ("total-data-files", "total-files-size", "total-records")
        return Totals(*(int(told[name] or 0) for name in names))

    def _chain(self) -> Iterator[IcebergSnapshot]:
        """The snapshots of the main branch, the newest first, as far as they are there."""
        if self.table.metadata.format_version < 2:
            raise TableError(
                f"the table {self.where} is of Iceberg's format 1, whose commits have no numbers: a"
                " stream needs format 2"
            )
        now = self.table.current_snapshot()
        while now is not None:
            yield now
            parent = now.parent_snapshot_id
            now = None if parent is None else self.table.snapshot_by_id(parent)

    def _until(self, version: int) -> IcebergSnapshot | None:
        """The newest snapshot up to a version; None before the first one."""
        oldest = None
        for oldest in self._chain():
            if (oldest.sequence_number or 0) <= version:
                return oldest
        if oldest is None or version == 0:
            return None
        raise TableError(
            f"commit {version} of {self.where} is no longer in the table: its snapshot has expired;"
            " begin with a new checkpoint"
        )

    def added(self, version: int) -> list[StoredFile] | None:
        """Read the manifests that the commit wrote."""
        snapshot = self._until(version)
        if snapshot is None or snapshot.sequence_number != version:
            return []  # a commit to another branch
        operation = None if snapshot.summary is None else snapshot.summary.operation
        if operation == Operation.REPLACE:
            return []
        files, describe, io = [], self._describer(), self.table.io
        for manifest in snapshot.manifests(io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            if manifest.content == ManifestContent.DELETES:
                return None
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=False):
                if entry.snapshot_id != snapshot.snapshot_id:
                    continue
                if entry.status == ManifestEntryStatus.DELETED:
                    return None
                if entry.status == ManifestEntryStatus.ADDED:
                    files.append(describe(FileScanTask(entry.data_file)))
        return sorted(files, key=lambda file: file.path)

    def first(self, number: int) -> int:
        """That of a snapshot's id."""
        for snapshot in self._chain():
            if snapshot.snapshot_id == number:
                return int(snapshot.sequence_number or 0)
        raise TableError(
            f"startingVersion is {number}, but the table {self.where} has no such snapshot, or no"
            " longer"
        )

    def as_of(self, version: int) -> Table:
        """At a snapshot of the main branch."""
        return Iceberg(self.where, self.table, (self._until(version),))

    def named(self, version: int) -> str:
        """By the snapshot's id."""
        snapshot = self._until(version)
        return f"snapshot {0 if snapshot is None else snapshot.snapshot_id}"

    def commit(self, write: Write) -> None:
        """The files that are known follow the commit."""
        self._check_target(write.target)
        gone = [file.stored.entry.file for file in write.removed]
        if write.overwrite:
            gone = [file.stored.entry.file for file in self._active().values()]
        known = self._of == (self.id(), None if self.head is None else self.head.snapshot_id)
        self.table, added = attempt(self.table, write, gone)
        head = self.head
        if not known or head is None:
            return
        paths = {file.file_path for file in gone}
        files = {path: file for path, file in self._files.items() if path not in paths}
        describe, order = self._describer(), head.sequence_number or 0
        for file in added:
            files[file.file_path] = Active(
                file.file_path, describe(FileScanTask(file)), order, file.record_count
            )
        self._files, self._deletions = files, self._deletions & files.keys()
        self._of = (self.id(), head.snapshot_id)

    def settle(self, before: int) -> None:
        """Files are on the disk when they are closed."""

    def tidy(self, plan: Plan) -> tuple[list[str], int]:
        """Expire snapshots, and remove files that none names."""
        return expire(self.where, plan) if plan.vacuum else ([], 0)

    def snapshots(self) -> int | None:
        """Each takes space in all later metadata."""
        return len(self.table.metadata.snapshots)

    def before(self, mark: Mark) -> Table:
        """At the parent of the snapshot with the mark in its summary."""
        last = self.last(mark.name)
        if last is None or last < mark.number:
            return self
        for snapshot in reversed(self.table.metadata.snapshots):
            told = snapshot.summary
            if told is None or told[QUERY] != mark.name:
                continue
            if told[BATCH] == str(mark.number):
                return self._parent(snapshot)
        raise TableError(
            f"the table {self.where} holds batch {last} of query {mark.name}, this is batch"
            f" {mark.number}: the checkpoint is older than the table"
        )

    def _parent(self, snapshot: IcebergSnapshot) -> Iceberg:
        """At the snapshot before one. Raises if it has expired."""
        number = snapshot.parent_snapshot_id
        found = None if number is None else self.table.snapshot_by_id(number)
        # A catalog forgets a parent that has expired; the first snapshot has the sequence number 1.
        is_first = number is None and (snapshot.sequence_number or 0) <= 1
        if found is None and not is_first:
            told = snapshot.summary
            raise TableError(
                f"the snapshot of {self.where} before batch {told and told[BATCH]} has expired, but"
                " the batch needs it: `pelton plgd maintain` keeps it, other ways to expire snapshots"
                " do not"
            )
        return Iceberg(self.where, self.table, (found,))

    def newest(self) -> tuple[Mark, Table, Table] | None:
        """By the summaries of snapshots."""
        for snapshot in reversed(self.table.metadata.snapshots):
            told = snapshot.summary
            if told is not None and told[QUERY] is not None:
                mark = Mark(str(told[QUERY]), int(str(told[BATCH])))
                then = Iceberg(self.where, self.table, (snapshot,))
                return mark, then, self._parent(snapshot)
        return None

    def greatest(self, column: str) -> int:
        """By the bounds in the manifests."""
        number = self._fields().find_field(column).field_id
        files = (file.stored.entry.file for file in self._active().values())
        bounds = [(file.upper_bounds or {}).get(number) for file in files]
        return max((int(from_bytes(LongType(), one)) for one in bounds if one), default=0)

    def dataset(self, columns: pa.Schema) -> ds.Dataset:
        """Of files in the table's folder, whose columns have the names of the table."""
        files = self.files()
        if not files:
            return ds.dataset(columns.empty_table())
        folder = data_folder(self.table, self.where)
        paths = [file.path for file in files]
        return ds.dataset(paths, schema=columns, filesystem=folder.files(), format="parquet")


def _text(value: Any, kind: pa.DataType) -> str | None:
    """A partition value as that of every format; an empty text is not null."""
    if value is None or value == "":
        return None if value is None else ""
    return partition_text(pa.scalar(value, kind).as_py())


def _bounds(file: DataFile, numbers: dict[str, tuple[int, bool]]) -> dict[str, tuple[Any, Any]]:
    """The bounds of columns in a file, as numbers and texts; a text may be only the beginning."""
    found = {}
    for name, (number, is_number) in numbers.items():
        low = (file.lower_bounds or {}).get(number)
        high = (file.upper_bounds or {}).get(number)
        if low is None or high is None:
            continue
        with contextlib.suppress(UnicodeDecodeError):  # cut within a character: it proves nothing
            found[name] = (_bound(low, is_number), _bound(high, is_number))
    return found


def _bound(value: bytes, is_number: bool) -> Any:
    """Of a file of an earlier type the number is shorter."""
    return int.from_bytes(value, "little", signed=True) if is_number else value.decode()
