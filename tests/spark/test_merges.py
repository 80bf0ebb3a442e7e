"""Merges and compactions of all kinds of tables: any type of key, partitions, rules of the table's own,
files of other writers."""

import json
import struct
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.spark.tables import compaction, merges, upserts
from pelton.spark.tables.commits import Tables
from pelton.spark.tables.compaction import compact
from pelton.spark.tables.key_matching import Keys, comparable_bounds
from pelton.spark.tables.maintenance import Plan, maintain
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import TableError, place
from pelton.spark.tables.rows import read_files
from pelton.spark.tables.upserts import Upserted, merge
from tests.spark.tables_help import table_at
from tests.spark.test_table_readers import TYPES

KINDS = {
    **TYPES,
    "bytes": (pa.binary(), [b"", b"\x00", b"\xff" * 40]),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.float64())]),
        [{"a": 1, "b": 0.0}, {"a": 1, "b": None}, {"a": None, "b": float("nan")}],
    ),
    "list": (pa.list_(pa.field("element", pa.string())), [[], ["a"], ["a", None], ["a", "b"]]),
}
SIMPLE = pa.schema([("k", pa.int64()), ("seq", pa.int64()), ("x", pa.string())])


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Each test is a process of its own."""
    monkeypatch.setattr(upserts, "HERE", Tables())


def put(where, rows, keys=("k",), schema=SIMPLE, number=[0]):  # noqa: B006  counts the batches
    number[0] += 1
    table = pa.Table.from_pylist(rows, schema=schema)
    return merge(table, where, keys=keys, sequence="seq", mark=Mark("q", number[0]))


def same(value):
    """A key as a dictionary's: a NaN equals a NaN, zeros are one."""
    return repr(value + 0.0) if isinstance(value, float) else repr(value).replace("-0.0", "0.0")


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=3, deadline=None)
@given(st.data())
def test_a_table_is_a_dictionary_by_keys_of_any_type(tmp_path_factory, name, data):
    kind = KINDS[name][0]
    edges = pa.array(KINDS[name][1], kind).to_pylist()
    two = data.draw(st.booleans(), label="two keys")
    plain = not pa.types.is_nested(kind) and not pa.types.is_binary(kind)
    by = data.draw(st.sampled_from([(), ("part",), ("k",)] if plain else [(), ("part",)]))
    if "k" in by:
        edges = [edge for edge in edges if edge not in ("", " ") and edge == edge]
    schema = pa.schema([("k", kind), ("part", pa.int32()), ("seq", pa.int64()), ("v", kind)])
    row = st.tuples(st.sampled_from(edges), st.integers(0, 1), st.integers(0, 9))
    batches = data.draw(st.lists(st.lists(row, min_size=1, max_size=5), min_size=2, max_size=4))
    where, model = place(tmp_path_factory.mktemp("t") / "t"), {}
    Tables().create(where, schema, by)
    # A row with a null for a key, which nothing replaces.
    write_deltalake(where.uri, pa.Table.from_pylist([{"part": 0, "seq": 0}], schema), mode="append")
    for number, batch in enumerate(batches):
        newest = {}
        for k, part, seq in batch:
            key = (same(k), part) if two else (same(k),)
            if key not in newest or newest[key][2] < seq:
                newest[key] = (k, part, seq)
        rows = [{"k": k, "part": p, "seq": seq, "v": k} for k, p, seq in newest.values()]
        did = merge(
            pa.Table.from_pylist(rows, schema),
            where,
            keys=("k", "part") if two else ("k",),
            sequence="seq",
            mark=Mark("q", number),
        )
        updated = [key for key, one in newest.items() if key in model and model[key][2] < one[2]]
        assert did == Upserted(len(newest.keys() - model.keys()), len(updated))
        model |= {key: one for key, one in newest.items() if model.get(key, (0, 0, -1))[2] < one[2]}
        if data.draw(st.booleans(), label="compact"):
            compact(where, 2**20)
    found = DeltaTable(where.uri).to_pyarrow_table().to_pylist()
    assert [row for row in found if row["k"] is None] == [
        {"k": None, "part": 0, "seq": 0, "v": None}
    ]
    held = sorted((same(r["k"]), r["part"], r["seq"]) for r in found if r["k"] is not None)
    assert held == sorted((same(k), part, seq) for k, part, seq in model.values())
    assert all(same(row["k"]) == same(row["v"]) for row in found)


