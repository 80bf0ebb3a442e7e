"""Pages of current rows: all rows are there, and a batch writes no more than the pages that it changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from pelton.plgd.fleet import FleetConfig
from pelton.plgd.spark import buckets
from pelton.plgd.spark.buckets import Job, Report, write_bucket
from pelton.plgd.spark.lake import Lake
from pelton.plgd.tables import TABLES, Settings, pages
from pelton.plgd.tables.schemas import Way
from pelton.spark.tables import syncing
from pelton.spark.tables.marks import Mark
from tests.plgd.tables_help import Memory, cut, messages_of
from tests.plgd.test_tables_truth import FAULTS, run_of
from tests.ways import length

CURRENT = [table for table in TABLES.values() if table.way is Way.CURRENT]


class Tables:
    """Tables in a folder, without Spark."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.lake = Lake(folder, settings)
        self.lake.create()
        self.number = -1

    def take(self, messages: pa.Table) -> list[Report]:
        """A batch; what its buckets wrote and removed."""
        self.number += 1
        begun = self.lake.begin(Mark("q", self.number))
        job = Job(self.lake.targets, begun.held, self.lake.settings, f"q-{self.number}")
        buckets = sorted(messages["bucket"].unique().to_pylist())
        parts = [messages.filter(pc.equal(messages["bucket"], one)) for one in buckets]
        reports = [write_bucket(job, one, part) for one, part in zip(buckets, parts, strict=True)]
        self.lake.commit(begun, reports)
        return reports


@given(st.lists(st.text(max_size=12) | st.uuids().map(str), max_size=40), st.integers(0, 6))
def test_a_page_follows_from_the_key(keys: list[str], power: int) -> None:
    column = pa.array([None, "", *keys], pa.string())
    found = pages.pages_of(column, 2**power).tolist()
    assert all(0 <= page < 2**power for page in found)
    for place in range(len(column)):
        assert pages.pages_of(column.slice(place, 1), 2**power).tolist() == [found[place]]


def test_ids_are_spread_over_pages() -> None:
    keys = pa.array([f"00000000-0000-4000-8000-{number:012}" for number in range(6400)])
    sizes = pa.array(pages.pages_of(keys, 64)).value_counts().field("counts").to_pylist()
    assert len(sizes) == 64
    assert max(sizes) < 200


def test_files_that_tell_no_page_are_written_anew() -> None:
    told = [f"bucket=1/q-00001-0-{pages.page_name(page, 4)}-000.parquet" for page in range(4)]
    keys = pa.array(["a"])
    (page,) = pages.pages_of(keys, 4).tolist()
    assert pages.changed_pages(told, 100, keys) == (4, [page], [told[page]])
    assert pages.changed_pages(told, 100, None) == (4, [0, 1, 2, 3], told)
    mixed = [*told[1:], "bucket=1/part-00000.parquet"]
    assert pages.changed_pages(mixed, 100, keys) == (4, [0, 1, 2, 3], mixed)
    grown = pages.changed_pages(told, 4 * pages.PAGE_ROWS + 1, keys)
    assert grown == (8, list(range(8)), told)


def test_tables_in_pages_are_those_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_ROWS", 8)
    settings = Settings(buckets=2, late_s=60.0)
    short: dict[str, Any] = {"devices": 6, "duration_s": 900.0, "session_s": 200.0}
    messages = run_of(seed=2, faults=FAULTS, **short)[1]
    memory, tables = Memory(settings), Tables(tmp_path, settings)
    memory.run(messages)
    for part in cut(messages, 400):
        tables.take(part)
    for table in CURRENT:
        stored = DeltaTable(str(tmp_path / table.name))
        rows = stored.to_pyarrow_table().select(table.schema.names).to_pylist()
        assert sorted(map(repr, rows)) == sorted(map(repr, memory.rows(table.name))), table.name
        assert len({pages.page_in(path) for path in stored.file_uris()}) > 2, table.name


def test_a_batch_writes_the_pages_that_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few devices change few pages, in bytes too, however many devices there are."""
    monkeypatch.setattr(pages, "PAGE_ROWS", length(24, 64))
    written = {}
    few = length(24, 60)
    for devices in (few, 4 * few):
        config = FleetConfig(devices=devices, duration_s=length(450.0, 3600.0), seed=5)
        messages = messages_of(config, 1)[1]
        last = list(range(len(messages) - 400, len(messages)))
        subjects = messages["subject"].to_pylist()
        chosen = [row for row in last if ".resourcechanged" in subjects[row]][-5:]
        tables = Tables(tmp_path / str(devices), Settings(buckets=1))
        tables.take(messages.slice(0, len(messages) - 400))
        (report,) = tables.take(messages.take(chosen))
        for name in ("aggregates", "twin_latest"):
            files = report.files[name]
            assert 0 < len(files) <= 5, name
            assert len(report.removed[name]) == len(files), name
        assert "links_current" not in report.files
        written[devices] = sum(
            f.size for name in ("aggregates", "twin_latest") for f in report.files[name]
        )
    assert written[4 * few] < 1.5 * written[few], written


def test_a_bucket_reports_no_file_that_is_not_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[Path] = set()
    monkeypatch.setattr(syncing, "to_disk", synced.add)
    messages = run_of(seed=2, devices=6, duration_s=900.0)[1]
    reports = Tables(tmp_path, Settings(buckets=2)).take(messages)
    for report in reports:
        for name, files in report.files.items():
            for file in files:
                path = tmp_path / name / file.path
                assert {path, *path.parents[: len(Path(file.path).parts)]} <= synced


def test_closed_rows_stay_in_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "MANY_FILES", 4)
    settings = Settings(buckets=2, late_s=0.0)
    # Sessions and commands end all the time, some of them late: their days are read again.
    short = {"devices": 6, "duration_s": length(600.0, 1200.0)}
    messages = run_of(seed=8, session_s=60.0, faults=FAULTS, **short)[1]
    tables, memory = Tables(tmp_path, settings), Memory(settings)
    most = 0
    for part in cut(messages, len(messages) // length(10, 40)):
        tables.take(part)
        memory.run(part)
        held = tables.lake.begin(Mark("q", tables.number + 1)).held
        closed = [held[table.name].closed for table in TABLES.values() if table.way is Way.OPEN]
        most = max([most, *(len(files) for days in closed for files in days.values())])
    assert 3 <= most <= 5
    for name, table in TABLES.items():
        found = tables.lake.dataset(name).to_table(columns=table.schema.names).to_pylist()
        assert sorted(map(repr, found)) == sorted(map(repr, memory.rows(name))), name


def test_large_files_of_closed_rows_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "MANY_FILES", 2)
    monkeypatch.setattr(buckets, "SMALL_BYTES", 0)
    messages = run_of(seed=8, devices=4, duration_s=600.0, session_s=60.0)[1]
    tables = Tables(tmp_path, Settings(buckets=1, late_s=0.0))
    one = messages.set_column(
        messages.schema.get_field_index("bucket"),
        messages.schema.field("bucket"),
        pa.array([0] * len(messages), pa.int32()),
    )
    for part in cut(one, len(one) // 10):
        tables.take(part)
    closed = tables.lake.begin(Mark("q", tables.number + 1)).held["sessions"].closed
    assert max(map(len, closed.values())) > 4
