"""Fixtures of the Spark tests."""

from tests.spark.jvm import spark
from tests.spark.servers import client, family, one_server, server, stream

__all__ = ["client", "family", "one_server", "server", "spark", "stream"]