def cut(value):
    """A lower bound and an upper one as writers that shorten them tell them."""
    if isinstance(value, str):
        return value[:32], value if len(value) <= 32 else value[:32] + "\uffff"
    if isinstance(value, datetime):
        shorter = value - timedelta(microseconds=value.microsecond % 1000)
        return shorter, shorter
    return value, value


TEXTS = st.text(max_size=3) | st.text("az\U0010ffff", min_size=30, max_size=34)
TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
VALUES = {pa.string(): TEXTS, pa.int64(): st.integers(-(2**63), 2**63 - 1)}
VALUES |= {pa.date32(): st.dates(), pa.timestamp("us", "UTC"): TIMES}


@given(st.data())
def test_bounds_never_leave_out_a_file_with_a_key(data):
    kind = data.draw(st.sampled_from(list(VALUES)))
    values = VALUES[kind]
    keys = data.draw(st.lists(values, min_size=1, max_size=5, unique=True))
    low, high = sorted(data.draw(st.lists(values, min_size=2, max_size=2)))
    bounds = [
        comparable_bounds(pa.array([bound], kind), kind)[0] for bound in (cut(low)[0], cut(high)[1])
    ]
    known = Keys(pa.table({"k": pa.array(keys, kind)}), ["k"])
    inside = any(low <= key <= high for key in keys)
    assert known.may_be_in({}, {"k": tuple(bounds)}) or not inside
    far = [key for key in keys if cut(key) != cut(low) and cut(key) != cut(high)]
    exact = comparable_bounds(pa.array([low], kind), kind)[0]
    if len(far) == len(keys) and kind in (pa.int64(), pa.date32()):
        assert not known.may_be_in({}, {"k": (exact, exact)})


