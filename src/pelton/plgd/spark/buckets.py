"""One bucket of a batch on an executor: it reads the state of the bucket, writes its rows to files,
and commits nothing.

The driver says which files the tables hold. A process keeps the state of a bucket that it has
written as long as the table has these files, so the next batch does not read it again.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pelton.spark.tables.parquet import write_rows
from pelton.spark.tables.rows import read_files
from pelton.spark.tables.syncing import Syncs

from ..tables.batch import process
from ..tables.pages import changed_pages, page_name, parts_of
from ..tables.schemas import TABLES, TableSchema, Way

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import date

    from pelton.spark.tables.table import StoredFile, Target

    from ..tables.batch import Change
    from ..tables.settings import Settings

READ_ROWS = 128 * 1024
MANY_FILES, SMALL_BYTES = 64, 2**20
"""So many small files of closed rows of a day become one."""


@dataclass
class Held:
    """The files of a table by bucket: with current or open rows, and by day with closed ones."""

    live: dict[int, list[StoredFile]] = field(default_factory=dict)
    closed: dict[tuple[int, str | None], list[StoredFile]] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """The data of a batch that every executor gets."""

    targets: dict[str, Target]
    held: dict[str, Held]
    settings: Settings
    prefix: str


@dataclass
class Report:
    """The files that a bucket's batch wrote, and those that they replace."""

    messages: int = 0
    events: int = 0
    duplicates: int = 0
    dead_letters: int = 0
    first_seq: int = 0
    last_seq: int = 0
    files: dict[str, list[Any]] = field(default_factory=dict)
    removed: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Rows:
    """Rows that a process keeps, the files that have them, and the batch that read or wrote them."""

    table: pa.Table
    paths: frozenset[str]
    batch: str

    def are_of(self, files: Collection[StoredFile]) -> bool:
        """Whether they are those of exactly these files."""
        return len(files) == len(self.paths) and all(file.path in self.paths for file in files)


class Kept:
    """The state of buckets that this process has read or written, up to a number of bytes.

    A bucket goes to any process with each batch. A process drops what the tables hold no longer, so that all
    processes together keep about one copy of the state. Beyond the bytes those rows go that were not used for longest;
    they are read again when they are needed.
    """

    def __init__(self) -> None:
        """Keeps nothing."""
        self.bytes = 0
        self._rows: OrderedDict[tuple[Any, int], Rows] = OrderedDict()

    def get(self, where: Any, bucket: int, files: Collection[StoredFile]) -> pa.Table | None:
        """The rows of exactly these files."""
        rows = self._rows.get((where, bucket))
        if rows is None or not rows.are_of(files):
            return None
        self._rows.move_to_end((where, bucket))
        return rows.table

    def put(self, where: Any, bucket: int, rows: Rows, most: int) -> None:
        """Keep rows, and no more than ``most`` bytes of all."""
        self.drop((where, bucket))
        self._rows[where, bucket] = rows
        self.bytes += rows.table.nbytes
        while self.bytes > most and self._rows:
            self.drop(next(iter(self._rows)))

    def drop(self, key: tuple[Any, int]) -> None:
        """Keep the rows of a bucket of a table no longer."""
        rows = self._rows.pop(key, None)
        self.bytes -= 0 if rows is None else rows.table.nbytes

    def drop_old(self, job: Job) -> None:
        """Drop rows that the tables no longer held when a batch began, except those of this batch."""
        names = {job.targets[name].folder: name for name in job.held}
        for key, rows in list(self._rows.items()):
            where, bucket = key
            if where not in names or rows.batch == job.prefix:
                continue
            if not rows.are_of(job.held[names[where]].live.get(bucket, [])):
                self.drop(key)


KEPT = Kept()
"""The state that this process keeps."""


