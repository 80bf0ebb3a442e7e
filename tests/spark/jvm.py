"""The one Spark session of a test run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from penstock.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Ways that differ little, each of which starts JVMs for half a minute: a run of all tests takes one.
EVERY_WAY = pytest.mark.skipif(
    os.environ.get("PENSTOCK_EVERY_WAY") != "1",
    reason="one of several ways is in each run; PENSTOCK_EVERY_WAY=1 runs all",
)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session; started by the first test that wants it, and ended with the process."""
    return session("tests", log_file=tmp_path_factory.getbasetemp() / "spark.log")
