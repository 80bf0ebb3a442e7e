"""``format("jetstream")`` for Apache Spark: streams as DataFrames, read over the NATS protocol.

========================  ========================================================================
``options``               the options of a read as one frozen value
``parsing``, ``servers``  reading options of any format; those that say where to connect
``positions``             places in streams as users name them
``offsets``, ``batches``  planning: what an offset is, what a micro-batch holds, what is a loss
``partitions``            cutting what is read
``patterns``              sets of subjects; ``pushdown``: what ``where()`` leaves of them
``schema``                the columns of a read
``connection``            one blocking connection per process
``lookups``               what planning asks a server
``plan``, ``ranges``      one partition, and its messages as Arrow batches
``source``                the classes Spark calls; ``streaming``: that of a running query,
                          ``tasks``: what executors do
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
    """Make ``format("jetstream")`` known to this session, with filters pushed down, which the
    session's configuration is changed for; harmless when it is known already.
    """
    from penstock.spark.source import PushdownDataSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(PushdownDataSource)
