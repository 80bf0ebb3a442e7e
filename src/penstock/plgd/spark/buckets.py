"""One bucket of a batch where the tables' files are: its state read, its rows written, nothing committed.

This runs on the executors, which are told what the tables hold. A process keeps the state of a bucket that it has
written, for as long as the table has these files: the next batch does not read it again.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.spark.tables.data_files import write_rows
from penstock.spark.tables.rows import read_files
from penstock.spark.tables.syncing import Syncs

from ..tables.batch import process
from ..tables.pages import changed_pages, page_name, parts_of
from ..tables.schemas import TABLES, TableSchema, Way

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

    from penstock.spark.tables.files import StoredFile

    from ..tables.batch import Change
    from ..tables.settings import Settings

READ_ROWS = 128 * 1024


@dataclass
class Held:
    """The files of a table by bucket: with current or open rows, and by day with closed ones."""

    live: dict[int, list[StoredFile]] = field(default_factory=dict)
    closed: dict[tuple[int, str | None], list[StoredFile]] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """What an executor must know of a batch; it travels to each of them."""

    places: dict[str, Any]
    held: dict[str, Held]
    settings: Settings
    prefix: str
    targets: dict[str, Any] = field(default_factory=dict)
    """What writers of Iceberg tables must know; empty for Delta."""


@dataclass
class Report:
    """What a bucket's batch wrote, and which files it replaces."""

    messages: int = 0
    events: int = 0
    duplicates: int = 0
    dead_letters: int = 0
    first_seq: int = 0
    last_seq: int = 0
    files: dict[str, list[Any]] = field(default_factory=dict)
    removed: dict[str, list[str]] = field(default_factory=dict)


class Kept:
    """The state of buckets that this process has read or written."""

    def __init__(self) -> None:
        """Keeps nothing."""
        self._tables: dict[tuple[Any, int], tuple[frozenset[str], pa.Table]] = {}

    def get(self, where: Any, bucket: int, files: Iterable[StoredFile]) -> pa.Table | None:
        """The rows of exactly these files."""
        paths, table = self._tables.get((where, bucket), (frozenset(), None))
        return table if paths == frozenset(file.path for file in files) else None

    def put(self, where: Any, bucket: int, paths: Iterable[str], table: pa.Table) -> None:
        """Keep the rows of files."""
        self._tables[where, bucket] = (frozenset(paths), table)


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

    def of_day(self, table: TableSchema, day: date) -> list[StoredFile]:
        """The files with the closed rows of a day."""
        return self.job.held[table.name].closed.get((self.bucket, day.isoformat()), [])

    def current(self, table: TableSchema) -> pa.Table:
        """The rows that may change."""
        where, files = self.job.places[table.name], self.live(table)
        if not files:
            return table.schema.empty_table()
        kept = KEPT.get(where, self.bucket, files)
        if kept is None:
            kept = self.read(table, files)
            KEPT.put(where, self.bucket, [file.path for file in files], kept)
        return kept

    def closed(self, table: TableSchema, day: date) -> pa.Table:
        """The closed rows of a day."""
        return self.read(table, self.of_day(table, day))

    def read(self, table: TableSchema, files: list[StoredFile]) -> pa.Table:
        """The rows of files."""
        where = self.job.places[table.name]
        batches = list(read_files(where, files, table.schema, READ_ROWS))
        return pa.Table.from_batches(batches, table.schema).combine_chunks()


def write_bucket(job: Job, bucket: int, messages: pa.Table) -> Report:
    """Process a bucket's messages, and write the rows that they make."""
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
    for name, change in outcome.changes.items():
        write_table(job, TABLES[name], state, change, unique, report)
    state.syncs.wait()
    return report


def write_table(
    job: Job, table: TableSchema, state: FilesState, change: Change, unique: str, report: Report
) -> None:
    """Write what a batch makes of one table."""
    name, where = table.name, job.places[table.name]
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
        KEPT.put(where, state.bucket, live, change.instead.combine_chunks())


def write_files(
    job: Job, table: TableSchema, rows: pa.Table, prefix: str, syncs: Syncs
) -> list[Any]:
    """Write rows of a table as files that no table has yet."""
    batches = rows.combine_chunks().to_batches()
    if job.targets:
        from penstock.spark.iceberg.data_files import write_rows as write_iceberg

        return write_iceberg(batches, job.targets[table.name], prefix)
    where = job.places[table.name]
    return write_rows(
        batches, where, table.schema, prefix, partition_by=table.partition_by, syncs=syncs
    )


def is_live(file: Any, table: TableSchema) -> bool:
    """Whether a file that was written has rows that may change."""
    if "is_open" not in table.partition_by:
        return True
    value = file.partition[table.partition_by.index("is_open")]
    return value is True or value == ("is_open", "true")
