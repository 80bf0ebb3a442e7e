"""Reports of micro-batches as JSON: they say what PySpark's own reading of the JVM's objects says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by
from pyspark.sql.streaming.listener import StreamingQueryProgress

from pelton.spark.watching import listening
from pelton.spark.watching.listening import Listener, progress_of
from pelton.spark.watching.report import progress_message
from tests.spark.feeds import Feed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Kept(Listener):
    """Keeps its events."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's name
        self.events.append(event)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  Spark's name
        self.events.append(event)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  Spark's name
        self.events.append(event)


class WithoutRate:
    """A report whose source took no time: its rate is no number, and JSON has none."""

    def __init__(self, reported: Any) -> None:
        self.reported = reported

    def json(self) -> str:
        found = json.loads(self.reported.json())
        for source in found["sources"]:
            del source["processedRowsPerSecond"]
        return json.dumps(found)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reported, name)


def test_reports_are_those_of_pyspark(
    spark: SparkSession, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports, pairs = [], []

    def kept(reported: Any) -> StreamingQueryProgress:
        asked: list[str] = []
        client = reported._gateway_client
        with monkeypatch.context() as patched:
            send = client.send_command
            patched.setattr(
                client,
                "send_command",
                lambda *args, **more: asked.append("") or send(*args, **more),
            )
            found = progress_of(reported)
        assert 0 < len(asked) < 10
        reports.append((found, progress_of(WithoutRate(reported))))
        pairs.append((found, StreamingQueryProgress.fromJObject(reported)))
        return found

    monkeypatch.setattr(listening, "progress_of", kept)
    feed, listener = Feed(spark, tmp_path), Kept()

    def write(rows: DataFrame) -> Any:
        counted = rows.selectExpr("seq", "current_timestamp() as ts").withWatermark("ts", "1 hour")
        counted = counted.observe(
            "counted", F.count(F.lit(1)).alias("n"), F.max("seq").alias("most")
        )
        return counted.writeStream.format("noop").queryName("listened")

    spark.streams.addListener(listener)
    try:
        feed.grow()
        feed.run(write)
        feed.grow()
        feed.run(write)
    finally:
        spark._jsparkSession.sparkContext().listenerBus().waitUntilEmpty()
        spark.streams.removeListener(listener)
    assert listener.events[0].name == "listened"
    assert listener.events[-1].exception is None
    assert pairs
    for found, wanted in [*pairs, *reports]:
        assert progress_message("q", found) == progress_message("q", wanted)
        for name in ("id", "runId", "name", "timestamp", "batchId", "eventTime", "observedMetrics"):
            assert getattr(found, name) == getattr(wanted, name), name
    counts = [row["n"] for found, _ in pairs for row in found.observedMetrics.values()]
    assert sorted(counts)[-2:] == [1, 1]
