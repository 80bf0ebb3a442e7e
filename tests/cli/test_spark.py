"""``pelton spark watch``: messages as lines, as JSON, as rows of a table."""

import json
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.cli.__main__ import main
from pelton.cli.spark.env import NAMES
from pelton.cli.spark.watch import COLUMNS, Queries, line_of, parse_message
from pelton.sync import connect
from pelton.testing import LocalServer

PROGRESS = {
    "event": "progress",
    "query": "orders",
    "at": "2026-11-21T07:32:26.000Z",
    "batch": 3,
    "processed_rows_per_second": 1976.2,
    "batch_ms": 253,
    "lag": 1500,
    "streams": {"ORDERS": {"end": 2000, "latest": 3500, "lag": 1500}},
}


def message(event, **fields):
    return {"event": event, "query": "orders", "at": "2026-11-21T07:32:27.000Z", **fields}


def test_rows_keep_the_last_progress():
    queries = Queries()
    queries.take(message("started"), 0.0)
    assert queries.rows(2.0) == [["orders", "starting", "", "", "", "", "", "2s"]]
    queries.take(PROGRESS, 3.0)
    told = ["3", "1,976", "0.25s", "1,500", "ORDERS 2000"]
    assert queries.rows(4.0) == [["orders", "running", *told, "1s"]]
    queries.take(message("idle"), 5.0)
    assert queries.rows(5.0) == [["orders", "idle", *told, "0s"]]
    queries.take(message("terminated", error="boom"), 6.0)
    queries.take(message("started", query="another"), 6.0)
    assert [row[:2] for row in queries.rows(6.0)] == [["another", "starting"], ["orders", "failed"]]
    assert all(len(row) == len(COLUMNS) for row in queries.rows(6.0))


def test_lines():
    assert line_of(PROGRESS, 0.0) == (
        "2026-11-21T07:32:26.000Z  orders  running  batch 3  rows/s 1,976  batch time 0.25s"
        "  lag 1,500  streams ORDERS 2000"
    )
    ended = message("terminated", error="RuntimeError: \x1b[2J")
    assert line_of(ended, 0.0).endswith(r"orders  failed  RuntimeError: \x1b[2J")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)
FIELDS = st.fixed_dictionaries(
    {"event": st.sampled_from(["started", "progress", "idle", "terminated", "other"])},
    optional=dict.fromkeys(["query", "batch", "batch_ms", "lag", "streams", "error", "at"], JSON),
)


@given(FIELDS.map(json.dumps).map(str.encode) | st.binary(max_size=20))
def test_whoever_publishes_what(data):
    found = parse_message(data)
    if found is not None:
        queries = Queries()
        queries.take(found, 0.0)
        assert len(queries.rows(1.0)) == 1
        assert found["query"] is not None
        line_of(found, 0.0)


@pytest.fixture(scope="module")
def server():
    with LocalServer() as local:
        yield local


def publish(server, ready):
    """Publishes until the reader has what it waits for."""
    with connect(server.url) as client:
        while not ready.is_set():
            client.publish("spark.progress.orders", b"no message of ours")
            client.publish("spark.progress.orders", json.dumps(PROGRESS).encode())
            time.sleep(0.02)


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_following_a_server(server, capsys, arguments):
    ready = threading.Event()
    thread = threading.Thread(target=publish, args=(server, ready))
    thread.start()
    try:
        assert main(["-s", server.url, "spark", "watch", "-n", "2", *arguments]) == 0
    finally:
        ready.set()
        thread.join()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    if arguments:
        assert [json.loads(line) for line in lines] == [PROGRESS] * 2
    else:
        assert lines == [line_of(PROGRESS, 0.0)] * 2


def test_nothing_comes(server, capsys):
    assert main(["-s", server.url, "spark", "watch", "--wait", "50ms"]) == 0
    assert capsys.readouterr().out == ""


def test_the_table(server, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    ready = threading.Event()
    thread = threading.Thread(target=publish, args=(server, ready))
    thread.start()
    try:
        assert main(["-s", server.url, "spark", "watch", "-n", "2"]) == 0
    finally:
        ready.set()
        thread.join()
    out = capsys.readouterr().out
    for word in ("QUERY", "LAG", "orders", "1,500"):
        assert word in out


@pytest.mark.parametrize("java", ["on the path", "of the extra"])
def test_the_environment_of_sparks_own_commands(capsys, monkeypatch, java):
    for name in NAMES:
        monkeypatch.setenv(name, "")  # so that what the command sets is undone
        monkeypatch.delenv(name)
    if java == "of the extra":
        monkeypatch.setattr("pelton.spark.java.shutil.which", lambda _: None)
    assert main(["spark", "env"]) == 0
    lines = capsys.readouterr().out
    said = subprocess.run(
        ["sh", "-c", f'{lines}"$JAVA_HOME/bin/java" --add-modules=jdk.incubator.vector -version'],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "version" in said.stderr
    assert f"export PYSPARK_PYTHON={sys.executable}\n" in lines
    assert main(["spark", "env", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == set(NAMES)
