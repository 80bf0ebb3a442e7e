"""Iceberg: each batch once, whatever dies, comes again or races; what is refused, clearly."""

import json
import random
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pelton[iceberg]")
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestFile

from pelton.spark.iceberg import catalogs
from pelton.spark.tables.commits import Tables
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import TableError
from tests.spark.drivers import STEPS, Query
from tests.spark.iceberg_help import address_of, prepare, rows_of, sequences, table_of, write_of
from tests.spark.tables_help import SCHEMA
from tests.ways import SEED, length


@pytest.fixture
def where(tmp_path):
    return address_of(tmp_path)


def files_in(table, kind):
    folder = Path(table.location().removeprefix("file://"))
    return sorted(path.name for path in folder.rglob(f"*{kind}"))


def test_a_batch_that_comes_again_is_not_committed_again(where):
    write = write_of(where, range(10), Mark("q", 0, "run 1"))
    assert Tables().commit(where, write)
    again = write_of(where, range(10), Mark("q", 0, "run 2"))
    assert not Tables().commit(where, again)
    assert Tables().commit(where, write_of(where, range(10, 20), Mark("q", 1, "run 2")))
    assert sequences(where) == list(range(20))


def test_the_mark_is_in_the_table_and_in_the_snapshot_of_one_commit(where):
    tables = Tables()
    for number in (0, 1):
        tables.commit(where, write_of(where, [number], Mark("q", number, "r")))
    tables.commit(where, write_of(where, [2], Mark("p", 7)))
    table = table_of(where)
    kept = {
        name: json.loads(text)["number"]
        for name, text in table.properties.items()
        if name.startswith("pelton.query.")
    }
    assert kept == {"pelton.query.q": 1, "pelton.query.p": 7}
    summaries = [snapshot.summary for snapshot in table.metadata.snapshots]
    found = [(summary["pelton.query"], summary["pelton.batch"]) for summary in summaries]
    assert found == [("q", "0"), ("q", "1"), ("p", "7")]
    # One metadata file for each commit and one for the table itself: both marks in one.
    assert len(files_in(table, ".metadata.json")) == 4


def test_marks_outlive_snapshots(where):
    tables = Tables()
    for number in range(4):
        tables.commit(where, write_of(where, [number], Mark("q", number)))
    tables.commit(where, write_of(where, [4], Mark("p", 0)))
    table = table_of(where)
    with table.maintenance.expire_snapshots() as expiring:
        expiring.by_ids([snapshot.snapshot_id for snapshot in table.metadata.snapshots[:-1]])
    assert len(table_of(where).metadata.snapshots) == 1
    assert not Tables().commit(where, write_of(where, [3], Mark("q", 3)))
    with pytest.raises(TableError, match="holds batch 3 of query q, this is batch 2"):
        Tables().commit(where, write_of(where, [2], Mark("q", 2)))
    assert sequences(where) == list(range(5))


def test_of_two_drivers_on_one_checkpoint_one_fails(where):
    one, other = Tables(), Tables()
    one.commit(where, write_of(where, [0], Mark("q", 0, "a")))
    mine = write_of(where, [1], Mark("q", 1, "b"))

    def race(table):
        one.commit(where, write_of(where, [1], Mark("q", 1, "a")))
        table.commit(mine)

    with pytest.raises(TableError, match="two drivers run on one checkpoint"):
        other.once(where, mine, race)
    assert sequences(where) == [0, 1]


def test_what_a_lost_race_leaves_is_removed(where):
    one, other = Tables(), Tables()
    one.commit(where, write_of(where, [0], Mark("q", 0)))
    mine = write_of(where, [2], Mark("p", 0))
    seen = []

    def race(table):
        if not seen:
            one.commit(where, write_of(where, [1], Mark("q", 1)))
        seen.append(files_in(table.table, ".avro"))
        table.commit(mine)

    assert other.once(where, mine, race)
    assert len(seen) == 2
    assert seen[0] == seen[1]  # the first attempt left nothing
    assert sequences(where) == [0, 1, 2]


