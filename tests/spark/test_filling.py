"""Holes filled: Spark's checkpoint as a model, the notes, marks and files of Pelton as they are.

The model follows Spark's rules for the folders ``offsets`` and ``commits``; tables are lists of rows
with a mark. Tables are put back to any earlier state, the process is killed at any write, Spark
forgets old batches; in the end each table has each of its rows once.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.spark import filling
from pelton.spark.filling import FillingError, next_end, note_end, put_back
from pelton.spark.holding import FAIL, FILL, memory_of
from pelton.spark.tables.behind import TableBehind, Watched
from pelton.spark.tables.marks import Found, Mark, Marks
from pelton.spark.tables.places import TableError
from tests.ways import length

HEAD = ["v1", '{"batchWatermarkMs":0}']
BORN = "2026-11-23T00:00:00Z"


class Killed(BaseException):
    """The process is gone."""


class Kills:
    """Ends the process at its so many-th change of a file; never for None."""

    def __init__(self, patch, after):
        self.left = after
        for name in ("replace", "unlink"):
            patch.setattr(Path, name, self._counted(getattr(Path, name)))
        patch.setattr(os, "fsync", lambda handle: self.point())

    def _counted(self, real):
        def call(*given, **named):
            self.point()
            return real(*given, **named)

        return call

    def point(self):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed


class Table:
    """Rows that a filter lets through, each batch once."""

    def __init__(self, name, every):
        self.name, self.every = name, every
        self.rows, self.number, self.last_rows, self.there = [], None, 0, False
        self.backups = []

    def state(self):
        return list(self.rows), self.number, self.last_rows

    def back_up(self):
        self.backups.append(self.state())

    def put_back(self, which):
        self.rows, self.number, self.last_rows = self.backups[which % len(self.backups)]
        self.rows = list(self.rows)

    def take(self, checkpoint, batch, rows, run, if_behind, kills):
        rows = [row for row in rows if row % self.every == 0]
        watched = Watched(memory_of(checkpoint, self.name), if_behind)
        known = None if self.every == 2 else batch  # a writer of Spark's learns it with its commit
        watched.look(self.there, lambda query: self.number, batch=known)
        watched.check_batch(batch)
        mark = Mark("q", batch, run.name)
        found = None if self.number is None else Found(self.number, self.last_rows)
        until = filling.repeated_until(checkpoint)
        kills.point()
        if rows and not run.marks.held(
            self.name, mark, found, rows=len(rows), raced=False, again_until=until
        ):
            self.rows, self.number, self.last_rows = self.rows + rows, batch, len(rows)
        self.there = True
        if rows:
            run.marks.note(self.name, mark)
        kills.point()
        watched.taken(mark, rows=bool(rows))


class Run:
    """A start of the query, in a process of its own."""

    def __init__(self, number):
        self.name, self.marks = f"run {number}", Marks()
        filling._noted.clear()


class Spark:
    """A query over a stream that grows, in Spark's way with its checkpoint."""

    def __init__(self, folder, tables, kept, size):
        self.checkpoint, self.tables = folder / "checkpoint", tables
        self.kept, self.size, self.last, self.runs = kept, size, 0, 0
        for name in ("offsets", "commits"):
            (self.checkpoint / name).mkdir(parents=True)

    def newest(self, name):
        found = [
            int(each.name) for each in (self.checkpoint / name).iterdir() if each.name.isdigit()
        ]
        return max(found, default=-1)

    def end_of(self, batch):
        return json.loads((self.checkpoint / "offsets" / str(batch)).read_text().split("\n")[2])

    def run(self, if_behind, kills):
        self.runs += 1
        run = Run(self.runs)
        planned, done = self.newest("offsets"), self.newest("commits")
        assert done <= planned
        batch, start = max(planned, 0), {"stream": "S", "seq": 0, "born": BORN}
        if planned > 0:
            before = self.end_of(planned - 1)  # Spark fails where it is not there
        if planned >= 0 and planned == done:
            batch, start = planned + 1, self.end_of(planned)
        elif planned > 0:
            start = before
        while True:
            if batch > self.newest("offsets"):
                end = next_end(start)
                if end is None:
                    seq = min(self.last, start["seq"] + self.size)
                    end = {"stream": "S", "seq": seq, "born": BORN}
                if end == start:
                    return
                self.write("offsets", batch, [*HEAD, json.dumps(end)])
            end = self.end_of(batch)
            rows = range(start["seq"] + 1, end["seq"] + 1)
            for table in self.tables:
                kills.point()
                table.take(self.checkpoint, batch, rows, run, if_behind, kills)
            kills.point()
            self.write("commits", batch, ["v1", "{}"])
            for name in ("offsets", "commits"):
                for path in (self.checkpoint / name).iterdir():
                    if path.name.isdigit() and int(path.name) < batch - self.kept:
                        os.remove(path)
            batch, start = batch + 1, end

    def write(self, name, batch, lines):
        (self.checkpoint / name / f".{batch}.crc").write_text("of what Spark wrote")
        (self.checkpoint / name / str(batch)).write_text("\n".join(lines))

    def run_through(self, patch, kill_after=None, if_behind=FILL):
        """Start it until it ends well, as a supervisor does."""
        for attempt in range(12):
            try:
                with patch.context() as patched:
                    kills = Kills(patched, kill_after if attempt == 0 else None)
                    self.run(if_behind, kills)
            except (TableBehind, Killed):
                continue
            return attempt
        raise AssertionError("the query never ends well")

    def check(self):
        for table in self.tables:
            wanted = [seq for seq in range(1, self.last + 1) if seq % table.every == 0]
            assert sorted(table.rows) == wanted, table.name


