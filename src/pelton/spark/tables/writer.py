"""Writers of the formats of tables.

:mod:`pelton.spark.tables.file_writers` turns a batch into a commit, :mod:`pelton.spark.tables.commits` commits, and
:mod:`pelton.spark.tables.parquet` writes files; this module connects them. Files of a batch that the table holds
already are removed, because their names belong to this attempt; others without a commit stay until maintenance.
Executors need no library of the format.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pelton.spark.holding import memory_of
from pelton.spark.tables.commits import HERE, format_of
from pelton.spark.tables.file_writers import BatchWriter, FileWriter, StreamWriter, batch_mark
from pelton.spark.tables.maintenance import maintain_regularly
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.parquet import write_rows
from pelton.spark.tables.schemas import arrow_schema, check_partitions
from pelton.spark.tables.table import Write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pelton.spark.tables.marks import Found
    from pelton.spark.tables.options import WriteOptions
    from pelton.spark.tables.table import Target


class _TableWriter(FileWriter[Any]):
    """The common part of both writers."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """Checks that the rows fit the table before any are written; creates one that needs its columns first."""
        memory = memory_of(options.checkpoint, str(options.where))
        mark = batch_mark(options.mark_name, options.mark_number)
        super().__init__(memory, mark, options.if_behind, options.checkpoint)
        self._options = options
        self.aside = options.aside
        self._overwrite = overwrite
        form = format_of(options.where)
        self._schema = arrow_schema(schema, form)
        table = HERE.opened(options.where)
        self.look(
            table is not None,
            lambda query: None if table is None else table.last(query),
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

    def last_of(self, query: str) -> Found | None:
        """Read it from the table."""
        return HERE.last_of(self._options.where, Mark(query, 0))

    def write_files(self, batches: Iterator[pa.RecordBatch], prefix: str) -> Sequence[Any]:
        """Write Parquet files into the table's folder."""
        return write_rows(batches, self._target, prefix, self._options.rows_per_file)

    def take(self, files: Sequence[Any], mark: Mark | None, *, streaming: bool) -> None:
        """Make one commit; without rows, only create the table if it does not exist."""
        where = self._options.where
        if not files and not self._overwrite and not self._each:
            if HERE.opened(where) is None:
                HERE.create(where, self._schema, self._options.partition_by or ())
            return
        if HERE.commit(where, self._write(files, mark)):
            if (every := self._options.maintain_every) is not None:
                maintain_regularly(where, every, self._options.keep_hours)
            return
        folder = self._target.folder.files()
        for file in files:
            with contextlib.suppress(OSError):
                folder.delete_file(file.path)


class TableBatchWriter(_TableWriter, BatchWriter[Any]):
    """A write of one batch in one commit, which happens once with txnAppId and txnVersion."""


class TableStreamWriter(_TableWriter, StreamWriter[Any]):
    """A write of micro-batches, each in one commit that happens once."""