def test_drivers_that_really_race(where):
    prepare(where, SCHEMA)
    begin = threading.Barrier(4)
    told = []

    def drive(name):
        write = write_of(where, [1, 2, 3], Mark("q", 0, name))
        begin.wait()
        try:
            told.append(Tables().commit(where, write))
        except TableError as refused:
            told.append(str(refused))

    drivers = [threading.Thread(target=drive, args=(f"run {n}",)) for n in range(4)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    # Who comes when all is done takes it for a batch that comes again.
    assert told.count(True) == 1
    assert sequences(where) == [1, 2, 3]


def test_a_commit_that_was_made_and_then_failed_is_made(where):
    calls = []

    def made_with(write, problem):
        def change(table):
            calls.append(1)
            table.commit(write)
            raise problem

        return Tables().once(where, write, change)

    retried = CommitFailedException("the answer got lost, and it was asked again")
    assert made_with(write_of(where, [1], Mark("q", 0, "a")), OSError("the connection broke"))
    assert made_with(write_of(where, [2], Mark("q", 1, "a")), retried)
    assert made_with(write_of(where, [3]), retried)
    assert len(calls) == 3
    assert sequences(where) == [1, 2, 3]


def test_an_answer_that_got_lost_in_the_catalog_costs_no_file(where, monkeypatch):
    """A catalog that made a commit and says that it did not: its files are not removed."""
    write = write_of(where, [1, 2], Mark("q", 0, "a"))
    catalog = catalogs.catalog_of(where)
    make = catalog.commit_table

    def lose(*given):
        make(*given)
        raise CommitFailedException("asked twice")

    monkeypatch.setattr(catalog, "commit_table", lose)
    assert Tables().commit(where, write)
    assert sequences(where) == [1, 2]


def test_a_store_that_fails_is_one_error(where):
    def fail(table):
        raise OSError("no space left on device")

    with pytest.raises(TableError, match=r"cannot commit to the table .* no space left"):
        Tables().once(where, write_of(where, [1], Mark("q", 0)), fail)
    assert sequences(where) == []


def test_a_batch_that_comes_again_with_other_rows_is_refused(where):
    Tables().commit(where, write_of(where, range(5), Mark("q", 0)))
    longer = write_of(where, range(7), Mark("q", 0, "later"))
    with pytest.raises(TableError, match="with 5 rows, but the batch has 7 now"):
        Tables().commit(where, longer)
    assert not Tables().commit(where, replace(longer, check_again=False))
    assert sequences(where) == list(range(5))


WIDER = pa.schema([*SCHEMA, ("more", pa.float64())])


def test_columns_are_added_only_when_asked_for(where):
    tables = Tables()
    tables.commit(where, write_of(where, [1]))
    with pytest.raises(TableError, match="column more double is not in the table; mergeSchema"):
        prepare(where, WIDER)
    assert tables.commit(where, write_of(where, [2], schema=WIDER, merge=True))
    assert tables.commit(where, write_of(where, [3]))
    rows = table_of(where).scan().to_arrow().sort_by("seq")
    assert rows["more"].to_pylist() == [None] * 3
    assert rows["seq"].to_pylist() == [1, 2, 3]


def test_a_column_that_was_renamed_keeps_its_rows(where):
    tables = Tables()
    late = write_of(where, [2])  # written before, committed after the change
    tables.commit(where, write_of(where, [1]))
    with table_of(where).update_schema() as update:
        update.rename_column("word", "term")
    tables.commit(where, late)
    rows = table_of(where).scan().to_arrow().sort_by("seq")
    assert rows["term"].to_pylist() == ["w1", "w2"]
    with pytest.raises(TableError, match="column word string is not in the table"):
        prepare(where, SCHEMA)


def test_rows_that_do_not_fit_are_told_in_one_line(where):
    prepare(where, SCHEMA)
    wrong = pa.schema([("SEQ", pa.string()), ("word", pa.binary()), ("new", pa.int32())])
    with pytest.raises(TableError) as caught:
        prepare(where, wrong, merge_schema=True)
    said = str(caught.value)
    assert "column SEQ is string, in the table bigint" in said
    assert "column word is binary, in the table string" in said
    assert "\n" not in said
    with pytest.raises(TableError, match="a name once, in any case, but there are a, A"):
        prepare(where, pa.schema([("a", pa.int8()), ("A", pa.int8())]))


def test_an_overwrite_takes_the_place_of_all_rows(where):
    tables = Tables()
    for number in range(3):
        tables.commit(where, write_of(where, [number]))
    tables.commit(where, write_of(where, [77], Mark("q", 0), overwrite=True))
    assert sequences(where) == [77]
    assert not tables.commit(where, write_of(where, [77], Mark("q", 0), overwrite=True))
    tables.commit(where, write_of(where, [], Mark("q", 1), overwrite=True))
    assert sequences(where) == []
    assert table_of(where).current_snapshot().parent_snapshot_id is not None


def test_an_overwrite_that_another_commit_outran_is_made_on_top_of_it(where):
    one, other = Tables(), Tables()
    one.commit(where, write_of(where, [1]))
    seen = []

    def race(table):
        if not seen:
            one.commit(where, write_of(where, [2]))
        seen.append(1)
        table.commit(mine)

    mine = write_of(where, [9], overwrite=True)
    other.once(where, mine, race)
    assert len(seen) == 2
    assert sequences(where) == [9]


def test_a_table_made_anew_is_not_taken_for_the_one_written_for(where):
    late = write_of(where, [1], Mark("q", 0))
    catalogs.catalog_of(where).drop_table(where.table)
    with pytest.raises(TableError, match=r"the table test\.lake\.t was removed"):
        Tables().commit(where, late)
    prepare(where, SCHEMA)
    with pytest.raises(TableError, match="was created again while rows for it were written"):
        Tables().commit(where, late)


def test_partitions_are_those_of_the_table(where):
    tables = Tables()
    write = write_of(where, range(6), partition_by=("word",))
    assert len(write.files) == 3
    tables.commit(where, write)
    with pytest.raises(TableError, match=r"partitionBy is seq, but .* is partitioned by word"):
        prepare(where, SCHEMA, partition_by=("seq",))
    with pytest.raises(TableError, match="partitioned by word; rows need it"):
        prepare(where, pa.schema([("seq", pa.int64())]))
    tables.commit(where, write_of(where, range(6, 12)))
    found = table_of(where).scan(row_filter="word = 'w1'")
    assert len(list(found.plan_files())) == 2
    assert sorted(found.to_arrow()["seq"].to_pylist()) == [1, 4, 7, 10]
    with table_of(where).update_spec() as spec:
        spec.remove_field("word")
    with pytest.raises(TableError, match="was partitioned differently"):
        tables.commit(where, write)
    with table_of(where).update_spec() as spec:
        spec.add_field("seq", "bucket[4]", "four")
    with pytest.raises(TableError, match=r"divided by four = bucket\[4\], which is not written"):
        prepare(where, SCHEMA)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"type": "nonsense"}, "cannot open the catalog .*nonsense"),
        ({"uri": "sqlite:////nowhere/at/all.db"}, "cannot open the catalog .*unable to open"),
        ({"type": "rest", "uri": "http://127.0.0.1:9"}, "cannot open the catalog"),
    ],
)
def test_a_catalog_that_is_not_there(tmp_path, given, wanted):
    with pytest.raises(TableError, match=wanted) as caught:
        prepare(address_of(tmp_path, **given), SCHEMA)
    assert "\n" not in str(caught.value)


