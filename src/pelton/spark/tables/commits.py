"""Commits that happen once: files become part of a table together with a mark.

The mark is the application transaction of the Delta protocol, which itself refuses the second of two
drivers that race; :mod:`pelton.spark.tables.marks` decides about a mark that the table has already.
A commit also notes its run and its number of rows.

The process keeps an opened table and updates it before each use; the log decides. Does not depend
on Spark.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from pyarrow import types

from pelton.spark.tables.evolution import Evolution, evolution
from pelton.spark.tables.marks import Found, Mark, Marks
from pelton.spark.tables.places import TableError, to_disk
from pelton.spark.tables.schemas import (
    check_nulls,
    check_partitions,
    check_rules,
    schema_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pelton.spark.tables.data_files import DataFile
    from pelton.spark.tables.places import Place

CHECKPOINT_INTERVAL = "10"
_TRIES = 8
_NOTE = "pelton"
_NOTES_BACK = 200
# A concurrent vacuum may have removed a file of this age as a left-over.
_SURELY_THERE_SECONDS = 30 * 60


@dataclass(frozen=True)
class Write:
    """The files and the mark that become part of a table in one commit."""

    schema: pa.Schema
    files: Sequence[DataFile] = ()
    partition_by: tuple[str, ...] | None = None
    mark: Mark | None = None
    overwrite: bool = False
    merge_schema: bool = False
    overwrite_schema: bool = False
    check_again: bool = True
    again_until: int = -1
    """The argument of :meth:`pelton.spark.tables.marks.Marks.held`."""
    each: bool = False
    """Whether every batch of the query leaves its mark, also batches without rows."""
    did: Mapping[str, int] = field(default_factory=dict)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def rows(self) -> int:
        """The number of rows of all files."""
        return sum(file.rows for file in self.files)

    def note(self) -> dict[str, Any]:
        """The properties of the commit in the log, besides its actions."""
        told: dict[str, Any] = {"token": self.token, "rows": self.rows, **self.did}
        if self.mark is not None:
            told |= {"name": self.mark.name, "number": self.mark.number, "run": self.mark.run}
            if self.each:
                told["each"] = True
        return {_NOTE: told}

    def properties(self, *, replaces: bool = False, alone: bool = False) -> CommitProperties:
        """The mark and the note for the log.

        ``replaces`` says that the commit depends on the contents of the table; with ``alone`` it
        fails when there is a newer version.
        """
        told = self.note()
        if replaces:
            told["isBlindAppend"] = False
        retries = 0 if alone else None
        if self.mark is None:
            return CommitProperties(custom_metadata=told, max_commit_retries=retries)
        marks = [Transaction(app_id=self.mark.name, version=self.mark.number)]
        return CommitProperties(
            custom_metadata=told, max_commit_retries=retries, app_transactions=marks
        )


class Tables:
    """The tables that a process has opened, and its last commits to them.

    Commits may come from several threads; those to one table are made one after the other. Errors are
    :class:`TableError`.
    """

    def __init__(self) -> None:
        """Opens no table."""
        # The table, a file of its log, and the identity of that file when the table was opened.
        self._opened: dict[Place, tuple[DeltaTable, Path | None, object]] = {}
        self._locks: dict[Place, threading.RLock] = {}
        self._marks = Marks()

    def opened(self, place: Place) -> DeltaTable | None:
        """The table at its newest version; None when it does not exist. Raises when it can't be
        read.
        """
        kept = self._opened.get(place)
        try:
            if kept is not None and kept[2] == identity(kept[1]) and _caught_up(kept[0]):
                return kept[0]
            self.forget(place)
            table = DeltaTable(place.uri, storage_options=place.storage_options or None)
        except TableNotFoundError:
            self.forget(place)
            return None
        except (DeltaError, OSError) as problem:
            self.forget(place)
            raise TableError(f"cannot open the table {place}: {problem}") from None
        witness = None
        if place.folder is not None:
            witness = place.folder / "_delta_log" / f"{table.version():020}.json"
        self._opened[place] = (table, witness, identity(witness))
        return table

    def forget(self, place: Place) -> None:
        """Open the table again next time."""
        self._opened.pop(place, None)

    def create(
        self, place: Place, schema: pa.Schema, partition_by: Sequence[str] = ()
    ) -> DeltaTable:
        """Create a table without rows, or open the one that another writer creates at this moment."""
        check_partitions(schema, partition_by)
        if place.folder is not None:
            try:
                place.folder.mkdir(parents=True, exist_ok=True)
            except OSError as problem:
                raise TableError(f"cannot make the table {place}: {problem}") from None
        try:
            DeltaTable.create(
                place.uri,
                Schema.from_arrow(schema),
                mode="ignore",
                partition_by=list(partition_by),
                configuration={"delta.checkpointInterval": CHECKPOINT_INTERVAL},
                storage_options=place.storage_options or None,
            )
        except (DeltaError, OSError) as problem:
            if self.opened(place) is None:
                raise TableError(f"cannot make the table {place}: {problem}") from None
        table = self.opened(place)
        if table is None:
            raise TableError(f"the table {place} was removed while it was being made")
        return table

    def commit(self, place: Place, write: Write) -> bool:
        """Make the files part of the table, all or none; False when the table holds the mark already.

        Creates the table when it does not exist. Raises when the rows don't fit, another driver runs the
        same query, the checkpoint is older than the table, or the store fails.
        """
        check_there(place, write.files)
        return self.once(place, write, lambda table: add(table, write, place))

    def once(self, place: Place, write: Write, change: Callable[[DeltaTable], None]) -> bool:
        """Run ``change``, which commits with ``write.properties()``, unless the table holds the mark.

        Runs it again on the newest version when another writer came between. Returns and raises as
        :meth:`commit` does.
        """
        with self._locks.setdefault(place, threading.RLock()):
            return self._once(place, write, change)

    def _once(self, place: Place, write: Write, change: Callable[[DeltaTable], None]) -> bool:
        failed: Exception | None = None
        for attempt in range(_TRIES):
            table = self.opened(place)
            if table is None:
                table = self.create(place, write.schema, write.partition_by or ())
            if failed is not None and _made(table, write):
                self._marks.note(place, write.mark)
                return True  # the failure came after the commit
            if self._held(table, write, place, raced=failed is not None):
                self._marks.note(place, write.mark)
                return False
            before = table.version()
            try:
                change(table)
            except (DeltaError, OSError) as problem:
                self.forget(place)
                failed = problem
                if not isinstance(problem, CommitFailedError):
                    break
                time.sleep(0.01 * 2**attempt)
                continue
            try:
                self._settle(place, before)
            except OSError as problem:
                raise TableError(f"the log of {place} cannot be synced: {problem}") from None
            self._marks.note(place, write.mark)
            return True
        table = self.opened(place)
        if table is not None and _made(table, write):
            return True
        raise TableError(f"cannot commit to the table {place}: {failed}") from None

    def _held(self, table: DeltaTable, write: Write, place: Place, *, raced: bool) -> bool:
        rows = write.rows if write.check_again else None
        found = _found(table, write.mark)
        return self._marks.held(
            place, write.mark, found, rows=rows, raced=raced, again_until=write.again_until
        )

    def _settle(self, place: Place, before: int) -> None:
        """Update the handle to the new version, and sync the log behind ``before``."""
        table = self.opened(place)
        if table is not None:
            log_to_disk(place, before, table.version())


def log_to_disk(place: Place, before: int, version: int) -> None:
    """Sync the commits behind version ``before`` of a table on this machine."""
    if place.folder is None:
        return
    log = place.folder / "_delta_log"
    for number in range(before + 1, version + 1):
        for path in log.glob(f"{number:020}*"):
            to_disk(path)
    to_disk(log)


HERE = Tables()
"""The tables of this process."""


def identity(path: Path | None) -> object:
    """The identity of a file, which differs from that of a file made in its place."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _caught_up(table: DeltaTable) -> bool:
    """Read the newer commits; False when the table has fewer versions than when it was opened."""
    try:
        table.update_incremental()
    except TableNotFoundError:
        raise
    except DeltaError:
        return False
    return True


