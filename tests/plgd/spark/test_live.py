"""Twins back to the stream: a bucket has every twin as the tables have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pelton import KeyValueConfig, Nanoseconds
from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.plgd.spark.alerts import failures, gaps, send_alerts
from pelton.plgd.spark.buckets import Job, write_bucket
from pelton.plgd.spark.lake import Counts, Lake
from pelton.plgd.spark.live import changed_twins, key_of, put_twins
from pelton.plgd.tables.settings import Settings
from pelton.spark.tables.marks import Mark
from pelton.testing import LocalServer
from tests.plgd.tables_help import cut
from tests.plgd.test_tables_truth import FAULTS, run_of

pytestmark = pytest.mark.slow
SETTINGS = Settings(buckets=2)


def take(lake: Lake, number: int, messages: pa.Table) -> Counts:
    """A batch without Spark."""
    begun = lake.begin(Mark("q", number))
    job = Job(lake.targets, begun.held, SETTINGS, f"q-{number}")
    shares = [messages.filter(pc.equal(messages["bucket"], one)) for one in range(2)]
    return lake.commit(begun, [write_bucket(job, one, rows) for one, rows in enumerate(shares)])


def test_the_bucket_has_the_twins(tmp_path: Path) -> None:
    short: dict[str, Any] = {"devices": 4, "duration_s": 600.0, "session_s": 200.0}
    _, messages = run_of(seed=2, **short)
    lake = Lake(tmp_path, SETTINGS)
    lake.create()
    with LocalServer() as server, connect(server.url) as client:
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
    with LocalServer() as server, connect(server.url) as client:
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


def test_a_stream_that_was_made_again_repeats_no_alert(tmp_path: Path) -> None:
    """The sequences begin anew, so those of its first life are as high as those of new batches."""
    short: dict[str, Any] = {"devices": 6, "duration_s": 900.0, "command_interval_s": 20.0}
    _, messages = run_of(seed=2, faults=FAULTS, **short)
    lake = Lake(tmp_path, SETTINGS)
    lake.create()
    middle = len(messages) // 2
    with LocalServer() as server, connect(server.url) as client:
        js = client.jetstream()
        window = Nanoseconds(100_000_000)  # ids do not hide what is sent again
        config = StreamConfig(name="ALERTS", subjects=["alerts.plgd.>"], duplicate_window=window)
        js.create_stream(config)
        number = told = 0
        for life in (messages.slice(0, middle), messages.slice(middle)):
            first = life["seq"][0].as_py()
            place = life.schema.get_field_index("seq")
            life = life.set_column(place, "seq", pc.subtract(life["seq"], first - 1))
            for part in cut(life, 300):
                counts = take(lake, number, part)
                told += send_alerts(client, lake, counts.first_seq)
                number += 1
        ids = [
            msg_id
            for seq in range(1, js.stream_info("ALERTS").state.last_seq + 1)
            for msg_id in js.get_message("ALERTS", seq).headers.get_all("Nats-Msg-Id")
        ]
        assert len(ids) == len(set(ids)) == told > 0