def test_secrets_are_not_told(tmp_path):
    secret = {
        "s3.secret-access-key": "hush",
        "credential": "robot:hidden",
        "token": "abc",
        "uri": "postgresql://robot:topsecret@127.0.0.1:9/x?a=hush",
    }
    where = address_of(tmp_path, **secret)
    for shown in (repr(where), str(where)):
        assert not any(word in shown for word in ("hush", "hidden", "topsecret", "abc"))
    with pytest.raises(TableError) as caught:
        prepare(where, SCHEMA)
    said = str(caught.value)
    assert not any(word in said for word in ("hush", "hidden", "topsecret"))
    told = catalogs.without_secrets(f"failed with {secret}", secret)
    assert not any(word in told for word in ("hush", "hidden", "topsecret", "abc"))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


class IcebergStore:
    def __init__(self, where):
        self.where = where
        self.tables = Tables
        self.committed = 0

    def write_of(self, seqs, mark):
        return write_of(self.where, seqs, mark)

    def add(self, table, write):
        table.commit(write)

    def commit(self, tables, write, change):
        return tables.once(self.where, write, change)

    def maintain(self):
        """Only the newest snapshot is kept, and another program changes a property."""
        table = table_of(self.where)
        with table.maintenance.expire_snapshots() as expiring:
            newest = table.metadata.current_snapshot_id
            every = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
            expiring.by_ids([one for one in every if one != newest])
        with table.transaction() as transaction:
            transaction.set_properties({"owner": "somebody"})

    def sequences(self):
        return sequences(self.where)


