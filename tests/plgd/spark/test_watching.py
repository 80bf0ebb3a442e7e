"""Alerts of devices and commands, by batches and by the clock: each comes once, also when the pipeline starts again."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pelton.client.base.models import StreamConfig
from pelton.client.sync import Client, connect
from pelton.plgd import encode
from pelton.plgd.spark import watching
from pelton.plgd.spark.lake import Lake
from pelton.plgd.spark.watching import Watch
from pelton.plgd.tables import conditions
from pelton.plgd.tables.conditions import Bounds
from pelton.plgd.tables.schemas import COMMANDS, SESSIONS
from pelton.plgd.tables.settings import Settings
from pelton.plgd.wire import events_pb2 as events
from pelton.testing import LocalServer
from tests.plgd.spark import test_live
from tests.plgd.spark.test_live import SETTINGS, take
from tests.plgd.tables_help import cut
from tests.plgd.test_tables_truth import run_of
from tests.spark.tables_help import table_at
from tests.ways import length

pytestmark = pytest.mark.slow
BOUNDS = Bounds(offline_s=3600, late_s=1, flaps=3, short_s=120, window_s=900)
SHORT: dict[str, Any] = {
    "devices": 8,
    "duration_s": 1800.0,
    "command_interval_s": 20.0,
    "session_s": 100.0,
    "offline_s": 40.0,
}


# Messages of a batch, and how late an event may be.
SIZES = [(length(500, 150), 300.0), (length(400, 60), 0.0), (100_000, 300.0)]


class Clock:
    """A clock that the test sets."""

    def __init__(self, time: datetime) -> None:
        self.time = time

    def __call__(self) -> datetime:
        return self.time


def rows_of(lake: Lake, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table_at(lake.places[table]).table.to_pyarrow_table().to_pylist()
    return rows


def ids_of(client: Client) -> list[str]:
    """The ids of the alerts that the stream has."""
    js = client.jetstream()
    found = []
    for seq in range(1, js.stream_info("ALERTS").state.last_seq + 1):
        message = js.get_message("ALERTS", seq)
        told = json.loads(message.data)
        assert message.subject.split(".")[3] == told["device_id"]
        found += message.headers.get_all("Nats-Msg-Id")
    return found


def wanted(lake: Lake, now: datetime, bounds: Bounds) -> set[str]:
    """The alerts that follow from all that the tables have."""
    sessions = table_at(lake.places[SESSIONS.name]).table.to_pyarrow_table()
    newest = conditions.newest_sessions(sessions.select(watching.SESSION.names))
    found = [*conditions.offline(newest, now, bounds)]
    found += conditions.late(rows_of(lake, COMMANDS.name), now, bounds)
    found += conditions.flapping(sessions.to_pylist(), bounds)
    return {msg_id for msg_id, _ in found}


def streams(client: Client, messages: pa.Table) -> None:
    """The stream of the alerts, which forgets ids at once, and the one of the events, with all of them."""
    js = client.jetstream()
    alerts = StreamConfig(name="ALERTS", subjects=["alerts.plgd.>"], duplicate_window=0.1)
    js.create_stream(alerts)
    js.create_stream(StreamConfig(name="EVENTS", subjects=["plgd.>"]))
    with js.publisher() as publisher:
        for subject in messages["subject"].to_pylist():
            publisher.publish(subject if subject.startswith("plgd.") else f"plgd.{subject}", b"")


@pytest.mark.parametrize(("size", "late_s"), SIZES)
def test_each_cause_alerts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, late_s: float
) -> None:
    """With ``late_s`` 0 a command that expires between two batches is closed when the second one is seen."""
    settings = Settings(buckets=2, late_s=late_s)
    bounds = BOUNDS if late_s else replace(BOUNDS, late_s=1000)  # then only what expires is late
    monkeypatch.setattr(test_live, "SETTINGS", settings)
    _, messages = run_of(seed=4, **SHORT)
    lake = Lake(tmp_path, settings)
    lake.create()
    last: datetime = messages["received"][-1].as_py()
    clock = Clock(last)
    with LocalServer() as server, connect(server.url) as client:
        streams(client, messages)

        def watch(*, is_whole: bool) -> Watch:
            told: dict[str, Any] = {"alerts": "ALERTS", "stream": "EVENTS", "clock": clock}
            return Watch(client, lake, bounds, is_whole=is_whole, **told)

        one = watch(is_whole=True)
        assert one.look() == 0  # there is nothing yet
        for number, part in enumerate(cut(messages, size)):
            counts = take(lake, number, part)
            one.batch(counts)
            if (
                number % 3 == 1
            ):  # killed: the batch comes again, to a pipeline that knows nothing of it
                one = watch(is_whole=False)
                assert one.look() == 0
                one.batch(counts)
        assert wanted(lake, clock.time, bounds) <= set(ids_of(client))
        kinds = Counter(name.rpartition(".")[2] for name in ids_of(client))
        assert kinds["late"] > 3
        assert kinds["flapping"] > 0
        assert kinds["offline"] == 0
        clock.time = last + timedelta(days=1)  # nothing happens, but time passes
        one.looked = -1e9
        sent = one.look()
        assert one.look() == 0  # too soon
        one = watch(is_whole=True)
        one.looked = -1e9
        assert one.look() == 0
        ids = ids_of(client)
        assert Counter(ids).most_common(1)[0][1] == 1
        assert wanted(lake, clock.time, bounds) <= set(ids)
        offline = [name for name in ids if name.endswith(".offline")]
        assert 0 < len(offline) <= sent
        assert {row["device_id"] for row in rows_of(lake, SESSIONS.name)} >= {
            name.split(".")[0] for name in offline
        }


def far_off(message: pa.Table) -> pa.Table:
    """A message with an event whose time is in the year 2262."""
    device = "00000000-0000-4000-8000-0000000000ff"
    changed = events.ResourceChanged(
        resource_id=events.ResourceId(device_id=device, href="/light/1"),
        event_metadata=events.EventMetadata(timestamp=2**63 - 1),
    )
    made = encode(changed, owner="a")
    for name, value in (("subject", made.subject), ("data", made.payload)):
        place = message.schema.get_field_index(name)
        field = message.schema.field(place)
        message = message.set_column(place, field, pa.array([value], field.type))
    return message


def test_a_pipeline_that_is_behind_waits(tmp_path: Path) -> None:
    """The clock is the hub's latest time in the tables while the stream has more."""
    _, messages = run_of(seed=4, **SHORT)
    lake = Lake(tmp_path, SETTINGS)
    lake.create()
    last = messages["received"][-1].as_py()
    late = messages["received"][-1].as_py() + timedelta(days=30)
    with LocalServer() as server, connect(server.url) as client:
        streams(client, messages)
        one = Watch(client, lake, BOUNDS, alerts="ALERTS", stream="EVENTS", clock=lambda: late)
        half = len(messages) // 2
        one.batch(take(lake, 0, messages.slice(0, half)))
        reached = max(row["time"] for row in rows_of(lake, "events"))
        assert one.now() == reached < last
        assert not [name for name in ids_of(client) if name.endswith(".offline")]
        one.batch(take(lake, 1, far_off(messages.slice(half - 1, 1))))
        arrived = max(reached, messages["received"][half - 1].as_py())
        assert one.now() <= arrived + timedelta(seconds=SETTINGS.late_s)
        assert not [name for name in ids_of(client) if name.endswith(".offline")]
        one.batch(take(lake, 2, messages.slice(half)))
        assert one.now() == late
        assert [name for name in ids_of(client) if name.endswith(".offline")]
