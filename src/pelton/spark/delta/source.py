"""The data source of ``format("jetstream_delta")``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.spark.delta.options import FORMAT, parse_read, parse_write
from pelton.spark.tables.source import TableDataSource

if TYPE_CHECKING:
    from pelton.spark.tables.options import ReadOptions, WriteOptions


class DeltaDataSource(TableDataSource):
    """``.format("jetstream_delta")`` of ``spark.read``, ``readStream``, ``write``, ``writeStream``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def _reading(self, *, streaming: bool) -> ReadOptions:
        return parse_read(self.options, streaming=streaming)

    def _writing(self, *, streaming: bool) -> WriteOptions:
        return parse_write(self.options, streaming=streaming)
