"""Streams, key-value buckets and tables as DataFrames of Apache Spark.

``format("jetstream")`` and ``format("jetstream_kv")`` read and write over the NATS protocol;
``format("jetstream_delta")`` and ``format("jetstream_iceberg")`` are tables without jars.

=============================  ===================================================================
:mod:`.reading`                streams as DataFrames, batch and streaming
:mod:`.writing`                DataFrames into streams
:mod:`.buckets`                key-value buckets and object stores
:mod:`.tables`                 tables: commits, upserts, maintenance
:mod:`.delta`, :mod:`.iceberg` the formats of tables
:mod:`.payloads`               payloads as columns: JSON, Avro and their like
:mod:`.watching`               tools for operators to watch a query
``parsing``, ``servers``       parsing the options of every format; the connection options
``connection``, ``asking``     one blocking connection per process; requests that are repeated
``session``, ``java``          a session with measured settings, and a Java for it
``conditions``, ``filters``    the option ``where``
``temporary_views``            temporary views that show what is there now
``versions``, ``older``        the versions of Spark; what the older ones lack
``packaging``, ``unpacking``   the archive for the machines of a cluster, and its import
=============================  ===================================================================

Importing the package imports neither Spark nor Arrow. ``register(spark)`` adds the formats to a
session that does not find them itself; where Pelton is installed on every machine, it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.errors import not_installed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from pelton.spark.servers import Servers
    from pelton.spark.temporary_views import Views
    from pelton.spark.watching.progress import Watch


def register(spark: SparkSession) -> None:
    """Add the formats to this session; harmless when it has them already.

    The workers of a local session run this Python from then on, unless PYSPARK_PYTHON is set.
    Raises RuntimeError below Spark 4.0, and warns below 4.2 of what is missing.
    """
    from pelton.spark.versions import check_version

    check_version(spark.version)
    try:
        from pyspark.errors import AnalysisException

        from pelton.spark.buckets.kv_source import JetStreamKv
        from pelton.spark.delta.source import DeltaDataSource
        from pelton.spark.iceberg.source import IcebergDataSource
        from pelton.spark.reading.source import JetStreamDataSource
        from pelton.spark.workers import run_this_python
        from pelton.spark.writing.sink import ObjectSink
    except ModuleNotFoundError as problem:
        raise not_installed(problem, "spark") from None

    run_this_python(spark)
    known = (JetStreamDataSource, JetStreamKv, ObjectSink, DeltaDataSource, IcebergDataSource)
    for source in known:
        try:
            spark.dataSource.register(source)
        except AnalysisException as problem:  # Spark 4.0 replaces no format that it found itself
            if problem.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise


def views(spark: SparkSession, sources: Mapping[str, str | Mapping[str, str]]) -> Views:
    """Temporary views that each query finds as they are now: ``views(spark, {"orders": PATH}).sql(...)``.

    See :class:`pelton.spark.temporary_views.Views` for the sources.
    """
    from pelton.spark.temporary_views import Views

    register(spark)
    return Views(spark, sources)


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

    See :func:`pelton.spark.watching.progress.watch` for the arguments.
    """
    from pelton.spark.watching import progress

    return progress.watch(
        spark,
        servers,
        subject=subject,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
        **options,
    )
