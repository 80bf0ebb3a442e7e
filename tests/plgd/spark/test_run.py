"""``penstock plgd run`` and ``backfill`` as their user runs them: the tables are the same, whatever was killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from penstock.client.blocking import BlockingClient, connect_blocking
from penstock.client.models import StreamConfig
from penstock.plgd.fleet import FleetConfig, FleetRun
from penstock.plgd.spark.live import key_of
from penstock.plgd.tables import TABLES
from penstock.plgd.tables.opening import dataset
from tests.peers import ServerProcess, available_servers, start_server
from tests.plgd.test_tables_truth import FAULTS, run_of
from tests.ways import length

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(600)]
PENSTOCK = [sys.executable, "-m", "penstock.cli"]


# With the other kind of server, tests/plgd/exact kills the same commands.
@pytest.fixture(scope="module", params=available_servers((2, 9))[: length(1, 2)])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    started = start_server(request.param)
    yield started
    started.remove()


def penstock(*words: str) -> list[dict[str, Any]]:
    """Run a command that must succeed; its lines of JSON."""
    done = subprocess.run([*PENSTOCK, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"event"')]


def publish(client: BlockingClient, run: FleetRun) -> int:
    """Put a fleet's messages into the stream EVENTS."""
    js = client.jetstream()
    js.create_stream(StreamConfig(name="EVENTS", subjects=["plgd.>"]))
    count = 0
    with js.publisher() as publisher:
        for delivery in run.deliveries():
            publisher.publish(delivery.subject, delivery.payload)
            count += 1
    return count


def kill_behind_a_batch(words: list[str]) -> None:
    """Run a command, and kill it and its workers behind its first batch."""
    child = subprocess.Popen(
        [*PENSTOCK, *words], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert child.stdout is not None
    assert json.loads(child.stdout.readline())["event"] == "batch"
    time.sleep(0.2)  # somewhere in the next batch
    child.send_signal(signal.SIGKILL)
    child.wait()


def rows_of(tables: Path, name: str) -> list[str]:
    """The rows of a table, of either format."""
    rows = dataset(tables, name).to_table(columns=TABLES[name].schema.names)
    return sorted(map(repr, rows.cast(TABLES[name].schema).to_pylist()))


def twin_keys(tables: Path) -> list[str]:
    """The keys of all twins."""
    columns = DeltaTable(str(tables / "twin_latest")).to_pyarrow_table(
        columns=["device_id", "href"]
    )
    return [key_of(row) for row in columns.to_pylist()]


def offline_devices(tables: Path) -> set[str]:
    """The devices whose newest session ended."""
    rows = DeltaTable(str(tables / "sessions")).to_pyarrow_table().to_pylist()
    newest = {row["device_id"]: row for row in sorted(rows, key=lambda row: row["connected_at"])}
    return {name for name, row in newest.items() if row["end_reason"] is not None}


def test_a_run_that_is_killed_and_a_back_fill_make_the_same_tables(
    server: ServerProcess, tmp_path: Path
) -> None:
    short: dict[str, Any] = {"devices": 8, "duration_s": 1800.0, "session_s": 200.0}
    run, _ = run_of(seed=2, faults=FAULTS, **short)
    with connect_blocking(server.url) as client:
        total = publish(client, FleetRun(run.config))
    lake, again = tmp_path / "lake", tmp_path / "again"
    common = ["--server", server.url, "--json", "plgd"]
    options = ["--buckets", "2", "--batch", "400"]
    words = ["--alerts", "ALERTS", *options]
    kill_behind_a_batch([*common, "run", str(lake), "--once", *options])
    told = penstock(*common, "run", str(lake), "--once", "--twins", "twins", *words)
    assert told[-1]["messages"] < total
    as_iceberg = ["--buckets", "2", "--batch", "1000", "--tables", "iceberg"]
    filled = penstock(*common, "backfill", str(again), *as_iceberg)
    assert filled[-1]["messages"] == total
    assert filled[-2]["lag"] == 0
    for name in TABLES:
        ours, theirs = rows_of(lake / "tables", name), rows_of(again / "tables", name)
        assert ours == theirs, name
    assert len(rows_of(lake / "tables", "raw")) == total
    with connect_blocking(server.url) as client:
        keys = client.jetstream().key_value("twins").keys()
        state = client.jetstream().stream_info("ALERTS", subjects_filter=">").state
    # The fleet lived long ago, so whoever is not online is offline for too long.
    offline = {name.split(".")[3] for name in state.subjects if ".offline." in name}
    assert offline == offline_devices(lake / "tables")
    assert set(keys) <= set(twin_keys(lake / "tables"))
    assert keys
    # A back-fill has no checkpoint; what comes later is added to it, but not what the stream lost meanwhile.
    with connect_blocking(server.url) as client:
        late = [
            each.payload
            for each in FleetRun(FleetConfig(devices=3, duration_s=60, seed=9)).deliveries()
        ]
        for number, payload in enumerate(late):
            client.jetstream().publish(f"plgd.late.{number}", payload)
        client.jetstream().purge_stream("EVENTS", seq=total + 3)
    gone = [*PENSTOCK, *common, "run", str(again), "--once"]
    done = subprocess.run(gone, capture_output=True, text=True, check=False)
    assert (done.returncode, "--allow-data-loss" in done.stderr) == (1, True), done.stderr
    assert f"continuing after sequence {total}" in done.stderr
    penstock(*common, "run", str(again), "--once", "--allow-data-loss")
    assert len(rows_of(again / "tables", "raw")) == total + len(late) - 2
    wrong = [*PENSTOCK, *common, "backfill", str(lake), "--buckets", "2"]
    done = subprocess.run(wrong, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "rows of another run" in done.stderr


def test_a_missing_stream_is_told(tmp_path: Path) -> None:
    with_server = start_server(available_servers((2, 9))[0])
    try:
        words = ["--server", with_server.url, "plgd", "run", str(tmp_path), "--stream", "NONE"]
        done = subprocess.run([*PENSTOCK, *words], capture_output=True, text=True, check=False)
    finally:
        with_server.remove()
    assert done.returncode == 1
    assert "penstock stream add NONE" in done.stderr
