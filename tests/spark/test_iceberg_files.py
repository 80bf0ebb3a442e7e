"""Files of Iceberg tables: every row comes back to other readers, and no bound hides one."""

import math
from pathlib import Path

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pelton[iceberg]")
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThanOrEqual

from pelton.spark.tables import parquet
from pelton.spark.tables.commits import Tables
from pelton.spark.tables.parquet import write_rows
from pelton.spark.tables.places import TableError
from pelton.spark.tables.table import Write
from tests.spark.iceberg_help import address_of, prepare, rows_of, table_of
from tests.spark.tables_help import SCHEMA, batch_of
from tests.spark.test_data_files import ALL, ROWS, comparable
from tests.ways import length

# As a table holds it: no type is smaller than 32 bits.
HELD = pa.schema([(f.name, pa.int32() if f.name == "byte" else f.type) for f in ALL])
PARTITIONS = st.sampled_from([(), ("text",), ("day",), ("at",), ("flag", "byte"), ("money",)])


def file_of(path):
    return Path(path.removeprefix("file://"))


@settings(max_examples=length(8, 15), deadline=None)
@given(st.lists(st.lists(ROWS, max_size=6), min_size=1, max_size=3), PARTITIONS)
def test_rows_come_back(tmp_path_factory, batches, by):
    where = address_of(tmp_path_factory.mktemp("rows"))
    written = [pa.RecordBatch.from_pylist(rows, schema=HELD) for rows in batches]
    target = prepare(where, HELD, partition_by=by)
    files = write_rows(written, target, "w", rows_per_file=4)
    Tables().commit(where, Write(HELD, files, target=target))
    rows = sorted(comparable(row) for batch in written for row in batch.to_pylist())
    found = table_of(where).scan().to_arrow()
    assert sorted(comparable(row) for row in found.to_pylist()) == rows
    entries = [task.file for task in table_of(where).scan().plan_files()]
    assert sum(entry.record_count for entry in entries) == len(rows)
    for entry in entries:
        assert entry.file_size_in_bytes == file_of(entry.file_path).stat().st_size


SIMPLE = ("seq", "byte", "text", "day", "number", "data", "flag")


@settings(max_examples=length(8, 15), deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=8))
def test_no_bound_hides_a_row(tmp_path_factory, rows):
    where = address_of(tmp_path_factory.mktemp("bounds"))
    batch = pa.RecordBatch.from_pylist(rows, schema=HELD)
    Tables().commit(where, rows_of(where, batch, rows_per_file=1))
    table = table_of(where)
    for name in SIMPLE:
        for value in batch.column(name).to_pylist():
            if value is None or (isinstance(value, float) and math.isnan(value)):
                continue
            around = And(GreaterThanOrEqual(name, value), LessThanOrEqual(name, value))
            for condition in (EqualTo(name, value), around):
                paths = [task.file.file_path for task in table.scan(condition).plan_files()]
                read = [pq.read_table(file_of(path))[name].to_pylist() for path in paths]
                assert any(value in column for column in read), (name, value)


def test_bounds_leave_files_out(tmp_path):
    where = address_of(tmp_path)
    Tables().commit(where, rows_of(where, batch_of(range(100)), rows_per_file=50))
    Tables().commit(where, rows_of(where, batch_of(range(100, 150))))
    table = table_of(where)
    assert len(list(table.scan("seq >= 100").plan_files())) == 1
    assert len(list(table.scan("seq = 7").plan_files())) == 1
    assert list(table.scan("word = 'zzz'").plan_files()) == []


def test_a_value_too_long_for_parquets_statistics_is_found(tmp_path, monkeypatch):
    """The first rows of the file have bounds, the second ones have none: so the file has none."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 2)
    where = address_of(tmp_path)
    target = prepare(where, SCHEMA)
    words = ["a", "b", "y" * 5000, "c"]
    batches = [
        pa.RecordBatch.from_pydict({"seq": [n, n + 1], "word": words[n : n + 2]}, SCHEMA)
        for n in (0, 2)
    ]
    files = write_rows(batches, target, "w")
    assert files[0].footer.num_row_groups == 2
    Tables().commit(where, Write(HELD, files, target=target))
    found = table_of(where).scan(EqualTo("word", "y" * 5000)).to_arrow()
    assert found["seq"].to_pylist() == [2]
    assert len(list(table_of(where).scan("seq > 3").plan_files())) == 0


def test_a_nan_takes_the_bounds_of_its_column(tmp_path):
    where = address_of(tmp_path)
    schema = pa.schema(
        [("a", pa.float64()), ("b", pa.float64()), ("s", pa.struct([("x", pa.float32())]))]
    )
    rows = [{"a": math.nan, "b": 1.0, "s": {"x": math.nan}}, {"a": 1.0, "b": 2.0, "s": {"x": 1.0}}]
    Tables().commit(where, rows_of(where, pa.RecordBatch.from_pylist(rows, schema=schema)))
    table = table_of(where)
    bounded = table.inspect.files()["upper_bounds"].to_pylist()[0]
    assert [number for number, _ in bounded] == [table.schema().find_field("b").field_id]


def test_files_have_the_numbers_of_columns(tmp_path):
    where = address_of(tmp_path)
    write = rows_of(where, batch_of(range(3)))
    Tables().commit(where, write)
    path = table_of(where).inspect.files()["file_path"].to_pylist()[0]
    fields = pq.read_schema(file_of(path))
    numbers = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in fields}
    assert numbers == {field.name: field.field_id for field in table_of(where).schema().fields}


def test_another_reader_finds_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # or it warns of a faster one
    where = address_of(tmp_path)
    for first in (0, 10):
        Tables().commit(where, rows_of(where, batch_of(range(first, first + 10))))
    found = polars.scan_iceberg(table_of(where)).filter(polars.col("seq") >= 5).collect()
    assert sorted(found["seq"].to_list()) == list(range(5, 20))
    assert set(found["word"].to_list()) == {"w0", "w1", "w2"}


def test_columns_that_must_not_be_null(tmp_path):
    """Tables of others: ours hold nulls in any column."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.schema import Schema
    from pyiceberg.types import ListType, LongType, NestedField, StringType

    where = address_of(tmp_path)
    catalog = load_catalog(where.catalog, **dict(where.properties))
    catalog.create_namespace("lake")
    catalog.create_table(
        where.table,
        Schema(
            NestedField(1, "seq", LongType(), required=True),
            NestedField(2, "word", StringType(), required=False),
        ),
    )
    Tables().commit(where, rows_of(where, batch_of(range(3))))
    with pytest.raises(TableError, match="column seq must not be null, but rows are"):
        rows_of(where, pa.RecordBatch.from_pylist([{"word": "w"}], schema=SCHEMA))
    with pytest.raises(TableError, match="column seq must not be null, but is not in the rows"):
        prepare(where, pa.schema([("word", pa.string())]))
    strict = Schema(
        NestedField(1, "seq", LongType(), required=False),
        NestedField(2, "tags", ListType(3, StringType(), element_required=True), required=False),
    )
    other = address_of(tmp_path, "lake.strict")
    catalog.create_table(other.table, strict)
    prepare(other, pa.schema([("seq", pa.int64())]))
    with pytest.raises(TableError, match="column tags has parts that must not be null"):
        prepare(other, pa.schema([("tags", pa.list_(pa.string()))]))
