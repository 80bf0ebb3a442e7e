"""The tables of a hub's events: their contents before a batch, and one commit of each after it;
here as Delta tables.

Every table takes a batch once: its commit carries the query and the number of the batch, as those of every sink of
this project do. A batch may be killed between the commits of two tables. It then runs again, and
must give the same rows to the tables that lack it, so it works from the state before the batch::

    table          its log                       state for batch 7
    aggregates     ... 5 6 7                     the version before the commit of batch 7
    commands       ... 5 6                       the newest

"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from pelton.spark.tables.commits import CHECKPOINT_INTERVAL, HERE, Write, batch_of, widen
from pelton.spark.tables.files import actions_of, files_of, table_at
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import Place, TableError, place
from pelton.spark.tables.replacing import replace, snapshot
from pelton.spark.tables.rows import read_files
from pelton.spark.tables.schemas import schema_of
from pelton.spark.tables.statistics import STATISTICS_OF
from pelton.spark.tables.tails import INTERVAL, NoTail, Tail

from ..tables.schemas import RAW, TABLES, TableSchema, Way
from .buckets import Held

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow.dataset as ds

    from pelton.spark.tables.files import StoredFile

    from ..tables.settings import Settings
    from .buckets import Report

CHECKPOINT_EACH = "50"
"""Commits between two checkpoints of a log: one takes the time of its files, each commit only that of its own."""

_HISTORY = 200
_READ_ROWS = 128 * 1024


@dataclass
class Counts:
    """The counts of batches."""

    messages: int = 0
    events: int = 0
    duplicates: int = 0
    dead_letters: int = 0
    first_seq: int = 0
    last_seq: int = 0

    def add(self, report: Report) -> None:
        """Count a bucket's batch."""
        self.messages += report.messages
        self.events += report.events
        self.duplicates += report.duplicates
        self.dead_letters += report.dead_letters
        known = (seq for seq in (self.first_seq, report.first_seq) if seq)
        self.first_seq = min(known, default=0)
        self.last_seq = max(self.last_seq, report.last_seq)


@dataclass
class Begun:
    """A batch that has begun: the state of each table, and its files."""

    mark: Mark
    held: dict[str, Held] = field(default_factory=dict)
    active: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The files by their paths, as the tables' logs know them."""


class ChangedTableError(TableError):
    """Another writer, such as a compaction, has replaced files that a batch replaces: it must be made again."""


