"""A listener of Spark's queries that gets the report of a micro-batch in one piece.

PySpark makes such a report of a JVM's object by a hundred calls. Each map in it is read until Java raises
an exception, which PySpark compares with a dozen classes, and Java looks for each by name in all jars:
0.15 s of processor time for each micro-batch. Here the JVM writes the report as JSON, which is one
call, and two more are for its rates.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryProgressEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)


class Listener(StreamingQueryListener):
    """A listener to inherit from; its methods get the events of PySpark."""

    @property
    def _jlistener(self) -> Any:
        """What the JVM calls: PySpark adds it to a session and removes it."""
        made = self.__dict__.get("_called")
        if made is None:
            jvm: Any = SparkContext._jvm
            made = self._called = jvm.PythonStreamingQueryListenerWrapper(_Called(self))
        return made


class _Called(JStreamingQueryListener):
    """What Java calls, for a listener."""

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: N802  Spark's name
        self.pylistener.onQueryProgress(QueryProgressEvent(progress_of(jevent.progress())))


def progress_of(reported: Any) -> StreamingQueryProgress:
    """The report of a micro-batch, from the JVM's object."""
    try:
        progress = StreamingQueryProgress.fromJson(json.loads(reported.json()))
    except KeyError:  # JSON lacks a rate that is no number: that of a source that took no time
        return StreamingQueryProgress.fromJObject(reported)
    # JSON has rounded rates.
    progress["inputRowsPerSecond"] = reported.inputRowsPerSecond()
    progress["processedRowsPerSecond"] = reported.processedRowsPerSecond()
    return progress
