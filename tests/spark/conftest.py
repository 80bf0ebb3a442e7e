"""Fixtures of the Spark tests."""

from tests.spark.jvm import spark
from tests.spark.servers import client, family, server, stream

__all__ = ["client", "family", "server", "spark", "stream"]