@settings(max_examples=length(4, 8), deadline=None)
@given(st.lists(STEPS, min_size=10, max_size=25))
def test_exactly_once(tmp_path_factory, steps):
    query = Query(IcebergStore(address_of(tmp_path_factory.mktemp("once"))))
    for step in steps:
        query.step(*step)
    query.check()


def test_rows_of_every_shape_come_back(where):
    """Names that are no identifiers, and what stands in columns inside columns."""
    schema = pa.schema(
        [
            ("a b.c", pa.string()),
            ("1st", pa.int32()),
            ("headers", pa.map_(pa.string(), pa.list_(pa.field("element", pa.string())))),
            ("place", pa.struct([("x y", pa.float64()), ("tags", pa.list_(pa.string()))])),
            ("at", pa.timestamp("us", "UTC")),
            ("money", pa.decimal128(20, 3)),
        ]
    )
    rows = [
        {"a b.c": "one", "1st": 1, "headers": [("k", ["v", None])], "place": {"x y": 0.5}},
        {"a b.c": "", "1st": None, "headers": None, "place": {"tags": ["t"]}, "money": 12},
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    Tables().commit(where, rows_of(where, batch))
    found = table_of(where).scan().to_arrow()
    assert found.column_names == schema.names
    assert found.to_pylist() == batch.to_pylist()


def test_files_in_place_of_others_whatever_was_replaced_before(where, monkeypatch):
    """Beside a dict of files; no manifest is read twice for a commit, and none of removed files alone stays."""
    rng, model, read = random.Random(SEED), {}, []
    fetch = ManifestFile.fetch_manifest_entry

    def noted(manifest, *given, **named):
        read.append(manifest.manifest_path)
        return fetch(manifest, *given, **named)

    for number in range(length(10, 60)):
        here = {path: seq for path, seq in model.items() if seq % 3 != number % 3}
        gone = rng.sample(sorted(here), k=min(len(here), rng.randrange(4)))
        files = Tables().there(where).snapshot().files.values() if model else []
        removed = [file for file in files if file.logged in gone]
        seqs = [10 * number + each for each in range(rng.randrange(1, 4))]
        rows = pa.RecordBatch.from_pydict(
            {"seq": pa.array(seqs), "side": pa.array([f"s{seq % 3}" for seq in seqs])}
        )
        write = rows_of(where, rows, partition_by=("side",), removed=removed, replaces=True)
        with monkeypatch.context() as patched:
            patched.setattr(ManifestFile, "fetch_manifest_entry", noted)
            assert Tables().commit(where, write)
        assert len(read) == len(set(read))
        read.clear()
        uri = write.target.folder.uri
        model = {path: seq for path, seq in model.items() if path not in gone}
        model |= {f"{uri}/{file.path}": seq for file, seq in zip(write.files, seqs, strict=True)}
        table = table_of(where)
        found = {task.file.file_path for task in table.scan().plan_files()}
        newest = table.current_snapshot()
        assert found == set(model)
        assert sequences(where) == sorted(model.values())
        assert int(newest.summary["total-data-files"]) == len(model)
        for manifest in newest.manifests(table.io):
            assert manifest.added_snapshot_id == newest.snapshot_id or (
                manifest.added_files_count or manifest.existing_files_count
            )
