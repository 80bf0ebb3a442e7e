"""The writing half of the data sources: Spark asks one class for readers and writers of a format.

The writers are in the modules named here, which are imported only when Spark asks for a writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pelton.spark.parsing import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pelton.spark.buckets.object_sink import ObjectStreamWriter, ObjectWriter
    from pelton.spark.writing.writer import JetStreamStreamWriter, JetStreamWriter


class StreamSink(DataSource):
    """``df.write`` and ``df.writeStream`` ``.format("jetstream")``."""

    def writer(self, schema: StructType, overwrite: bool) -> JetStreamWriter:
        """A writer of one job."""
        from pelton.spark.writing.writer import JetStreamWriter, plan_write

        refuse_overwrite(overwrite)
        return JetStreamWriter(plan_write(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> JetStreamStreamWriter:  # noqa: N802  Spark's name
        """A writer of one micro-batch."""
        from pelton.spark.writing.writer import JetStreamStreamWriter, plan_write

        refuse_overwrite(overwrite)
        return JetStreamStreamWriter(plan_write(self.options, schema))


class KvSink(DataSource):
    """``df.write`` and ``df.writeStream`` ``.format("jetstream_kv")``."""

    def writer(self, schema: StructType, overwrite: bool) -> JetStreamWriter:
        """A writer of one job."""
        from pelton.spark.buckets.kv_sink import plan_kv_write
        from pelton.spark.writing.writer import JetStreamWriter

        refuse_overwrite(overwrite)
        return JetStreamWriter(plan_kv_write(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> JetStreamStreamWriter:  # noqa: N802  Spark's name
        """A writer of one micro-batch."""
        from pelton.spark.buckets.kv_sink import plan_kv_write
        from pelton.spark.writing.writer import JetStreamStreamWriter

        refuse_overwrite(overwrite)
        return JetStreamStreamWriter(plan_kv_write(self.options, schema))


class ObjectSink(DataSource):
    """``df.write`` and ``df.writeStream`` ``.format("jetstream_object")``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "jetstream_object"

    def schema(self) -> str:
        """The columns of a write."""
        return "name string, data binary, description string, headers map<string,array<string>>"

    def writer(self, schema: StructType, overwrite: bool) -> ObjectWriter:
        """A writer of one job."""
        from pelton.spark.buckets.object_sink import ObjectWriter, plan_object_write

        refuse_overwrite(overwrite)
        return ObjectWriter(plan_object_write(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> ObjectStreamWriter:  # noqa: N802  Spark's name
        """A writer of one micro-batch."""
        from pelton.spark.buckets.object_sink import ObjectStreamWriter, plan_object_write

        refuse_overwrite(overwrite)
        return ObjectStreamWriter(plan_object_write(self.options, schema))


def refuse_overwrite(overwrite: bool) -> None:
    """Raise :class:`OptionError` for the mode overwrite, which would have to empty a stream first."""
    if overwrite:
        raise OptionError(
            "streams, buckets and object stores are added to: use mode append, and outputMode"
            " append or update"
        )
