"""``format("jetstream")`` and ``format("jetstream_kv")`` for Apache Spark: streams and key-value
buckets as DataFrames, over the NATS protocol; ``format("jetstream_delta")``: tables without jars.

========================  ========================================================================
``options``               the options of a read as one frozen value
``parsing``, ``servers``  reading options of any format; those that say where to connect
``positions``             places in streams as users name them
``offsets``, ``batches``  planning: what an offset is, what a micro-batch holds, what is a loss
``partitions``            cutting what is read
``patterns``              sets of subjects; ``pushdown``: what ``where()`` leaves of them
``schema``                the columns of a read
``connection``            one blocking connection per process
``lookups``               what planning asks a server; ``asking``: how
``plan``, ``ranges``      one partition, and its messages as Arrow batches
``source``                the classes Spark calls; ``streaming``: that of a running query,
                          ``tasks``: what executors do
``lag``, ``lag_moves``    a durable consumer that follows what a query has committed
``progress``              telling of queries, ``progress_report``: as messages,
                          ``progress_metrics``: for Prometheus
``kv_options``,           reading key-value buckets: options, what a bucket is, its rows,
``kv_bucket``,            the classes Spark calls
``kv_reading``,
``kv_source``
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
``packaging``             the archive for the machines of a cluster; ``unpacking``: what imports it
``delta``                 ``format("jetstream_delta")``: Delta tables; ``delta_options``,
                          ``delta_read``, ``delta_write`` are its parts
``places``                where a table is: a folder, or an object store
``data_files``            rows as Parquet files, with ``statistics``
``commits``               files become part of a table, once per query and batch
``table_schemas``         whether rows fit a table
``table_files``           which files a version has and a commit adds, ``table_pruning`` which of
                          them a query needs; ``table_rows`` reads them
``upserts``               ``foreachBatch``: the newest row of each key, rows once per batch
``maintenance``           compaction, checkpoints, vacuum
``tables``                tables that know how far of which stream they hold, for the pipeline
========================  ========================================================================

Importing the package imports neither Spark nor Arrow; ``register(spark)`` makes the formats known to
a session that does not find them by itself (as it does where Penstock is installed on every machine).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.progress import Watch
    from penstock.spark.servers import Servers


def register(spark: SparkSession) -> None:
    """Make the formats known to this session, and allow the option ``pushdown`` in it, which its
    configuration is changed for; harmless when they are known already.
    """
    from penstock.spark.delta import DeltaDataSource
    from penstock.spark.kv_source import JetStreamKv
    from penstock.spark.sink import ObjectSink
    from penstock.spark.source import JetStreamDataSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    for source in (JetStreamDataSource, JetStreamKv, ObjectSink, DeltaDataSource):
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

    As :func:`penstock.spark.progress.watch`, which says what may be given.
    """
    from penstock.spark import progress

    return progress.watch(
        spark,
        servers,
        subject=subject,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
        **options,
    )
