"""Delta tables for the engine, through ``deltalake``.

A commit carries the mark as the application transaction of the Delta protocol, which itself refuses the second of two
drivers that race, and a note::

    txn          (query id, batch)
    commitInfo   "pelton": {"name": ..., "number": 7, "run": ..., "rows": ..., "token": ...}

The process keeps an opened table and updates it before each use; the log decides.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import RemoveAction
from pyarrow import types

from pelton.spark.delta.data_files import DeltaTarget
from pelton.spark.delta.log import (
    actions_of,
    deletions,
    identity,
    load_at,
    log_to_disk,
    relative,
    unread_features,
)
from pelton.spark.delta.rules import has_rules, merge_by_rules
from pelton.spark.delta.schemas import check_nulls, check_rules, schema_of
from pelton.spark.delta.statistics import columns_of
from pelton.spark.tables.evolution import Evolution, evolution
from pelton.spark.tables.key_matching import comparable_bounds
from pelton.spark.tables.marks import Found, Mark
from pelton.spark.tables.parquet import partition_text
from pelton.spark.tables.places import Place, TableError
from pelton.spark.tables.rows import read_files
from pelton.spark.tables.schemas import check_partitioned, check_partitions
from pelton.spark.tables.table import (
    Active,
    Snapshot,
    StoredFile,
    Table,
    TableFormat,
    Totals,
    Upserted,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    import pyarrow.dataset as ds

    from pelton.spark.tables.maintenance import Plan
    from pelton.spark.tables.table import KeyedRows, Write

CHECKPOINT_INTERVAL = "10"
_NOTE = "pelton"
_NOTES_BACK = 200
# Paths in the log: of the printable characters, deltalake encodes these.
_ENCODED = set(' \\{^}%`]">[<#|*?')
AS_IT_IS = "".join(chr(code) for code in range(32, 127) if chr(code) not in _ENCODED)
# Writer features that do not restrict a commit which removes and adds files, or that do not as long
# as the table makes no use of them, which is checked for each.
_FEATURES = {
    *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"),
    *("columnMapping", "timestampNtz", "v2Checkpoint", "deletionVectors"),
    "variantType",
}


class DeltaFormat(TableFormat):
    """Delta tables in a folder or an object store."""

    kind = "a Delta table"
    failures = (DeltaError, OSError)
    columns_first = False
    divisible = True

    def open(self, where: Place, known: Table | None) -> Delta | None:
        """Update the opened table, or read the log."""
        try:
            if isinstance(known, Delta) and known.is_current():
                return known
            table = DeltaTable(where.uri, storage_options=where.storage_options or None)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as problem:
            raise self.failed("cannot open the table", where, problem) from None
        return Delta(where, table)

    def at(self, where: Place, version: int | None, time: datetime | None) -> Delta | None:
        """Read the log up to a version."""
        try:
            table = DeltaTable(
                where.uri, version=version, storage_options=where.storage_options or None
            )
            if time is not None:
                load_at(table, time)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError, ValueError) as problem:
            asked = f"version {version}" if version is not None else f"time {time}"
            raise TableError(f"the table {where} cannot be read at {asked}: {problem}") from None
        return Delta(where, table)

    def create(
        self,
        where: Place,
        schema: pa.Schema,
        partition_by: Sequence[str],
        *,
        name: str | None = None,
        description: str | None = None,
        configuration: dict[str, str] | None = None,
    ) -> None:
        """Make the first commit of the log, with a name, description and properties if given."""
        try:
            if where.folder is not None:
                where.folder.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(
                where.uri,
                Schema.from_arrow(schema),
                mode="ignore",
                partition_by=list(partition_by),
                name=name,
                description=description,
                configuration=configuration or {"delta.checkpointInterval": CHECKPOINT_INTERVAL},
                storage_options=where.storage_options or None,
            )
        except (DeltaError, OSError) as problem:
            if self.open(where, None) is None:
                raise self.failed("cannot make the table", where, problem) from None

    def target(self, where: Place, schema: pa.Schema, partition_by: Sequence[str]) -> DeltaTarget:
        """Files with all columns and statistics of all."""
        return DeltaTarget(where, schema, tuple(partition_by))

    def raced(self, problem: Exception) -> bool:
        """By the error of ``deltalake``."""
        return isinstance(problem, CommitFailedError)

    def failed(self, doing: str, where: Place, problem: object) -> TableError:
        """With the text of the library's error."""
        return TableError(f"{doing} {where}: {problem}")

    def missing(self, where: Place) -> TableError:
        """With the path."""
        return TableError(f"there is no table at {where}")


