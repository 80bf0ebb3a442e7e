"""What the data source ``jetstream`` has of writing: Spark asks the same class for readers and
writers. The writers are made in :mod:`penstock.spark.writer`, imported when one is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from penstock.spark.parsing import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.spark.writer import JetStreamStreamWriter, JetStreamWriter


class StreamSink(DataSource):
    """``df.write`` and ``df.writeStream`` ``.format("jetstream")``."""

    def writer(self, schema: StructType, overwrite: bool) -> JetStreamWriter:
        """A writer of one job."""
        from penstock.spark.writer import JetStreamWriter, plan_write

        refuse_overwrite(overwrite)
        return JetStreamWriter(plan_write(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> JetStreamStreamWriter:  # noqa: N802  Spark's name
        """A writer of one micro-batch."""
        from penstock.spark.writer import JetStreamStreamWriter, plan_write

        refuse_overwrite(overwrite)
        return JetStreamStreamWriter(plan_write(self.options, schema))


def refuse_overwrite(overwrite: bool) -> None:
    """:class:`OptionError` for what would have to empty a stream first."""
    if overwrite:
        raise OptionError(
            "streams, buckets and object stores are added to: use mode append, and outputMode"
            " append or update"
        )
