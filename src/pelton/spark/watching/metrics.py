"""The state of streaming queries as metrics for Prometheus, made at each request.

Does not depend on Spark. docs/howto/watch-a-query.md lists the names; a test compares it with
:data:`METRICS`.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from pelton.spark.parsing import OptionError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.core import Metric

    from pelton.spark.watching.report import QueryState, Reports

METRICS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "pelton_spark_query_active": ("gauge", ("query",), "1 while the query runs."),
    "pelton_spark_query_failed": ("gauge", ("query",), "1 when it ended with an error."),
    "pelton_spark_query_batches_total": ("counter", ("query",), "Batches that were run."),
    "pelton_spark_query_rows_total": ("counter", ("query",), "Rows that were read."),
    "pelton_spark_query_late_rows_total": (
        "counter",
        ("query",),
        "Rows that a watermark dropped.",
    ),
    "pelton_spark_query_last_batch": ("gauge", ("query",), "Number of the last batch."),
    "pelton_spark_query_batch_seconds": ("gauge", ("query",), "How long the last batch took."),
    "pelton_spark_query_phase_seconds": (
        "gauge",
        ("query", "phase"),
        "The same by what Spark did: addBatch, latestOffset, walCommit and so on.",
    ),
    "pelton_spark_query_input_rows_per_second": ("gauge", ("query",), "Rows that arrive."),
    "pelton_spark_query_processed_rows_per_second": (
        "gauge",
        ("query",),
        "Rows the last batch got through while it ran.",
    ),
    "pelton_spark_query_progress_timestamp_seconds": (
        "gauge",
        ("query",),
        "When Spark last reported progress, in seconds since 1970.",
    ),
    "pelton_spark_stream_lag": (
        "gauge",
        ("query", "stream"),
        "Sequences between what the query has read and the end of the stream.",
    ),
    "pelton_spark_stream_end_sequence": (
        "gauge",
        ("query", "stream"),
        "The last sequence that the query has read.",
    ),
    "pelton_spark_stream_latest_sequence": (
        "gauge",
        ("query", "stream"),
        "The last sequence of the stream, when the query last looked.",
    ),
    "pelton_spark_publish_failures_total": (
        "counter",
        (),
        "Messages about progress that could not be published.",
    ),
}

_Sample = tuple[tuple[str, ...], float]


def _timestamp(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _query_samples(name: str, state: QueryState) -> Iterator[_Sample]:
    """The samples of one metric of one query; none while the value is unknown."""
    query, last = state.query, state.last
    whole: dict[str, float] = {
        "pelton_spark_query_active": state.active,
        "pelton_spark_query_failed": state.failed,
        "pelton_spark_query_batches_total": state.batches,
        "pelton_spark_query_rows_total": state.rows,
        "pelton_spark_query_late_rows_total": state.late_rows,
    }
    if name in whole:
        yield (query,), float(whole[name])
    if last["event"] != "progress":
        return
    seen: dict[str, float] = {
        "pelton_spark_query_last_batch": last["batch"],
        "pelton_spark_query_batch_seconds": last["batch_ms"] / 1000,
        "pelton_spark_query_input_rows_per_second": last["input_rows_per_second"],
        "pelton_spark_query_processed_rows_per_second": last["processed_rows_per_second"],
        "pelton_spark_query_progress_timestamp_seconds": _timestamp(last["at"]),
    }
    if name in seen:
        yield (query,), float(seen[name])
    if name == "pelton_spark_query_phase_seconds":
        for phase, milliseconds in last["phases_ms"].items():
            yield (query, phase), milliseconds / 1000
    place = {
        "pelton_spark_stream_lag": "lag",
        "pelton_spark_stream_end_sequence": "end",
        "pelton_spark_stream_latest_sequence": "latest",
    }.get(name)
    if place is not None:
        for stream, places in last["streams"].items():
            if place in places:
                yield (query, stream), float(places[place])


class QueryCollector(Collector):
    """Gives Prometheus the current state of the reports."""

    def __init__(self, reports: Reports, lock: threading.Lock, failures: Callable[[], int]) -> None:
        """``lock`` guards the reports; ``failures`` counts messages that were not published."""
        self._reports = reports
        self._lock = lock
        self._failures = failures

    def collect(self) -> Iterable[Metric]:
        """Every metric of the table; of two queries with one name, the one that began last."""
        with self._lock:
            queries = {state.query: state for state in self._reports.queries.values()}.values()
            for name, (kind, labels, text) in METRICS.items():
                made = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
                family: Metric = made(name, text, labels=labels)
                if not labels:
                    family.add_metric((), float(self._failures()))  # type: ignore[attr-defined]  # of both kinds
                for state in queries if labels else ():
                    for values, value in _query_samples(name, state):
                        family.add_metric(values, value)  # type: ignore[attr-defined]  # of both kinds
                yield family


def serve(collector: QueryCollector, host: str, port: int) -> tuple[WSGIServer, threading.Thread]:
    """Serve ``/metrics``; port 0 takes a free one. OptionError when the port is not available."""
    registry = CollectorRegistry()
    registry.register(collector)
    try:
        return start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        raise OptionError(
            f"metrics_port is {port}, but it cannot be listened on: {error}"
        ) from None
