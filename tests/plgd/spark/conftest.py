"""Fixtures: one Spark session for all of them."""

from tests.spark.jvm import spark

__all__ = ["spark"]
