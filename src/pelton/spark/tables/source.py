"""The data source of ``format("jetstream_delta")`` that Spark calls to read and write tables.

The writers are in :mod:`pelton.spark.tables.writer`, the readers in
:mod:`pelton.spark.tables.reader`; they are imported at first use, because Spark imports this module
to find any format that it does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pelton.spark.tables.options import FORMAT, parse_read, parse_write

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

    from pelton.spark.tables.reader import DeltaReader
    from pelton.spark.tables.writer import DeltaStreamWriter, DeltaWriter


class DeltaDataSource(DataSource):
    """``.format("jetstream_delta")`` of ``spark.read``, ``readStream``, ``write``, ``writeStream``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of the table, or those that the option ``columns`` names."""
        from pelton.spark.tables.reader import columns

        return columns(parse_read(self.options, streaming=False))

    def reader(self, schema: StructType) -> DeltaReader:
        """A reader of the table at planning time, or at a version or time."""
        from pelton.spark.tables.reader import DeltaReader

        return DeltaReader(parse_read(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """A reader that follows the table as files are added."""
        from pelton.spark.older import for_this_spark
        from pelton.spark.tables.reader import DeltaStreamReader

        return for_this_spark(DeltaStreamReader(parse_read(self.options, streaming=True), schema))

    def writer(self, schema: StructType, overwrite: bool) -> DeltaWriter:
        """A writer of one batch that is appended, or that replaces all rows."""
        from pelton.spark.tables.writer import DeltaWriter

        return DeltaWriter(parse_write(self.options, streaming=False), schema, overwrite)

    def streamWriter(  # noqa: N802  Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DeltaStreamWriter:
        """A writer of micro-batches; ``overwrite`` is output mode complete."""
        from pelton.spark.tables.writer import DeltaStreamWriter

        return DeltaStreamWriter(parse_write(self.options, streaming=True), schema, overwrite)
