"""Alerts: when they begin and end, and how they are told. No JVM."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.pipeline.description.alerts import Alerts, Share
from pelton.pipeline.description.problems import PipelineError
from pelton.pipeline.description.reading import load, read
from pelton.pipeline.running import alerting
from pelton.pipeline.running.alerting import AlertMonitor, Sender, rejected_rows
from pelton.pipeline.running.conditions import FIRING, KINDS, RESOLVED, Conditions, Measured
from pelton.pipeline.running.counting import Counted
from pelton.pipeline.running.numbers import Board, QueryNumbers
from pelton.pipeline.running.queries import Begun, Memory, Query, checkpoint, remember
from tests.peers import available_servers, start_server

SHOP = """\
pipeline: shop
defaults: {servers: "URL"}
sources:
  raw: {format: jetstream, stream: ORDERS}
steps:
  good: {from: raw, expect: {has_id: id is not null}}
sinks:
  table: {from: good, format: jetstream_delta, path: table}
  bad: {from: good.rejected, format: jetstream_delta, path: bad}
alerts: {lag: 10, rejected: 10%, stuck: 5m, late: 1, subject: "alerts.{name}.{alert}"}
"""
QUERY = Query("raw", "raw", ("raw",), ("table", "bad"), True)


def shop(alerts):
    text = SHOP.partition("alerts:")[0] + f"alerts: {alerts}\n"
    return read(text.replace("URL", "nats://127.0.0.1"), Path("/x/f.yaml"), environment={})


def test_limits_are_read():
    made = shop('{lag: 10000, late: 1, rejected: 1.5%, stuck: 5m, window: 1m, subject: "a.{name}"}')
    assert made.alerts == Alerts(10000, 1, Share(1.5, True), 300.0, 60.0, "a.{name}")
    assert shop("{rejected: 100}").alerts == Alerts(rejected=Share(100))
    assert shop("{lag: 5}").alerts.window_seconds == 300.0


@pytest.mark.parametrize(
    ("alerts", "said"),
    [
        ("{subject: x}", "alerts: give a limit: lag, late, rejected, stuck"),
        ("{lag: many}", "lag is 'many', but must be"),
        ("{rejected: 0%}", "a share of those read, such as 1%"),
        ("{rejected: 101%}", "a share of those read, such as 1%"),
        ("{rejected: x}", "a share of those read, such as 1%"),
        ("{stuck: soon}", "stuck is 'soon', but must be"),
        ("{lag: 1, subject: 'a.*'}", "a subject without wildcards"),
        ("{lag: 1, subject: 'a.{nme}'}", "a subject without wildcards"),
        ("{lags: 1}", "unknown key 'lags'; did you mean lag?"),
        ("5", "alerts must be keys and values"),
    ],
)
def test_wrong_limits(alerts, said):
    with pytest.raises(PipelineError) as raised:
        shop(alerts)
    assert said in str(raised.value)
    assert "/x/f.yaml:10: " in str(raised.value)


def told(conditions, now, **values):
    measured = Measured("q", **{"batch": 0, "lag": 0, **values})
    return [(each.kind, each.status) for each in conditions.look([measured], now)]


def test_lag_begins_at_the_limit_and_ends_below_its_half():
    conditions = Conditions(Alerts(lag=10))
    steps = [(9, []), (10, ["firing"]), (30, []), (9, []), (None, []), (5, []), (4, ["resolved"])]
    for now, (lag, statuses) in enumerate([*steps, (10, ["firing"])]):
        assert told(conditions, now, lag=lag) == [("lag", each) for each in statuses], lag


def test_rows_count_within_the_window():
    conditions = Conditions(Alerts(late=2, window_seconds=60))
    assert told(conditions, 0, late_rows=0) == []
    assert told(conditions, 10, late_rows=1) == []
    assert told(conditions, 20, late_rows=2) == [("late", "firing")]
    assert told(conditions, 75, late_rows=2) == []  # one of them was within the last minute
    assert told(conditions, 140, late_rows=2) == [("late", "resolved")]


def test_a_share_of_the_rows():
    conditions = Conditions(Alerts(rejected=Share(1, percent=True)))
    assert told(conditions, 1, rows=1000, rejected_rows=9) == []
    assert told(conditions, 2, rows=2000, rejected_rows=20) == [("rejected", "firing")]
    assert told(conditions, 3, rows=5000, rejected_rows=20) == [("rejected", "resolved")]


def test_stuck_means_that_there_is_something_to_do():
    conditions = Conditions(Alerts(stuck_seconds=60))
    assert told(conditions, 0) == []
    assert told(conditions, 1000) == []  # nothing to do for long
    assert told(conditions, 1010, lag=5) == []
    assert told(conditions, 1059, lag=5) == []
    assert told(conditions, 1070, lag=5) == [("stuck", "firing")]
    assert told(conditions, 1080, lag=None) == []
    assert told(conditions, 1090, lag=4, batch=1) == [("stuck", "resolved")]
    assert told(conditions, 1149, lag=4, batch=1) == []
    assert told(conditions, 1151, lag=4, batch=1) == [("stuck", "firing")]


def test_the_next_run_goes_on_with_what_has_begun():
    conditions = Conditions(
        Alerts(lag=10, stuck_seconds=60), {("q", "lag"), ("q", "stuck"), ("q", "late")}
    )
    assert told(conditions, 0, lag=None) == []  # no server has said how long the stream is
    assert told(conditions, 1, lag=20) == []
    assert told(conditions, 61, lag=20) == []
    assert told(conditions, 62, lag=1, batch=3) == [("lag", "resolved"), ("stuck", "resolved")]
    assert conditions.active == set()


STEPS = st.lists(
    st.tuples(
        st.integers(1, 90),
        st.integers(0, 1),
        st.none() | st.integers(0, 30),
        st.integers(0, 50),
        st.integers(0, 3),
        st.integers(0, 20),
    ),
    max_size=30,
)


@given(STEPS)
def test_begins_and_ends_alternate_and_keep_their_limits(steps):
    conditions = Conditions(Alerts(10, 2, Share(5), 60.0, 120.0))
    active = dict.fromkeys(KINDS, False)
    now, batch, counts = 0, 0, [0, 0, 0]
    for seconds, batches, lag, *rows in steps:
        now, batch = now + seconds, batch + batches
        counts = [before + more for before, more in zip(counts, rows, strict=True)]
        for alert in conditions.look([Measured("q", batch, lag, *counts)], now):
            assert active[alert.kind] == (alert.status == RESOLVED)
            active[alert.kind] = alert.status == FIRING
            if alert.status == FIRING:
                assert alert.value >= alert.limit
            else:
                assert alert.value < alert.limit / 2
            assert alert.text.startswith("query q: ")
            assert alert.text.endswith("(resolved)") == (alert.status == RESOLVED)
    assert {kind for _, kind in conditions.active} == {k for k, on in active.items() if on}


def test_rejected_rows_that_two_sinks_take_count_once():
    more = SHOP.replace(
        "alerts:", "  too: {from: good.rejected, format: parquet, path: too}\nalerts:"
    )
    made = read(more, Path("/x/f.yaml"), environment={})
    numbers = QueryNumbers("raw", sinks={"table": 100, "bad": 7, "too": 6})
    assert rejected_rows(made, numbers) == 7


@pytest.fixture
def server():
    started = start_server(available_servers()[0])
    yield started
    started.remove()


@pytest.fixture
def running(tmp_path, server, monkeypatch):
    """A pipeline at sequence 0 of a stream with messages, and the board of its run."""
    monkeypatch.setattr(alerting, "LOOK_SECONDS", 0.05)
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP.replace("URL", server.url))
    pipeline = load(path)
    folder = checkpoint(pipeline.state, "raw")
    for name in ("offsets/0", "commits/0"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('v1\n{}\n{"stream": "ORDERS", "seq": 0, "born": "b"}')
    remember(pipeline.state, Memory("shop", {"raw": Begun(["raw"], True, ["table", "bad"])}))
    board = Board()
    board.begin(QUERY, "shop-raw")
    with connect(server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))
        js.create_stream(StreamConfig(name="ALERTS", subjects=["alerts.>"]))
        yield pipeline, board, js, folder


def test_a_run_tells_begins_and_ends_once(running):
    pipeline, board, js, folder = running
    for number in range(20):
        js.publish("orders.x", str(number).encode())
    board.wrote("raw", "bad", Counted(5))
    monitor = AlertMonitor(pipeline, pipeline.alerts, board)
    first = [monitor.messages.get(timeout=20) for _ in range(2)]
    monitor.close()
    assert [(each["alert"], each["status"]) for each in first] == [
        ("lag", "firing"),
        ("rejected", "firing"),
    ]
    assert first[0]["text"] == "query raw: lag is 20 messages, limit 10"
    assert json.loads((pipeline.state / "alerts.json").read_text()) == {
        "active": [["raw", "lag"], ["raw", "rejected"]]
    }

    # The next run: the lag is still there, then it is gone.
    monitor = AlertMonitor(pipeline, pipeline.alerts, Board())
    assert monitor.messages.empty()
    monitor.close()
    board = Board()
    board.begin(QUERY, "shop-raw")
    for name in ("offsets/1", "commits/1"):
        (folder / name).write_text('v1\n{}\n{"stream": "ORDERS", "seq": 20, "born": "b"}')
    monitor = AlertMonitor(pipeline, pipeline.alerts, board)
    last = [monitor.messages.get(timeout=20) for _ in range(2)]
    monitor.close()
    assert [(each["alert"], each["status"]) for each in last] == [
        ("lag", "resolved"),
        ("rejected", "resolved"),
    ]
    assert js.stream_info("ALERTS").state.messages == 4
    stored = js.get_message("ALERTS", 1)
    assert stored.subject == "alerts.shop-raw.lag"
    assert json.loads(stored.data) == first[0]


def test_a_state_that_cannot_be_read_is_one_warning_and_then_it_goes_on(running):
    pipeline, board, js, _ = running
    record = pipeline.state / "pipeline.json"
    good = record.read_text()
    record.write_text("{")
    for number in range(20):
        js.publish("orders.x", str(number).encode())
    monitor = AlertMonitor(pipeline, pipeline.alerts, board)
    assert "pipeline.json cannot be read" in monitor.notices.get(timeout=20)
    assert monitor.messages.empty()
    record.write_text(good)
    assert monitor.messages.get(timeout=20)["alert"] == "lag"
    monitor.close()
    assert monitor.notices.empty()


def test_alerts_wait_for_a_server_that_is_away(tmp_path, server):
    pipeline = read(SHOP.replace("URL", server.url), tmp_path / "f.yaml", environment={})
    sender = Sender(pipeline, "alerts.{name}")
    server.stop()
    sender.put({"query": "raw", "alert": "lag", "text": "first"})
    assert not sender.send()
    server.start()
    with connect(server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="ALERTS", subjects=["alerts.>"]))
        sender.put({"query": "raw", "alert": "lag", "text": "second"})
        assert sender.send()
        sender.close(1.0)
        texts = [json.loads(js.get_message("ALERTS", seq).data)["text"] for seq in (1, 2)]
        assert texts == ["first", "second"]