class FilesState:
    """The state of a bucket, from the files of the tables."""

    def __init__(self, job: Job, bucket: int) -> None:
        """Reads nothing yet."""
        self.job = job
        self.bucket = bucket
        self.syncs = Syncs()

    def live(self, table: TableSchema) -> list[StoredFile]:
        """The files with the rows that may change."""
        return self.job.held[table.name].live.get(self.bucket, [])

    def of_day(self, table: TableSchema, day: date | None) -> list[StoredFile]:
        """The files with the closed rows of a day; None for those of a table without days."""
        told = None if day is None else day.isoformat()
        return self.job.held[table.name].closed.get((self.bucket, told), [])

    def to_merge(self, table: TableSchema, change: Change) -> list[StoredFile]:
        """Small files of days that get closed rows: when a day has many, one file replaces them.

        So a day has few files to list and to read.
        """
        if table.way is not Way.OPEN or not len(change.add):
            return []
        has_days = "day" in table.partition_by
        days = change.add["day"].unique().to_pylist() if has_days else [None]
        found = []
        for day in days:
            if day not in change.days:
                small = [one for one in self.of_day(table, day) if one.size < SMALL_BYTES]
                found += small if len(small) >= MANY_FILES else []
        return found

    def current(self, table: TableSchema) -> pa.Table:
        """The rows that may change."""
        where, files = self.job.targets[table.name].folder, self.live(table)
        if not files:
            return table.schema.empty_table()
        kept = KEPT.get(where, self.bucket, files)
        if kept is None:
            kept = self.read(table, files)
            self.keep(table, [file.path for file in files], kept)
        return kept

    def keep(self, table: TableSchema, paths: Iterable[str], found: pa.Table) -> None:
        """Keep the rows of files for the next batch."""
        rows = Rows(found, frozenset(paths), self.job.prefix)
        KEPT.put(
            self.job.targets[table.name].folder, self.bucket, rows, self.job.settings.keep_bytes
        )

    def closed(self, table: TableSchema, day: date) -> pa.Table:
        """The closed rows of a day."""
        return self.read(table, self.of_day(table, day))

    def read(self, table: TableSchema, files: list[StoredFile]) -> pa.Table:
        """The rows of files."""
        where = self.job.targets[table.name].folder
        batches = list(read_files(where, files, table.schema, READ_ROWS))
        return pa.Table.from_batches(batches, table.schema).combine_chunks()


def write_bucket(job: Job, bucket: int, messages: pa.Table) -> Report:
    """Process a bucket's messages, and write the rows that they make."""
    KEPT.drop_old(job)
    state = FilesState(job, bucket)
    outcome = process(messages, state, job.settings)
    report = Report(
        outcome.messages,
        outcome.events,
        outcome.duplicates,
        outcome.dead_letters,
        outcome.first_seq,
        outcome.last_seq,
    )
    unique = f"{job.prefix}-{uuid.uuid4().hex[:12]}-{bucket:05}-0"
    while outcome.changes:  # each is let go once it is written
        name = next(iter(outcome.changes))
        write_table(job, TABLES[name], state, outcome.changes.pop(name), unique, report)
    state.syncs.wait()
    return report


def write_table(
    job: Job, table: TableSchema, state: FilesState, change: Change, unique: str, report: Report
) -> None:
    """Write the files of a batch for one table."""
    name = table.name
    files: list[StoredFile] = []
    removed: list[str] = []
    if change.instead is not None:
        files = state.live(table)
    if table.way is Way.CURRENT and change.instead is not None:
        paths = [file.path for file in files]
        pages, wanted, removed = changed_pages(paths, len(change.instead), change.touched)
        parts = parts_of(change.instead, table.page_key, pages, wanted)
        named = [(rows, f"{unique}-{page_name(one, pages)}") for one, rows in parts.items()]
    else:
        removed = [file.path for file in files]
        for day in change.days:
            removed += [file.path for file in state.of_day(table, day)]
        rows = [change.add] if change.instead is None else [change.add, change.instead]
        if merged := state.to_merge(table, change):
            removed += [file.path for file in merged]
            rows.append(state.read(table, merged))
        named = [(pa.concat_tables(rows), unique)]
    written: list[Any] = []
    for some, prefix in named:
        written += write_files(job, table, some, prefix, state.syncs)
    report.files[name] = written
    report.removed[name] = removed
    if change.instead is not None and table.way is not Way.APPEND:
        gone = set(removed)
        live = [file.path for file in files if file.path not in gone]
        live += [one.path for one in written if is_live(one, table)]
        state.keep(table, live, change.instead.combine_chunks())


def write_files(
    job: Job, table: TableSchema, rows: pa.Table, prefix: str, syncs: Syncs
) -> list[Any]:
    """Write rows of a table as files that no table has yet."""
    batches = rows.combine_chunks().to_batches()
    return write_rows(batches, job.targets[table.name], prefix, syncs=syncs)


def is_live(file: Any, table: TableSchema) -> bool:
    """Whether a file that was written has rows that may change."""
    if "is_open" not in table.partition_by:
        return True
    value = file.partition[table.partition_by.index("is_open")]
    return value is True or value == ("is_open", "true")
