"""Commits: each batch once, whatever dies, comes again or races; and what is refused, clearly."""

import shutil
import time
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.spark.tables.commits import Tables
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import TableError, place
from pelton.spark.tables.table import Write
from tests.spark.drivers import STEPS, Query
from tests.spark.tables_help import SCHEMA, files_of, sequences, write_of, write_rows
from tests.ways import length


@pytest.fixture
def where(tmp_path):
    return place(tmp_path / "t")


def test_a_batch_that_comes_again_is_not_committed_again(where):
    write = write_of(where, range(10), Mark("q", 0, "run 1"))
    assert Tables().commit(where, write)
    again = write_of(where, range(10), Mark("q", 0, "run 2"))
    assert not Tables().commit(where, again)
    assert Tables().commit(where, write_of(where, range(10, 15), Mark("q", 1, "run 2")))
    assert Tables().commit(where, write_of(where, range(15, 20), Mark("other", 0)))
    assert sequences(where) == list(range(20))


def test_a_second_driver_is_refused_in_the_moment_of_the_commit(where):
    Tables().commit(where, write_of(where, [1], Mark("q", 0, "a")))
    one, other = Tables(), Tables()
    first = write_of(where, [2], Mark("q", 1, "a"))
    second = write_of(where, [2], Mark("q", 1, "b"))

    def race(table):
        assert one.commit(where, first)
        table.commit(second)

    with pytest.raises(TableError, match="two drivers run on one checkpoint"):
        other.once(where, second, race)
    assert sequences(where) == [1, 2]


def test_a_second_driver_is_refused_when_it_finds_the_batch_done(where):
    one, other = Tables(), Tables()
    assert one.commit(where, write_of(where, [0], Mark("q", 0, "a")))
    assert not other.commit(where, write_of(where, [0], Mark("q", 0, "b")))
    assert one.commit(where, write_of(where, [1], Mark("q", 1, "a")))
    with pytest.raises(TableError, match="two drivers run on one checkpoint"):
        other.commit(where, write_of(where, [1], Mark("q", 1, "b")))
    assert sequences(where) == [0, 1]


def test_another_query_in_the_same_moment_is_let_in(where):
    one, other = Tables(), Tables()
    one.commit(where, write_of(where, [1], Mark("q", 0)))
    mine = write_of(where, [3], Mark("p", 0))

    def race(table):
        assert one.commit(where, write_of(where, [2], Mark("q", 1)))
        table.commit(mine)

    assert other.once(where, mine, race)
    assert sequences(where) == [1, 2, 3]


def test_a_commit_that_was_made_and_then_failed_is_made(where):
    write = write_of(where, [1], Mark("q", 0, "a"))
    calls = []

    def fail_after(table):
        calls.append(1)
        table.commit(write)
        raise OSError("the connection broke")

    assert Tables().once(where, write, fail_after)
    assert Tables().once(
        where, replace(write_of(where, [2])), lambda table: table.commit(write_of(where, [2]))
    )
    assert calls == [1]
    assert sequences(where) == [1, 2]


def test_a_store_that_fails_is_one_error(where):
    def fail(table):
        raise OSError("no space left on device")

    with pytest.raises(TableError, match=r"cannot commit to the table .* no space left"):
        Tables().once(where, write_of(where, [1], Mark("q", 0)), fail)
    assert sequences(where) == []


def test_a_checkpoint_older_than_the_table_is_refused(where):
    for number in range(3):
        Tables().commit(where, write_of(where, [number], Mark("q", number)))
    with pytest.raises(
        TableError, match=r"holds batch 2 .* this is batch 1: .* the checkpoint is older"
    ):
        Tables().commit(where, write_of(where, [1, 2, 3], Mark("q", 1, "new")))


def test_a_batch_that_comes_again_with_other_rows_is_refused(where):
    Tables().commit(where, write_of(where, range(5), Mark("q", 0)))
    longer = write_of(where, range(7), Mark("q", 0, "later"))
    with pytest.raises(TableError, match="with 5 rows, but the batch has 7 now"):
        Tables().commit(where, longer)
    assert not Tables().commit(where, replace(longer, check_again=False))
    assert sequences(where) == list(range(5))


def test_columns_are_added_only_when_asked_for(where):
    tables = Tables()
    tables.commit(where, write_of(where, [1]))
    wider = pa.schema([*SCHEMA, ("more", pa.float64())])
    with pytest.raises(
        TableError, match="column more double is not in the table; mergeSchema=true"
    ):
        tables.commit(where, write_of(where, [2], schema=wider))
    assert tables.commit(where, write_of(where, [2], schema=wider, merge_schema=True))
    assert tables.commit(where, write_of(where, [3]))
    assert DeltaTable(where.uri).to_pyarrow_table().sort_by("seq")["more"].to_pylist() == [None] * 3
    assert sequences(where) == [1, 2, 3]


def test_a_time_without_zone_can_be_added_later(where):
    tables = Tables()
    tables.commit(where, write_of(where, [1]))
    wider = pa.schema([*SCHEMA, ("at", pa.timestamp("us"))])
    assert tables.commit(where, write_of(where, [2], schema=wider, merge_schema=True))
    assert sequences(where) == [1, 2]


def test_rows_that_do_not_fit_are_told_in_one_line(where):
    tables = Tables()
    tables.commit(where, write_of(where, [1]))
    wrong = pa.schema([("SEQ", pa.string()), ("word", pa.binary()), ("new", pa.int32())])
    with pytest.raises(TableError) as caught:
        tables.commit(where, Write(schema=wrong, merge_schema=True))
    said = str(caught.value)
    assert "column SEQ is string, in the table bigint" in said
    assert "column word is binary, in the table string" in said
    assert "\n" not in said


