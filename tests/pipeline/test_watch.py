"""A picture of a pipeline from outside of its run: from its state folder, the server, and messages. No JVM."""

import io
import json
import time
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pelton.cli.__main__ import main
from pelton.cli.spark.pipeline_watch import PictureView, sparkline
from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.pipeline.children import Children
from pelton.pipeline.description.reading import load
from pelton.pipeline.running import picture
from pelton.pipeline.running.live import STEP_SECONDS, STEPS, LiveRecord, Trace, read_live
from pelton.pipeline.running.numbers import QueryNumbers
from pelton.pipeline.running.picture import Watcher
from pelton.pipeline.running.queries import Begun, Memory, checkpoint, remember
from tests.cli.terminal import Terminal
from tests.peers import available_servers, start_server

SHOP = """\
pipeline: shop
defaults: {servers: "URL"}
metrics: {subject: "progress.{name}"}
sources:
  raw: {format: jetstream, stream: ORDERS}
steps:
  good: {from: raw, expect: {has_id: id is not null, small: id < 10}}
sinks:
  table: {from: good, format: jetstream_delta, path: table}
  bad: {from: good.rejected, format: jetstream_delta, path: bad}
"""
NUMBERS = QueryNumbers(
    "raw",
    state="running",
    batch=4,
    batches=5,
    rows=1200,
    rows_per_second=40.0,
    lag=3,
    late_rows=2,
    batch_ms=615,
    sinks={"table": 1100, "bad": 100},
    rejected={"bad": {"has_id": 90, "small": 15}},
)


@pytest.fixture(scope="module")
def server():
    started = start_server(available_servers()[0])
    yield started
    started.remove()


@pytest.fixture
def js(server):
    with connect(server.url) as client:
        made = client.jetstream()
        made.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))
        yield made
        made.delete_stream("ORDERS")


@pytest.fixture
def shop(tmp_path, server):
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP.replace("URL", server.url))
    return load(path)


@pytest.fixture
def watcher(shop, monkeypatch):
    monkeypatch.setattr(picture, "ASK_SECONDS", 0.0)
    with closing(Watcher(shop)) as made:
        yield made