@pytest.fixture
def patch():
    with pytest.MonkeyPatch.context() as patched:
        yield patched


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.integers(1, 9)),
        st.tuples(st.just("back up"), st.integers(0, 2)),
        st.tuples(st.just("put back"), st.integers(0, 2), st.integers(0, 5)),
        st.tuples(st.just("run"), st.none() | st.integers(0, 40)),
    ),
    max_size=30,
)


@settings(max_examples=length(75, 150), deadline=None)
@given(steps=STEPS, kept=st.integers(2, 6), size=st.integers(1, 4), tables=st.integers(1, 3))
def test_each_row_is_in_each_table_once_whatever_is_put_back_or_killed(
    tmp_path_factory, steps, kept, size, tables
):
    patch = pytest.MonkeyPatch()
    made = [Table("all", 1), Table("some", 3), Table("others", 2)][:tables]
    spark = Spark(tmp_path_factory.mktemp("filling"), made, kept, size)
    for step in [("grow", 6), ("run", None), *steps, ("run", None)]:
        match step:
            case "grow", count:
                spark.last += count
            case "back up", which:
                table = made[which % tables]
                if table.number is not None:
                    table.back_up()
            case "put back", which, backup:
                table = made[which % tables]
                if table.backups:
                    table.put_back(backup)
            case "run", kill:
                spark.last += 1  # a batch is what looks at the tables
                spark.run_through(patch, kill)
                spark.check()


def hole(folder, *, batches=8, at=2, kept=100):
    """A query of one table, which was put back to the end of a batch."""
    table = Table("all", 1)
    spark = Spark(folder, [table], kept, 1)
    with pytest.MonkeyPatch.context() as patch:
        for batch in range(batches):
            spark.last += 1
            spark.run_through(patch)
            if batch == at:
                table.back_up()
    table.put_back(0)
    spark.last += 1
    return spark, table


def test_a_put_back_table_gets_the_batches_between_under_their_numbers(tmp_path, patch):
    spark, table = hole(tmp_path)
    with pytest.raises(
        TableBehind, match=r"holds batch 2 of the query.*makes batches 3 to 8 again"
    ):
        spark.run(FILL, Kills(patch, None))
    assert spark.newest("offsets") == spark.newest("commits") == 2
    aside = spark.checkpoint / "pelton" / "aside"
    assert {each.name for each in (aside / "offsets").iterdir()} >= {"3", "8", ".8.crc"}
    assert {each.name for each in (aside / "commits").iterdir()} >= {"3", "7", ".7.crc"}
    assert not (spark.checkpoint / "offsets" / ".2.crc").exists()
    spark.run(FAIL, Kills(patch, None))  # nothing is missing any more
    assert table.rows == list(range(1, 10))
    assert table.number == 8