def log_of(where, version):
    text = (where.folder / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def append_log(where, *actions):
    version = DeltaTable(where.uri).version() + 1
    path = where.folder / "_delta_log" / f"{version:020}.json"
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def rows_of(where):
    rows = DeltaTable(where.uri).to_pyarrow_table().to_pylist()
    return sorted((row["k"], row["seq"], row["x"]) for row in rows)


@pytest.fixture
def where(tmp_path):
    """Two rows of two files."""
    made = place(tmp_path / "t")
    for k in (1, 2):
        put(made, [{"k": k, "seq": 1, "x": "old"}])
    return made


NEWER = [{"k": 2, "seq": 5, "x": "new"}, {"k": 3, "seq": 5, "x": "new"}]
MERGED = [(1, 1, "old"), (2, 5, "new"), (3, 5, "new")]


def test_a_merge_is_one_commit_of_the_files_that_change(where):
    assert put(where, NEWER) == Upserted(inserted=1, updated=1)
    done = log_of(where, DeltaTable(where.uri).version())
    kinds = [next(iter(action)) for action in done]
    assert sorted(kinds) == ["add", "commitInfo", "remove", "txn"]
    assert done[0]["commitInfo"]["isBlindAppend"] is False
    assert rows_of(where) == MERGED


def test_a_large_compaction_makes_several_commits(tmp_path, monkeypatch):
    monkeypatch.setattr(compaction, "COMMIT_BYTES", 1)
    where = place(tmp_path / "t")
    Tables().create(where, SIMPLE, ["x"])
    for k in range(6):
        put(where, [{"k": k, "seq": 1, "x": "abc"[k % 3]}])
    before = DeltaTable(where.uri).version()
    assert compact(where, 2**20) == (6, 3)
    assert DeltaTable(where.uri).version() == before + 3
    assert rows_of(where) == [(k, 1, "abc"[k % 3]) for k in range(6)]


def test_a_compaction_says_that_no_row_changes(where):
    assert compact(where, 2**20) == (2, 1)
    done = log_of(where, DeltaTable(where.uri).version())
    changes = [
        one["dataChange"] for action in done for kind, one in action.items() if kind != "commitInfo"
    ]
    assert changes == [False] * 3
    assert rows_of(where) == [(1, 1, "old"), (2, 1, "old")]


def test_files_of_a_merge_have_a_size(where, monkeypatch):
    monkeypatch.setattr(merges, "FILE_BYTES", 1)
    monkeypatch.setattr("pelton.spark.tables.parquet.ROW_GROUP_ROWS", 10)
    monkeypatch.setattr(merges, "_READ_ROWS", 10)
    put(where, [{"k": k, "seq": 9, "x": "many"} for k in range(100)])
    assert len(DeltaTable(where.uri).file_uris()) > 5
    assert rows_of(where) == [(k, 9, "many") for k in range(100)]


@pytest.mark.parametrize(("looked_up", "read"), [(7, 3), (4, 1), (1, 1), (12, 2)])
def test_a_large_batch_and_many_files(tmp_path, monkeypatch, looked_up, read):
    monkeypatch.setattr(merges, "_LOOKED_UP_ROWS", looked_up)
    monkeypatch.setattr(merges, "_READ_ROWS", read)
    where = place(tmp_path / "t")
    for begin in range(0, 50, 5):
        put(where, [{"k": k, "seq": 1, "x": "a"} for k in range(begin, begin + 5)])
    expected = {k: (k, 1, "a") for k in range(50)}
    for seq, keys in ((2, range(3, 60, 7)), (3, [0]), (4, [7, 9])):
        inserted = len({*keys} - expected.keys())
        done = put(where, [{"k": k, "seq": seq, "x": "b"} for k in keys])
        assert done == Upserted(inserted=inserted, updated=len(keys) - inserted)
        expected |= {k: (k, seq, "b") for k in keys}
        assert rows_of(where) == sorted(expected.values())


def test_names_of_folders_as_others_write_them(tmp_path):
    where = place(tmp_path / "t")
    parts = ["a b", "ä/ö%20", "x=1", "q'?*", "~", "[]", "end."]
    rows = [{"k": k, "seq": 1, "x": part} for k, part in enumerate(parts)]
    write_deltalake(where.uri, pa.Table.from_pylist(rows, SIMPLE), partition_by=["x"])
    rows = [{"k": k + 100, "seq": 1, "x": part} for k, part in enumerate(parts)]
    write_deltalake(where.uri, pa.Table.from_pylist(rows, SIMPLE), mode="append")
    assert compact(where, 2**20) == (14, 7)
    write_deltalake(where.uri, pa.Table.from_pylist(rows, SIMPLE), mode="append")
    put(where, [{"k": k, "seq": 2, "x": part} for k, part in enumerate(parts)])
    put(where, [{"k": k + 100, "seq": 3, "x": "moved"} for k in range(len(parts))])
    found = rows_of(where)
    assert found[:7] == [(k, 2, part) for k, part in enumerate(parts)]
    assert found[7:] == [(k + 100, 3, "moved") for k in range(7) for _ in range(2)]


def test_a_key_of_the_partition_is_no_empty_text(tmp_path):
    where = place(tmp_path / "t")
    Tables().create(where, SIMPLE, ["x"])
    with pytest.raises(TableError, match="where an empty text is null"):
        put(where, [{"k": 1, "seq": 1, "x": ""}], keys=["k", "x"])


def test_a_table_that_takes_new_rows_alone(where):
    DeltaTable(where.uri).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(TableError, match="takes new rows alone"):
        put(where, NEWER)
    assert put(where, NEWER[1:]) == Upserted(inserted=1)
    assert compact(where, 2**20) == (3, 1)
    assert rows_of(where) == [(1, 1, "old"), (2, 1, "old"), (3, 5, "new")]


def test_a_column_that_must_not_be_null(tmp_path):
    where = place(tmp_path / "t")
    schema = SIMPLE.set(2, pa.field("x", pa.string(), nullable=False))
    write_deltalake(where.uri, pa.Table.from_pylist([{"k": 1, "seq": 1, "x": "a"}], schema))
    with pytest.raises(TableError, match=r"column x of .* must not be null"):
        put(where, [{"k": 1, "seq": 2}, {"k": 2, "seq": 2}])
    put(where, [{"k": 1, "seq": 2, "x": "b"}])
    assert rows_of(where) == [(1, 2, "b")]


def ours(where):
    return all("/compact-" in uri or "/upsert-" in uri for uri in DeltaTable(where.uri).file_uris())


def test_constraints_are_kept(where):
    DeltaTable(where.uri).alter.add_constraint({"small": "seq < 100"})
    with pytest.raises(TableError, match="cannot commit to the table"):
        put(where, [{"k": 1, "seq": 100}])
    assert put(where, NEWER) == Upserted(inserted=1, updated=1)
    assert rows_of(where) == MERGED
    assert ours(where)
    assert put(where, NEWER) == Upserted()
    assert DeltaTable(where.uri).transaction_version("q") is not None


def test_a_feed_of_changes_has_those_of_a_merge_and_none_of_a_compaction(where):
    DeltaTable(where.uri).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    begin = DeltaTable(where.uri).version() + 1
    assert put(where, NEWER) == Upserted(inserted=1, updated=1)
    compact(where, 2**20)
    assert rows_of(where) == MERGED
    assert ours(where)
    feed = pa.table(DeltaTable(where.uri).load_cdf(begin).read_all()).to_pylist()
    changes = sorted((row["_change_type"], row["k"], row["seq"]) for row in feed)
    assert changes == [("insert", 3, 5), ("update_postimage", 2, 5), ("update_preimage", 2, 1)]


@pytest.mark.parametrize("feature", ["rowTracking", "icebergCompatV1", "clustering"])
def test_features_that_ask_for_more_are_refused(where, feature):
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}
    if feature != "icebergCompatV1":
        protocol["writerFeatures"].append("domainMetadata")
    append_log(where, {"protocol": protocol})
    before = sorted(where.folder.iterdir())
    for way in (lambda: put(where, NEWER), lambda: maintain(where, Plan(vacuum=False))):
        with pytest.raises(TableError, match=f"uses {feature}.*not supported"):
            way()
    assert sorted(where.folder.iterdir()) == before


