"""Temporary views that show what is there now, for notebooks and SQL.

Spark plans a view over a Python format once and keeps what the plan saw. :class:`Views` makes its views
again before each query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

_DELTA = "jetstream_delta"


class Views:
    """Temporary views of streams, buckets and tables.

    ``sources`` has options for each view, with ``format`` (``jetstream_delta`` without it); a text is the path of
    a Delta table.
    """

    def __init__(self, spark: SparkSession, sources: Mapping[str, str | Mapping[str, str]]) -> None:
        """Reads nothing yet."""
        self._spark = spark
        self._sources = {
            name: {"path": given} if isinstance(given, str) else dict(given)
            for name, given in sources.items()
        }

    def refresh(self) -> None:
        """Make the views anew, for queries that are not asked by :meth:`sql`."""
        for name, given in self._sources.items():
            options = dict(given)
            reader = self._spark.read.format(options.pop("format", _DELTA)).options(**options)
            reader.load().createOrReplaceTempView(name)

    def sql(self, query: str) -> DataFrame:
        """The answer to a query over what is there now."""
        self.refresh()
        return self._spark.sql(query)
