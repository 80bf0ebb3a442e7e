"""Planning of reads: a stream of a table is each file once, wherever batches end and drivers die."""

import json
import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.spark.tables.changes import Changes, Position, tasks
from pelton.spark.tables.commits import Tables
from pelton.spark.tables.places import TableError, place
from pelton.spark.tables.rows import read_files
from pelton.spark.tables.table import Write
from tests.spark.tables_help import SCHEMA, table_at, write_of
from tests.spark.tables_help import files_of as written
from tests.ways import length


def seqs_of(where, files):
    return [row["seq"] for b in read_files(where, files, SCHEMA, 100) for row in b.to_pylist()]


def grow(where, first, files):
    made = [file for n in range(files) for file in written(where, [first + n])]
    Tables().commit(where, Write(schema=SCHEMA, files=made))


@settings(max_examples=length(6, 15), deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 2, 5, "compact"]), min_size=1, max_size=8),
    st.integers(1, 4),
    st.booleans(),
    st.data(),
)
def test_a_stream_is_each_row_once(tmp_path_factory, commits, at_most, from_snapshot, data):
    where = place(tmp_path_factory.mktemp("stream") / "t")
    Tables().create(where, SCHEMA)
    total, seen = 0, []
    position = None
    for step in commits:
        if step == "compact":
            DeltaTable(where.uri).optimize.compact()
        else:
            grow(where, total, step)
            total += step
        if position is None:
            if not data.draw(st.booleans(), label="start"):
                continue
            name, version = Changes(where).latest()
            position = Position(name, version, 0, True) if from_snapshot else Position(name, 0)
        changes = Changes(where)  # a driver that knows nothing but the position
        while data.draw(st.booleans(), label="read"):
            stored = position.to_json()
            end = changes.advance(Position.from_json(stored), changes.latest()[1], at_most)
            seen += seqs_of(where, changes.between(position, end))
            assert list(Changes(where).between(position, end)) == list(
                changes.between(position, end)
            )
            position = end
    if position is not None:
        changes = Changes(where)
        while (end := changes.advance(position, changes.latest()[1], at_most)) != position:
            files = list(changes.between(position, end))
            assert len(files) <= at_most
            seen += seqs_of(where, files)
            position = end
        assert sorted(seen) == list(range(total))


def test_commits_that_change_rows_are_refused_or_passed_over(tmp_path):
    where = place(tmp_path / "t")
    grow(where, 0, 2)
    DeltaTable(where.uri).delete("seq = 0")
    grow(where, 10, 1)
    name, last = Changes(where).latest()
    with pytest.raises(TableError, match=r"version 2 of .* changes or removes rows"):
        Changes(where).advance(Position(name, 0), last, 100)
    passing = Changes(where, skip_changes=True)
    end = passing.advance(Position(name, 0), last, 100)
    assert seqs_of(where, passing.between(Position(name, 0), end)) == [0, 1, 10]


def test_a_log_that_was_cleaned_and_files_that_are_gone(tmp_path):
    where = place(tmp_path / "t")
    grow(where, 0, 1)
    name, last = Changes(where).latest()
    files = list(Changes(where).between(Position(name, 0), Position(name, last + 1)))
    (tmp_path / "t" / files[0].path).unlink()
    with pytest.raises(TableError, match="is missing: a vacuum removed"):
        seqs_of(where, files)
    (tmp_path / "t" / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(TableError, match=r"version 1 of .* is no longer in its log"):
        Changes(where).advance(Position(name, 0), 1, 100)


def test_no_table_and_no_such_version(tmp_path):
    where = place(tmp_path / "t")
    with pytest.raises(TableError, match="there is no table at"):
        table_at(where)
    with pytest.raises(TableError, match="there is no table at"):
        table_at(where, 3)
    grow(where, 0, 1)
    with pytest.raises(TableError, match="cannot be read at version 3"):
        table_at(where, 3)
    assert table_at(where, 0).version() == 0


def test_the_table_at_a_time(tmp_path):
    where = place(tmp_path / "t")
    grow(where, 0, 1)
    between = datetime.now(UTC)
    time.sleep(0.01)
    grow(where, 1, 1)
    assert table_at(where, None, between).version() == 1
    assert table_at(where, None, datetime.now(UTC)).version() == 2


def test_tables_that_would_be_read_wrong_are_refused(tmp_path):
    where = place(tmp_path / "mapped")
    DeltaTable.create(where.uri, SCHEMA, configuration={"delta.columnMapping.mode": "name"})
    with pytest.raises(TableError, match="uses columnMapping, which is not supported"):
        table_at(where)
    with pytest.raises(TableError, match="maps its columns"):
        Tables().commit(where, Write(schema=SCHEMA))
    other = place(tmp_path / "wider")
    grow(other, 0, 1)
    log = tmp_path / "wider" / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["typeWidening"],
                "writerFeatures": ["typeWidening"],
            }
    log.write_text("\n".join(json.dumps(line) for line in lines))
    with pytest.raises(TableError, match="typeWidening"):
        table_at(other)


def test_files_in_groups_and_parts(tmp_path):
    where = place(tmp_path / "t")
    grow(where, 0, 10)
    files = table_at(where).files()
    one = files[0].size
    assert [len(group) for group in tasks(files, one * 3)] == [3, 3, 3, 1]
    assert [len(group) for group in tasks(files, 2**30)] == [10]
    assert tasks([], 10) == []
    parts = tasks(files[:1], max(1, one // 4))
    assert len(parts) == 4
    assert sorted(seqs_of(where, [part for (part,) in parts])) == [0]


def test_parts_of_a_file_are_all_of_it_once(tmp_path):
    where = place(tmp_path / "t")
    import pyarrow.parquet as pq

    [file] = written(where, range(1000))
    table = pq.read_table(tmp_path / "t" / file.path)
    pq.write_table(table, tmp_path / "t" / file.path, row_group_size=70)
    Tables().commit(where, Write(schema=SCHEMA, files=[file]))
    files = table_at(where).files()
    groups = tasks(files, files[0].size // 7)
    found = [seqs_of(where, group) for group in groups]
    assert max(len(part) for part in found) < 300
    assert sorted(seq for part in found for seq in part) == list(range(1000))


def test_columns_of_the_partition_alone(tmp_path):
    where = place(tmp_path / "t")
    Tables().commit(where, write_of(where, range(9), partition_by=("word",)))
    only = pa.schema([("word", pa.string())])
    files = table_at(where).files()
    words = [row["word"] for b in read_files(where, files, only, 2) for row in b.to_pylist()]
    assert sorted(words) == ["w0"] * 3 + ["w1"] * 3 + ["w2"] * 3