def inline_deletion(row):
    """A deletion vector that says one row of a file is gone, as the log may hold it."""
    bitmap = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, row)
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    size = len(data)
    data += b"\0" * (-size % 4)
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    text = ""
    for (word,) in struct.iter_unpack(">I", data):
        text += "".join(digits[word // 85**place % 85] for place in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": size, "cardinality": 1}


def test_files_with_rows_deleted_in_place_are_left_alone(where):
    put(where, [{"k": k, "seq": 1, "x": "gone"} for k in (7, 8)])
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    last = log_of(where, DeltaTable(where.uri).version())
    add = next(action["add"] for action in last if "add" in action)
    gone = {"path": add["path"], "dataChange": True, "deletionTimestamp": int(time.time() * 1000)}
    append_log(
        where,
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": gone},
        {"add": {**add, "deletionVector": inline_deletion(0)}},
    )
    assert pa.table(DeltaTable(where.uri).deletion_vectors()).num_rows == 1
    assert put(where, NEWER) == Upserted(inserted=1, updated=1)
    with pytest.raises(TableError, match="rows that are deleted in place"):
        put(where, [{"k": 8, "seq": 5}])
    assert compact(where, 2**20) == (2, 1)
    assert DeltaTable(where.uri).file_uris()[0] != DeltaTable(where.uri).file_uris()[1]
    assert any(uri.endswith(add["path"]) for uri in DeltaTable(where.uri).file_uris())


def test_a_feature_that_no_column_needs_is_no_reason(tmp_path):
    where = place(tmp_path / "t")
    schema = SIMPLE.append(pa.field("at", pa.timestamp("us")))
    Tables().create(where, schema)
    feed = {"delta.enableChangeDataFeed": "true"}
    DeltaTable(where.uri).alter.set_table_properties(feed)
    assert "variantType" in DeltaTable(where.uri).protocol().reader_features
    put(where, [{"k": 1, "seq": 1, "x": "a"}], schema=schema)
    table = table_at(where)
    batches = read_files(where, table.files(), SIMPLE, 10)
    assert pa.Table.from_batches(batches).to_pylist() == [{"k": 1, "seq": 1, "x": "a"}]


def test_columns_under_other_names_are_refused(tmp_path):
    where = place(tmp_path / "t")
    mapped = {"delta.columnMapping.mode": "name"}
    rows = pa.Table.from_pylist([{"k": 1, "seq": 1, "x": "a"}], SIMPLE)
    write_deltalake(where.uri, rows, configuration=mapped)
    with pytest.raises(TableError, match="maps its columns"):
        put(where, NEWER)
    with pytest.raises(TableError, match="uses columnMapping, not supported"):
        maintain(where, Plan())


@pytest.mark.parametrize("step", ["write_rows", "_commit"])
def test_a_compaction_leaves_out_what_others_change_meanwhile(tmp_path, monkeypatch, step):
    where = place(tmp_path / "t")
    Tables().create(where, SIMPLE, ["x"])
    for k in range(6):
        put(where, [{"k": k, "seq": 1, "x": "ab"[k % 2]}])
    rivals = [[{"k": 1, "seq": 2, "x": "b"}, {"k": 9, "seq": 2, "x": "a"}]]
    take = getattr(compaction, step)

    def late(*given, **more):
        if rivals:
            put(where, rivals.pop())
        return take(*given, **more)

    monkeypatch.setattr(compaction, step, late)
    assert compact(where, 2**20) == (8, 3)
    assert len(DeltaTable(where.uri).file_uris()) == 2
    rows = {k: (k, 1, "ab"[k % 2]) for k in range(6)} | {1: (1, 2, "b"), 9: (9, 2, "a")}
    assert rows_of(where) == [rows[k] for k in sorted(rows)]
