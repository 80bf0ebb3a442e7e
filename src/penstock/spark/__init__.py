"""``format("jetstream")`` for Apache Spark: streams as DataFrames, read over the NATS protocol.

========================  ========================================================================
``options``               the options of a read as one frozen value
``parsing``, ``servers``  reading options of any format; those that say where to connect
``offsets``               planning: positions, micro-batches, partitions, loss; plain functions
``connection``            one blocking connection per process, and the few requests a reader makes
``ranges``                the messages of a range of sequences as Arrow batches
``source``                the classes Spark calls
``sink``                  what those classes have of writing; the format ``jetstream_object``
``write_options``         the options of a write as one frozen value
``composing``             rows as messages; ``kv_sink``: rows as values of keys
``target``                the stream that is written, looked at before
``writer``, ``sending``   a task that writes, with many acks outstanding
``write_progress``        what of a partition is in the stream already, by message ids
``atomic``                a partition in atomic batches, each with a marker
``row_errors``            what becomes of rows that cannot be written
``object_sink``           rows as objects; ``object_store``: an object as messages
``java``                  finding a Java, or taking the one from PyPI
``session``               a Spark session with settings that were measured
``tables``                Delta tables that take each micro-batch exactly once
========================  ========================================================================

Importing the package imports neither Spark nor Arrow; ``register(spark)`` makes the format known to
a session that does not find it by itself (as it does where Penstock is installed on every machine).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the formats ``jetstream``, ``jetstream_kv`` and ``jetstream_object`` known to this
    session; harmless when they are already.
    """
    from penstock.spark.kv_source import JetStreamKv
    from penstock.spark.sink import ObjectSink
    from penstock.spark.source import JetStreamDataSource

    for source in (JetStreamDataSource, JetStreamKv, ObjectSink):
        spark.dataSource.register(source)