def add(table: DeltaTable, write: Write, place: Place) -> None:
    """Commit the files to the table as it was opened, and add the columns that they need."""
    widen(table, write, place)
    check_rules(table)
    check_nulls(table, write.files, write.schema)
    new_schema = write.overwrite and write.overwrite_schema
    lacking = [] if new_schema else lacking_columns(table, write.schema)
    table.create_write_transaction(
        [file.add_action(lacking) for file in write.files],
        mode="overwrite" if write.overwrite else "append",
        schema=write.schema if new_schema else table.schema(),
        partition_by=table.metadata().partition_columns,
        commit_properties=write.properties(),
    )


def lacking_columns(table: DeltaTable, schema: pa.Schema) -> list[str]:
    """Columns that have statistics in the table, and that files of this schema lack."""
    have = {*schema.names, *table.metadata().partition_columns}
    columns = (field for field in schema_of(table) if not types.is_nested(field.type))
    return [field.name for field in columns if field.name not in have]


def widen(table: DeltaTable, write: Write, place: Place) -> None:
    """Add the columns and fields that the rows need to the table, in a separate commit."""
    needed = check(table, write, place)
    if needed.changed.names:
        # The one way to add a field to a struct: a write of no rows that merges its schema.
        changed = pa.schema([*needed.changed, *needed.added])
        write_deltalake(table, changed.empty_table(), mode="append", schema_mode="merge")
    elif needed.added.names:
        table.alter.add_columns(list(Schema.from_arrow(needed.added).fields))
    else:
        return
    table.update_incremental()


