"""Compaction of Iceberg tables: the same rows in fewer files, whoever else writes the table."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pelton[iceberg]")
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import EqualTo
from pyiceberg.types import LongType

from pelton.spark.iceberg.table import IcebergRows
from pelton.spark.tables import compaction
from pelton.spark.tables.commits import Tables
from pelton.spark.tables.compaction import compact, plan, rewrite
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import TableError
from pelton.spark.tables.table import Active, FilesGoneError, Snapshot, StoredFile
from tests.spark.iceberg_help import address_of, maintain, rows_of, sequences, table_of, write_of
from tests.spark.rest_catalog import RestCatalog
from tests.spark.tables_help import SCHEMA
from tests.spark.test_iceberg_rest import address_in

WHOLE = 2**20


@pytest.fixture
def where(tmp_path):
    """Ten commits of one query, of six rows each."""
    made = address_of(tmp_path)
    for number in range(10):
        Tables().commit(made, write_of(made, range(number * 6, number * 6 + 6), Mark("q", number)))
    return made


def rows(where):
    """All rows, as another reader finds them."""
    return table_of(where).scan().to_arrow().sort_by("seq").to_pylist()


def files(where):
    return [task.file for task in table_of(where).scan().plan_files()]


def operations(where):
    return [str(each.summary.operation.value) for each in table_of(where).metadata.snapshots]


def test_few_files_have_the_same_rows(where):
    before = rows(where)
    assert compact(where, WHOLE) == (10, 1)
    assert rows(where) == before
    assert len(files(where)) == 1
    assert operations(where)[-1] == "replace"
    summary = table_of(where).current_snapshot().summary
    assert (summary["total-records"], summary["total-data-files"]) == ("60", "1")
    assert compact(where, WHOLE) == (0, 0)
    # What a batch left as its mark stays: it is not taken again.
    assert not Tables().commit(where, write_of(where, range(54, 60), Mark("q", 9)))
    assert Tables().commit(where, write_of(where, [60], Mark("q", 10)))
    assert sequences(where) == list(range(61))


def test_bounds_of_the_new_file_let_a_filter_find_its_rows(where):
    compact(where, WHOLE)
    found = table_of(where).scan(row_filter=EqualTo("seq", 33)).to_arrow()
    assert found["seq"].to_pylist() == [33]
    assert list(table_of(where).scan(row_filter=EqualTo("seq", 1000)).plan_files()) == []


def test_each_partition_and_old_columns(tmp_path):
    where = address_of(tmp_path)
    for begin in range(0, 18, 6):
        Tables().commit(where, write_of(where, range(begin, begin + 6), partition_by=("word",)))
    wider = pa.schema([*SCHEMA, ("more", pa.float64())])
    Tables().commit(where, write_of(where, range(18, 24), schema=wider, merge=True))
    before = rows(where)
    words = {row["word"] for row in before}
    assert len(files(where)) > len(words) > 1
    compact(where, WHOLE)
    assert rows(where) == before
    assert sorted(file.partition[0] for file in files(where)) == sorted(words)


def test_columns_that_were_renamed_and_dropped(where):
    wider = pa.schema([*SCHEMA, ("more", pa.float64())])
    Tables().commit(where, write_of(where, range(60, 66), schema=wider, merge=True))
    with table_of(where).update_schema() as update:
        update.rename_column("word", "term")
        update.delete_column("more")
        update.add_column("more", LongType())  # another column, so without the old one's values
    before = rows(where)
    assert compact(where, WHOLE) == (11, 1)
    assert rows(where) == before
    assert before[0] == {"seq": 0, "term": "w0", "more": None}


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 300), st.sampled_from("ab")), max_size=30),
    target=st.integers(1, 400),
)
def test_the_plan(sizes, target):
    class Planned:
        def snapshot(self):
            return Snapshot({file.logged: file for file in made}, frozenset(), ())

        def can_replace(self, file):
            return True

    made = [
        Active(f"f{number:03}", StoredFile(f"f{number:03}", size, (("part", part),)), number)
        for number, (size, part) in enumerate(sizes)
    ]
    groups = plan(Planned(), target)
    seen = [file.logged for group in groups for file in group]
    assert len(seen) == len(set(seen))
    for group in groups:
        assert len(group) > 1
        assert len({file.stored.partition for file in group}) == 1
        assert sum(file.stored.size for file in group[:-1]) <= target
        assert all(file.stored.size < target for file in group)
        assert [file.logged for file in group] == sorted(file.logged for file in group)


def test_a_writer_that_appends_goes_on(where, monkeypatch):
    read = IcebergRows.read

    def beside(*args):
        number = table_of(where).metadata.last_sequence_number
        Tables().commit(where, write_of(where, [100 + number]))
        yield from read(*args)

    monkeypatch.setattr(IcebergRows, "read", beside)
    assert compact(where, WHOLE) == (10, 1)
    assert sequences(where) == [*range(60), 110]


def test_files_that_another_writer_removes_are_not_brought_back(where, monkeypatch):
    once, begun = Tables.once, []

    def late(tables, address, write, change):
        if not begun:
            begun.append(1)
            table_of(where).delete(EqualTo("seq", 7))  # writes one of the files anew
        return once(tables, address, write, change)

    monkeypatch.setattr(Tables, "once", late)
    assert compact(where, WHOLE) == (10, 1)
    assert sequences(where) == [seq for seq in range(60) if seq != 7]


def test_a_writer_that_changes_all_each_time_is_told(where, monkeypatch):
    written = compaction.rewrite

    def always(table, address, groups):
        Tables().commit(where, write_of(where, range(6), overwrite=True))
        Tables().commit(where, write_of(where, range(6, 9)))
        return written(table, address, groups)

    monkeypatch.setattr(compaction, "rewrite", always)
    with pytest.raises(TableError, match=r"other writers change test\.lake\.t each time"):
        compact(where, WHOLE)
    assert sequences(where) == list(range(9))


def test_a_commit_whose_files_are_gone_is_not_made(where):
    there = list(Tables().there(where).snapshot().files.values())
    compact(where, WHOLE)
    write = write_of(where, [1000], removed=there[:1], replaces=True)
    with pytest.raises(FilesGoneError, match=r"another writer has changed test\.lake\.t: 1 files"):
        Tables().commit(where, write)
    assert sequences(where) == list(range(60))


def test_an_answer_that_gets_lost_in_a_rest_catalog(tmp_path):
    rest = RestCatalog(tmp_path)
    try:
        where = address_in(rest)
        for number in range(4):
            Tables().commit(where, write_of(where, [number], Mark("q", number)))
        rest.lose_answers = 1
        assert compact(where, WHOLE) == (4, 1)
        assert rest.commits[-1] == 500
        assert sequences(where) == list(range(4))
        assert maintain(where, target_bytes=WHOLE).files == 1
    finally:
        rest.close()


def test_the_target_size_and_a_dry_run(where):
    size = max(file.file_size_in_bytes for file in files(where))
    told = maintain(where, target_bytes=3 * size + 1, dry_run=True)
    assert (told.files_before, told.files) == (10, 10)
    assert (told.compacted, told.into) == (9, 3)
    without = {file.file_path for file in files(where)[:8]}
    told = maintain(where, target_bytes=3 * size + 1, without=without, dry_run=True)
    assert (told.compacted, told.into) == (2, 1)
    assert len(files(where)) == 10
    report = maintain(where, target_bytes=size)
    assert (report.compacted, report.files) == (0, 10)
    assert maintain(where).compacted == 0


def test_values_of_every_kind_stay(tmp_path):
    where = address_of(tmp_path)
    kinds = {
        "flag": (pa.bool_(), True),
        "small": (pa.int32(), -(2**31)),
        "number": (pa.float64(), float("nan")),
        "single": (pa.float32(), -0.0),
        "exact": (pa.decimal128(20, 4), Decimal("-1.0001")),
        "day": (pa.date32(), date(1969, 12, 31)),
        "at": (pa.timestamp("us", "UTC"), datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
        "local": (pa.timestamp("us"), datetime(1900, 1, 2)),
        "data": (pa.binary(), b"\x00\xff"),
        "many": (pa.list_(pa.string()), ["a", None, ""]),
        "named": (pa.map_(pa.string(), pa.int64()), [("k", 1)]),
        "parts": (pa.struct([("x", pa.int64()), ("y", pa.list_(pa.float64()))]), {"x": 1, "y": []}),
    }
    schema = pa.schema([("seq", pa.int64()), *((name, kind) for name, (kind, _) in kinds.items())])
    full = {name: value for name, (_, value) in kinds.items()}
    wanted = [{"seq": 0} | full, {"seq": 1} | dict.fromkeys(kinds), {"seq": 2} | full]
    for row in wanted:
        Tables().commit(where, rows_of(where, pa.RecordBatch.from_pylist([row], schema)))
    assert compact(where, WHOLE) == (3, 1)
    found = table_of(where).scan().to_arrow().cast(schema).sort_by("seq").to_pylist()
    assert repr(found) == repr(pa.Table.from_pylist(wanted, schema).to_pylist())


def test_rewrite_commits_nothing_of_rows_that_were_replaced(where):
    groups = plan(Tables().there(where), WHOLE)
    Tables().commit(where, write_of(where, [5], overwrite=True))
    assert rewrite(Tables(), where, groups) == []
    assert sequences(where) == [5]
