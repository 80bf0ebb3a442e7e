"""The common part of the writers of tables that are made of files.

Executors write files into the table's folder; the driver makes them part of the table in one commit.
The commit's mark is the query's id and the batch's number. Spark gives these only to the tasks, which
return them with their files.

``abort`` removes nothing, because Spark also calls it when something failed after a commit.

Does not depend on the kind of table: subclasses of :class:`BatchWriter` and :class:`StreamWriter` write
files and commit them.
"""

from __future__ import annotations

import uuid
import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pelton.spark.filling import repeated_until
from pelton.spark.holding import FAIL
from pelton.spark.older import StreamArrowWriter
from pelton.spark.tables.aside import Aside, RowUnfit, aside_text
from pelton.spark.tables.aside_options import FAILING, AsideOptions
from pelton.spark.tables.behind import Watched
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from pelton.spark.holding import Memory
    from pelton.spark.tables.marks import Found

F = TypeVar("F")
"""The description of a written file."""


@dataclass(frozen=True)
class Written(WriterCommitMessage, Generic[F]):
    """The files that a task has written, with query, batch and run; '' for these in a batch write."""

    files: tuple[F, ...]
    query_id: str = ""
    batch_id: int = -1
    run_id: str = ""
    rows_aside: int = 0
    error: str = ""
    """The reason why the write fails, for a row that fails it however often Spark runs the task."""


class FileWriter(Generic[F]):
    """A writer that the driver makes for each batch and sends to the tasks."""

    aside: AsideOptions = FAILING
    """What becomes of rows that the table cannot hold."""
    _in_query = False
    """Whether all writes are batches of a query."""

    def __init__(
        self,
        memory: Memory,
        mark: Mark | None = None,
        if_behind: str = FAIL,
        checkpoint: str | None = None,
    ) -> None:
        """``mark`` is that of a batch write that happens once.

        ``memory`` is the note of the table in ``checkpoint``, which Spark gives among the options.
        """
        self._mark = mark
        self._overwrite = False
        self._token = uuid.uuid4().hex[:12]
        self._watched = Watched(memory, if_behind)
        self._again_until = repeated_until(memory.checkpoint)
        # When there can be no note, the marks of the table show whether a batch is missing.
        in_query = self._in_query or checkpoint is not None
        self._each = memory.checkpoint is None and in_query

    def look(
        self, there: bool, batch_of: Callable[[str], int | None], *, replaces: bool = False
    ) -> None:
        """Compare the table with its note, before anything is written, as :meth:`Watched.look`
        does.
        """
        batch = None if self._mark is None else self._mark.number
        begun = self._misses_batches()
        self._watched.look(there, batch_of, batch=batch, begun=begun, replaces=replaces)

    def _misses_batches(self) -> bool:
        """Whether the query must have written a missing table before, although there is no note."""
        return False

    def _taken(self, mark: Mark | None, *, rows: bool) -> None:
        if mark is not None:
            self._watched.taken(mark, rows=rows)

    def _compare(self, mark: Mark | None, *, replaces: bool) -> None:
        """Check by the table's marks that it has the previous batch."""
        if self._each and mark is not None and not replaces:
            self._watched.compare(self.last_of(mark.name), mark.number)

    @abstractmethod
    def last_of(self, query: str) -> Found | None:
        """The last batch of a query that the table holds; runs on the driver."""

    @abstractmethod
    def write_files(self, batches: Iterator[pa.RecordBatch], prefix: str) -> Sequence[F]:
        """Write the rows of a task as files whose names begin with ``prefix``; runs on an executor."""

    @abstractmethod
    def take(self, files: Sequence[F], mark: Mark | None, *, streaming: bool) -> None:
        """Make the files of all tasks part of the table unless it holds ``mark``; runs on the
        driver.
        """

    def _written(
        self, batches: Iterator[pa.RecordBatch], name: str, query: str, batch: int, run: str = ""
    ) -> Written[F]:
        task = TaskContext.get()
        if task is None:
            raise RuntimeError("not called by a task of Spark")
        prefix = f"{name}-{self._token}-{task.partitionId():05d}-{task.taskAttemptId()}"
        writer = query or (self._token if self._mark is None else self._mark.name)
        number = batch if query or self._mark is None else self._mark.number
        aside = Aside(self.aside, writer, number, task.partitionId())
        try:
            files = tuple(self.write_files(aside.fit(batches), prefix))
        except RowUnfit as unfit:
            for _ in batches:  # Spark expects the task to read all rows
                pass
            return Written((), query, batch, run, error=str(unfit))
        aside.close()
        return Written(files, query, batch, run, aside.count)

    def _check(self, messages: Sequence[WriterCommitMessage | None]) -> list[Written[F]]:
        """What the tasks wrote; :class:`TableError` for a row that fails the write."""
        found = [_written(message) for message in messages]
        for each in found:
            if each.error:
                raise TableError(each.error)
        rows = sum(each.rows_aside for each in found)
        if rows:
            warnings.warn(aside_text(rows, self.aside), stacklevel=2)
        return found


class BatchWriter(FileWriter[F], DataSourceArrowWriter):
    """A write of one batch in one commit; with a mark it happens once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task as files."""
        return self._written(iterator, "batch", "", -1)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the files of all tasks part of the table."""
        files = [file for each in self._check(messages) for file in each.files]
        self._compare(self._mark, replaces=self._overwrite)
        self.take(files, self._mark, streaming=False)
        self._taken(self._mark, rows=bool(files))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave the files: the commit may have been made."""


class StreamWriter(FileWriter[F], StreamArrowWriter):
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
        self._compare(mark, replaces=self._overwrite)
        self.take(files, mark, streaming=True)
        self._taken(mark, rows=bool(files))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Leave the files: the commit may have been made."""


def batch_mark(name: str | None, number: int | None) -> Mark | None:
    """The mark of a batch write, from its options txnAppId and txnVersion, which need each other."""
    return None if name is None or number is None else Mark(name, number)


def _written(message: WriterCommitMessage | None) -> Written[Any]:
    if not isinstance(message, Written):
        raise TableError("a task has not named the files that it wrote; nothing is committed")
    return message
