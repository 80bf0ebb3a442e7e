"""Readers of the formats of tables: a version of a table, or a table as it grows.

:mod:`pelton.spark.tables.changes` plans reads, and each format reads the rows of its files; this
module connects both with Spark.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from pelton.spark.filling import next_end
from pelton.spark.filters import Filter
from pelton.spark.older import SupportsTriggerAvailableNow, from_arrow, to_arrow
from pelton.spark.tables.changes import Changes, Position, tasks
from pelton.spark.tables.commits import HERE, format_of
from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from pelton.spark.tables.options import ReadOptions
    from pelton.spark.tables.table import Rows, StoredFile, Table

_IDLE_SECONDS = 0.5


def columns(options: ReadOptions) -> StructType:
    """The columns of the table, or those that the option ``columns`` names."""
    have = _table(options).columns()
    wanted = have.names if options.columns is None else list(options.columns)
    missing = [name for name in wanted if name not in have.names]
    if missing:
        raise TableError(
            f"columns names {', '.join(missing)}, but {options.where} has {', '.join(have.names)}"
        )
    fields: list[Any] = []
    for name in wanted:
        try:
            fields += from_arrow(pa.schema([have.field(name)])).fields
        except PySparkException:
            raise TableError(
                f"column {name} of {options.where} is {have.field(name).type}, which Spark does"
                " not read here; leave it out with the option columns"
            ) from None
    return from_arrow(pa.schema([])).__class__(fields)


def _table(options: ReadOptions) -> Table:
    return HERE.at(options.where, options.version, options.time)


@dataclass(frozen=True)
class FilesPartition(InputPartition):
    """Files that one task reads, and how."""

    files: tuple[StoredFile, ...]
    rows: Rows
    where: Filter | None = None


class _FilesReader:
    """The method ``read``, shared by batch and streaming readers."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Opens nothing. ``schema`` may have any columns of the table."""
        self._options = options
        self._schema = to_arrow(schema)

    def __repr__(self) -> str:
        """The table alone, because the connection settings may be secret."""
        return f"{type(self).__name__}({self._options.where})"

    def _divided(self, table: Table, files: Iterable[StoredFile]) -> list[InputPartition]:

        rows, options = table.rows(self._schema), self._options
        divisible = format_of(options.where).divisible
        groups = tasks(files, options.partition_bytes, divisible=divisible)
        return [FilesPartition(group, rows) for group in groups]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of a partition's files; for a batch read without partitions Spark gives None."""
        if not isinstance(partition, FilesPartition):
            return
        for batch in partition.rows.read(partition.files, self._options.batch_rows):
            if partition.where is None:
                yield batch
            else:
                yield partition.where.kept(batch).select(self._schema.names)


class TableReader(_FilesReader, DataSourceReader):
    """A batch read of one version."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Opens the table, whose version it reads."""
        super().__init__(options, schema)
        self._table: Table | None = _table(options)
        have = self._table.columns()
        self._where = Filter.of(options.condition, have) if options.condition else None
        self._table.rows(self._needed(have))

    def _needed(self, have: pa.Schema) -> pa.Schema:
        """The columns of the rows, and those that the condition asks about."""
        asked = [] if self._where is None else self._where.columns
        more = [have.field(name) for name in asked if name not in self._schema.names]
        return pa.schema([*self._schema, *more])

    def __getstate__(self) -> dict[str, Any]:
        """The state that travels to the tasks, without the handle of the driver."""
        return {**vars(self), "_table": None}

    def partitions(self) -> Sequence[InputPartition]:
        """The files of the version, in groups."""
        table = self._table or _table(self._options)
        where = self._where
        if where is None:
            return self._divided(table, table.files())
        rows = table.rows(self._needed(table.columns()))
        groups = tasks(
            _that_may_have(table, where),
            self._options.partition_bytes,
            divisible=format_of(self._options.where).divisible,
        )
        return [FilesPartition(group, rows, where) for group in groups]


def _that_may_have(table: Table, where: Filter) -> list[StoredFile]:
    """The files that may have rows which meet a condition."""
    files = table.files()
    try:
        known = table.snapshot(where.columns).files.values()
    except TableError:  # its files cannot be replaced here, so nothing is known of them
        return files
    by = [name for name in table.partition_by() if name in where.columns]
    none = {
        file.stored.path
        for file in known
        if not where.may_be_in(_partition(file.stored, by, where), file.bounds)
    }
    return [file for file in files if file.path not in none]


def _partition(file: StoredFile, names: Sequence[str], where: Filter) -> dict[str, pa.Scalar]:
    """The values of a file's partition that are certain; an empty text can stand for null."""
    found = {}
    for name, text in file.partition:
        if name in names and text:
            kind = where.kinds[name]
            if types.is_string(kind) or types.is_integer(kind) or types.is_date32(kind):
                found[name] = pa.scalar(text).cast(kind)
    return found


class TableStreamReader(_FilesReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read: the table's files, then those that each commit adds."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Opens nothing."""
        super().__init__(options, schema)
        self._changes = Changes(options.where, skip_changes=options.skip_changes)
        self._bound: int | None = None
        self._seen: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The state that travels to the tasks, without the handles of the driver."""
        return {"_options": self._options, "_schema": self._schema}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Fix the end of the run: later commits are for the next run."""
        self._bound = self._changes.latest()[1]

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """No limit from Spark: :meth:`latestOffset` applies the limit of the options."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The offset at which a query without a checkpoint begins."""
        table, version = self._changes.latest()
        starting = self._options.starting
        if starting == "snapshot":
            return Position(table, version, 0, True).to_json()
        first = version + 1 if starting == "latest" else self._changes.first(int(starting))
        return Position(table, first).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The end of the next micro-batch; ``start`` itself when there is nothing to do.

        A batch that fills a hole ends where it ended before. Waits a moment for a commit when there is none,
        so that idle queries read the log only twice per second.
        """
        if (again := next_end(start)) is not None:
            return again
        begin = Position.from_json(start)
        end = self._next(begin)
        if end == begin and self._bound is None:
            time.sleep(_IDLE_SECONDS)
            end = self._next(begin)
        return end.to_json()

    def _next(self, begin: Position) -> Position:
        table, version = self._changes.latest()
        if begin.table != table:
            raise TableError(
                f"the table {self._options.where} was created again since this query last read it;"
                " begin with a new checkpoint"
            )
        self._seen = Position(table, version + 1).to_json()
        last = version if self._bound is None else min(version, self._bound)
        return self._changes.advance(begin, last, self._options.files_per_trigger)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  Spark's name
        """The end of the table at the last check; Spark shows it in the query's progress."""
        return self._seen

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The files between two offsets, in groups; the same offsets give the same groups."""
        files = self._changes.between(Position.from_json(start), Position.from_json(end))
        return self._divided(self._changes.table(), files)

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: no state is kept for a query."""

    def stop(self) -> None:
        """Nothing to release."""
