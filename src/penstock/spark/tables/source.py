"""What Spark calls for ``format("jetstream_delta")``: tables read and written, batch and streaming.

The writers are in :mod:`penstock.spark.tables.writer`, the readers in
:mod:`penstock.spark.tables.reader`; they are loaded when they are asked for, since Spark loads this
module to find any format it does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from penstock.spark.tables.options import FORMAT, parse_read, parse_write

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.spark.tables.reader import DeltaReader, DeltaStreamReader
    from penstock.spark.tables.writer import DeltaStreamWriter, DeltaWriter


class DeltaDataSource(DataSource):
    """``.format("jetstream_delta")`` of ``spark.read``, ``readStream``, ``write``, ``writeStream``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of the table, or those of them that ``columns`` names."""
        from penstock.spark.tables.reader import columns

        return columns(parse_read(self.options, streaming=False))

    def reader(self, schema: StructType) -> DeltaReader:
        """A reader of the table as it is when the query is planned, or was at a version or time."""
        from penstock.spark.tables.reader import DeltaReader

        return DeltaReader(parse_read(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DeltaStreamReader:  # noqa: N802  Spark's name
        """A reader that goes on as files are added to the table."""
        from penstock.spark.tables.reader import DeltaStreamReader

        return DeltaStreamReader(parse_read(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DeltaWriter:
        """A writer of one batch that is appended, or put in place of all rows."""
        from penstock.spark.tables.writer import DeltaWriter

        return DeltaWriter(parse_write(self.options, streaming=False), schema, overwrite)

    def streamWriter(  # noqa: N802  Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DeltaStreamWriter:
        """A writer of micro-batches; ``overwrite`` is output mode complete."""
        from penstock.spark.tables.writer import DeltaStreamWriter

        return DeltaStreamWriter(parse_write(self.options, streaming=True), schema, overwrite)
