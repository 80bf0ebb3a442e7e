"""Writers of ``format("jetstream_iceberg")``.

The driver sees to it that the table has the columns, executors write Parquet files into its folder,
and the driver makes them part of the table in one commit. How a batch becomes a commit is in
:mod:`penstock.spark.tables.file_writers`, committing in :mod:`penstock.spark.iceberg.commits`, files
in :mod:`penstock.spark.iceberg.data_files`; this module only carries one to the other. Files of a
batch that the table holds already are removed, for their names are this attempt's own. Executors
need no ``pyiceberg``.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.spark.holding import memory_of
from penstock.spark.iceberg.data_files import WrittenFile, write_rows
from penstock.spark.tables.file_writers import BatchWriter, FileWriter, StreamWriter, batch_mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from penstock.spark.iceberg.options import WriteOptions
    from penstock.spark.tables.marks import Found, Mark


class _Iceberg(FileWriter[WrittenFile]):
    """What both writers do."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """Sees to it that the table is there and takes the rows, before any are written."""
        from penstock.spark.iceberg.catalogs import load
        from penstock.spark.iceberg.commits import batch_of, prepare
        from penstock.spark.iceberg.schemas import rows_schema

        memory = memory_of(options.checkpoint, str(options.address))
        mark = batch_mark(options.mark_name, options.mark_number)
        super().__init__(memory, mark, options.if_behind, options.checkpoint)
        table = load(options.address)
        self.look(table is not None, lambda query: batch_of(table, query), replaces=overwrite)
        self._options = options
        self._overwrite = overwrite
        self._target = prepare(
            options.address,
            rows_schema(schema),
            partition_by=options.partition_by,
            merge_schema=options.merge_schema,
        )

    def last_of(self, query: str) -> Found | None:
        """By the table's properties."""
        from penstock.spark.iceberg.catalogs import load
        from penstock.spark.iceberg.commits import last_of

        return last_of(load(self._options.address), query)

    def write_files(self, batches: Iterator[pa.RecordBatch], prefix: str) -> Sequence[WrittenFile]:
        """Parquet files in the table's data folder."""
        return write_rows(batches, self._target, prefix, self._options.rows_per_file)

    def take(self, files: Sequence[WrittenFile], mark: Mark | None, *, streaming: bool) -> None:
        """One commit; none for a micro-batch without rows."""
        from penstock.spark.iceberg.commits import HERE, Write

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
        if not HERE.commit(options.address, write):
            place = self._target.folder.files()
            for file in files:
                with contextlib.suppress(OSError):
                    place.delete_file(file.path)


class IcebergWriter(_Iceberg, BatchWriter[WrittenFile]):
    """One batch in one commit; once only, where txnAppId and txnVersion are given."""


class IcebergStreamWriter(_Iceberg, StreamWriter[WrittenFile]):
    """Each micro-batch in one commit, once."""
