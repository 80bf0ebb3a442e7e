"""Writers of ``format("jetstream_iceberg")``.

The driver first adds missing columns to the table. Executors write Parquet files into its folder, and
the driver makes them part of the table in one commit. :mod:`pelton.spark.tables.file_writers` turns
a batch into a commit, :mod:`pelton.spark.iceberg.commits` commits, and
:mod:`pelton.spark.iceberg.data_files` writes files; this module connects them. Files of a batch that
the table holds already are removed, because their names belong to this attempt. Executors need no
``pyiceberg``.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pelton.spark.holding import memory_of
from pelton.spark.iceberg.data_files import WrittenFile, write_rows
from pelton.spark.tables.file_writers import BatchWriter, FileWriter, StreamWriter, batch_mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pelton.spark.iceberg.options import WriteOptions
    from pelton.spark.tables.marks import Found, Mark


class _Iceberg(FileWriter[WrittenFile]):
    """The common part of both writers."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """Creates the table if needed, and checks that it takes the rows, before any are written."""
        from pelton.spark.iceberg.catalogs import load
        from pelton.spark.iceberg.commits import batch_of, prepare
        from pelton.spark.iceberg.schemas import rows_schema

        memory = memory_of(options.checkpoint, str(options.address))
        mark = batch_mark(options.mark_name, options.mark_number)
        super().__init__(memory, mark, options.if_behind, options.checkpoint)
        table = load(options.address)
        self.look(table is not None, lambda query: batch_of(table, query), replaces=overwrite)
        self._options = options
        self.aside = options.aside
        self._overwrite = overwrite
        self._target = prepare(
            options.address,
            rows_schema(schema),
            partition_by=options.partition_by,
            merge_schema=options.merge_schema,
        )

    def last_of(self, query: str) -> Found | None:
        """Read it from the table's properties."""
        from pelton.spark.iceberg.catalogs import load
        from pelton.spark.iceberg.commits import last_of

        return last_of(load(self._options.address), query)

    def write_files(self, batches: Iterator[pa.RecordBatch], prefix: str) -> Sequence[WrittenFile]:
        """Write Parquet files into the table's data folder."""
        return write_rows(batches, self._target, prefix, self._options.rows_per_file)

    def take(self, files: Sequence[WrittenFile], mark: Mark | None, *, streaming: bool) -> None:
        """Make one commit; none for a micro-batch without rows."""
        from pelton.spark.iceberg.commits import HERE, Write

        needless = not files and not self._overwrite and (streaming or mark is None)
        if needless and not self._each:
            return
        options = self._options
        write = Write(
            self._target,
            files,
            mark,
            self._overwrite,
            options.check_replay,
            again_until=self._again_until,
            each=self._each,
        )
        if HERE.commit(options.address, write):
            if options.maintain_every is not None:
                from pelton.spark.iceberg.maintenance import maintain_regularly

                maintain_regularly(options.address, options.maintain_every, options.keep_hours)
        else:
            place = self._target.folder.files()
            for file in files:
                with contextlib.suppress(OSError):
                    place.delete_file(file.path)


class IcebergWriter(_Iceberg, BatchWriter[WrittenFile]):
    """A write of one batch in one commit, which happens once with txnAppId and txnVersion."""


class IcebergStreamWriter(_Iceberg, StreamWriter[WrittenFile]):
    """A write of micro-batches, each in one commit that happens once."""
