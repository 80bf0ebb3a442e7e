"""``pelton plgd maintain``: tables of a hub stay what they are, with fewer files, or without old days."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pelton.plgd.spark.lake import Lake
from pelton.plgd.spark.maintaining import look_after
from pelton.plgd.spark.resuming import finish_last_batch
from pelton.plgd.tables import TABLES
from pelton.plgd.tables.schemas import Way
from pelton.spark.tables.maintenance import Plan
from pelton.spark.tables.table import FilesGoneError
from tests.plgd.tables_help import IcebergLake, Memory, cut
from tests.plgd.test_resuming import BUSY, SETTINGS, Killed, rows_in, take
from tests.plgd.test_tables_truth import FAULTS, run_of
from tests.ways import EVERY_WAY

Run = Callable[..., Any]
KINDS = [Lake, IcebergLake]
MAINTAIN = """
import contextlib, io, json, pathlib, sys
from pelton.cli.__main__ import main
folder, end = sys.argv[1:]
while not pathlib.Path(end).exists():
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        assert main(["--json", "plgd", "maintain", folder]) == 0, told.getvalue()
    print(sum(one["compacted"] for one in json.loads(told.getvalue())), flush=True)
"""


# Those of Iceberg go on in each of the next tests, too.
@pytest.mark.parametrize("kind", [Lake, pytest.param(IcebergLake, marks=EVERY_WAY)])
def test_maintained_tables_go_on(kind: type[Lake], tmp_path: Path, cli: Run) -> None:
    _, messages = run_of(seed=5, faults=FAULTS, **BUSY)
    parts = list(cut(messages.slice(0, 450), 150))
    memory, lake = Memory(SETTINGS), kind(tmp_path / "lake" / "tables", SETTINGS)
    lake.create()
    for number, part in enumerate(parts):
        if number == 2:
            ran = cli("--json", "plgd", "maintain", tmp_path / "lake")
            assert ran.status == 0, ran.err
            told = json.loads(ran.out)
            assert len(told) == len(TABLES)
            assert "events" in {one["name"] for one in told if one["compacted"]}
            assert len({file.path for file in lake.files("events")}) == SETTINGS.buckets
        take(lake, part, number)
        memory.run(part)
    for name in TABLES:
        assert rows_in(lake, name) == sorted(map(repr, memory.rows(name))), name


@pytest.mark.parametrize("kind", KINDS)
def test_old_days_go_and_what_is_open_or_current_stays(
    kind: type[Lake], tmp_path: Path, cli: Run
) -> None:
    _, messages = run_of(seed=5, faults=FAULTS, **BUSY)
    parts = list(cut(messages.slice(0, 450), 150))
    memory, lake = Memory(SETTINGS), kind(tmp_path / "lake" / "tables", SETTINGS)
    lake.create()
    for number, part in enumerate(parts):
        if number == 2:  # the fleet lived long ago
            words = ("--json", "plgd", "maintain", tmp_path / "lake", "--keep", "90d")
            count = len(rows_in(lake, "events"))
            would, does = (cli(*words, *more) for more in (["--dry-run"], []))
            assert (would.status, does.status) == (0, 0), (would.err, does.err)
            for ran in (would, does):
                told = {one["name"]: one for one in json.loads(ran.out)}
                assert told["events"]["deleted_rows"] == count
                assert told["aggregates"]["deleted_rows"] == 0
                assert told["events"]["compacted"] == 0
            assert len(rows_in(lake, "events")) == 0
            assert any("True" in row for row in rows_in(lake, "sessions"))
        take(lake, part, number)
        memory.run(part)
    for name, table in TABLES.items():
        if table.way is Way.CURRENT or "day" not in table.partition_by:
            assert rows_in(lake, name) == sorted(map(repr, memory.rows(name))), name
    assert 0 < len(rows_in(lake, "events")) <= len(parts[2])


def test_what_cannot_be_is_told(tmp_path: Path, cli: Run) -> None:
    ran = cli("plgd", "maintain", tmp_path / "none")
    assert (ran.status, "there are no tables of a hub at" in ran.err) == (1, True)
    ran = cli("plgd", "maintain", tmp_path, "--retention", "1m")
    assert (ran.status, "1h or more" in ran.err) == (2, True)
    (tmp_path / "lake" / "tables").mkdir(parents=True)
    for more in ([], ["--tables", "iceberg", "--namespace", "elsewhere"]):
        ran = cli("plgd", "maintain", tmp_path / "lake", *more)
        assert (ran.status, "there are no tables of a hub at" in ran.err) == (1, True), ran.err
        # Looking made none.
        assert not list((tmp_path / "lake" / "tables").glob("*/*"))


# Iceberg tables are maintained beside batches in tests/plgd/spark/test_changes.py.
@pytest.mark.parametrize("kind", [Lake, pytest.param(IcebergLake, marks=EVERY_WAY)])
def test_another_process_that_maintains_all_the_time_loses_and_doubles_nothing(
    kind: type[Lake], tmp_path: Path
) -> None:
    _, messages = run_of(seed=5, faults=FAULTS, command_interval_s=10.0, **BUSY)
    parts = list(cut(messages.slice(0, 600), 150))
    memory, lake = Memory(SETTINGS), kind(tmp_path / "lake" / "tables", SETTINGS)
    lake.create()
    take(lake, parts[0], 0)
    memory.run(parts[0])
    program = [sys.executable, "-c", MAINTAIN, str(tmp_path / "lake"), str(tmp_path / "end")]
    child = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        child.stdout.readline()  # it has begun
        again = 0
        for number, part in enumerate(parts[1:], start=1):
            memory.run(part)
            while True:
                try:
                    take(lake, part, number)
                    break
                except FilesGoneError:
                    again += 1
    finally:
        (tmp_path / "end").touch()
        told, _ = child.communicate(timeout=120)
    assert child.returncode == 0
    compacted = [json.loads(line) for line in told.splitlines()]
    assert sum(compacted) > 0, again
    for name in TABLES:
        assert rows_in(lake, name) == sorted(map(repr, memory.rows(name))), name


@pytest.mark.parametrize("kind", KINDS)
def test_one_table_that_fails_is_told_and_the_others_are_maintained(
    kind: type[Lake], tmp_path: Path, cli: Run
) -> None:
    lake = kind(tmp_path / "lake" / "tables", SETTINGS)
    lake.create()
    take(lake, run_of(seed=5, **BUSY)[1].slice(0, 50), 0)
    for path in (tmp_path / "lake" / "tables").rglob("*"):
        wanted = ".metadata.json" if kind is IcebergLake else ".json"
        if path.name.endswith(wanted) and "audit" in path.parts:
            path.write_text("{")
    # Delta tables are opened one by one; an Iceberg catalog has to open all.
    ran = cli("--json", "plgd", "maintain", tmp_path / "lake")
    assert ran.status == 1
    assert "audit" in ran.out + ran.err


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_was_cut_short_is_made_whole_long_after(
    kind: type[Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maintenance comes between, when nothing else of then is kept any more."""
    _, messages = run_of(seed=5, faults=FAULTS, **BUSY)
    parts = list(cut(messages.slice(0, 450), 150))
    memory, lake = Memory(SETTINGS), kind(tmp_path, SETTINGS)
    lake.create()
    for number, part in enumerate(parts):
        memory.run(part)
        if number < 2:
            take(lake, part, number)
    with pytest.raises(Killed):
        take(lake, parts[2], 2, 7)
    monkeypatch.setattr("pelton.spark.tables.maintenance.LEAST_KEEP_HOURS", 0)
    done = {each.name: each for each in look_after(lake, Plan(keep_hours=0), None)}
    assert [each.error for each in done.values() if each.error] == []
    assert done["events"].report.compacted > 0
    removed = done["twin_latest"].report.removed
    assert any("-p0000of0001-" in path for path in removed)  # the page of the first batch
    place = finish_last_batch(lake)
    assert place is not None
    for name in TABLES:
        assert rows_in(lake, name) == sorted(map(repr, memory.rows(name))), name
