"""Telling of queries: messages of Spark's own events, published to a server, and metrics."""

import json
import re
import socket
import urllib.request
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from pelton.client.sync import connect
from pelton.spark.parsing import OptionError
from pelton.spark.servers import Servers
from pelton.spark.watching import progress as module
from pelton.spark.watching.metrics import METRICS
from pelton.spark.watching.progress import QueryListener, Watch, subject_of, watch
from pelton.spark.watching.report import Reports, cause_of, sequences
from tests.peers import running_server

IDS = {
    "id": "03acf91b-0b8d-4705-bd85-d0f8e844f5e1",
    "runId": "8693ce04-f201-42e5-93e0-6f27adbcca98",
}
AT = "2026-11-21T07:32:18.236Z"


def started(name="orders"):
    return QueryStartedEvent.fromJson({**IDS, "name": name, "timestamp": AT})


def idle():
    return QueryIdleEvent.fromJson({**IDS, "timestamp": AT})


def terminated(exception=None):
    return QueryTerminatedEvent.fromJson(
        {**IDS, "exception": exception, "errorClassOnException": None}
    )


def source(end, latest):
    return {
        "description": "org.apache.spark...PythonMicroBatchStream@1a2b",
        "startOffset": "null",
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": 500,
        "inputRowsPerSecond": 79.7,
        "processedRowsPerSecond": 1193.3,
    }


def progress(*sources, name="orders", **changes):
    return QueryProgressEvent.fromJson(
        {
            "progress": {
                **IDS,
                "name": name,
                "timestamp": AT,
                "batchId": 7,
                "batchDuration": 419,
                "durationMs": {"addBatch": 350, "walCommit": 12},
                "stateOperators": [],
                "sources": list(sources),
                "sink": {"description": "NoopTable", "numOutputRows": 500},
                "numInputRows": 500,
                "inputRowsPerSecond": 79.719,
                "processedRowsPerSecond": 1193.317,
                **changes,
            }
        }
    )


ORDERS = source(
    '{"stream": "ORDERS", "seq": 41, "born": "x"}', '{"stream": "ORDERS", "seq": 48, "born": "x"}'
)


def test_the_message_of_a_batch():
    message = Reports().progress(progress(ORDERS))
    assert message == {
        "event": "progress",
        "query": "orders",
        "id": IDS["id"],
        "run_id": IDS["runId"],
        "at": AT,
        "batch": 7,
        "rows": 500,
        "input_rows_per_second": 79.719,
        "processed_rows_per_second": 1193.317,
        "batch_ms": 419,
        "phases_ms": {"addBatch": 350, "walCommit": 12},
        "late_rows": 0,
        "lag": 7,
        "streams": {"ORDERS": {"end": 41, "latest": 48, "lag": 7}},
        "sink": "NoopTable",
    }


def test_lag_is_that_of_each_stream_of_every_form_of_offset():
    several = source(
        '{"A": {"seq": 5, "born": "x"}, "B": {"seq": 9, "born": "y", "from": 3}}', None
    )
    several["latestOffset"] = '{"A": {"seq": 8, "born": "x"}, "B": {"seq": 9, "born": "y"}}'
    bucket = source(
        '{"bucket": "devices", "revision": 3, "born": "x", "state": false}',
        '{"bucket": "devices", "revision": 4, "born": "x", "state": false}',
    )
    other = source('{"topic": {"0": 17}}', "12")
    message = Reports().progress(progress(ORDERS, several, bucket, other))
    assert {name: place["lag"] for name, place in message["streams"].items()} == {
        "ORDERS": 7,
        "A": 3,
        "B": 0,
        "KV_devices": 1,
    }
    assert message["lag"] == 11


def test_the_lag_is_unknown_where_spark_does_not_know_the_end() -> None:
    message = Reports().progress(progress(ORDERS, source('{"stream": "B", "seq": 5}', None)))
    assert message["streams"]["B"] == {"end": 5}
    assert message["lag"] is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


@given(st.text(max_size=30) | JSON.map(json.dumps) | st.none())
def test_any_offset_is_read_or_passed_over(text):
    assert all(isinstance(seq, int) for seq in sequences(text).values())


@given(st.dictionaries(st.text("ABC", min_size=1), st.tuples(st.integers(0), st.integers(0))))
def test_a_lag_is_never_negative(places):
    end = json.dumps({name: {"seq": low, "born": ""} for name, (low, _) in places.items()})
    latest = json.dumps({name: {"seq": high, "born": ""} for name, (_, high) in places.items()})
    message = Reports().progress(progress(source(end, latest)))
    assert message["lag"] == sum(max(0, high - low) for low, high in places.values())


