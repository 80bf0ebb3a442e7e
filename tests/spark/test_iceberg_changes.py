"""Streams of Iceberg tables: each added row once, wherever batches end, and what cannot be passed on is told."""

import pytest

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pelton[iceberg]")
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import EqualTo

from pelton.spark.iceberg.catalogs import catalog_of
from pelton.spark.tables.changes import Changes, Position
from pelton.spark.tables.commits import Tables
from pelton.spark.tables.compaction import compact
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import TableError
from tests.spark.iceberg_help import address_of, prepare, rows_of, table_of, write_of
from tests.spark.tables_help import SCHEMA, batch_of
from tests.ways import length


def seqs_of(where, files):
    rows = Tables().there(where).rows(SCHEMA)
    return [seq for batch in rows.read(files, 100) for seq in batch["seq"].to_pylist()]


def grow(where, first, files):
    batch = batch_of(range(first, first + files))
    Tables().commit(where, rows_of(where, batch, rows_per_file=1))


def expire(where, keep):
    """Expire all snapshots but the newest ones, as another program does."""
    table = table_of(where)
    old = [each.snapshot_id for each in table.metadata.snapshots][: -keep or None]
    if old:
        table.maintenance.expire_snapshots().by_ids(old).commit()


def begin(where, *, from_snapshot=False, version=1):
    name, newest = Changes(where).latest()
    return Position(name, newest, 0, True) if from_snapshot else Position(name, version)


def read(where, position, **given):
    """All rows behind a position."""
    changes = Changes(where, **given)
    end = changes.advance(position, changes.latest()[1], 1000)
    return seqs_of(where, changes.between(position, end)), end


@settings(max_examples=length(6, 20), deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 5, "compact", "mark", "branch"]), min_size=1, max_size=8),
    st.integers(1, 4),
    st.booleans(),
    st.data(),
)
def test_a_stream_is_each_row_once(tmp_path_factory, commits, at_most, from_snapshot, data):
    where = address_of(tmp_path_factory.mktemp("stream"))
    prepare(where, SCHEMA)
    total, seen, position = 0, [], None
    for number, step in enumerate(commits):
        if step == "compact":
            compact(where, 2**20)
        elif step == "mark":
            Tables().commit(where, write_of(where, [], Mark("q", number), each=True))
        elif step == "branch":  # a commit with a number, but not to the main branch
            table = table_of(where)
            if table.current_snapshot() is not None:
                name = f"b{number}"
                head = table.current_snapshot().snapshot_id
                table.manage_snapshots().create_branch(head, name).commit()
                table_of(where).append(pa.Table.from_batches([batch_of([-1])]), branch=name)
        else:
            grow(where, total, step)
            total += step
        if position is None:
            if not data.draw(st.booleans(), label="start"):
                continue
            position = begin(where, from_snapshot=from_snapshot)
        changes = Changes(where)  # a driver that knows nothing but the position
        while data.draw(st.booleans(), label="read"):
            end = changes.advance(
                Position.from_json(position.to_json()), changes.latest()[1], at_most
            )
            found = list(changes.between(position, end))
            assert list(Changes(where).between(position, end)) == found
            seen += seqs_of(where, found)
            position = end
    if position is not None:
        found, _ = read(where, position)
        assert sorted(seen + found) == list(range(total))


def test_commits_that_change_rows_are_refused_or_passed_over(tmp_path):
    where = address_of(tmp_path)
    grow(where, 0, 2)
    table_of(where).delete(EqualTo("seq", 0))
    changed = table_of(where).current_snapshot().snapshot_id
    grow(where, 10, 1)
    with pytest.raises(TableError, match=rf"snapshot {changed} of .* changes or removes rows"):
        read(where, begin(where))
    # The file of the two rows is there no longer as it was; a stream passes on what commits added.
    assert sorted(read(where, begin(where), skip_changes=True)[0]) == [0, 1, 10]
    assert sorted(read(where, begin(where, from_snapshot=True))[0]) == [1, 10]


def test_a_snapshot_that_has_expired_is_told(tmp_path):
    where = address_of(tmp_path)
    for number in range(4):
        grow(where, number, 1)
    position = begin(where)
    seen, end = read(where, position)
    assert seen == [0, 1, 2, 3]
    expire(where, 2)
    with pytest.raises(TableError, match=r"commit 1 of .* its snapshot has expired; begin with"):
        read(where, position)
    with pytest.raises(TableError, match="has expired"):
        read(where, Position(position.table, 2, 0, True))
    grow(where, 4, 1)
    assert read(where, end)[0] == [4]  # a stream that kept up goes on
    assert sorted(read(where, begin(where, from_snapshot=True))[0]) == [0, 1, 2, 3, 4]


def test_where_a_stream_begins(tmp_path):
    where = address_of(tmp_path)
    for number in range(3):
        grow(where, number, 1)
    second = table_of(where).metadata.snapshots[1].snapshot_id
    changes = Changes(where)
    assert read(where, begin(where, version=changes.first(second)))[0] == [1, 2]
    with pytest.raises(
        TableError, match=r"startingVersion is 77, but the table .* no such snapshot"
    ):
        changes.first(77)


def test_a_table_whose_commits_have_no_numbers(tmp_path):
    where = address_of(tmp_path)
    catalog = catalog_of(where)
    catalog.create_namespace(where.namespace)
    catalog.create_table(where.table, SCHEMA, properties={"format-version": "1"})
    grow(where, 0, 1)
    with pytest.raises(TableError, match="format 1, whose commits have no numbers"):
        read(where, begin(where))
    assert seqs_of(where, Tables().there(where).files()) == [0]