def check(table: DeltaTable, write: Write, place: Place) -> Evolution:
    """The columns of the rows as the table has them, and those that the table needs first.

    Raises :class:`TableError` when the table cannot take the rows.
    """
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise TableError(f"{place} maps its columns to other names, which is not supported")
    have = tuple(table.metadata().partition_columns)
    if write.partition_by is not None and write.partition_by != have:
        there = f"by {', '.join(have)}" if have else "not at all"
        raise TableError(
            f"partitionBy is {', '.join(write.partition_by)}, but {place} is partitioned {there}"
        )
    if write.overwrite and write.overwrite_schema:
        check_partitions(write.schema, have)
        return Evolution(write.schema, pa.schema([]), pa.schema([]))
    return evolution(schema_of(table), write.schema, merge=write.merge_schema, name=place)


def _found(table: DeltaTable, mark: Mark | None) -> Found | None:
    """The last number of the mark's name in the table.

    The rows are known when a recent commit of this package has noted them.
    """
    number = None if mark is None else table.transaction_version(mark.name)
    if mark is None or number is None:
        return None
    if number < mark.number:
        return Found(number)
    for note in _notes(table):
        if note.get("name") == mark.name and note.get("number") == number:
            return Found(number, note.get("rows"), bool(note.get("each")))
    return Found(number)


def batch_of(table: DeltaTable | None, query: str) -> int | None:
    """The last batch of a query that the table holds; None when it holds none."""
    return None if table is None else table.transaction_version(query)


def last_of(table: DeltaTable | None, query: str) -> Found | None:
    """The last batch of a query that the table holds, with the note of a recent commit."""
    return None if table is None else _found(table, Mark(query, 0))


def _made(table: DeltaTable, write: Write) -> bool:
    return any(note.get("token") == write.token for note in _notes(table))


def _notes(table: DeltaTable) -> list[dict[str, Any]]:
    found = (entry.get(_NOTE) for entry in table.history(_NOTES_BACK))
    return [note for note in found if isinstance(note, dict)]


def check_there(place: Place, files: Sequence[DataFile]) -> None:
    """Check that old files still exist: a table must not name files that a vacuum removed."""
    before_ms = int((time.time() - _SURELY_THERE_SECONDS) * 1000)
    old = [file.path for file in files if file.written_ms < before_ms]
    if not old:
        return
    gone = [info.path for info in place.files().get_file_info(old) if not info.is_file]
    if gone:
        raise TableError(
            f"{len(gone)} files of this batch were removed from {place} before their commit, as by"
            " a vacuum that keeps less than a batch takes"
        )
