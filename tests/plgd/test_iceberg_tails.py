"""The files of Iceberg tables from one batch to the next: what is known is what a new reader finds."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow.compute as pc
import pytest

from pelton.plgd.spark.buckets import Job, write_bucket
from pelton.plgd.spark.maintaining import look_after
from pelton.plgd.tables.settings import Settings
from pelton.spark.iceberg import table as opened
from pelton.spark.iceberg.catalogs import load
from pelton.spark.tables.compaction import compact
from pelton.spark.tables.maintenance import Plan
from pelton.spark.tables.marks import Mark
from tests.plgd.tables_help import IcebergLake, cut
from tests.plgd.test_tables_truth import FAULTS, run_of
from tests.ways import SEED, length

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

SETTINGS = Settings(buckets=2)
FLEET: dict[str, Any] = {"devices": 4, "duration_s": 900.0, "session_s": 120.0}


def take(lake: IcebergLake, number: int, messages: pa.Table) -> None:
    """A batch without Spark."""
    begun = lake.begin(Mark("q", number))
    job = Job(lake.targets, begun.held, SETTINGS, f"q-{number}-{uuid4().hex}")
    shares = [messages.filter(pc.equal(messages["bucket"], one)) for one in range(2)]
    lake.commit(
        begun, [write_bucket(job, one, rows) for one, rows in enumerate(shares) if len(rows)]
    )


def found(lake: IcebergLake, number: int) -> dict[str, Any]:
    """The files of each table before a batch, as they are told to executors."""
    begun = lake.begin(Mark("q", number))
    return {
        name: (sorted(begun.active[name]), in_order(vars(held)))
        for name, held in begun.held.items()
    }


def in_order(held: Any) -> Any:
    """Files without the order of a plan."""
    if isinstance(held, dict):
        return {key: in_order(held[key]) for key in sorted(held)}
    return sorted(held, key=repr)


def made(folder: Path) -> IcebergLake:
    lake = IcebergLake(folder, SETTINGS)
    lake.create()
    return lake


def test_a_batch_after_another_reads_no_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = made(tmp_path)
    _, messages = run_of(seed=SEED, faults=FAULTS, **FLEET)
    parts = list(cut(messages, 120))[: length(4, 6)]
    take(lake, 0, parts[0])
    for tail in lake.tails.values():
        tail.read()  # some tables get their first rows later
    planned: list[str] = []

    def noted(name: str, call: Any) -> Any:
        def calling(*given: Any) -> Any:
            planned.append(name)
            return call(*given)

        return calling

    monkeypatch.setattr(opened.Iceberg, "_read", noted("plan", opened.Iceberg._read))
    monkeypatch.setattr(opened, "load", noted("load", load))
    for number, part in enumerate(parts[1:], 1):
        take(lake, number, part)
    assert planned == []
    last = len(parts)
    assert found(lake, last) == found(made(tmp_path), last)


def test_what_is_known_is_what_a_new_reader_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside maintenance, other processes and batches that run again."""
    rng, lake = random.Random(SEED), made(tmp_path)
    _, messages = run_of(seed=SEED, faults=FAULTS, **FLEET)
    parts = list(cut(messages, 120))[: length(5, 8)]
    for number, part in enumerate(parts):
        take(lake, number, part)
        match rng.randrange(4):
            case 0:
                other = IcebergLake(tmp_path, SETTINGS)
                other.targets = lake.targets
                assert not [one for one in look_after(other, Plan(), None) if one.error]
            case 1:
                compact(lake.tables["commands"], 2**30)
            case 2:
                take(lake, number, part)  # again: it changes nothing
        fresh = made(tmp_path)
        assert found(lake, number + 1) == found(fresh, number + 1)
        assert found(lake, number) == found(fresh, number)
