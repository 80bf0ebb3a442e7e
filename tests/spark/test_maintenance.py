"""Maintenance: the same rows in fewer files; nothing that somebody needs is removed."""

import os
import threading
import time

import pytest
from deltalake import DeltaTable

from pelton.spark.tables.commits import Tables
from pelton.spark.tables.maintenance import Plan, maintain
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import TableError, place
from tests.spark.tables_help import files_of as written
from tests.spark.tables_help import sequences, table_at, write_of

DAYS = 8 * 24 * 3600


@pytest.fixture
def where(tmp_path):
    """Ten commits of one query, by word."""
    made = place(tmp_path / "t")
    for number in range(10):
        seqs = range(number * 6, number * 6 + 6)
        Tables().commit(made, write_of(made, seqs, Mark("q", number), partition_by=("word",)))
    return made


def age(where, seconds):
    """Make all data files look older; the log tells of removals by its own times."""
    for path in where.folder.rglob("*.parquet"):
        if "_delta_log" not in path.parts:
            os.utime(path, (time.time() - seconds, time.time() - seconds))


def test_few_files_with_the_same_rows_and_marks(where):
    report = maintain(where, Plan())
    assert (report.files_before, report.files) == (30, 3)
    assert (report.compacted, report.into) == (30, 3)
    assert report.removed == []
    assert sequences(where) == list(range(60))
    assert DeltaTable(where.uri).transaction_version("q") == 9
    assert list(where.folder.glob("_delta_log/*.checkpoint.parquet"))
    again = maintain(where, Plan())
    assert (again.compacted, again.files) == (0, 3)
    assert not Tables().commit(where, write_of(where, range(54, 60), Mark("q", 9, "later")))


def test_a_dry_run_changes_nothing_and_tells_the_same(where):
    before = {path: path.stat().st_mtime_ns for path in where.folder.rglob("*")}
    told = maintain(where, Plan(dry_run=True))
    assert before == {path: path.stat().st_mtime_ns for path in where.folder.rglob("*")}
    done = maintain(where, Plan())
    assert (told.compacted, told.into) == (done.compacted, done.into)
    assert told.files == told.files_before


def test_left_overs_go_when_they_are_old_and_files_under_way_stay(where):
    written(where, [1000], partition_by=("word",))
    age(where, DAYS)
    under_way = write_of(where, [2000], Mark("q", 10), partition_by=("word",))
    told = maintain(where, Plan(compact=False, dry_run=True))
    report = maintain(where, Plan(compact=False))
    assert len(report.removed) == 1
    assert report.removed == told.removed
    assert Tables().commit(where, under_way)
    assert sequences(where) == [*range(60), 2000]


def test_versions_within_the_retention_can_still_be_read(where):
    maintain(where, Plan())
    age(where, DAYS)
    assert maintain(where, Plan()).removed == []
    old = table_at(where, 5)
    assert len(old.files()) == 15
    assert old.table.to_pyarrow_table().num_rows == 30


def test_beside_a_query_that_writes(where):
    stop, done = threading.Event(), [10]

    def query():
        tables = Tables()
        while not stop.is_set() and done[0] < 200:
            seqs = range(done[0] * 6, done[0] * 6 + 6)
            mark = Mark("q", done[0], "run")
            assert tables.commit(where, write_of(where, seqs, mark, partition_by=("word",)))
            done[0] += 1

    thread = threading.Thread(target=query)
    thread.start()
    try:
        for _ in range(5):
            maintain(where, Plan(keep_hours=1))
        # However busy the machine is, some commits are made beside it.
        while done[0] <= 12 and thread.is_alive():
            maintain(where, Plan(keep_hours=1))
    finally:
        stop.set()
        thread.join()
    assert done[0] > 12
    assert sequences(where) == list(range(done[0] * 6))


def test_what_cannot_be_done(tmp_path, where):
    with pytest.raises(TableError, match="there is no table at"):
        maintain(place(tmp_path / "nobody"), Plan())
    with pytest.raises(TableError, match="an hour at least"):
        maintain(where, Plan(keep_hours=0))
