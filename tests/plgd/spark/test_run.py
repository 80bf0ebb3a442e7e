"""``pelton plgd backfill`` and ``run`` as their user runs them: the tables of a stream, and going on behind them.

``tests/plgd/exact`` kills ``run``, with the other kind of server.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pelton.cli.__main__ import main
from pelton.client.base.models import StreamConfig
from pelton.client.sync import Client, connect
from pelton.plgd.fleet import FleetConfig, FleetRun
from pelton.plgd.fleet.delivery import Delivery
from pelton.plgd.spark.live import key_of
from pelton.plgd.tables import TABLES, Settings
from pelton.plgd.tables.opening import dataset
from pelton.spark import session
from tests.peers import ServerProcess, available_servers, start_server
from tests.plgd.tables_help import Memory, as_messages
from tests.plgd.test_tables_truth import BUSY, FAULTS
from tests.ways import FULL, length

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(600)]
run = import_module("pelton.cli.plgd.run")  # the package has a command of this name
PELTON = [sys.executable, "-m", "pelton.cli"]


@pytest.fixture(scope="module", params=available_servers((2, 9))[: length(1, 2)])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    started = start_server(request.param)
    yield started
    started.remove()


class Commands:
    """Commands that end by themselves.

    With PELTON_FULL=1 a process with a JVM of its own; else the command runs here, on the session that is there.
    """

    def __init__(
        self,
        spark: SparkSession,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.capsys = capsys
        monkeypatch.setattr(run, "own_session", lambda log, master: spark)
        monkeypatch.setattr(session, "end_session", lambda spark: None)

    def refused(self, *words: str) -> str:
        """Run one that must fail; what it complains of."""
        status, _, errors = self.ended(*words)
        assert status == 1, errors
        return errors

    def events(self, *words: str) -> list[dict[str, Any]]:
        """Run one that must succeed; its lines of JSON."""
        status, told, errors = self.ended(*words)
        assert status == 0, errors
        return [json.loads(line) for line in told.splitlines() if line.startswith('{"event"')]

    def ended(self, *words: str) -> tuple[int, str, str]:
        if FULL:
            done = subprocess.run([*PELTON, *words], capture_output=True, text=True, check=False)
            return done.returncode, done.stdout, done.stderr
        self.capsys.readouterr()
        status = main(list(words))
        return status, *self.capsys.readouterr()


@pytest.fixture
def pelton(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Commands:
    return Commands(spark, monkeypatch, capsys)


def publish(client: Client, fleet: FleetRun) -> int:
    """Put a fleet's messages into the stream EVENTS."""
    js = client.jetstream()
    js.create_stream(StreamConfig(name="EVENTS", subjects=["plgd.>"]))
    count = 0
    with js.publisher() as publisher:
        for delivery in fleet.deliveries():
            publisher.publish(delivery.subject, delivery.payload)
            count += 1
    return count


def stored(client: Client, count: int) -> pa.Table:
    """The messages of the stream EVENTS, as a batch has them."""
    js = client.jetstream()
    messages = [js.get_message("EVENTS", seq) for seq in range(1, count + 1)]
    return as_messages(Delivery(m.timestamp_ns, m.subject, m.data, "") for m in messages)


def stopped_behind_two_batches(words: list[str]) -> int:
    """Run a command and stop it by Ctrl-C behind its second batch; how many messages it took."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    child = subprocess.Popen([*PELTON, *words], start_new_session=True, **pipes)
    assert child.stdout is not None
    for _ in range(2):
        assert json.loads(child.stdout.readline())["event"] == "batch"
    child.send_signal(signal.SIGINT)
    rest, errors = child.communicate()
    told = json.loads(rest.splitlines()[-1])
    assert (child.returncode, errors, told["stopped"]) == (0, "", True)
    return int(told["messages"])


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


def test_a_back_fill_is_stopped_and_goes_on_and_a_run_goes_on_behind_it(
    server: ServerProcess, tmp_path: Path, pelton: Commands
) -> None:
    short: dict[str, Any] = {"devices": 8, "duration_s": length(900.0, 1800.0), "session_s": 200.0}
    config = FleetConfig(**(BUSY | short), seed=2, faults=FAULTS)
    with connect(server.url) as client:
        total = publish(client, FleetRun(config))
        memory = Memory(Settings(buckets=2))
        memory.run(stored(client, total))
    lake = str(tmp_path / "lake")
    common = ["--server", server.url, "--json", "plgd"]
    batch = total // 5
    options = ["--buckets", "2", "--batch", str(batch), "--tables", "iceberg"]
    filling = [*common, "backfill", lake, *options]
    done = stopped_behind_two_batches(filling)
    assert batch < done < total
    filled = pelton.events(*filling)
    # The last batch is made again: not all of its tables may have it.
    assert (filled[-1]["messages"], filled[-1]["stopped"]) == (total - done + batch, False)
    assert filled[-2]["lag"] == 0
    for name in TABLES:
        assert rows_of(tmp_path / "lake" / "tables", name) == sorted(
            map(repr, memory.rows(name))
        ), name
    # A back-fill has no checkpoint; what comes later is added to it, but not what the stream lost meanwhile.
    with connect(server.url) as client:
        late = [
            each.payload
            for each in FleetRun(FleetConfig(devices=3, duration_s=60, seed=9)).deliveries()
        ]
        for number, payload in enumerate(late):
            client.jetstream().publish(f"plgd.late.{number}", payload)
        client.jetstream().purge_stream("EVENTS", seq=total + 3)
    said = pelton.refused(*common, "run", lake, "--once")
    assert f"continuing after sequence {total}" in said
    assert f"begins at sequence {total + 3}; {total + 1} and later were not read yet" in said
    assert "--allow-data-loss goes on" in said
    assert not (tmp_path / "lake" / "checkpoint").exists()  # it was told before Spark was asked
    pelton.events(*common, "run", lake, "--once", "--allow-data-loss")
    assert len(rows_of(tmp_path / "lake" / "tables", "raw")) == total + len(late) - 2
    assert "rows of another run" in pelton.refused(*filling)


def test_a_missing_stream_is_told(tmp_path: Path) -> None:
    with_server = start_server(available_servers((2, 9))[0])
    try:
        words = ["--server", with_server.url, "plgd", "run", str(tmp_path), "--stream", "NONE"]
        done = subprocess.run([*PELTON, *words], capture_output=True, text=True, check=False)
    finally:
        with_server.remove()
    assert done.returncode == 1
    assert "pelton stream add NONE" in done.stderr
