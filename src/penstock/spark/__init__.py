"""``format("jetstream")`` for Apache Spark: streams as DataFrames, read over the NATS protocol.

========================  ========================================================================
``options``               the options of a read as one frozen value
``parsing``, ``servers``  reading options of any format; those that say where to connect
``offsets``               planning: positions, micro-batches, partitions, loss; plain functions
``connection``            one blocking connection per process, and the few requests a reader makes
``ranges``                the messages of a range of sequences as Arrow batches
``source``                the classes Spark calls
``java``                  finding a Java, or taking the one from PyPI
``session``               a Spark session with settings that were measured
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

Importing the package imports neither Spark nor Arrow; ``register(spark)`` makes the format known to
a session that does not find it by itself (as it does where Penstock is installed on every machine).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the formats known to this session, with filters pushed down, which the session's
    configuration is changed for; harmless when they are known already.
    """
    from penstock.spark.delta import PushdownDeltaSource
    from penstock.spark.source import JetStreamDataSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(JetStreamDataSource)
    spark.dataSource.register(PushdownDeltaSource)