def test_the_ends_of_batches_that_spark_forgot_are_noted(tmp_path, patch):
    spark, table = hole(tmp_path, batches=30, at=1, kept=3)
    assert not (spark.checkpoint / "offsets" / "2").exists()
    assert spark.run_through(patch) == 1
    assert table.rows == list(range(1, 32))
    spark, _ = hole(tmp_path / "other", batches=30, at=1, kept=3)
    (spark.checkpoint / "pelton" / "ends.jsonl").unlink()
    with pytest.raises(TableError, match="where batch 1 ended is not known any more") as caught:
        spark.run(FILL, Kills(patch, None))
    assert not isinstance(caught.value, TableBehind)
    assert spark.newest("commits") == 29


def test_a_batch_that_was_under_way_when_the_checkpoint_was_put_back_is_not_taken(tmp_path, patch):
    """Somebody catches the error and tries once more: the hole stays what it is."""
    spark, table = hole(tmp_path)
    run, kills = Run(99), Kills(patch, None)
    for _ in range(2):
        with pytest.raises(TableBehind, match="makes batches 3 to 7 again"):
            table.take(spark.checkpoint, 8, [9], run, FILL, kills)
    watched = Watched(memory_of(spark.checkpoint, table.name), FILL)
    watched.look(True, lambda query: 2)  # Spark's writers do not know their batch yet
    with pytest.raises(TableBehind, match=r"while batch 8 was made\. Start the query again"):
        watched.check_batch(8)
    watched.check_batch(3)


def test_what_cannot_be_filled_says_why_and_changes_nothing(tmp_path):
    spark, _ = hole(tmp_path)
    before = sorted(spark.checkpoint.rglob("*"))

    def refused(why, behind=2):
        with pytest.raises(FillingError, match=why):
            put_back(spark.checkpoint, behind)

    refused("no batch of the query to continue after", -1)
    state = spark.checkpoint / "state" / "0"
    state.mkdir(parents=True)
    refused("keeps state")
    state.rmdir()
    state.parent.rmdir()
    path = spark.checkpoint / "offsets" / "5"
    kept = path.read_text()
    for line, why in (
        ("7", "whose offsets are no objects"),
        ('{"topic": {"0": 7}}', "cannot be told to make its batches again"),
        (kept.split("\n")[2] + "\n" + kept.split("\n")[2], "other sources in between"),
    ):
        path.write_text("\n".join([*HEAD, line]))
        refused(why)
    path.write_text(kept.replace("v1", "v2"))
    refused("is of form v2")
    path.write_text(kept)
    assert sorted(spark.checkpoint.rglob("*")) == before
    put_back(spark.checkpoint, 2)


def test_ends_are_noted_once_each_and_not_without_bounds(tmp_path, monkeypatch):
    spark, _ = hole(tmp_path)
    notes = spark.checkpoint / "pelton" / "ends.jsonl"
    lines = notes.read_bytes()
    note_end(spark.checkpoint)
    assert notes.read_bytes() == lines
    with notes.open("ab") as file:
        file.write(b'{"batch": 7, "en')  # cut off by a kill
    monkeypatch.setattr(filling, "_ENDS_BYTES_MAX", len(lines))
    filling._noted.clear()
    note_end(spark.checkpoint)
    assert notes.read_bytes().count(b"\n") == 1
    assert notes.with_name("ends-before.jsonl").exists()
    assert put_back(spark.checkpoint, 2).until == 7


def test_a_source_says_when_it_does_not_find_where_its_batches_end(tmp_path):
    start = {"stream": "S", "seq": 3, "born": BORN, ".again": {"file": f"{tmp_path}/x", "batch": 4}}
    with pytest.raises(FillingError, match="does not say where batch 4 ended"):
        next_end(start)
    assert next_end({"stream": "S", "seq": 3, "born": BORN}) is None