class Lake:
    """The tables in one folder. Raises :class:`TableError` as every table does."""

    places: dict[str, Any]
    """Where the files of each table are."""
    targets: dict[str, Any]
    """What writers of files must know of each table; empty for Delta."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        settings: Settings,
        storage: Mapping[str, str] | None = None,
    ) -> None:
        """``storage`` are the options of an object store. `create` makes the tables."""
        root = place(folder, storage)
        self.settings = settings
        self.places = {name: Place(f"{root.uri}/{name}", root.storage) for name in TABLES}
        self.targets = {}
        self.tails = {
            name: Tail(where, with_files=TABLES[name].way is not Way.APPEND)
            for name, where in self.places.items()
        }

    def create(self) -> None:
        """Make the tables that are not there; refuse those that were made with other buckets."""
        for name, schema in TABLES.items():
            where = self.places[name]
            told = f"{self.settings.buckets} buckets"
            table = HERE.opened(where)
            if table is None:
                make(where, schema, f"{schema.meaning}; {told}")
                continue
            description = table.metadata().description or ""
            if not description.endswith(f"; {told}"):
                raise TableError(
                    f"the table {where} was made with {description.rpartition('; ')[2] or 'none'},"
                    f" not with {told}: the number of buckets of a table does not change"
                )
            check_columns(schema, schema_of(table).names, where)
            widen(table, Write(schema.schema, merge_schema=True), where)
            set_properties(table, schema, where)

    def begin(self, mark: Mark) -> Begun:
        """The state of the tables before a batch."""
        begun = Begun(mark)
        for name, schema in TABLES.items():
            if schema.way is Way.APPEND:
                continue
            tail = self.tail(name, mark)
            files = snapshot(self.before(name, mark)).files if tail is None else tail.files
            begun.active[name] = {one.stored.path: one for one in files.values()}
            begun.held[name] = held_of(one.stored for one in files.values())
        return begun

    def tail(self, name: str, mark: Mark) -> Tail | None:
        """The newest part of a table's log, if it exists and lacks the mark; otherwise `HERE` reads the whole log."""
        tail = self.tails[name]
        try:
            tail.read()
        except NoTail:
            return None
        last = tail.last(mark.name)
        return tail if last is None or last < mark.number else None

    def before(self, name: str, mark: Mark) -> DeltaTable:
        """A table as it was before a batch."""
        where = self.places[name]
        table = HERE.opened(where)
        if table is None:
            raise TableError(f"there is no table at {where}")
        last = table.transaction_version(mark.name)
        if last is None or last < mark.number:
            return table
        for commit in table.history(_HISTORY):
            note = commit.get("pelton")
            if isinstance(note, dict) and (note.get("name"), note.get("number")) == (
                mark.name,
                mark.number,
            ):
                return self.as_of(where, int(commit["version"]) - 1)
        raise TableError(
            f"the table {where} holds batch {last} of query {mark.name}, this is batch {mark.number}:"
            " the checkpoint is older than the table"
        )

    def commit(self, begun: Begun, reports: Iterable[Report]) -> Counts:
        """Make a batch part of every table that it concerns."""
        counts = Counts()
        files: dict[str, list[Any]] = defaultdict(list)
        removed: dict[str, list[Any]] = defaultdict(list)
        for report in reports:
            counts.add(report)
            for name, written in report.files.items():
                files[name] += written
            for name, paths in report.removed.items():
                removed[name] += [begun.active[name][path] for path in paths]
        for name in TABLES:
            if files[name] or removed[name]:
                self.take(name, begun.mark, files[name], removed[name])
        return counts

    def take(self, name: str, mark: Mark, files: Sequence[Any], removed: Sequence[Any]) -> None:
        """One commit of one table, once."""
        where, schema = self.places[name], TABLES[name]
        write = Write(
            schema=schema.schema, files=files, partition_by=schema.partition_by, mark=mark
        )

        def change(table: DeltaTable) -> None:
            # The tail reads after the table was opened, so it knows every removal that the table knows.
            there = self.tail(name, mark) if removed else None
            files = snapshot(table).files if there is None else there.files
            gone = [file.logged for file in removed if file.logged not in files]
            if gone:
                raise ChangedTableError(
                    f"another writer has changed {where}: {gone[0]} is not in it"
                )
            replace(table, write, removed, alone=bool(removed))

        HERE.once(where, write, change)

    def files(self, name: str) -> list[StoredFile]:
        """The files of a table as it is now."""
        return files_of(table_at(self.places[name]))

    def dataset(self, name: str) -> ds.Dataset:
        """The rows of a table as it is now."""
        return table_at(self.places[name]).to_pyarrow_dataset()

    def greatest(self, name: str, column: str) -> int:
        """The greatest number of a column, by what the log says of the table's files; 0 without rows."""
        files = actions_of(table_at(self.places[name]))
        return int(pc.max(files[f"max.{column}"]).as_py() or 0) if len(files) else 0

    def newest(self, table: TableSchema) -> tuple[Mark, pa.Table]:
        """The last batch that a table holds, and its rows there."""
        where = self.places[table.name]
        for commit in table_at(where).history(_HISTORY):
            note = commit.get("pelton")
            if isinstance(note, dict) and "name" in note:
                then, before = (self.as_of(where, int(commit["version"]) - back) for back in (0, 1))
                old = {file.path for file in files_of(before)}
                new = [file for file in files_of(then) if file.path not in old]
                return Mark(note["name"], int(note["number"])), rows_of(where, new, table)
        raise TableError(f"the table {where} does not say which batch it holds")

    @staticmethod
    def as_of(where: Place, version: int) -> DeltaTable:
        """A table as it was."""
        return DeltaTable(where.uri, version=version, storage_options=where.storage_options or None)

    def of_newest_batch(self, name: str) -> tuple[int, ...]:
        """The version of a table with its last batch, and the one before: by them it is made again."""
        commits = table_at(self.places[name]).history(_HISTORY)
        there = [int(commit["version"]) for commit in commits]
        for version, commit in zip(there, commits, strict=True):
            note = commit.get("pelton")
            if isinstance(note, dict) and "name" in note:
                return tuple(one for one in (version - 1, version) if one in there)
        return ()

    def made_with(self) -> int | None:
        """The number of buckets of tables that are there."""
        table = HERE.opened(self.places[RAW.name])
        told = "" if table is None else table.metadata().description or ""
        number = told.rpartition("; ")[2].removesuffix(" buckets")
        return int(number) if number.isdigit() else None

    def last_batch(self, name: str, query: str) -> int | None:
        """The last batch of a query that a table holds."""
        return batch_of(HERE.opened(self.places[name]), query)

    def where(self, name: str) -> str:
        """The place of a table, for a person."""
        return str(self.places[name])


