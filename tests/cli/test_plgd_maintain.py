"""``penstock plgd maintain``: tables of a hub stay what they are, with fewer files, or without old days."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.plgd.spark.iceberg_lake import IcebergLake
from penstock.plgd.spark.lake import Lake
from penstock.plgd.tables import TABLES
from penstock.plgd.tables.schemas import Way
from tests.plgd.tables_help import Memory, cut
from tests.plgd.test_resuming import BUSY, SETTINGS, rows_in, take
from tests.plgd.test_tables_truth import FAULTS, run_of

Run = Callable[..., Any]


@pytest.mark.parametrize("kind", [Lake, IcebergLake])
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
            compacted = {Path(one["table"]).name for one in told if one.get("compacted")}
            assert ("events" in compacted) == (kind is Lake)
        take(lake, part, number)
        memory.run(part)
    for name in TABLES:
        assert rows_in(lake, name) == sorted(map(repr, memory.rows(name))), name


def test_old_days_go_and_what_is_open_or_current_stays(tmp_path: Path, cli: Run) -> None:
    _, messages = run_of(seed=5, faults=FAULTS, **BUSY)
    parts = list(cut(messages.slice(0, 450), 150))
    memory, lake = Memory(SETTINGS), Lake(tmp_path / "lake" / "tables", SETTINGS)
    lake.create()
    for number, part in enumerate(parts):
        if number == 2:  # the fleet lived long ago
            ran = cli("plgd", "maintain", tmp_path / "lake", "--keep", "90d")
            assert ran.status == 0, ran.err
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
    assert (ran.status, "there are no tables at" in ran.err) == (1, True)
    ran = cli("plgd", "maintain", tmp_path, "--retention", "1m")
    assert (ran.status, "1h or more" in ran.err) == (2, True)
    IcebergLake(tmp_path / "lake" / "tables", SETTINGS).create()
    ran = cli("plgd", "maintain", tmp_path / "lake", "--keep", "90d")
    assert (ran.status, "--keep is for Delta tables" in ran.err) == (2, True)
