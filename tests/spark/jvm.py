"""The one Spark session of a test run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pelton.spark.session import session
from tests.ways import EVERY_WAY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


__all__ = ["EVERY_WAY", "spark"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session; started by the first test that wants it, and ended with the process."""
    return session("tests", log_file=tmp_path_factory.getbasetemp() / "spark.log")
