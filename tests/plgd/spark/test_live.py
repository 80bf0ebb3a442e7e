"""Twins back to the stream: a bucket has every twin as the tables have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.client import KeyValueConfig
from penstock.client.blocking import connect_blocking
from penstock.client.models import StreamConfig
from penstock.plgd.spark.alerts import failures, gaps, send_alerts
from penstock.plgd.spark.buckets import Job, write_bucket
from penstock.plgd.spark.lake import Counts, Lake
from penstock.plgd.spark.live import changed_twins, key_of, put_twins
from penstock.plgd.tables.settings import Settings
from penstock.spark.tables.marks import Mark
from penstock.testing import LocalServer
from tests.plgd.tables_help import cut
from tests.plgd.test_tables_truth import FAULTS, run_of

pytestmark = pytest.mark.slow
SETTINGS = Settings(buckets=2)


def take(lake: Lake, number: int, messages: pa.Table) -> Counts:
    """A batch without Spark."""
    begun = lake.begin(Mark("q", number))
    job = Job(lake.places, begun.held, SETTINGS, f"q-{number}")
    shares = [messages.filter(pc.equal(messages["bucket"], one)) for one in range(2)]
    return lake.commit(begun, [write_bucket(job, one, rows) for one, rows in enumerate(shares)])


def test_the_bucket_has_the_twins(tmp_path: Path) -> None:
    short: dict[str, Any] = {"devices": 4, "duration_s": 600.0, "session_s": 200.0}
    _, messages = run_of(seed=2, **short)
    lake = Lake(tmp_path, SETTINGS)
    lake.create()
    with LocalServer() as server, connect_blocking(server.url) as client:
        bucket = client.jetstream().create_key_value(KeyValueConfig(bucket="twins"))
        for number, part in enumerate(cut(messages, 200)):
            counts = take(lake, number, part)
            assert (counts.first_seq, counts.last_seq) == (
                number * 200 + 1,
                part["seq"][-1].as_py(),
            )
            put = put_twins(client, lake, counts.first_seq)
            assert put == put_twins(client, lake, counts.first_seq)  # as a batch that runs again
            assert 0 < put <= len(part)
        twins = list(changed_twins(lake, 0))
        assert sorted(bucket.keys()) == sorted(map(key_of, twins))
        for twin in twins:
            entry = bucket.get(key_of(twin))
            assert entry is not None
            told = json.loads(entry.value)
            assert (told["href"], told["version"]) == (twin["href"], twin["version"])
            assert told["present"] == twin["is_present"]
            content = twin["content_json"]
            assert told["content"] == (None if content is None else json.loads(content))


def test_an_alert_comes_once(tmp_path: Path) -> None:
    short: dict[str, Any] = {"devices": 6, "duration_s": 900.0, "command_interval_s": 20.0}
    _, messages = run_of(seed=2, faults=FAULTS, **short)
    lake = Lake(tmp_path, SETTINGS)
    lake.create()
    with LocalServer() as server, connect_blocking(server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="ALERTS", subjects=["alerts.plgd.>"]))
        wanted: set[str] = set()
        for number, part in enumerate(cut(messages, 300)):
            counts = take(lake, number, part)
            found = [*gaps(lake, counts.first_seq), *failures(lake, counts.first_seq)]
            wanted |= {msg_id for msg_id, _ in found}
            assert send_alerts(client, lake, counts.first_seq) == len(found)
            send_alerts(client, lake, counts.first_seq)  # as a batch that runs again
        assert {name.rpartition(".")[2] for name in wanted} == {"gap", "command"}
        assert js.stream_info("ALERTS").state.messages == len(wanted)
        for _, row in failures(lake, 0):
            assert row["status"] not in {"OK", "CREATED", "ACCEPTED", "NOT_MODIFIED"}
