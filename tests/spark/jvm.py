"""The one Spark session of a test run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.spark.classes import java_options
from penstock.spark.java import ensure_java
from penstock.spark.session import log_options, session
from tests.ways import EVERY_WAY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


__all__ = ["EVERY_WAY", "spark"]

# Tests run most of Spark's code a few times only: compiling it for long runs costs more than it gives.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session; started by the first test that wants it, and ended with the process."""
    options = [*log_options(), *java_options(ensure_java()), *SHORT_LIVED]
    settings = {"spark.driver.extraJavaOptions": " ".join(options)}
    log_file = tmp_path_factory.getbasetemp() / "spark.log"
    return session("tests", settings=settings, log_file=log_file)
