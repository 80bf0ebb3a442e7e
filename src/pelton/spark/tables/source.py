"""The common part of the data sources of tables, which Spark calls.

The writers are in :mod:`pelton.spark.tables.writer`, the readers in :mod:`pelton.spark.tables.reader`; they are
imported at first use, because Spark imports the modules of data sources to find any format that it does not know.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

    from pelton.spark.tables.options import ReadOptions, WriteOptions
    from pelton.spark.tables.reader import TableReader
    from pelton.spark.tables.writer import TableBatchWriter, TableStreamWriter


class TableDataSource(DataSource):
    """A format of ``spark.read``, ``readStream``, ``write`` and ``writeStream``."""

    @abstractmethod
    def _reading(self, *, streaming: bool) -> ReadOptions:
        """The options of a read. Raises :class:`OptionError`."""

    @abstractmethod
    def _writing(self, *, streaming: bool) -> WriteOptions:
        """The options of a write. Raises :class:`OptionError`."""

    def schema(self) -> StructType:
        """The columns of the table, or those that the option ``columns`` names."""
        from pelton.spark.tables.reader import columns

        return columns(self._reading(streaming=False))

    def reader(self, schema: StructType) -> TableReader:
        """A reader of the table at planning time, or at a version or time."""
        from pelton.spark.tables.reader import TableReader

        return TableReader(self._reading(streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """A reader that follows the table as files are added."""
        from pelton.spark.older import for_this_spark
        from pelton.spark.tables.reader import TableStreamReader

        return for_this_spark(TableStreamReader(self._reading(streaming=True), schema))

    def writer(self, schema: StructType, overwrite: bool) -> TableBatchWriter:
        """A writer of one batch that is appended, or that replaces all rows."""
        from pelton.spark.tables.writer import TableBatchWriter

        return TableBatchWriter(self._writing(streaming=False), schema, overwrite)

    def streamWriter(  # noqa: N802  Spark's name
        self, schema: StructType, overwrite: bool
    ) -> TableStreamWriter:
        """A writer of micro-batches; ``overwrite`` is output mode complete."""
        from pelton.spark.tables.writer import TableStreamWriter

        return TableStreamWriter(self._writing(streaming=True), schema, overwrite)
