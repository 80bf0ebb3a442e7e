"""Maintenance of Iceberg tables: old snapshots go, and what nobody names; never what somebody does."""

import os
import time
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pelton[iceberg]")
from pelton.cli.__main__ import main
from pelton.spark.iceberg import expiry
from pelton.spark.tables.commits import Tables
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.parquet import write_rows
from pelton.spark.tables.places import TableError
from pelton.spark.tables.table import Write
from tests.spark.iceberg_help import (
    address_of,
    maintain,
    prepare,
    properties_of,
    sequences,
    table_of,
    write_of,
)
from tests.spark.tables_help import SCHEMA, batch_of

PREFIX = "batch-0123456789ab-00000-7"


def prefixed(where, seqs, mark=None, **given):
    """A write whose files are named as Spark's tasks name them."""
    target = prepare(where, SCHEMA)
    files = write_rows([batch_of(seqs)], target, f"{PREFIX}{min(seqs)}")
    return Write(SCHEMA, files, mark=mark, target=target, **given)


@pytest.fixture
def where(tmp_path):
    """Ten commits of one query."""
    made = address_of(tmp_path)
    for number in range(10):
        Tables().commit(made, prefixed(made, range(number * 6, number * 6 + 6), Mark("q", number)))
    return made


def folder_of(where):
    return Path(table_of(where).location().removeprefix("file://"))


def every_file(where):
    return sorted(path for path in folder_of(where).rglob("*") if path.is_file())


def later(monkeypatch, days):
    """Let it be so many days later for maintenance."""
    now = time.time() + days * 24 * 3600
    monkeypatch.setattr(expiry.time, "time", lambda: now)


def test_young_snapshots_and_files_stay(where):
    before = every_file(where)
    report = maintain(where)
    assert (report.snapshots_before, report.snapshots, report.removed) == (10, 10, [])
    assert report.files == 10
    assert every_file(where) == before


def test_old_snapshots_go_and_the_rows_and_marks_stay(where, monkeypatch):
    later(monkeypatch, 8)
    told = maintain(where, dry_run=True)
    assert (told.snapshots, told.files) == (1, 10)
    assert len(table_of(where).metadata.snapshots) == 10
    report = maintain(where)
    assert (report.snapshots_before, report.snapshots, report.files) == (10, 1, 10)
    assert set(report.removed) <= set(told.removed)
    assert len([path for path in report.removed if "/snap-" in path]) == 9
    assert not any(path.endswith(".parquet") for path in report.removed)
    assert sequences(where) == list(range(60))
    assert not Tables().commit(where, write_of(where, range(54, 60), Mark("q", 9)))
    assert maintain(where).removed == []


def test_files_that_nobody_names_go_when_they_are_old(where):
    orphans = prefixed(where, range(100, 110)).files
    data = folder_of(where) / "data"
    foreign = data / "of-somebody.parquet"
    foreign.write_bytes(b"")
    day = time.time() - 24 * 3600
    os.utime(foreign, (day, day))
    assert maintain(where, 1).removed == []
    os.utime(data / orphans[0].path, (day, day))
    assert maintain(where, 1, dry_run=True).removed == [str(data / orphans[0].path)]
    assert maintain(where, 1).removed == [str(data / orphans[0].path)]
    assert foreign.exists()
    assert sequences(where) == list(range(60))


def test_rows_that_an_overwrite_removed_go_with_their_snapshot(where, monkeypatch):
    Tables().commit(where, prefixed(where, range(300, 303), overwrite=True))
    later(monkeypatch, 8)
    report = maintain(where)
    assert len([path for path in report.removed if path.endswith(".parquet")]) == 10
    assert sequences(where) == [300, 301, 302]


def test_a_tag_keeps_its_snapshot(where, monkeypatch):
    table = table_of(where)
    kept = table.metadata.snapshots[2].snapshot_id
    table.manage_snapshots().create_tag(kept, "audit").commit()
    later(monkeypatch, 8)
    assert maintain(where).snapshots == 2
    found = table_of(where).scan(snapshot_id=kept).to_arrow()
    assert sorted(found["seq"].to_pylist()) == list(range(18))