DELTA = DeltaFormat()


@dataclass(frozen=True)
class DeltaRows:
    """Reads files by the names of their columns."""

    where: Place
    columns: pa.Schema

    def read(self, files: Iterable[StoredFile], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Partition columns have the value in the log."""
        return read_files(self.where, files, self.columns, batch_rows)


class Delta(Table):
    """A table as ``deltalake`` has opened it."""

    def __init__(self, where: Place, table: DeltaTable) -> None:
        """Notes a file of the log, and its identity when the table was opened."""
        self.where: Place = where
        self.table = table
        self._witness = None
        if where.folder is not None:
            self._witness = where.folder / "_delta_log" / f"{table.version():020}.json"
        self._identity = identity(self._witness)

    def is_current(self) -> bool:
        """Read the newer commits; False for another table in its place, or one with fewer versions."""
        if self._identity != identity(self._witness):
            return False
        try:
            self.table.update_incremental()
        except TableNotFoundError:
            raise
        except DeltaError:
            return False
        return True

    def id(self) -> str:
        """That of the metadata."""
        return str(self.table.metadata().id)

    def version(self) -> int:
        """The version of the log."""
        return int(self.table.version())

    def columns(self) -> pa.Schema:
        """Raises :class:`TableError` for a type that cannot be written."""
        return schema_of(self.table)

    def partition_by(self) -> tuple[str, ...]:
        """As the metadata has them."""
        return tuple(self.table.metadata().partition_columns)

    @property
    def configuration(self) -> dict[str, str]:
        """The table's properties."""
        found: dict[str, str] = self.table.metadata().configuration
        return found

    def last(self, query: str) -> int | None:
        """The version of the transaction."""
        found: int | None = self.table.transaction_version(query)
        return found

    def found(self, mark: Mark) -> Found | None:
        """The rows are known when a recent commit of this package has noted them."""
        number = self.last(mark.name)
        if number is None:
            return None
        if number >= mark.number:
            for note in self._notes():
                if note.get("name") == mark.name and note.get("number") == number:
                    return Found(number, note.get("rows"), bool(note.get("each")))
        return Found(number)

    def made(self, write: Write) -> bool:
        """By the token in the notes of recent commits."""
        return any(note.get("token") == write.token for note in self._notes())

    def _notes(self) -> list[dict[str, Any]]:
        found = (entry.get(_NOTE) for entry in self.table.history(_NOTES_BACK))
        return [note for note in found if isinstance(note, dict)]

    def check(self, write: Write) -> Evolution:
        """Compare columns and partitions."""
        if self.configuration.get("delta.columnMapping.mode", "none") != "none":
            raise TableError(
                f"{self.where} maps its columns to other names, which is not supported"
            )
        have = self.partition_by()
        check_partitioned(write.partition_by, have, self.where)
        if write.overwrite and write.overwrite_schema:
            check_partitions(write.schema, have)
            return Evolution(write.schema, pa.schema([]), pa.schema([]))
        return evolution(self.columns(), write.schema, merge=write.merge_schema, name=self.where)

    def check_rules(self) -> None:
        """Constraints and generated columns."""
        check_rules(self.table)

    def check_keys(self, batch: KeyedRows) -> None:
        """An empty text in a partition column is null."""
        for name in {*self.partition_by()} & {*batch.keys}:
            column = batch.rows.column(name)
            if types.is_string(column.type) and pc.any(pc.equal(column, "")).as_py():
                raise TableError(
                    f"upsert: {name} is a column of the partition, where an empty text is null;"
                    " keys must not be null"
                )

    def widen(self, write: Write) -> None:
        """Alter the table, or write no rows with more columns."""
        needed = self.check(write)
        if needed.changed.names:
            # The one way to add a field to a struct: a write of no rows that merges its schema.
            changed = pa.schema([*needed.changed, *needed.added])
            write_deltalake(self.table, changed.empty_table(), mode="append", schema_mode="merge")
        elif needed.added.names:
            self.table.alter.add_columns(list(Schema.from_arrow(needed.added).fields))
        else:
            return
        self.table.update_incremental()

    def target(self, columns: pa.Schema) -> DeltaTarget:
        """With statistics of the columns that the table's property names."""
        return DeltaTarget(self.where, columns, self.partition_by(), columns_of(self.configuration))

    def check_readable(self) -> None:
        """By the features of the protocol."""
        bad = unread_features(self.table)
        deleted = deletions(self.table)
        if deleted is not None and deleted.num_rows:
            bad.append("deletionVectors")
        if bad:
            raise TableError(
                f"the table {self.where} uses {', '.join(bad)}, which is not supported"
            )

    def files(self) -> list[StoredFile]:
        """By the time of their commit."""
        found = sorted(self._active(()), key=lambda file: (file.order, file.stored.path))
        return [file.stored for file in found]

    def snapshot(self, bounds_of: Sequence[str] = ()) -> Snapshot:
        """As the log has them."""
        protocol, metadata = self.table.protocol(), self.table.metadata()
        bad = unread_features(self.table)
        known = {*_FEATURES, *bad}
        bad += [name for name in protocol.writer_features or () if name not in known]
        if bad:
            raise TableError(
                f"the table {self.table.table_uri} uses {', '.join(bad)}, not supported here"
            )
        definition = (
            *(metadata.id, self.table.schema().to_json(), tuple(metadata.partition_columns)),
            *(tuple(sorted(metadata.configuration.items())), protocol.min_reader_version),
            *(protocol.min_writer_version, tuple(protocol.writer_features or ())),
        )
        files = {file.logged: file for file in self._active(bounds_of)}
        found = deletions(self.table)
        deleted = set() if found is None else {_base(str(name)) for name in found[0].to_pylist()}
        with_deletions = (name for name in files if deleted and _base(unquote(name)) in deleted)
        return Snapshot(files, frozenset(with_deletions), definition)

    def _active(self, bounds_of: Sequence[str]) -> Iterator[Active]:
        actions = actions_of(self.table)
        names = self.table.metadata().partition_columns
        plain = ["path", "size_bytes", "modification_time", "num_records"]
        plain += [f"partition.{n}" for n in names]
        bounds = self._bounds(actions, bounds_of) if bounds_of else {}
        for number, row in enumerate(actions.select(plain).to_pylist()):
            partition = tuple((name, partition_text(row[f"partition.{name}"])) for name in names)
            path = relative(row["path"], self.table.table_uri)
            yield Active(
                row["path"],
                StoredFile(path, row["size_bytes"], partition),
                row["modification_time"],
                row["num_records"],
                {name: (low[number], high[number]) for name, (low, high) in bounds.items()},
            )

    def _bounds(
        self, actions: pa.Table, names: Sequence[str]
    ) -> dict[str, tuple[list[Any], list[Any]]]:
        found = {}
        for one in self.columns():
            columns = [f"{bound}.{one.name}" for bound in ("min", "max")]
            # A dot can also separate a column from a field in it.
            lacks = not {*columns} <= {*actions.column_names}
            if one.name not in names or "." in one.name or lacks:
                continue
            low, high = (comparable_bounds(actions[column], one.type) for column in columns)
            if low is not None and high is not None:
                found[one.name] = low, high
        return found

    def can_replace(self, file: Active) -> bool:
        """Whether ``deltalake`` writes the path of the file as the log has it.

        A removal with another spelling would remove nothing.
        """
        return quote(unquote(file.logged), safe=AS_IT_IS) == file.logged

    def rows(self, columns: pa.Schema) -> DeltaRows:
        """By names."""
        return DeltaRows(self.where, columns)

    def totals(self) -> Totals:
        """By the log."""
        actions = actions_of(self.table)
        sizes, counts = actions["size_bytes"], actions["num_records"]
        rows = None if counts.null_count else int(pc.sum(counts.cast(pa.int64())).as_py() or 0)
        return Totals(len(sizes), int(pc.sum(sizes).as_py() or 0), rows)

    def added(self, version: int) -> list[StoredFile] | None:
        """Read the commit from the log."""
        try:
            with self.where.files().open_input_stream(f"_delta_log/{version:020}.json") as log:
                actions = [json.loads(line) for line in log.read().splitlines() if line.strip()]
        except OSError:
            raise TableError(
                f"version {version} of {self.where} is no longer in its log"
                " (delta.logRetentionDuration); begin with a new checkpoint"
            ) from None
        adds = [action["add"] for action in actions if "add" in action]
        removes = [action["remove"] for action in actions if "remove" in action]
        if any(remove.get("dataChange", True) for remove in removes):
            return None
        return [
            StoredFile(
                relative(add["path"], self.where.uri),
                add["size"],
                tuple(sorted((add.get("partitionValues") or {}).items())),
            )
            for add in adds
            if add.get("dataChange", True)
        ]

    def first(self, number: int) -> int:
        """The same number."""
        if number > self.version() + 1:
            raise TableError(
                f"startingVersion is {number}, but the table {self.where} is at version"
                f" {self.version()}"
            )
        return number

    def named(self, version: int) -> str:
        """By its number."""
        return f"version {version}"

    def commit(self, write: Write) -> None:
        """Add files to the table, or put them in the place of others."""
        if not write.same_rows:
            check_nulls(self.table, write.files, write.schema)
        if write.replaces:
            self._replace(write)
            return
        self.widen(write)
        self.check_rules()
        new_schema = write.overwrite and write.overwrite_schema
        lacking = [] if new_schema else self._lacking(write.schema)
        self.table.create_write_transaction(
            [file.add_action(lacking) for file in write.files],
            mode="overwrite" if write.overwrite else "append",
            schema=write.schema if new_schema else self.table.schema(),
            partition_by=self.table.metadata().partition_columns,
            commit_properties=_properties(write),
        )

    def _lacking(self, schema: pa.Schema) -> list[str]:
        """Columns that have statistics in the table, and that files of this schema lack."""
        have = {*schema.names, *self.table.metadata().partition_columns}
        columns = (field for field in self.columns() if not types.is_nested(field.type))
        return [field.name for field in columns if field.name not in have]

    def _replace(self, write: Write) -> None:
        """Commit files, and remove others in the same commit.

        If the write is not ``alone``, ``deltalake`` makes the commit also on a newer version that still has all
        files that go.
        """
        now_ms = int(time.time() * 1000)
        change = not write.same_rows
        appends = self.configuration.get("delta.appendOnly", "false").lower() == "true"
        if appends and change and write.removed:
            raise TableError(
                f"the table {self.where} takes new rows alone (delta.appendOnly), but rows of the"
                " batch would replace older ones"
            )
        actions: list[Any] = []
        for file in write.removed:
            if not self.can_replace(file):
                raise TableError(
                    f"the log of {self.table.table_uri} has the path {file.logged} in a spelling that"
                    " deltalake does not write, so that it cannot be removed"
                )
            partition = dict(file.stored.partition)
            path, size = unquote(file.logged), file.stored.size
            actions.append(RemoveAction(path, change, now_ms, size, partition))
        lacking = self._lacking(write.schema)
        actions += [file.add_action(lacking, data_change=change) for file in write.files]
        self.table.create_write_transaction(
            actions,
            mode="append",
            schema=self.table.schema(),
            partition_by=self.table.metadata().partition_columns,
            commit_properties=_properties(write),
        )

    def settle(self, before: int) -> None:
        """Sync the log."""
        try:
            self.table.update_incremental()
            log_to_disk(self.where, before, self.version())
        except (DeltaError, OSError) as problem:
            raise TableError(f"the log of {self.where} cannot be synced: {problem}") from None

    def merge_by_rules(
        self, batch: KeyedRows, write: Write
    ) -> tuple[Upserted, list[Active]] | None:
        """For constraints, generated columns and a change data feed."""
        if not has_rules(self.table):
            return None
        known, version = self.snapshot().files.keys(), self.version()
        did = merge_by_rules(self.table, batch, _properties(write))
        self.table.update_incremental()
        if self.version() == version:  # no row was newer, and the mark is not in the table
            self._replace(write)
            self.table.update_incremental()
        return did, [file for path, file in self.snapshot().files.items() if path not in known]

    def tidy(self, plan: Plan) -> tuple[list[str], int]:
        """Write a checkpoint of the log, and remove files by a vacuum."""
        if plan.checkpoint and not plan.dry_run:
            self.table.create_checkpoint()
            self.table.cleanup_metadata()
        if not plan.vacuum:
            return [], 0
        found = self.table.vacuum(
            retention_hours=plan.keep_hours,
            dry_run=plan.dry_run,
            enforce_retention_duration=False,
            full=True,
            keep_versions=(self._newest_batch() or None) if plan.batch_stays else None,
        )
        return sorted(found), 0

    def _newest_batch(self) -> list[int]:
        """The version with the last batch, and the one before: by them the batch is made again."""
        there = {int(commit["version"]) for commit in self.table.history(_NOTES_BACK)}
        found = self._commit_of(lambda note: "name" in note)
        return [] if found is None else [one for one in (found[0] - 1, found[0]) if one in there]

    def _commit_of(self, wanted: Any) -> tuple[int, dict[str, Any]] | None:
        for commit in self.table.history(_NOTES_BACK):
            note = commit.get(_NOTE)
            if isinstance(note, dict) and wanted(note):
                return int(commit["version"]), note
        return None

    def snapshots(self) -> int | None:
        """Versions are no snapshots: they need no space of their own."""
        return None

    def before(self, mark: Mark) -> Table:
        """The version before the commit that has the mark in its note."""
        last = self.last(mark.name)
        if last is None or last < mark.number:
            return self
        wanted = mark.name, mark.number
        found = self._commit_of(lambda note: (note.get("name"), note.get("number")) == wanted)
        if found is None:
            raise TableError(
                f"the table {self.where} holds batch {last} of query {mark.name}, this is batch"
                f" {mark.number}: the checkpoint is older than the table"
            )
        return self.as_of(found[0] - 1)

    def as_of(self, version: int) -> Table:
        """Read the log up to the version."""
        table = DELTA.at(self.where, version, None)
        if table is None:
            raise DELTA.missing(self.where)
        return table

    def newest(self) -> tuple[Mark, Table, Table] | None:
        """By the notes."""
        found = self._commit_of(lambda note: "name" in note)
        if found is None:
            return None
        version, note = found
        mark = Mark(note["name"], int(note["number"]))
        return mark, self.as_of(version), self.as_of(version - 1)

    def greatest(self, column: str) -> int:
        """By the statistics in the log."""
        files = actions_of(self.table)
        return int(pc.max(files[f"max.{column}"]).as_py() or 0) if len(files) else 0

    def dataset(self, columns: pa.Schema) -> ds.Dataset:
        """All columns of the table."""
        return self.table.to_pyarrow_dataset()


def _base(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _properties(write: Write) -> CommitProperties:
    """The mark and the note for the log."""
    note: dict[str, Any] = {**write.note(), **write.did}
    marks = []
    if write.mark is not None:
        note["name"] = write.mark.name
        marks.append(Transaction(app_id=write.mark.name, version=write.mark.number))
    told: dict[str, Any] = {_NOTE: note}
    if write.replaces:
        told["isBlindAppend"] = False
    retries = 0 if write.replaces and write.alone else None
    return CommitProperties(
        custom_metadata=told, max_commit_retries=retries, app_transactions=marks or None
    )
