"""The data source of ``format("jetstream_iceberg")`` that Spark calls: tables are written in batches
and streams, and read in batches.

The writers are in :mod:`pelton.spark.iceberg.writer`, the reader in
:mod:`pelton.spark.iceberg.reader`; they are imported at first use, because Spark imports this module
to find any format that it does not know, also where ``pyiceberg`` is not installed.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pelton.spark.iceberg.options import FORMAT, parse_read, parse_write
from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pelton.spark.iceberg.reader import IcebergReader
    from pelton.spark.iceberg.writer import IcebergStreamWriter, IcebergWriter


class IcebergDataSource(DataSource):
    """``.format("jetstream_iceberg")`` of ``spark.read``, ``write`` and ``writeStream``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of the table, or those that the option ``columns`` names."""
        _check_installed()
        from pelton.spark.iceberg.reader import columns

        return columns(parse_read(self.options))

    def reader(self, schema: StructType) -> IcebergReader:
        """A reader of the table at planning time, or at a snapshot or time."""
        _check_installed()
        from pelton.spark.iceberg.reader import IcebergReader

        return IcebergReader(parse_read(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> IcebergWriter:
        """A writer of one batch that is appended, or that replaces all rows."""
        _check_installed()
        from pelton.spark.iceberg.writer import IcebergWriter

        return IcebergWriter(parse_write(self.options, streaming=False), schema, overwrite)

    def streamWriter(  # noqa: N802  Spark's name
        self, schema: StructType, overwrite: bool
    ) -> IcebergStreamWriter:
        """A writer of micro-batches; ``overwrite`` is output mode complete."""
        _check_installed()
        from pelton.spark.iceberg.writer import IcebergStreamWriter

        return IcebergStreamWriter(parse_write(self.options, streaming=True), schema, overwrite)


def _check_installed() -> None:
    if importlib.util.find_spec("pyiceberg") is None:
        raise TableError(f"{FORMAT} needs pyiceberg: pip install 'pelton[iceberg]'")