@pytest.fixture
def begun(shop):
    """The state folder of a run after batch 4, at sequence 10, that works on batch 5."""
    folder = checkpoint(shop.state, "raw")
    for name in ("offsets/4", "offsets/5", "commits/4"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        offset = json.dumps({"stream": "ORDERS", "seq": 10, "born": "b"})
        (folder / name).write_text(f"v1\n{{}}\n{offset}")
    remember(shop.state, Memory("shop", {"raw": Begun(["raw"], True, ["table", "bad"])}))
    return shop.state


def publish(js, count):
    for number in range(count):
        js.publish("orders.x", str(number).encode())


def test_a_run_is_watched_from_outside(js, shop, begun, watcher):
    publish(js, 12)
    live = LiveRecord(begun)
    children = Children(begun)
    live.write([NUMBERS])
    seen = watcher.take()
    assert int(seen.running) > 0
    [query] = seen.queries
    assert (query.state, query.batch, query.rows, query.late_rows) == ("running", 4, 1200, 2)
    assert query.lag == 2, "the stream's end of now, not that of the last batch"
    assert query.busy_seconds is not None
    assert query.rejected == {"bad": {"has_id": 90, "small": 15}}
    publish(js, 5)
    assert watcher.take().queries[0].lag == 7
    children.release()
    [query] = watcher.take().queries
    assert (query.state, query.busy_seconds, query.rows_per_second) == ("stopped", None, 0.0)


def test_without_a_server_the_rest_is_shown(js, shop, begun, watcher, server):
    (begun / "live.json").write_text("{")
    text = shop.sources["raw"].options
    text["servers"] = "nats://127.0.0.1:1"
    seen = watcher.take()
    assert seen.running == ""
    assert len(seen.problems) == 1
    assert [(query.state, query.batch, query.lag) for query in seen.queries] == [
        ("stopped", 4, None)
    ]


def test_a_server_that_goes_away_does_not_hold_the_picture(js, begun, watcher, server):
    LiveRecord(begun).write([NUMBERS])
    assert watcher.take().queries[0].lag == 0
    server.stop()
    try:
        slowest = 0.0
        for _ in range(4):
            before = time.monotonic()
            seen = watcher.take()
            slowest = max(slowest, time.monotonic() - before)
            assert len(seen.problems) == 1
            assert (seen.queries[0].lag, seen.queries[0].rows) == (3, 1200)
        assert slowest < 5, "a request to a server that is away takes longer"
    finally:
        server.start()
    watched(watcher, lambda seen: not seen.problems)


def test_a_failed_run_keeps_its_reason(begun, watcher, js):
    failed = QueryNumbers("raw", state="failed", batch=4, error="sink bad: it is full")
    LiveRecord(begun).write([failed], last=True)
    [query] = watcher.take().queries
    assert (query.state, query.error) == ("failed", "sink bad: it is full")


def message(event, query="shop-raw", **more):
    return json.dumps({"event": event, "query": query, "id": "1", "run_id": "2", **more}).encode()


def test_a_run_on_another_machine_is_watched_by_its_messages(js, shop, watcher):
    assert watcher.take().queries == ()
    client = js.client
    client.publish("progress.shop-raw", message("started"))
    more = {"rows": 500, "lag": 7, "batch_ms": 100, "late_rows": 1}
    for batch in range(3):
        told = message("progress", batch=batch, processed_rows_per_second=9.5, **more)
        client.publish("progress.shop-raw", told)
    client.publish("progress.other-raw", message("progress", "other-raw", batch=9))
    client.publish("progress.shop-raw", b"not JSON")
    client.flush()
    seen = watched(watcher, lambda seen: seen.queries and seen.queries[0].batch == 2)
    assert seen.running == "elsewhere"
    [query] = seen.queries
    assert (query.name, query.state, query.rows, query.lag) == ("raw", "running", 1500, 7)
    assert query.late_rows == 3
    client.publish("progress.shop-raw", message("terminated", error="it is full"))
    client.flush()
    seen = watched(watcher, lambda seen: seen.queries[0].error)
    assert seen.queries[0].state == "failed"


def watched(watcher, wanted):
    """Pictures until one is as wanted."""
    deadline = time.monotonic() + 90
    while not wanted(seen := watcher.take()):
        assert time.monotonic() < deadline, seen
    return seen


def test_the_command_shows_one_picture(js, shop, begun, capsys):
    publish(js, 13)
    LiveRecord(begun).write([NUMBERS])
    children = Children(begun)
    assert main(["pipeline", "watch", "--once", shop.file]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("shop: running, process ")
    assert second.startswith("raw: running, batch 4 +1, ")
    assert second.endswith(
        "lag 3, late 2, batch time 0.61s, table 1,100, bad 100 (has_id 90, small 15)"
    )
    assert main(["pipeline", "watch", "--once", shop.file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queries"][0]["lag"] == 3
    children.release()


def test_a_terminal_has_sinks_and_bars(begun, watcher, js):
    live = LiveRecord(begun)
    live.write([NUMBERS])
    with closing(io.StringIO()) as text:
        Console(file=text, width=160).print(PictureView(watcher.take()).table())
        shown = text.getvalue()
    for word in ("shop: not running", "rows/s, 5 min", "█ 3", "has_id 90, small 15", "1,100"):
        assert word in shown


def test_the_screen_goes_on_until_it_is_interrupted(js, shop, begun):
    """At a terminal in place; what the run and the stream do meanwhile is seen."""
    live = LiveRecord(begun)
    live.write([NUMBERS])
    children = Children(begun)
    words = ("pipeline", "watch", shop.file, "--every", "100ms")
    with Terminal(*words, environment={"TERM": "xterm", "COLUMNS": "200"}) as terminal:
        terminal.expect("running, process")
        terminal.expect("1,100")
        live.write([replace(NUMBERS, rows=4321, error="sink bad: it is full")], last=True)
        terminal.expect("4,321")
        terminal.expect("it is full")
        children.release()
        terminal.expect("not running")
        terminal.interrupt()
        assert terminal.status() == 130


TIMES = st.lists(
    st.tuples(st.floats(0, 900, allow_nan=False), st.integers(0, 1000)), min_size=1, max_size=40
)


@given(TIMES)
def test_a_trace_has_the_mean_of_each_step(values):
    values = sorted(values, key=lambda each: each[0])
    trace = Trace()
    for at, value in values:
        trace.add(value, at)
    steps = {}
    for at, value in values:
        steps.setdefault(int(at // STEP_SECONDS), []).append(value)
    means = []
    for step in range(min(steps), max(steps) + 1):
        mean = sum(steps[step]) / len(steps[step]) if step in steps else means[-1]
        means.append(mean)
    assert trace.values() == pytest.approx(means[-STEPS:], abs=0.06)


@given(st.lists(st.floats(0, 1e9, allow_nan=False), max_size=60), st.integers(1, 30))
def test_bars_are_as_many_as_fit_and_the_greatest_is_full(values, cells):
    bars = sparkline(values, cells)
    assert len(bars.split(" ")[0]) <= cells
    if values and max(values) > 0:
        assert "█" in bars
    assert bool(bars) == bool(values)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"queries": [3]}', '{"queries": [{}]}'])
def test_a_record_that_cannot_be_read_is_as_none(tmp_path, content):
    (tmp_path / "live.json").write_text(content)
    assert read_live(tmp_path) == {}
