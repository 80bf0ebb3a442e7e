"""Tables go on without the checkpoint that filled them: nothing is doubled, and a batch cut short becomes whole."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pelton.plgd.spark.buckets import Job, write_bucket
from pelton.plgd.spark.lake import Lake
from pelton.plgd.spark.resuming import begin_behind, finish_last_batch, is_fresh
from pelton.plgd.tables import TABLES
from pelton.plgd.tables.settings import Settings
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import TableError
from tests.plgd.tables_help import IcebergLake, Memory, cut
from tests.plgd.test_tables_truth import FAULTS, run_of

SETTINGS = Settings(buckets=2, late_s=0.0)
BUSY: dict[str, Any] = {"devices": 4, "duration_s": 600.0, "session_s": 100.0}


class Killed(Exception):
    """The process is killed here."""


def take(lake: Lake, messages: pa.Table, number: int, tables: int = len(TABLES)) -> None:
    """A batch; after the commits of so many tables the process dies."""
    begun = lake.begin(Mark("q", number, "run"))
    job = Job(lake.targets, begun.held, lake.settings, f"q-{number}")
    reports = []
    for bucket in range(SETTINGS.buckets):
        mine = messages.filter(pc.equal(messages["bucket"], bucket))
        reports.append(write_bucket(job, bucket, mine.combine_chunks()))
    commit, left = lake.take, [None] * tables

    def dying(*args: Any) -> None:
        if not left:
            raise Killed
        left.pop()
        commit(*args)

    lake.take = dying  # type: ignore[method-assign]  # dies on purpose
    try:
        lake.commit(begun, reports)
    finally:
        lake.take = commit  # type: ignore[method-assign]  # dies on purpose


def rows_in(lake: Lake, name: str) -> list[str]:
    schema = TABLES[name].schema
    rows = lake.dataset(name).to_table(columns=schema.names).cast(schema)
    return sorted(map(repr, rows.to_pylist()))


@pytest.mark.parametrize("kind", [Lake, IcebergLake])
def test_a_batch_that_was_cut_short_becomes_whole(kind: type[Lake], tmp_path: Path) -> None:
    _, messages = run_of(seed=5, faults=FAULTS, command_interval_s=20.0, **BUSY)
    messages = messages.slice(0, 360)
    memory, lake = Memory(SETTINGS), kind(tmp_path, SETTINGS)
    lake.create()
    assert finish_last_batch(lake) is None
    parts = list(cut(messages, 120))
    take(lake, parts[0], 0)
    for committed, part in [(1, parts[1]), (4, parts[2])]:
        number = parts.index(part)
        with pytest.raises(Killed):
            take(lake, part, number, committed)
        place = finish_last_batch(lake)
        assert place is not None
        assert (place.stream, place.seq) == ("EVENTS", pc.max(part["seq"]).as_py())
    assert finish_last_batch(lake) == place
    for part in parts:
        memory.run(part)
    for name in TABLES:
        assert rows_in(lake, name) == sorted(map(repr, memory.rows(name))), name
    assert kind(tmp_path, Settings(buckets=3)).made_with() == 2


def test_only_the_stream_of_the_tables_goes_on(tmp_path: Path) -> None:
    _, messages = run_of(seed=5, **BUSY)
    lake = Lake(tmp_path, SETTINGS)
    lake.create()
    take(lake, messages.slice(0, 50), 0)
    place = finish_last_batch(lake)
    assert place is not None
    before: datetime = place.received - timedelta(hours=1)
    assert begin_behind(place, "EVENTS", before, 50) == "51"
    for stream, born, last in [
        ("OTHER", before, 50),
        ("EVENTS", place.received + timedelta(seconds=1), 50),
        ("EVENTS", before, 49),
    ]:
        with pytest.raises(TableError, match="messages of"):
            begin_behind(place, stream, born, last)


def test_a_checkpoint_with_a_position_is_not_fresh(tmp_path: Path) -> None:
    assert is_fresh(tmp_path)
    (tmp_path / "offsets").mkdir()
    assert is_fresh(tmp_path)
    (tmp_path / "offsets" / "0").touch()
    assert not is_fresh(tmp_path)
