"""Readers of ``format("jetstream_delta")``: a version of a table, or a table as it grows.

:mod:`pelton.spark.tables.files` plans reads, and :mod:`pelton.spark.tables.rows` reads rows; this
module connects both with Spark.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from pelton.spark.filling import next_end
from pelton.spark.older import SupportsTriggerAvailableNow, from_arrow, to_arrow
from pelton.spark.tables.files import Changes, Position, StoredFile, files_of, table_at, tasks
from pelton.spark.tables.places import TableError
from pelton.spark.tables.rows import read_files
from pelton.spark.tables.schemas import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from pelton.spark.tables.options import ReadOptions

_IDLE_SECONDS = 0.5


def columns(options: ReadOptions) -> StructType:
    """The columns of the table, or those that the option ``columns`` names."""
    have = schema_of(table_at(options.place, options.version, options.time))
    found: StructType = from_arrow(have)
    if options.columns is None:
        return found
    missing = [name for name in options.columns if name not in have.names]
    if missing:
        raise TableError(
            f"columns names {', '.join(missing)}, but {options.place} has {', '.join(have.names)}"
        )
    return type(found)([found[name] for name in options.columns])


@dataclass(frozen=True)
class FilesPartition(InputPartition):
    """Files that one task reads."""

    files: tuple[StoredFile, ...]


class _FilesReader:
    """The method ``read``, shared by batch and streaming readers."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Opens nothing. ``schema`` may have any columns of the table."""

        self._options = options
        self._schema = to_arrow(schema)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of a partition's files; for a batch read without partitions Spark gives None."""

        if isinstance(partition, FilesPartition):
            options = self._options
            yield from read_files(options.place, partition.files, self._schema, options.batch_rows)


class DeltaReader(_FilesReader, DataSourceReader):
    """A batch read of one version."""

    def partitions(self) -> Sequence[InputPartition]:
        """The files of the version, in groups."""
        options = self._options
        files = files_of(table_at(options.place, options.version, options.time))
        return [FilesPartition(group) for group in tasks(files, options.partition_bytes)]


class DeltaStreamReader(_FilesReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read: the table's files, then those that each commit adds."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Opens nothing."""

        super().__init__(options, schema)
        self._changes = Changes(options.place, skip_changes=options.skip_changes)
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
        first = version + 1 if starting == "latest" else int(starting)
        if first > version + 1:
            raise TableError(
                f"startingVersion is {first}, but the table {self._options.place} is at version"
                f" {version}"
            )
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
                f"the table {self._options.place} was created again since this query last read it;"
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
        return [FilesPartition(group) for group in tasks(files, self._options.partition_bytes)]

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: no state is kept for a query."""

    def stop(self) -> None:
        """Nothing to release."""
