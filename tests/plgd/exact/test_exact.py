"""With every fault of the bus, and kill -9 on the way, the tables are what the hub stored less what the bus lost.

``PELTON_FULL=1`` has a million events and ten kills; otherwise some thousand events and two, and of the kinds
of servers the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.plgd.fleet import FleetConfig
from pelton.plgd.tables import TABLES
from tests.peers import ServerProcess, available_servers, start_server
from tests.plgd.exact.lives import live
from tests.plgd.spark.test_run import offline_devices, twin_keys
from tests.plgd.test_tables_truth import BUSY, FAULTS, check
from tests.plgd.truth import Told
from tests.spark.exact.cluster import Cluster
from tests.ways import EVERY_WAY, FULL, length

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(3600 if FULL else 900)]
EVERY = replace(FAULTS, restore_at_s=1500.0, restore_back_s=100.0)
SHORT: dict[str, Any] = BUSY | {
    "delete_interval_s": 1500.0,
    "gateway_crash_s": (700.0,),
    "flood_s": (300.0,),
}
LONG: dict[str, Any] = {
    "devices": 1000,
    "duration_s": 3600.0,
    "command_interval_s": 300.0,
    "session_s": 1800.0,
    "delete_interval_s": 7200.0,
    "unpublish_interval_s": 7200.0,
    "gateway_crash_s": (700.0,),
    "flood_s": (300.0,),
}
RATES = {"drop": 0.0001, "reorder": 0.001, "duplicate": 0.001}


class Stored:
    """The tables of a folder, as their checks want them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def table(self, name: str) -> pa.Table:
        table = DeltaTable(str(self.folder / name)).to_pyarrow_table()
        return table.select(TABLES[name].schema.names)

    def rows(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table(name).to_pylist()
        return rows


# With the other kind of server, tests/plgd/spark/test_run.py runs the same command.
@pytest.fixture(params=available_servers((2, 9))[-length(1, 2) :])
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    started = start_server(request.param)
    yield started
    started.remove()


@cache
def config() -> FleetConfig:
    if FULL:
        return FleetConfig(**LONG, seed=2, faults=replace(EVERY, **RATES))  # type: ignore[arg-type]  # mixed options
    return FleetConfig(**SHORT, seed=2, faults=EVERY)


def published(server: ServerProcess) -> Told:
    """A fleet's messages in the stream EVENTS; the run, which is at its end."""
    run = Told(config())
    with connect(server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="EVENTS", subjects=["plgd.>"]))
        with js.publisher() as publisher:
            for delivery in run.deliveries():
                publisher.publish(delivery.subject, delivery.payload)
        assert js.stream_info("EVENTS").state.messages == run.truth.delivered
    return run


def words_of(server: ServerProcess, lake: Path, run: Told) -> list[str]:
    """The command that is killed."""
    batch = str(max(500, run.truth.delivered // (24 if FULL else 6)))
    words = ["--server", server.url, "--json", "plgd", "run", str(lake), "--once"]
    words += ["--batch", batch, "--buckets", "4" if FULL else "2"]
    return [*words, "--twins", "twins", "--alerts", "ALERTS"]


def check_live(server: ServerProcess, tables: Path) -> None:
    """The bucket has twins of the tables, and each device that is offline has an alert."""
    with connect(server.url) as client:
        keys = client.jetstream().key_value("twins").keys()
        state = client.jetstream().stream_info("ALERTS", subjects_filter=">").state
    assert keys
    assert set(keys) <= set(twin_keys(tables))
    # The fleet lived long ago, so whoever is not online is offline for too long.
    offline = {name.split(".")[3] for name in state.subjects if ".offline." in name}
    assert offline == offline_devices(tables)
    assert offline


def test_the_tables_are_the_truth(server: ServerProcess, tmp_path: Path) -> None:
    run = published(server)
    lake = tmp_path / "lake"
    kills = 10 if FULL else 2
    words = words_of(server, lake, run)
    killed = live(words, kills=kills, rng=Random("pelton plgd exact"))
    print(run.truth.summary(), killed)
    assert killed["driver"] >= kills // 2
    check(Stored(lake / "tables"), run)  # type: ignore[arg-type]  # it has what is read
    check_live(server, lake / "tables")


@EVERY_WAY
def test_the_tables_are_the_truth_on_a_cluster(tmp_path: Path) -> None:
    """A master and two workers, of Spark's own programs; a worker dies with its executors."""
    server, cluster = start_server(available_servers((2, 9))[-1]), Cluster(tmp_path)
    try:
        run = published(server)
        lake = tmp_path / "lake"
        words = [*words_of(server, lake, run), "--master", cluster.url]
        rng = Random("pelton plgd cluster")
        killed = live(words, kills=10, rng=rng, cluster=cluster)
    finally:
        cluster.stop()
        server.remove()
    print(run.truth.summary(), killed)
    assert killed == {"driver": 5, "worker": 5}
    check(Stored(lake / "tables"), run)  # type: ignore[arg-type]  # it has what is read
