"""The data source of ``format("jetstream_iceberg")``; ``pyiceberg`` is imported at the first use of a table."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from pelton.spark.iceberg.options import FORMAT, parse_read, parse_write
from pelton.spark.tables.places import TableError
from pelton.spark.tables.source import TableDataSource

if TYPE_CHECKING:
    from pelton.spark.tables.options import ReadOptions, WriteOptions


class IcebergDataSource(TableDataSource):
    """``.format("jetstream_iceberg")`` of ``spark.read``, ``readStream``, ``write``, ``writeStream``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def _reading(self, *, streaming: bool) -> ReadOptions:
        _check_installed()
        return parse_read(self.options, streaming=streaming)

    def _writing(self, *, streaming: bool) -> WriteOptions:
        _check_installed()
        return parse_write(self.options, streaming=streaming)


def _check_installed() -> None:
    if importlib.util.find_spec("pyiceberg") is None:
        raise TableError(f"{FORMAT} needs pyiceberg: pip install 'pelton[iceberg]'")