def test_rules_of_tables_that_others_made(where, tmp_path):
    strict = pa.schema([pa.field("seq", pa.int64(), nullable=False), ("word", pa.string())])
    DeltaTable.create(where.uri, strict)
    tables = Tables()
    assert tables.commit(where, write_of(where, [1, 2]))
    for seqs, schema in (([None], SCHEMA), (["a"], pa.schema([("word", pa.string())]))):
        rows = pa.RecordBatch.from_pylist([dict.fromkeys(schema.names, v) for v in seqs]).cast(
            schema
        )
        files = write_rows([rows], where, schema, f"n{len(schema)}")
        with pytest.raises(TableError, match=r"column seq of .* must not be null"):
            tables.commit(where, Write(schema=schema, files=files))
    assert sequences(where) == [1, 2]
    assert tables.commit(where, write_of(where, [7], overwrite=True))
    assert sequences(where) == [7]
    assert not DeltaTable(where.uri).schema().fields[0].nullable
    other = place(tmp_path / "checked")
    DeltaTable.create(other.uri, SCHEMA)
    DeltaTable(other.uri).alter.add_constraint({"small": "seq < 5"})
    with pytest.raises(
        TableError, match=r"has delta\.constraints\.small, which is not checked here"
    ):
        tables.commit(other, write_of(other, [9]))
    with pytest.raises(TableError, match="a name once, in any case, but there are a, A"):
        tables.create(place(tmp_path / "twice"), pa.schema([("a", pa.int8()), ("A", pa.int8())]))


def test_partitions_are_those_of_the_table(where):
    tables = Tables()
    tables.commit(where, write_of(where, range(6), partition_by=("word",)))
    with pytest.raises(TableError, match=r"partitionBy is seq, but .* is partitioned by word"):
        tables.commit(where, Write(schema=SCHEMA, partition_by=("seq",)))
    with pytest.raises(TableError, match="names nobody, but the columns are seq, word"):
        tables.create(place(where.folder / "other"), SCHEMA, ["nobody"])
    with pytest.raises(TableError, match="every column"):
        tables.create(place(where.folder / "other"), SCHEMA, ["seq", "word"])
    table = DeltaTable(where.uri)
    assert table.metadata().partition_columns == ["word"]
    assert len(table.file_uris(file_pruning_predicate=[("word", "=", "w1")])) == 1


def test_an_overwrite_takes_the_place_of_all_rows(where):
    tables = Tables()
    tables.commit(where, write_of(where, range(10)))
    tables.commit(where, write_of(where, [77], overwrite=True))
    assert sequences(where) == [77]
    other = pa.schema([("seq", pa.int64())])
    with pytest.raises(TableError):
        tables.commit(where, Write(schema=pa.schema([("x", pa.int8())]), overwrite=True))
    files = files_of(where, [78], other)
    tables.commit(where, Write(schema=other, files=files, overwrite=True, overwrite_schema=True))
    assert sequences(where) == [78]
    assert [field.name for field in DeltaTable(where.uri).schema().fields] == ["seq"]


def test_a_table_made_anew_in_the_same_folder_is_seen(where):
    tables = Tables()
    for number in range(3):
        tables.commit(where, write_of(where, [number], Mark("q", number)))
    shutil.rmtree(where.folder)
    assert tables.opened(where) is None
    for number in range(5):
        Tables().commit(where, write_of(where, [10 + number], Mark("q", number)))
    assert tables.opened(where).version() == 5
    assert tables.commit(where, write_of(where, [20], Mark("q", 5)))
    assert sequences(where) == [10, 11, 12, 13, 14, 20]


def test_files_that_a_vacuum_took_are_not_committed(where):
    write = write_of(where, [1])
    old = [replace(file, written_ms=int(time.time() * 1000) - 3_600_000) for file in write.files]
    (where.folder / old[0].path).unlink()
    with pytest.raises(TableError, match="1 files of this batch were removed"):
        Tables().commit(where, replace(write, files=old))


class DeltaStore:
    def __init__(self, where):
        self.where = where
        self.tables = Tables

    def write_of(self, seqs, mark):
        return write_of(self.where, seqs, mark)

    def add(self, table, write):
        table.commit(write)

    def commit(self, tables, write, change):
        return tables.once(self.where, write, change)

    def maintain(self):
        DeltaTable(self.where.uri).optimize.compact()

    def sequences(self):
        return sequences(self.where)


@settings(max_examples=length(15, 25), deadline=None)
@given(st.lists(STEPS, min_size=15, max_size=40))
def test_exactly_once(tmp_path_factory, steps):
    query = Query(DeltaStore(place(tmp_path_factory.mktemp("once") / "t")))
    for step in steps:
        query.step(*step)
        query.check()


def test_a_table_that_lost_its_newest_commits_is_opened_anew(where):
    """A restore may leave the older files as they are and take only the newer ones away."""
    tables = Tables()
    for batch in range(4):
        assert tables.commit(where, write_of(where, [batch], Mark("q", batch)))
    assert tables.opened(where).version() == 4
    for number in (3, 4):
        (where.folder / "_delta_log" / f"{number:020}.json").unlink()
    assert tables.opened(where).version() == 2
    assert sequences(where) == [0, 1]