def test_the_life_of_a_query():
    reports = Reports()
    told = [
        reports.started(started()),
        reports.progress(progress(ORDERS)),
        reports.idle(idle()),
        reports.terminated(terminated(), AT),
    ]
    assert [(message["event"], message["query"]) for message in told] == [
        ("started", "orders"),
        ("progress", "orders"),
        ("idle", "orders"),
        ("terminated", "orders"),
    ]
    assert "error" not in told[-1]
    [state] = reports.queries.values()
    assert (state.batches, state.rows, state.active, state.failed) == (1, 500, False, False)
    assert reports.started(started())["event"] == "started"
    assert state.active
    assert reports.terminated(terminated("boom\n\tat a.b(C.java)"), AT)["error"] == "boom"
    assert state.failed
    nameless = Reports()
    assert nameless.started(started(None))["query"] == IDS["id"]
    assert nameless.progress(progress(name=None, inputRowsPerSecond=float("nan")))["rows"] == 500


@pytest.mark.parametrize(
    ("exception", "cause"),
    [
        ("", "unknown"),
        ("[CODE] What.\nMore of it.\n\n\tat org.apache.X(Y.scala:1)\n", "[CODE] What."),
        (
            "py4j.Py4JException: Message: Traceback (most recent call last):\n"
            '  File "x.py", line 3, in f\n    raise RuntimeError("told")\n'
            "RuntimeError: told\n\n\tat py4j.Protocol.getReturnValue(Protocol.java:476)\n",
            "RuntimeError: told",
        ),
        (
            "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed: Traceback (most recent call last):\n"
            '  File "x.py", line 3, in f\nDataLossError: stream S is another one.\n'
            " SQLSTATE: 38000\n\tat org.apache.X(Y.scala:1)\n",
            "DataLossError: stream S is another one.",
        ),
    ],
)
def test_the_cause_of_an_exception(exception, cause):
    assert cause_of(exception) == cause


def test_only_so_many_queries_are_kept(monkeypatch):
    monkeypatch.setattr("pelton.spark.watching.report._QUERIES_MAX", 3)
    reports = Reports()
    for index in range(10):
        event = QueryStartedEvent.fromJson(
            {**IDS, "id": f"03acf91b-0b8d-4705-bd85-{index:012}", "name": None, "timestamp": AT}
        )
        reports.started(event)
    assert len(reports.queries) == 3


@given(st.text(max_size=20), st.sampled_from(["spark.progress.{name}", "{id}.x.{name}.y"]))
def test_subjects_are_literal_whatever_a_query_is_called(name, template):
    subject = subject_of(template, {"query": name, "id": IDS["id"]})
    tokens = subject.split(".")
    assert len(tokens) == len(template.split("."))
    assert all(tokens)
    assert not re.search(r"[\s*>]", subject)


@pytest.fixture
def server():
    with running_server("pelton") as started_server:
        yield started_server


def listening(made):
    listener = QueryListener(made)
    listener.onQueryStarted(started())
    listener.onQueryProgress(progress(ORDERS))
    listener.onQueryIdle(idle())
    listener.onQueryTerminated(terminated("boom"))
    return listener


def test_messages_are_published_in_order(server):
    with connect(server.url) as client:
        subscription = client.subscribe("spark.progress.>")
        client.flush()
        made = Watch(Servers(urls=(server.url,)), "spark.progress.{name}")
        listening(made)
        messages = [subscription.next(10) for _ in range(4)]
        made.close()
    assert {message.subject for message in messages} == {"spark.progress.orders"}
    told = [json.loads(message.data) for message in messages]
    assert [each["event"] for each in told] == ["started", "progress", "idle", "terminated"]
    assert told[1]["lag"] == 7
    assert told[3]["error"] == "boom"
    assert made.failures == 0


def test_a_server_that_is_not_there_costs_a_warning_and_is_tried_again(monkeypatch):
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        servers = Servers(urls=(f"nats://127.0.0.1:{probe.getsockname()[1]}",))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made = Watch(servers, "s.{name}")
        listening(made)
        made.close()
    assert made.failures == 4
    assert len([each for each in told if "cannot publish the progress" in str(each.message)]) == 1


def test_a_server_that_comes_back_gets_the_next_message(server, monkeypatch):
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    made = Watch(Servers(urls=(server.url,)), "s.{name}")
    listener = listening(made)
    server.stop()
    server.start()
    with connect(server.url) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        subscription = client.subscribe("s.>")
        client.flush()
        while True:
            listener.onQueryProgress(progress(ORDERS))
            message = subscription.next(0.2)
            if message is not None:
                break
        made.close()
    assert json.loads(message.data)["event"] in ("started", "progress", "idle", "terminated")