def test_files_removed_before_their_commit_are_not_named(where):
    from dataclasses import replace

    write = prefixed(where, [1])
    old = [replace(file, written_ms=file.written_ms - 3_600_000) for file in write.files]
    assert Tables().commit(where, replace(write, files=old))
    write = prefixed(where, [2])
    old = [replace(file, written_ms=file.written_ms - 3_600_000) for file in write.files]
    (folder_of(where) / "data" / old[0].path).unlink()
    with pytest.raises(TableError, match="1 files of this batch were removed"):
        Tables().commit(where, replace(write, files=old))


def test_what_was_replaced_lately_stays_however_old_it_is(where, monkeypatch):
    """The time that counts is when it was replaced: until then readers began with it."""
    later(monkeypatch, 8)
    last = table_of(where).current_snapshot()
    Tables().commit(where, prefixed(where, range(60, 66), Mark("q", 10)))
    later(monkeypatch, 0.5)  # hours after that commit, days after the one before
    report = maintain(where, 24)
    assert report.snapshots == 2
    assert len(table_of(where).scan(snapshot_id=last.snapshot_id).to_arrow()) == 60


def test_the_newest_batch_stays_if_asked_for(where, monkeypatch):
    Tables().commit(where, prefixed(where, [60]))
    Tables().commit(where, prefixed(where, [61]))
    numbers = [each.snapshot_id for each in table_of(where).metadata.snapshots]
    later(monkeypatch, 8)
    assert maintain(where, batch_stays=True).snapshots == 3
    left = table_of(where).metadata.snapshots
    assert [each.snapshot_id for each in left] == [*numbers[8:10], numbers[11]]
    assert left[1].parent_snapshot_id == numbers[8]
    assert maintain(where).snapshots == 1


def test_pages_that_nobody_names_go(where):
    data = folder_of(where) / "data" / "bucket=1"
    data.mkdir(parents=True)
    page = data / f"{PREFIX}-p0000of0001-000.parquet"
    page.write_bytes(b"")
    day = time.time() - 24 * 3600
    os.utime(page, (day, day))
    assert maintain(where, 1).removed == [str(page)]


def test_as_a_user_runs_it(where, tmp_path, capsys):
    given = [f"--property={name}={text}" for name, text in properties_of(tmp_path).items()]
    arguments = ["tables", "expire", "lake.t", "--catalog", "test", *given]
    assert main([*arguments, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "10 -> 10" in out
    assert "dry run" in out
    assert main(["tables", "expire", "lake.none", "orders", "--catalog", "test", *given]) == 1
    err = capsys.readouterr().err
    assert "there is no table test.lake.none" in err
    assert "must be namespace.name" in err
    assert main([*arguments, "--retention", "10m"]) == 2
    assert "1h or more" in capsys.readouterr().err
    assert main([*arguments, "--json"]) == 0
    assert '"snapshots_before": 10' in capsys.readouterr().out
    assert main([*arguments, "--target-size", "0"]) == 2
    assert main([*arguments, "--compact", "--target-size", "1MB"]) == 0
    assert "10 into 1" in capsys.readouterr().out
    assert sequences(where) == list(range(60))


def test_two_at_once_do_the_work_once(where, monkeypatch):
    later(monkeypatch, 8)
    real, inner = expiry.replaced_ms, []

    def beside(metadata):
        """Another process maintains the table between what this one reads and writes."""
        found = real(metadata)
        if not inner:
            inner.append(None)
            inner[0] = maintain(where)
        return found

    monkeypatch.setattr(expiry, "replaced_ms", beside)
    report = maintain(where)
    assert (inner[0].snapshots, report.snapshots) == (1, 1)
    assert report.removed == []
    assert sequences(where) == list(range(60))


def test_a_file_that_another_maintenance_removed_is_no_error(where, monkeypatch):
    later(monkeypatch, 8)
    real, inner = expiry._deleted, []

    def beside(system, path):
        if not inner:
            inner.append(None)
            inner[0] = maintain(where)
        return real(system, path)

    monkeypatch.setattr(expiry, "_deleted", beside)
    report = maintain(where)
    assert len(inner[0].removed) > 0
    assert not {*report.removed} & {*inner[0].removed}
    assert sequences(where) == list(range(60))