def rows_of(where: Any, files: Iterable[StoredFile], table: TableSchema) -> pa.Table:
    """The rows of files of a table."""
    found = read_files(where, list(files), table.schema, _READ_ROWS)
    return pa.Table.from_batches(found, table.schema)


def check_columns(schema: TableSchema, there: Iterable[str], where: object) -> None:
    """Refuse a table with columns of a newer Pelton, if its rows are written again: the columns would be lost."""
    more = [] if schema.way is Way.APPEND else sorted(set(there) - set(schema.schema.names))
    if more:
        raise TableError(
            f"the table {where} has the columns {', '.join(more)}, which this version does not know and"
            " would lose: go on with the newer one"
        )


def make(where: Place, schema: TableSchema, description: str) -> None:
    """Create a table without rows."""
    if where.folder is not None:
        where.folder.mkdir(parents=True, exist_ok=True)
    try:
        DeltaTable.create(
            where.uri,
            Schema.from_arrow(schema.schema),
            mode="ignore",
            partition_by=list(schema.partition_by),
            name=schema.name,
            description=description,
            configuration=properties(schema),
            storage_options=where.storage_options or None,
        )
    except (DeltaError, OSError) as problem:
        raise TableError(f"cannot make the table {where}: {problem}") from None


def properties(schema: TableSchema) -> dict[str, str]:
    """The properties of a table, which every writer reads."""
    return {INTERVAL: CHECKPOINT_EACH, STATISTICS_OF: ",".join(schema.bounded)}


def set_properties(table: DeltaTable, schema: TableSchema, where: Place) -> None:
    """Give a table of an older Pelton the property that names the columns with statistics.

    Readers then ignore the statistics of other columns in older files. The property must not name a
    column without statistics in new files: some readers would find no matching row there.
    """
    there, wanted = table.metadata().configuration, properties(schema)
    if there.get(INTERVAL) != CHECKPOINT_INTERVAL:
        del wanted[INTERVAL]  # it is ours already, or somebody chose another
    if all(there.get(name) == value for name, value in wanted.items()):
        return
    try:
        table.alter.set_table_properties(wanted)
        table.update_incremental()
    except (DeltaError, OSError) as problem:
        raise TableError(f"cannot set properties of {where}: {problem}") from None


def held_of(files: Iterable[StoredFile]) -> Held:
    """Files by bucket: those with current or open rows, and those of each day with closed ones."""
    held = Held()
    for file in files:
        partition = dict(file.partition)
        bucket = int(partition["bucket"] or 0)
        if partition.get("is_open", "true") == "true":
            held.live.setdefault(bucket, []).append(file)
        else:
            held.closed.setdefault((bucket, partition.get("day")), []).append(file)
    return held
