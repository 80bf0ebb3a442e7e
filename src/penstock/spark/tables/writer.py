"""Writers of ``format("jetstream_delta")``.

Executors write Parquet files into the table's folder; the driver makes them part of the table in
one commit. Its mark is the query's id and the batch's number, which Spark gives to the tasks alone:
they send both back with the names of their files.

``abort`` removes nothing: Spark calls it as well when a commit was made and then something failed.

Committing is in :mod:`penstock.spark.tables.commits`, files in :mod:`penstock.spark.tables.data_files`; this
module only carries one to the other.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from penstock.spark.tables.commits import HERE, Write, check
from penstock.spark.tables.data_files import write_rows
from penstock.spark.tables.marks import Mark
from penstock.spark.tables.places import TableError
from penstock.spark.tables.schemas import arrow_schema, check_partitions, check_rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from penstock.spark.tables.data_files import DataFile
    from penstock.spark.tables.options import WriteOptions


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task has written, and for which batch of which query in which run ('' in a batch
    write).
    """

    files: tuple[DataFile, ...]
    query_id: str = ""
    batch_id: int = -1
    run_id: str = ""


class _Writer:
    """What both writers do. Made on the driver for each batch, and sent to the tasks."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """Checks that the rows fit the table, if there is one, before any are written."""

        self._options = options
        self._overwrite = overwrite
        self._token = uuid.uuid4().hex[:12]
        self._schema = arrow_schema(schema)
        self._partition_by = options.partition_by or ()
        table = HERE.opened(options.place)
        if table is not None:
            check(table, self._write((), None), options.place)
            check_rules(table)
            self._partition_by = tuple(table.metadata().partition_columns)
        check_partitions(self._schema, self._partition_by)

    def _write(self, files: Sequence[DataFile], mark: Mark | None) -> Write:

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
        )

    def _files(self, batches: Iterator[pa.RecordBatch], name: str) -> tuple[DataFile, ...]:

        task = TaskContext.get()
        if task is None:
            raise RuntimeError("not called by a task of Spark")
        prefix = f"{name}-{self._token}-{task.partitionId():05d}-{task.taskAttemptId()}"
        try:
            return tuple(
                write_rows(
                    batches,
                    self._options.place,
                    self._schema,
                    prefix,
                    partition_by=self._partition_by,
                    rows_per_file=self._options.rows_per_file,
                )
            )
        except OSError as problem:
            place = self._options.place
            raise TableError(f"cannot write files of the table {place}: {problem}") from problem


class DeltaWriter(_Writer, DataSourceArrowWriter):
    """One batch in one commit; once only, where txnAppId and txnVersion are given."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """The rows of a task as files."""
        return Written(self._files(iterator, "batch"))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the files of all tasks part of the table."""

        options = self._options
        mark = None
        if options.mark_name is not None and options.mark_number is not None:
            mark = Mark(options.mark_name, options.mark_number)
        files = [file for message in messages for file in _written(message).files]
        if files or self._overwrite:
            HERE.commit(options.place, self._write(files, mark))
        elif HERE.opened(options.place) is None:
            HERE.create(options.place, self._schema, self._partition_by)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave the files: the commit may have been made. A vacuum removes them if not."""


class DeltaStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Each micro-batch in one commit, once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """The rows of a task as files, with the names that Spark has for query, batch and run."""

        task = TaskContext.get()
        query_id = task.getLocalProperty("sql.streaming.queryId") if task else None
        batch_id = task.getLocalProperty("streaming.sql.batchId") if task else None
        if task is None or query_id is None or batch_id is None:
            raise RuntimeError("not called by a task of a streaming query")
        run_id = task.getLocalProperty("spark.jobGroup.id") or ""
        files = self._files(iterator, f"{query_id}-{int(batch_id):09d}")
        return Written(files, query_id, int(batch_id), run_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Make the files of all tasks part of the table, unless it holds the batch already."""

        done = [_written(message) for message in messages]
        files = [file for message in done for file in message.files]
        place = self._options.place
        if not files and not self._overwrite:
            if HERE.opened(place) is None:
                HERE.create(place, self._schema, self._partition_by)
            return
        mark = None
        if done:
            mark = Mark(done[0].query_id, batchId, done[0].run_id)
        HERE.commit(place, self._write(files, mark))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Leave the files: the commit may have been made. A vacuum removes them if not."""


def _written(message: WriterCommitMessage | None) -> Written:
    if not isinstance(message, Written):
        raise TableError("a task has not told what it wrote; nothing is committed")
    return message
