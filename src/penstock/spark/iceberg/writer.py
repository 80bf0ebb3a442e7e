"""Writers of ``format("jetstream_iceberg")``.

The driver sees to it that the table has the columns, executors write Parquet files into its folder,
and the driver makes them part of the table in one commit. The mark is the query's id and the batch's
number, which Spark gives to the tasks alone: they send both back with what they wrote.

``abort`` removes nothing: Spark calls it as well when a commit was made and then something failed.
Files of a batch that the table holds already are removed, for their names are this attempt's own.

Committing is in :mod:`penstock.spark.iceberg.commits`, files in
:mod:`penstock.spark.iceberg.data_files`; this module only carries one to the other. Executors need
no ``pyiceberg``.
"""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from penstock.spark.iceberg.data_files import WrittenFile, write_rows
from penstock.spark.tables.marks import Mark
from penstock.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from penstock.spark.iceberg.options import WriteOptions


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task has written, and for which batch of which query in which run ('' in a batch
    write).
    """

    files: tuple[WrittenFile, ...]
    query_id: str = ""
    batch_id: int = -1
    run_id: str = ""


class _Writer:
    """What both writers do. Made on the driver for each batch, and sent to the tasks."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """Sees to it that the table is there and takes the rows, before any are written."""
        from penstock.spark.iceberg.commits import prepare
        from penstock.spark.iceberg.schemas import rows_schema

        self._options = options
        self._overwrite = overwrite
        self._token = uuid.uuid4().hex[:12]
        self._target = prepare(
            options.address,
            rows_schema(schema),
            partition_by=options.partition_by,
            merge_schema=options.merge_schema,
        )

    def _files(self, batches: Iterator[pa.RecordBatch], name: str) -> tuple[WrittenFile, ...]:
        task = TaskContext.get()
        if task is None:
            raise RuntimeError("not called by a task of Spark")
        prefix = f"{name}-{self._token}-{task.partitionId():05d}-{task.taskAttemptId()}"
        return tuple(write_rows(batches, self._target, prefix, self._options.rows_per_file))

    def _commit(self, files: Sequence[WrittenFile], mark: Mark | None) -> None:
        from penstock.spark.iceberg.commits import HERE, Write

        options = self._options
        write = Write(self._target, files, mark, self._overwrite, options.check_replay)
        if not HERE.commit(options.address, write):
            place = self._target.folder.files()
            for file in files:
                with contextlib.suppress(OSError):
                    place.delete_file(file.path)


class IcebergWriter(_Writer, DataSourceArrowWriter):
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
        if files or self._overwrite or mark is not None:
            self._commit(files, mark)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave the files: the commit may have been made."""


class IcebergStreamWriter(_Writer, DataSourceStreamArrowWriter):
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
        if files or self._overwrite:
            mark = Mark(done[0].query_id, batchId, done[0].run_id) if done else None
            self._commit(files, mark)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Leave the files: the commit may have been made."""


def _written(message: WriterCommitMessage | None) -> Written:
    if not isinstance(message, Written):
        raise TableError("a task has not told what it wrote; nothing is committed")
    return message
