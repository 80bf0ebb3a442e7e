"""Fixtures of the Spark tests."""

from tests.spark.jvm import spark
from tests.spark.servers import client, server, stream

__all__ = ["client", "server", "spark", "stream"]
