"""Writers of ``format("jetstream_delta")``.

:mod:`pelton.spark.tables.file_writers` turns a batch into a commit,
:mod:`pelton.spark.tables.commits` commits, and :mod:`pelton.spark.tables.data_files` writes files;
this module connects them. Files without a commit stay until a vacuum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.spark.holding import memory_of
from pelton.spark.tables.commits import HERE, Write, batch_of, check, last_of
from pelton.spark.tables.data_files import DataFile, write_rows
from pelton.spark.tables.file_writers import BatchWriter, FileWriter, StreamWriter, batch_mark
from pelton.spark.tables.maintenance import maintain_regularly
from pelton.spark.tables.places import TableError
from pelton.spark.tables.schemas import arrow_schema, check_partitions, check_rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pelton.spark.tables.marks import Found, Mark
    from pelton.spark.tables.options import WriteOptions


class _Delta(FileWriter[DataFile]):
    """The common part of both writers."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """Checks that the rows fit the table, if it exists, before any are written."""
        memory = memory_of(options.checkpoint, str(options.place))
        mark = batch_mark(options.mark_name, options.mark_number)
        super().__init__(memory, mark, options.if_behind, options.checkpoint)
        self._options = options
        self.aside = options.aside
        self._overwrite = overwrite
        self._schema = arrow_schema(schema)
        self._partition_by = options.partition_by or ()
        table = HERE.opened(options.place)
        self.look(table is not None, lambda query: batch_of(table, query), replaces=overwrite)
        if table is not None:
            # Files have the table's names and types, so that all of them are alike.
            self._schema = check(table, self._write((), None), options.place).columns
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
            again_until=self._again_until,
            each=self._each,
        )

    def last_of(self, query: str) -> Found | None:
        """Read it from the table's log."""
        return last_of(HERE.opened(self._options.place), query)

    def write_files(self, batches: Iterator[pa.RecordBatch], prefix: str) -> Sequence[DataFile]:
        """Write Parquet files into the table's folder."""
        place = self._options.place
        try:
            return write_rows(
                batches,
                place,
                self._schema,
                prefix,
                partition_by=self._partition_by,
                rows_per_file=self._options.rows_per_file,
            )
        except OSError as problem:
            raise TableError(f"cannot write files of the table {place}: {problem}") from problem

    def take(self, files: Sequence[DataFile], mark: Mark | None, *, streaming: bool) -> None:
        """Make one commit; without rows, only create the table if it does not exist."""
        place = self._options.place
        if files or self._overwrite or self._each:
            made = HERE.commit(place, self._write(files, mark))
            if made and (every := self._options.maintain_every) is not None:
                maintain_regularly(place, HERE.opened(place), every, self._options.keep_hours)
        elif HERE.opened(place) is None:
            HERE.create(place, self._schema, self._partition_by)


class DeltaWriter(_Delta, BatchWriter[DataFile]):
    """A write of one batch in one commit, which happens once with txnAppId and txnVersion."""


class DeltaStreamWriter(_Delta, StreamWriter[DataFile]):
    """A write of micro-batches, each in one commit that happens once."""
