"""Tables: each batch once, whatever is repeated, lost or raced; and readable by others."""

import itertools

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.spark.tables.data_files import write_rows
from pelton.spark.tables.places import place
from pelton.spark.tables.stream_tables import Batch, Table
from tests.ways import length

SCHEMA = pa.schema([("seq", pa.int64()), ("word", pa.string())])
SUMS = pa.schema([("word", pa.string()), ("lines", pa.int64())])
SOURCE = "S@2026"
NUMBERS = itertools.count()


def written(table, first, last):
    rows = [{"seq": seq, "word": f"w{seq % 3}"} for seq in range(first, last + 1)]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    [file] = write_rows([batch], place(table.path), SCHEMA, f"q-{next(NUMBERS)}")
    return file


def sequences(table):
    return sorted(table.delta.to_pyarrow_table()["seq"].to_pylist())


def test_a_batch_is_taken_once_however_often_it_comes(tmp_path):
    table = Table(tmp_path / "t", SCHEMA)
    batch = Batch("q", 0, SOURCE, 10)
    assert table.append([written(table, 1, 10)], batch)
    assert not table.append([written(table, 1, 10)], batch)
    again = Table(tmp_path / "t", SCHEMA)
    assert not again.append([written(table, 1, 10)], batch)
    assert not again.append([written(table, 1, 10)], Batch("another query", 0, SOURCE, 10))
    assert sequences(again) == list(range(1, 11))
    assert again.mark(SOURCE) == 10
    assert again.mark("another stream") == 0
    assert again.has("q", 0)
    assert not again.has("q", 1)
    assert again.rows() == 10


def test_files_that_were_not_committed_are_not_there(tmp_path):
    table = Table(tmp_path / "t", SCHEMA)
    written(table, 1, 10)
    assert table.rows() == 0
    assert sequences(table) == []


def test_the_second_of_two_drivers_is_refused(tmp_path):
    one, other = Table(tmp_path / "t", SCHEMA), Table(tmp_path / "t", SCHEMA)
    one.append([written(one, 1, 5)], Batch("q", 0, SOURCE, 5))
    with pytest.raises(CommitFailedError):
        other.append([written(other, 1, 5)], Batch("q", 0, SOURCE, 5))
    assert sequences(Table(tmp_path / "t", SCHEMA)) == [1, 2, 3, 4, 5]


def test_an_empty_write_makes_no_file(tmp_path):
    table = Table(tmp_path / "t", SCHEMA)
    empty = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    assert write_rows([empty], place(table.path), SCHEMA, "q") == []
    assert not list(table.path.glob("*.parquet"))


@settings(max_examples=length(6, 15), deadline=None)
@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=20), min_size=1, max_size=6))
def test_sums_are_those_of_a_dictionary(tmp_path_factory, batches):
    table = Table(tmp_path_factory.mktemp("sums") / "t", SUMS, maintain_every=3)
    model: dict[str, int] = {}
    for number, words in enumerate(batches):
        counted = {word: words.count(word) for word in set(words)}
        changes = pa.Table.from_pylist(
            [{"word": word, "lines": lines} for word, lines in counted.items()], schema=SUMS
        )
        for _ in range(2):
            table.add_up(changes, ["word"], ["lines"], Batch("q", number, SOURCE, number + 1))
        table.maintain()
        for word, lines in counted.items():
            model[word] = model.get(word, 0) + lines
    rows = table.delta.to_pyarrow_table().to_pylist()
    assert {row["word"]: row["lines"] for row in rows} == model
    assert len(rows) == len(model)


def test_scan_reads_only_files_of_the_range(tmp_path):
    table = Table(tmp_path / "t", SCHEMA)
    files = [written(table, first, first + 9) for first in (1, 11, 21)]
    for number, file in enumerate(files):
        table.append([file], Batch("q", number, SOURCE, file.maximum("seq")))
    (table.path / files[0].path).unlink()
    rows = table.scan(["seq"], 12, 25)
    assert sorted(rows["seq"].to_pylist()) == list(range(13, 26))


def test_maintenance_keeps_rows_marks_and_makes_fewer_files(tmp_path):
    table = Table(tmp_path / "t", SCHEMA, maintain_every=10)
    done = []
    for number in range(10):
        file = written(table, number * 5 + 1, number * 5 + 5)
        table.append([file], Batch("q", number, SOURCE, file.maximum("seq")))
        done.append(table.maintain())
    assert done == [False] * 9 + [True]
    assert len(table.delta.file_uris()) == 1
    assert sequences(table) == list(range(1, 51))
    again = Table(tmp_path / "t", SCHEMA)
    assert again.mark(SOURCE) == 50
    assert again.has("q", 9)


def test_duckdb_and_polars_read_it(tmp_path):
    table = Table(tmp_path / "t", SCHEMA)
    table.append([written(table, 1, 30)], Batch("q", 0, SOURCE, 30))
    rows = table.delta.to_pyarrow_dataset()
    query = "select word, count(*) from rows group by word order by word"
    assert duckdb.sql(query).fetchall() == [("w0", 10), ("w1", 10), ("w2", 10)]
    frame = polars.scan_delta(str(table.path)).group_by("word").len().sort("word").collect()
    assert frame.rows() == [("w0", 10), ("w1", 10), ("w2", 10)]
    assert rows is not None
