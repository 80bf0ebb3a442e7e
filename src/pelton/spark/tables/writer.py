"""Writers of the formats of tables.

Executors write files into the table's folder; the driver makes them part of the table in one commit. The
commit's mark is the query's id and the batch's number. Spark gives these only to the tasks, which return them
with their files. Executors need no library of the format.

Files of a batch that the table holds already are removed, because their names belong to this attempt; others
without a commit stay until maintenance. ``abort`` removes nothing, because Spark also calls it when something
failed after a commit.
"""

from __future__ import annotations

import contextlib
import uuid
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pelton.spark.filling import repeated_until
from pelton.spark.holding import memory_of
from pelton.spark.older import StreamArrowWriter
from pelton.spark.tables.aside import Aside, RowUnfit, aside_text
from pelton.spark.tables.behind import Watched
from pelton.spark.tables.commits import HERE, format_of
from pelton.spark.tables.maintenance import maintain_regularly
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.parquet import write_rows
from pelton.spark.tables.places import TableError
from pelton.spark.tables.schemas import arrow_schema, check_partitions
from pelton.spark.tables.table import Write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pelton.spark.tables.options import WriteOptions
    from pelton.spark.tables.table import Target


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The files that a task has written, with query, batch and run; '' for these in a batch write."""

    files: tuple[Any, ...]
    query_id: str = ""
    batch_id: int = -1
    run_id: str = ""
    rows_aside: int = 0
    error: str = ""
    """The reason why the write fails, for a row that fails it however often Spark runs the task."""


class _TableWriter:
    """A writer that the driver makes for each batch and sends to the tasks."""

    _in_query = False
    """Whether all writes are batches of a query."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """Checks that the rows fit the table before any are written; creates one that needs its columns first."""
        memory = memory_of(options.checkpoint, str(options.where))
        self._mark: Mark | None = None
        if options.mark_name is not None and options.mark_number is not None:
            self._mark = Mark(options.mark_name, options.mark_number)
        self._options = options
        self._overwrite = overwrite
        self._token = uuid.uuid4().hex[:12]
        self._watched = Watched(memory, options.if_behind)
        self._again_until = repeated_until(memory.checkpoint)
        # When there can be no note, the marks of the table show whether a batch is missing.
        in_query = self._in_query or options.checkpoint is not None
        self._each = memory.checkpoint is None and in_query
        form = format_of(options.where)
        self._schema = arrow_schema(schema, form)
        table = HERE.opened(options.where)
        self._watched.look(
            table is not None,
            lambda query: None if table is None else table.last(query),
            batch=None if self._mark is None else self._mark.number,
            begun=self._misses_batches(),
            replaces=overwrite,
        )
        self._target: Target
        self._needed: Target | None = None
        if table is None and not form.columns_first:
            by = options.partition_by or ()
            check_partitions(self._schema, by)
            self._target = form.target(options.where, self._schema, by)
            return
        write = self._write((), None)
        if form.columns_first or table is None:
            table = HERE.prepare(options.where, write)
        # Files have the table's names and types, so that all of them are alike.
        self._schema = table.check(write).columns
        table.check_rules()
        check_partitions(self._schema, table.partition_by(), all_columns=form.columns_first)
        self._target = table.target(self._schema)
        self._needed = self._target if form.columns_first else None

    def _write(self, files: Sequence[Any], mark: Mark | None) -> Write:
        options = self._options
        return Write(
            schema=self._schema,
            files=files,
            partition_by=options.partition_by,
            mark=mark,
            overwrite=self._overwrite,
            merge_schema=options.merge_schema,
            overwrite_schema=options.overwrite_schema,
            check_again=options.check_replay,
            again_until=self._again_until,
            each=self._each,
            target=self._needed,
        )

    def _misses_batches(self) -> bool:
        """Whether the query must have written a missing table before, although there is no note."""
        return False

    def _compare(self, mark: Mark | None) -> None:
        """Check by the table's marks that it has the previous batch."""
        if self._each and mark is not None and not self._overwrite:
            last = HERE.last_of(self._options.where, Mark(mark.name, 0))
            self._watched.compare(last, mark.number)

    def _take(self, files: Sequence[Any], mark: Mark | None) -> None:
        """Make one commit; without rows, only create the table if it does not exist."""
        where = self._options.where
        if not files and not self._overwrite and not self._each:
            if HERE.opened(where) is None:
                HERE.create(where, self._schema, self._options.partition_by or ())
        elif HERE.commit(where, self._write(files, mark)):
            if (every := self._options.maintain_every) is not None:
                maintain_regularly(where, every, self._options.keep_hours)
        else:
            folder = self._target.folder.files()
            for file in files:
                with contextlib.suppress(OSError):
                    folder.delete_file(file.path)
        if mark is not None:
            self._watched.taken(mark, rows=bool(files))

    def _written(
        self, batches: Iterator[pa.RecordBatch], name: str, query: str, batch: int, run: str = ""
    ) -> Written:
        task = TaskContext.get()
        if task is None:
            raise RuntimeError("not called by a task of Spark")
        prefix = f"{name}-{self._token}-{task.partitionId():05d}-{task.taskAttemptId()}"
        writer = query or (self._token if self._mark is None else self._mark.name)
        number = batch if query or self._mark is None else self._mark.number
        aside = Aside(self._options.aside, writer, number, task.partitionId())
        try:
            files = tuple(
                write_rows(aside.fit(batches), self._target, prefix, self._options.rows_per_file)
            )
        except RowUnfit as unfit:
            for _ in batches:  # Spark expects the task to read all rows
                pass
            return Written((), query, batch, run, error=str(unfit))
        aside.close()
        return Written(files, query, batch, run, aside.count)

    def _check(self, messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
        """What the tasks wrote; :class:`TableError` for a row that fails the write."""
        found = [_written(message) for message in messages]
        for each in found:
            if each.error:
                raise TableError(each.error)
        rows = sum(each.rows_aside for each in found)
        if rows:
            warnings.warn(aside_text(rows, self._options.aside), stacklevel=2)
        return found


class TableBatchWriter(_TableWriter, DataSourceArrowWriter):
    """A write of one batch in one commit; with a mark it happens once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task as files."""
        return self._written(iterator, "batch", "", -1)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the files of all tasks part of the table."""
        files = [file for each in self._check(messages) for file in each.files]
        self._compare(self._mark)
        self._take(files, self._mark)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave the files: the commit may have been made."""


class TableStreamWriter(_TableWriter, StreamArrowWriter):
    """A write of micro-batches, each in one commit that happens once."""

    _in_query = True

    def _misses_batches(self) -> bool:
        """Whether the query has committed batches, and the checkpoint has no notes.

        A query creates its table with its first batch. When the checkpoint has notes, but only of other
        places, the user has moved the table.
        """
        memory = self._watched.memory
        return memory.begun and not memory.known

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task as files, and return them with Spark's ids of query, batch and
        run.
        """
        task = TaskContext.get()
        query_id = task.getLocalProperty("sql.streaming.queryId") if task else None
        batch_id = task.getLocalProperty("streaming.sql.batchId") if task else None
        if task is None or query_id is None or batch_id is None:
            raise RuntimeError("not called by a task of a streaming query")
        run_id = task.getLocalProperty("spark.jobGroup.id") or ""
        number = int(batch_id)
        return self._written(iterator, f"{query_id}-{number:09d}", query_id, number, run_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Make the files of all tasks part of the table, unless it holds the batch already."""
        self._watched.check_batch(batchId)
        done = self._check(messages)
        mark = Mark(done[0].query_id, batchId, done[0].run_id) if done else None
        files = [file for each in done for file in each.files]
        self._compare(mark)
        self._take(files, mark)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Leave the files: the commit may have been made."""


def _written(message: WriterCommitMessage | None) -> Written:
    if not isinstance(message, Written):
        raise TableError("a task has not named the files that it wrote; nothing is committed")
    return message
