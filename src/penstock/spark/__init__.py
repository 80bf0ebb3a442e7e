"""``format("jetstream")`` and ``format("jetstream_kv")`` for Apache Spark: streams and key-value
buckets as DataFrames, over the NATS protocol; ``format("jetstream_delta")`` and
``format("jetstream_iceberg")``: tables without jars.

=============================  ===================================================================
:mod:`.reading`                streams as DataFrames, batch and streaming
:mod:`.writing`                DataFrames into streams
:mod:`.buckets`                key-value buckets and object stores
:mod:`.tables`                 Delta tables
:mod:`.iceberg`                Iceberg tables
:mod:`.watching`               what operators see of a query
``parsing``, ``servers``       reading options of any format; those that say where to connect
``connection``                 one blocking connection per process; ``asking``: patiently
``session``, ``java``          a session with settings that were measured, and a Java for it
``packaging``, ``unpacking``   the archive for the machines of a cluster, and what imports it
=============================  ===================================================================

Importing the package imports neither Spark nor Arrow; ``register(spark)`` makes the formats known to
a session that does not find them by itself (as it does where Penstock is installed on every machine).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.servers import Servers
    from penstock.spark.watching.progress import Watch


def register(spark: SparkSession) -> None:
    """Make the formats known to this session; harmless when they are known already."""
    from penstock.spark.buckets.kv_source import JetStreamKv
    from penstock.spark.iceberg.source import IcebergDataSource
    from penstock.spark.reading.source import JetStreamDataSource
    from penstock.spark.tables.source import DeltaDataSource
    from penstock.spark.writing.sink import ObjectSink

    known = (JetStreamDataSource, JetStreamKv, ObjectSink, DeltaDataSource, IcebergDataSource)
    for source in known:
        spark.dataSource.register(source)


def watch(
    spark: SparkSession,
    servers: str | Servers | None = None,
    *,
    subject: str | None = "spark.progress.{name}",
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
    **options: str,
) -> Watch:
    """Publish the progress of this session's streaming queries as JSON, and serve it as metrics.

    As :func:`penstock.spark.watching.progress.watch`, which says what may be given.
    """
    from penstock.spark.watching import progress

    return progress.watch(
        spark,
        servers,
        subject=subject,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
        **options,
    )
