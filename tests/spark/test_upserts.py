"""Upserts: the table is a dictionary of the newest rows, whatever comes twice, late or at once."""

import contextlib
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.spark.delta.table import Delta
from pelton.spark.tables import upserts
from pelton.spark.tables.commits import Tables
from pelton.spark.tables.compaction import compact
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import TableError, place
from pelton.spark.tables.upserts import Upserted, merge
from tests.ways import length

SCHEMA = pa.schema([("Device id", pa.string()), ("seq", pa.int64()), ('od"d', pa.int64())])
KEYS = ["Device id"]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Each test is a process of its own."""
    monkeypatch.setattr(upserts, "HERE", Tables())


def rows_of(newest, deletes=()):
    rows = [{"Device id": key, "seq": seq, 'od"d': seq * 10} for key, seq in newest.items()]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    marks = [key in deletes for key in newest]
    return table.append_column("pelton delete", pa.array(marks, pa.bool_())) if deletes else table


def put(where, newest, batch, run="", deletes=()):
    mark = Mark("q", batch, run)
    return merge(rows_of(newest, deletes), where, keys=KEYS, sequence="seq", mark=mark)


def held(where):
    rows = DeltaTable(where.uri).to_pyarrow_table().to_pylist()
    assert all(row['od"d'] == row["seq"] * 10 for row in rows)
    assert len({row["Device id"] for row in rows}) == len(rows)
    return {row["Device id"]: row["seq"] for row in rows}


BATCHES = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 50), min_size=1, max_size=5),
    min_size=1,
    max_size=6,
)


@settings(max_examples=length(8, 20), deadline=None)
@given(BATCHES, st.lists(st.booleans(), min_size=6, max_size=6))
def test_the_newest_row_of_each_key(tmp_path_factory, batches, again):
    where = place(tmp_path_factory.mktemp("upsert") / "t")
    model: dict[str, int] = {}
    for number, newest in enumerate(batches):
        put(where, newest, number)
        for key, seq in newest.items():
            model[key] = max(model.get(key, 0), seq)
        if again[number]:
            upserts.HERE = Tables()  # the process died before Spark noted the batch
            assert put(where, newest, number, "next run") == Upserted()
        assert held(where) == model
    # and without the marks: a checkpoint that was lost, everything from the first message on
    for number, newest in enumerate(batches):
        mark = Mark("another query", number)
        merge(rows_of(newest), where, keys=KEYS, sequence="seq", mark=mark)
    assert held(where) == model


SUMMED = pa.schema(
    [("k", pa.string()), ("seq", pa.int64()), ("n", pa.int64()), ("x", pa.float64())]
)
ADDED = st.dictionaries(
    st.sampled_from("abcd"),
    st.tuples(st.integers(1, 50), st.integers(-5, 5) | st.none()),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("rules", [False, True])
@settings(max_examples=length(6, 15), deadline=None)
@given(st.lists(ADDED, min_size=1, max_size=5), st.lists(st.booleans(), min_size=5, max_size=5))
def test_sums_are_those_of_all_rows_of_a_key(tmp_path_factory, rules, batches, again):
    where = place(tmp_path_factory.mktemp("sums") / "t")
    model: dict[str, tuple[int, int | None]] = {}
    if rules:
        Tables().create(where, SUMMED)
        DeltaTable(where.uri).alter.add_constraint({"known": "seq > 0"})
    for number, batch in enumerate(batches):
        rows = [{"k": key, "seq": seq, "n": n, "x": float(seq)} for key, (seq, n) in batch.items()]
        for _ in range(1 + again[number]):
            upserts.HERE = Tables()
            table = pa.Table.from_pylist(rows, schema=SUMMED)
            mark = Mark("q", number)
            merge(table, where, keys=["k"], sequence="seq", sums=["n"], mark=mark)
        for key, (seq, n) in batch.items():
            newest, total = model.get(key, (0, None))
            both = [each for each in (n, total) if each is not None]
            model[key] = max(seq, newest), sum(both) if both else None
    held = DeltaTable(where.uri).to_pyarrow_table().to_pylist()
    assert {row["k"]: (row["seq"], row["n"]) for row in held} == model
    assert all(row["x"] == row["seq"] for row in held)
    assert len(held) == len(model)


def test_a_sum_that_is_too_large(tmp_path):
    for number, error in ((0, False), (1, True)):
        rows = pa.Table.from_pylist([{"k": "a", "seq": 1, "n": 2**63 - 1}], schema=SUMMED)
        mark = Mark("q", number)
        with pytest.raises(TableError, match="sum of n") if error else contextlib.nullcontext():
            merge(rows, place(tmp_path / "t"), keys=["k"], sequence="seq", sums=["n"], mark=mark)


def test_what_it_says_it_did(tmp_path):
    where = place(tmp_path / "t")
    assert put(where, {"a": 1, "b": 2}, 0) == Upserted(inserted=2)
    assert put(where, {"a": 5, "b": 1, "c": 1}, 1) == Upserted(inserted=1, updated=1)
    assert held(where) == {"a": 5, "b": 2, "c": 1}


def test_rows_that_delete(tmp_path):
    where = place(tmp_path / "t")
    put(where, {"a": 1, "b": 5, "c": 3}, 0)
    done = put(where, {"a": 2, "b": 4, "c": 9, "d": 1}, 1, deletes={"a", "b", "d"})
    assert done == Upserted(updated=1, deleted=1)
    assert held(where) == {"b": 5, "c": 9}


def test_nulls_are_refused(tmp_path):
    where = place(tmp_path / "t")
    for bad in ({"Device id": None, "seq": 1}, {"Device id": "a", "seq": None}):
        rows = pa.Table.from_pylist([bad], schema=SCHEMA)
        with pytest.raises(TableError, match="must not be null"):
            merge(rows, where, keys=KEYS, sequence="seq", mark=Mark("q", 0))


def test_columns_that_come_later(tmp_path):
    where = place(tmp_path / "t")
    put(where, {"a": 1, "b": 1}, 0)
    wider = rows_of({"a": 2, "c": 1}).append_column("more", pa.array([1.5, 2.5]))
    with pytest.raises(TableError, match="column more double is not in the table"):
        merge(wider, where, keys=KEYS, sequence="seq", mark=Mark("q", 1))
    merge(wider, where, keys=KEYS, sequence="seq", mark=Mark("q", 1), merge_schema=True)
    rows = DeltaTable(where.uri).to_pyarrow_table().sort_by("Device id").to_pylist()
    assert [row["more"] for row in rows] == [1.5, None, 2.5]
    put(where, {"a": 3}, 2)
    rows = DeltaTable(where.uri).to_pyarrow_table().sort_by("Device id").to_pylist()
    assert [row["more"] for row in rows] == [1.5, None, 2.5]


def test_a_batch_that_changes_nothing_is_held_all_the_same(tmp_path):
    where = place(tmp_path / "t")
    put(where, {"a": 5, "b": 5}, 0)
    assert put(where, {"a": 1}, 1) == Upserted()
    assert DeltaTable(where.uri).transaction_version("q") == 1
    assert held(where) == {"a": 5, "b": 5}


def rivals(monkeypatch, *ways):
    """Each of the ``ways`` is gone as a merge is about to commit."""
    left = list(ways)
    commit = Delta.commit

    def late(table, write):
        if left:
            way = left.pop(0)
            mine, upserts.HERE = upserts.HERE, Tables()
            way()
            upserts.HERE = mine
        commit(table, write)

    monkeypatch.setattr(Delta, "commit", late)


def tries(where):
    """How many times upserts have written files that the table does not have."""
    have = {Path(uri).name for uri in DeltaTable(where.uri).file_uris()}
    return len({path.name[:19] for path in where.folder.glob("upsert-*") if path.name not in have})


RIVAL_ROWS = st.dictionaries(st.sampled_from("abcdx"), st.integers(1, 9), min_size=1, max_size=3)


@settings(max_examples=length(6, 15), deadline=None)
@given(st.lists(st.tuples(RIVAL_ROWS, st.booleans()), min_size=1, max_size=3))
def test_a_merge_that_other_writers_came_before(tmp_path_factory, theirs):
    where = place(tmp_path_factory.mktemp("race") / "t")
    model = {"a": 1, "b": 1, "c": 1}
    for number, key in enumerate(model):
        put(where, {key: 1}, number)
    with pytest.MonkeyPatch.context() as monkeypatch:
        rivals(
            monkeypatch,
            *(
                lambda n=n, rows=rows, deletes=deletes: merge(
                    rows_of(rows, rows if deletes else ()),
                    where,
                    keys=KEYS,
                    sequence="seq",
                    mark=Mark(f"rival {n}", 0),
                )
                for n, (rows, deletes) in enumerate(theirs)
            ),
        )
        put(where, {"a": 5, "b": 5, "d": 5}, 3)
    # The last is in the table first, for each comes as the one before is about to commit.
    for rows, deletes in [*reversed(theirs), ({"a": 5, "b": 5, "d": 5}, False)]:
        for key, seq in rows.items():
            if deletes and seq > model.get(key, 99):
                del model[key]
            elif not deletes:
                model[key] = max(seq, model.get(key, 0))
    assert held(where) == model


def test_rows_of_other_keys_cost_a_merge_no_second_one(tmp_path, monkeypatch):
    where = place(tmp_path / "t")
    put(where, {"a": 1, "b": 1}, 0)
    before = tries(where)

    def other():
        merge(rows_of({"x": 3}), where, keys=KEYS, sequence="seq", mark=Mark("rival", 0))

    rivals(monkeypatch, other)
    assert put(where, {"a": 5, "c": 5}, 1) == Upserted(inserted=1, updated=1)
    assert held(where) == {"a": 5, "b": 1, "c": 5, "x": 3}
    assert tries(where) == before + 1  # the file of the first batch is replaced, no other is left


def test_a_merge_beside_a_compaction(tmp_path, monkeypatch):
    where = place(tmp_path / "t")
    for number in range(4):
        put(where, {f"k{number}": 1}, number)
    rivals(monkeypatch, lambda: compact(where, 2**20))
    put(where, {"k1": 5, "k9": 5}, 4)
    assert held(where) == {"k0": 1, "k1": 5, "k2": 1, "k3": 1, "k9": 5}


def test_two_drivers_of_one_query(tmp_path, monkeypatch):
    where = place(tmp_path / "t")
    put(where, {"a": 1}, 0)
    rivals(monkeypatch, lambda: put(where, {"a": 7}, 1, "other run"))
    with pytest.raises(TableError, match="two drivers run on one checkpoint"):
        put(where, {"a": 5}, 1, "run")
    assert held(where) == {"a": 7}


def test_keys_that_come_twice(tmp_path):
    rows = pa.concat_tables([rows_of({"a": 1}), rows_of({"a": 2})])
    with pytest.raises(TableError, match="several rows of one Device id"):
        merge(rows, place(tmp_path / "t"), keys=KEYS, sequence="seq", mark=Mark("q", 0))