def test_a_subject_that_may_not_be_published_to(tmp_path):
    config = tmp_path / "server.conf"
    config.write_text(
        'authorization { users: [ { user: a, password: b, permissions: { publish: "x" } } ] }\n'
    )
    with running_server("pelton", "-c", str(config)) as server:
        servers = Servers(urls=(server.url,), user="a", password="b")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            made = Watch(servers, "s.{name}")
            listening(made)
            made.close()
    assert made.failures > 0
    assert any("Permissions Violation" in str(each.message) for each in told)


def test_what_is_not_understood_does_not_harm_the_query(server):
    made = Watch(Servers(urls=(server.url,)), "s.{name}")
    with pytest.warns(UserWarning, match="was not understood"):
        QueryListener(made).onQueryProgress(object())
    made.close()


def test_a_queue_that_is_full_drops_messages(monkeypatch):
    monkeypatch.setattr(module, "QUEUE_MESSAGES", 1)
    monkeypatch.setattr(module.Publisher, "_run", lambda self: None)
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.01)
    made = Watch(Servers(), "s.{name}")
    listening(made)
    assert made.failures == 3
    made.close()


def scrape(made):
    url = f"http://127.0.0.1:{made.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics():
    made = Watch(Servers(), None)
    made.serve_metrics("127.0.0.1", 0)
    assert scrape(made) == {("pelton_spark_publish_failures_total",): 0.0}
    listener = QueryListener(made)
    listener.onQueryStarted(started())
    assert scrape(made)["pelton_spark_query_active", "orders"] == 1.0
    listener.onQueryProgress(progress(ORDERS))
    found = scrape(made)
    assert {name for name, *_ in found} == METRICS.keys()
    assert found["pelton_spark_stream_lag", "ORDERS", "orders"] == 7
    assert found["pelton_spark_stream_end_sequence", "ORDERS", "orders"] == 41
    assert found["pelton_spark_stream_latest_sequence", "ORDERS", "orders"] == 48
    assert found["pelton_spark_query_phase_seconds", "addBatch", "orders"] == 0.35
    assert found["pelton_spark_query_batch_seconds", "orders"] == 0.419
    assert found["pelton_spark_query_rows_total", "orders"] == 500
    assert found["pelton_spark_query_late_rows_total", "orders"] == 0
    assert found["pelton_spark_query_progress_timestamp_seconds", "orders"] == 1795246338.236
    listener.onQueryTerminated(terminated("boom"))
    found = scrape(made)
    assert found["pelton_spark_query_active", "orders"] == 0
    assert found["pelton_spark_query_failed", "orders"] == 1
    made.close()
    with pytest.raises(OSError, match="refused"):
        scrape(made)


class Streams:
    """What a session's ``streams`` is asked for."""

    def __init__(self):
        self.listeners = []
        self.streams = self

    def addListener(self, listener):  # noqa: N802  Spark's name
        self.listeners.append(listener)

    def removeListener(self, listener):  # noqa: N802  Spark's name
        self.listeners.remove(listener)


def test_watch_attaches_and_lets_go(server):
    session = Streams()
    made = watch(session, server.url, metrics_port=0, requestTimeout="2s")
    assert len(session.listeners) == 1
    assert made.metrics_port
    made.close()
    assert session.listeners == []
    made.close()


@pytest.mark.parametrize(
    ("given_arguments", "problem"),
    [
        ({"subject": "a..b"}, "subject is 'a..b', but must be"),
        ({"subject": "a.>"}, "without wildcards"),
        ({"subject": "a.{query}"}, "without wildcards"),
        ({"servers": ""}, "option servers is"),
        ({"servers": "nats://h:port"}, "cannot connect to"),
        ({"usr": "a"}, "watch has no option 'usr'"),
        ({"password": "secret"}, "password is given without user"),
        ({"metrics_port": 70000}, "metrics_port is 70000"),
        ({"metrics_host": "no.such.host.invalid", "metrics_port": 0}, "metrics_port is 0"),
    ],
)
def test_what_watch_refuses(given_arguments, problem):
    session = Streams()
    with pytest.raises(OptionError, match=problem) as caught:
        watch(session, **given_arguments)
    assert "secret" not in str(caught.value)
    assert session.listeners == []


def test_a_port_that_is_taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OptionError, match="cannot be listened on"):
            watch(Streams(), subject=None, metrics_port=port)


def test_the_page_names_every_metric():
    page = (Path(__file__).parents[2] / "docs" / "howto" / "watch-a-query.md").read_text()
    documented = set(re.findall(r"^\| `(pelton_spark_\w+)` \|", page, re.MULTILINE))
    assert documented == METRICS.keys()
