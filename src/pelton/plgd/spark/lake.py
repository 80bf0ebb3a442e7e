"""The tables of a hub's events: their contents before a batch, and one commit of each after it.

Every table takes a batch once: its commit carries the query and the number of the batch, as those of every sink of
this project do. A batch may be killed between the commits of two tables. It then runs again, and
must give the same rows to the tables that lack it, so it works from the state before the batch::

    table          its commits                   state for batch 7
    aggregates     ... 5 6 7                     the version before the commit of batch 7
    commands       ... 5 6                       the newest

"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pelton.spark.tables.commits import HERE
from pelton.spark.tables.places import TableError
from pelton.spark.tables.rows import read_files
from pelton.spark.tables.table import Table, Write, unless_gone

from ..tables.schemas import TABLES, TableSchema, Way
from .buckets import Held
from .homes import DeltaHome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow.dataset as ds

    from pelton.spark.tables.marks import Mark
    from pelton.spark.tables.places import Folder
    from pelton.spark.tables.table import Active, StoredFile, Target, Where

    from ..tables.settings import Settings
    from .buckets import Report
    from .homes import Home, Tail

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
    active: dict[str, dict[str, Active]] = field(default_factory=dict)
    """The files by their paths, as the tables know them."""


class Lake:
    """The tables of one home. Raises :class:`TableError` as every table does."""

    def __init__(self, home: Home | str | os.PathLike[str], settings: Settings) -> None:
        """A path is that of a folder with Delta tables. `create` makes the tables."""
        self.home: Home = DeltaHome(home) if isinstance(home, str | os.PathLike) else home
        self.settings = settings
        self.tables: dict[str, Where] = {name: self.home.where(name) for name in TABLES}
        self.targets: dict[str, Target] = {}
        """What writers of files must know of each table."""
        self.tails = {
            name: self.home.tail(name, with_files=schema.way is not Way.APPEND)
            for name, schema in TABLES.items()
        }

    @property
    def places(self) -> dict[str, Folder]:
        """Where the files of each table are."""
        return {name: target.folder for name, target in self.targets.items()}

    def create(self) -> None:
        """Make the tables that are not there; refuse those that were made with other buckets."""
        self.home.prepare()
        told = f"{self.settings.buckets} buckets"
        for name, schema in TABLES.items():
            where = self.tables[name]
            table = HERE.opened(where)
            if table is not None:
                made = self.home.made_with(table)
                if made not in (None, told):
                    raise TableError(
                        f"the table {where} was made with {made}, not with {told}: the number of"
                        " buckets of a table does not change"
                    )
                check_columns(schema, table)
            self.home.complete(name, table, told)
            need = Write(schema.schema, partition_by=schema.partition_by, merge_schema=True)
            self.targets[name] = self.home.target(name, HERE.prepare(where, need))
        self.home.finish()

    def begin(self, mark: Mark) -> Begun:
        """The state of the tables before a batch."""
        begun = Begun(mark)
        for name, schema in TABLES.items():
            if schema.way is Way.APPEND:
                continue
            files = self.before(name, mark).values()
            begun.active[name] = {one.stored.path: one for one in files}
            begun.held[name] = held_of(one.stored for one in files)
        return begun

    def before(self, name: str, mark: Mark) -> dict[str, Active]:
        """The files of a table before a batch."""
        tail = self.tail(name, mark)
        if tail is not None:
            return tail.files
        return HERE.there(self.tables[name]).before(mark).snapshot().files

    def tail(self, name: str, mark: Mark) -> Tail | None:
        """The newest part of a table, if it has one and lacks the mark; otherwise `HERE` reads the whole table."""
        tail = self.tails[name]
        if not tail.read():
            return None
        last = tail.last(mark.name)
        return tail if last is None or last < mark.number else None

    def commit(self, begun: Begun, reports: Iterable[Report]) -> Counts:
        """Make a batch part of every table that it concerns."""
        counts = Counts()
        files: dict[str, list[Any]] = defaultdict(list)
        removed: dict[str, list[Active]] = defaultdict(list)
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

    def take(
        self, name: str, mark: Mark | None, files: Sequence[Any], removed: Sequence[Active]
    ) -> None:
        """One commit of one table, once; :class:`FilesGoneError` if another writer has changed files that go."""
        where = self.tables[name]
        write = Write(
            TABLES[name].schema,
            files,
            mark=mark,
            removed=removed,
            replaces=True,
            alone=bool(removed),
            target=self.targets[name],
        )

        def change(table: Table) -> None:
            # The tail reads after the table was opened, so it knows every removal that the table knows.
            if removed:
                there = None if mark is None else self.tail(name, mark)
                unless_gone(removed, table.snapshot().files if there is None else there.files)
            table.commit(write)

        HERE.once(where, write, change)

    def files(self, name: str) -> list[StoredFile]:
        """The files of a table as it is now."""
        return HERE.at(self.tables[name]).files()

    def dataset(self, name: str) -> ds.Dataset:
        """The rows of a table as it is now."""
        return HERE.at(self.tables[name]).dataset(TABLES[name].schema)

    def greatest(self, name: str, column: str) -> int:
        """The greatest number of a column, by the bounds of the table's files; 0 without rows."""
        return HERE.at(self.tables[name]).greatest(column)

    def newest(self, table: TableSchema) -> tuple[Mark, pa.Table]:
        """The last batch that a table holds, and its rows there."""
        where = self.tables[table.name]
        found = HERE.there(where).newest()
        if found is None:
            raise TableError(f"the table {where} does not say which batch it holds")
        mark, then, before = found
        old = {file.path for file in before.files()}
        new = [file for file in then.files() if file.path not in old]
        rows = read_files(self.targets[table.name].folder, new, table.schema, _READ_ROWS)
        return mark, pa.Table.from_batches(rows, table.schema)

    def made_with(self) -> int | None:
        """The number of buckets of tables that are there."""
        return self.home.buckets()

    def last_batch(self, name: str, query: str) -> int | None:
        """The last batch of a query that a table holds."""
        return HERE.batch_of(self.tables[name], query)

    def where(self, name: str) -> str:
        """The place of a table, for a person."""
        return str(self.tables[name])


def check_columns(schema: TableSchema, table: Table) -> None:
    """Refuse a table with columns of a newer Pelton, if its rows are written again: the columns would be lost."""
    there = {*table.columns().names}
    more = [] if schema.way is Way.APPEND else sorted(there - {*schema.schema.names})
    if more:
        raise TableError(
            f"the table {table.where} has the columns {', '.join(more)}, which this version does not know"
            " and would lose: go on with the newer one"
        )


def held_of(files: Iterable[StoredFile]) -> Held:
    """Files by bucket: those with current or open rows, and those of each day with closed ones."""
    held = Held()
    for each in files:
        file = (
            each if each.entry is None else replace(each, entry=None)
        )  # executors need no library
        if "://" in file.path:
            raise TableError(f"{file.path} is not in the folder of its table")
        partition = dict(file.partition)
        bucket = int(partition["bucket"] or 0)
        if partition.get("is_open", "true") == "true":
            held.live.setdefault(bucket, []).append(file)
        else:
            held.closed.setdefault((bucket, partition.get("day")), []).append(file)
    return held
