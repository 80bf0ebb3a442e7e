"""Data files: every row once, in the folder of its values; statistics that never hide a row."""

import json
import math
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.spark.delta.data_files import DataFiles
from pelton.spark.delta.table import Delta
from pelton.spark.tables import parquet
from pelton.spark.tables.commits import Tables

# none
from pelton.spark.tables.parquet import folder_name, partition_text
from pelton.spark.tables.places import place
from pelton.spark.tables.rows import read_files
from pelton.spark.tables.seen import DictionaryChoices
from pelton.spark.tables.table import Write
from tests.spark.tables_help import write_rows
from tests.ways import length

ALL = pa.schema(
    [
        ("seq", pa.int64()),
        ("byte", pa.int8()),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("money", pa.decimal128(20, 3)),
        ("number", pa.float64()),
        ("flag", pa.bool_()),
        ("data", pa.binary()),
        ("tags", pa.map_(pa.string(), pa.list_(pa.field("element", pa.string())))),
    ]
)
TEXTS = st.one_of(
    st.sampled_from(["a", "b", "x/y", "a=b", "%41", "", " ", "__x", "é" * 80, "\U0010ffff" * 40]),
    st.text(max_size=40),
)
ROWS = st.fixed_dictionaries(
    {
        "seq": st.integers(-(2**63), 2**63 - 1),
        "byte": st.none() | st.integers(-128, 127),
        "text": st.none() | TEXTS,
        "day": st.none() | st.dates(date(1, 1, 1)),
        "at": st.none()
        | st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
        "local": st.none() | st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),
        "money": st.none() | st.decimals(-(10**16), 10**16, places=3),
        "number": st.none() | st.floats(),
        "flag": st.none() | st.booleans(),
        "data": st.none() | st.binary(max_size=5),
        "tags": st.none()
        | st.dictionaries(
            st.text(max_size=3), st.lists(st.text(max_size=3), max_size=2), max_size=2
        ),
    }
)
PARTITIONS = st.sampled_from(
    [(), ("text",), ("day",), ("at",), ("local",), ("flag", "byte"), ("money",), ("text", "flag")]
)


def comparable(row, emptied=()):
    """A row that equals itself, also where it holds a NaN; the empty text of a partition is null."""
    shown = {}
    for name, value in row.items():
        if isinstance(value, float) and math.isnan(value):
            shown[name] = "NaN"
        elif name in emptied and value == "":
            shown[name] = None
        elif name == "tags" and value is not None:
            shown[name] = sorted(value if isinstance(value, list) else value.items())
        else:
            shown[name] = value
    return sorted(shown.items()).__repr__()


@settings(max_examples=length(20, 40), deadline=None)
@given(st.lists(st.lists(ROWS, max_size=8), min_size=1, max_size=4), PARTITIONS)
def test_rows_come_back_from_our_reader_and_from_that_of_delta_rs(tmp_path_factory, batches, by):
    where = place(tmp_path_factory.mktemp("rows") / "t")
    written = [pa.RecordBatch.from_pylist(rows, schema=ALL) for rows in batches]
    Tables().create(where, ALL, by)
    files = write_rows(written, where, ALL, "w", partition_by=by)
    Tables().commit(where, Write(schema=ALL, files=files))
    rows = sorted(comparable(row, by) for batch in written for row in batch.to_pylist())
    table = DeltaTable(where.uri)
    read = [
        r for b in read_files(where, Delta(where, table).files(), ALL, 3) for r in b.to_pylist()
    ]
    assert sorted(comparable(row) for row in read) == rows
    if "money" in by:
        return  # deltalake 1.6 cannot read a negative decimal as a partition's value
    others = table.to_pyarrow_table().select(ALL.names).cast(ALL).to_pylist()
    assert sorted(comparable(row) for row in others) == rows
    texts = [row["text"] or "" for batch in batches for row in batch] if "text" in by else []
    if any("~" in text or len(text.encode()) > 60 for text in texts):
        return  # its compaction names folders by the values, and these it cannot
    again = write_rows(written, where, ALL, "x", partition_by=by)
    Tables().commit(where, Write(schema=ALL, files=again))
    table.update_incremental()
    table.optimize.compact()
    read = [
        r for b in read_files(where, Delta(where, table).files(), ALL, 3) for r in b.to_pylist()
    ]
    assert sorted(comparable(row) for row in read) == sorted(rows * 2)


@settings(max_examples=length(20, 40), deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=10))
def test_statistics_enclose_every_value(tmp_path_factory, rows):
    where = place(tmp_path_factory.mktemp("stats"))
    [file] = write_rows([pa.RecordBatch.from_pylist(rows, schema=ALL)], where, ALL, "w")
    stats = json.loads(file.stats, parse_float=Decimal)
    assert stats["numRecords"] == len(rows)
    for name in ALL.names:
        values = [row[name] for row in rows if row[name] is not None]
        if name != "tags":
            assert stats["nullCount"][name] == len(rows) - len(values)
        low, high = stats["minValues"].get(name), stats["maxValues"].get(name)
        if name == "number":
            low, high = (bound if bound is None else float(bound) for bound in (low, high))
        if not values or name in ("data", "tags"):
            assert low is None
            assert high is None
            continue
        for value in values:
            shown = as_logged(value)
            if isinstance(value, float) and math.isnan(value):
                assert (low, high) == (-math.inf, math.inf)
            else:
                assert low <= shown <= high, name
    assert stats["minValues"]["seq"] == min(row["seq"] for row in rows)
    assert stats["maxValues"]["seq"] == max(row["seq"] for row in rows)


def as_logged(value):
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text + ("Z" if value.tzinfo else "")
    if isinstance(value, date):
        return value.isoformat()
    return value


def stats_of(tmp_path, schema, rows):
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    [file] = write_rows([batch], place(tmp_path), schema, "w")
    return json.loads(file.stats), pq.read_metadata(tmp_path / file.path)


def test_the_bounds_of_a_column_with_a_nan_or_infinity(tmp_path):
    schema = pa.schema([(name, pa.float64()) for name in "vwxyz"])
    nan, inf = math.nan, math.inf
    rows = [
        {"v": nan, "w": inf, "x": 1.0, "y": -inf, "z": -0.0},
        {"v": nan, "w": nan, "x": nan, "y": inf, "z": None},
    ]
    stats, footer = stats_of(tmp_path, schema, rows)
    assert stats["minValues"] == dict.fromkeys("vwxy", "-Infinity") | {"z": -0.0}
    assert stats["maxValues"] == dict.fromkeys("vwxy", "Infinity") | {"z": 0.0}
    assert str(stats["maxValues"]["z"]) == "0.0"
    assert stats["nullCount"] == dict.fromkeys("vwxy", 0) | {"z": 1}
    # Readers of the file alone believe a footer, which leaves out a NaN.
    assert not any(footer.row_group(0).column(n).is_stats_set for n in range(5))


def test_the_bounds_of_texts_decimals_and_far_times(tmp_path):
    last = "\U0010ffff"
    schema = pa.schema(
        [
            ("a", pa.string()),
            ("long", pa.string()),
            ("zero", pa.decimal128(20, 7)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("s", pa.struct([("long", pa.string())])),
            ("s.long", pa.int64()),
        ]
    )
    days = pa.array([2932897, -719528], pa.int32()).cast(pa.date32())
    times = pa.array([253402300800000000, -62167219200000001]).cast(pa.timestamp("us", "UTC"))
    decimals = pa.array([Decimal("0E-7"), Decimal("1E-7")], pa.decimal128(20, 7))
    structs = pa.array([{"long": "b"}, {"long": "a"}], schema.field("s").type)
    columns = [[last * 40, "b"], ["x" * 5000, "y" * 31 + last * 9 + "z"], decimals, days, times]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column) if isinstance(column, list) else column for column in columns]
        + [structs, pa.array([7, 8])],
        schema=schema,
    )
    [file] = write_rows([batch], place(tmp_path), schema, "w")
    stats = json.loads(file.stats)
    assert stats["minValues"] == {
        "a": "b",
        "long": "x" * 32,
        "zero": 0,
        "day": "0000-01-01",
        "at": "-0001-12-31T23:59:59.999999Z",
        "s.long": 7,
    }
    assert stats["maxValues"] == {
        "a": last * 40,
        "long": "y" * 31 + last * 10,
        "zero": 1e-7,
        "day": "+10000-01-01",
        "at": "+10000-01-01T00:00:00.000000Z",
        "s.long": 8,
    }
    assert '"zero":0.0000000' in file.stats
    assert '"zero":0.0000001' in file.stats


def test_readers_skip_files_by_the_statistics(tmp_path):
    where = place(tmp_path / "t")
    schema = pa.schema([("seq", pa.int64()), ("text", pa.string())])
    for first in (0, 10, 20):
        rows = [{"seq": seq, "text": f"{seq:02}"} for seq in range(first, first + 10)]
        batch = pa.RecordBatch.from_pylist(rows, schema=schema)
        files = write_rows([batch], where, schema, f"w{first}") if first else []
        files = files or write_rows([batch], where, schema, "first")
        Tables().commit(where, Write(schema=schema, files=files))
    table = DeltaTable(where.uri)
    gone = next(iter(tmp_path.glob("t/first*")))
    gone.unlink()
    import pyarrow.dataset as ds

    found = table.to_pyarrow_dataset().to_table(filter=ds.field("text") > "15")
    assert sorted(found["seq"].to_pylist()) == list(range(16, 30))


def test_an_error_leaves_no_files(tmp_path):
    schema = pa.schema([("seq", pa.int64()), ("p", pa.int64())])
    good = pa.RecordBatch.from_pylist([{"seq": n, "p": n} for n in range(5)], schema=schema)

    def batches():
        yield good
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        write_rows(batches(), place(tmp_path), schema, "w", partition_by=["p"])
    assert not list(tmp_path.rglob("*.parquet"))


NO_ROOM = """
import json, os, resource, sys
import pyarrow as pa
from tests.spark.tables_help import write_rows
from pelton.spark.tables.places import TableError, place

resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
schema = pa.schema([("p", pa.int64()), ("x", pa.binary())])

def batch():
    rows = [{"p": n % 3, "x": os.urandom(1000)} for n in range(100)]
    return pa.RecordBatch.from_pylist(rows, schema=schema)

try:
    where, by = place(sys.argv[1]), json.loads(sys.argv[2])
    write_rows([batch(), batch()], where, schema, "w", partition_by=by, rows_per_file=int(sys.argv[3]))
except TableError as error:
    print(error)
    print(repr(error.__cause__))
"""


@pytest.mark.parametrize("by", ["[]", '["p"]'])
@pytest.mark.parametrize("rows_per_file", ["50", "1000"])
def test_without_room_the_error_says_so_and_no_file_stays(tmp_path, by, rows_per_file):
    command = [sys.executable, "-c", NO_ROOM, str(tmp_path), by, rows_per_file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told, cause = done.stdout.splitlines()
    assert told.startswith(f"cannot write files of {tmp_path}: ")
    assert told.endswith("File too large")
    assert cause.startswith("OSError(27")
    assert not list(tmp_path.rglob("*.parquet"))


def test_many_values_and_long_tasks_are_cut_into_files(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_OPEN_FILES", 4)
    monkeypatch.setattr(parquet, "_HELD_BYTES", 2000)
    schema = pa.schema([("seq", pa.int64()), ("p", pa.int64())])
    where = place(tmp_path)
    batches = [
        pa.RecordBatch.from_pylist(
            [{"seq": n, "p": n % 9} for n in range(k, k + 50)], schema=schema
        )
        for k in range(0, 500, 50)
    ]
    files = write_rows(batches, where, schema, "w", partition_by=["p"], rows_per_file=20)
    assert sum(file.rows for file in files) == 500
    assert max(file.rows for file in files) <= 20
    assert len({file.path for file in files}) == len(files)
    seqs = []
    for file in files:
        assert (tmp_path / file.path).stat().st_size == file.size
        found = pq.read_table(tmp_path / file.path, partitioning=None)["seq"].to_pylist()
        assert {str(seq % 9) for seq in found} == {dict(file.partition)["p"]}
        seqs += found
    assert sorted(seqs) == list(range(500))


def test_no_rows_no_file(tmp_path):
    schema = pa.schema([("seq", pa.int64())])
    assert (
        write_rows([pa.RecordBatch.from_pylist([], schema=schema)], place(tmp_path), schema, "w")
        == []
    )
    assert list(tmp_path.iterdir()) == []


def test_columns_come_in_any_order_and_with_a_zone_of_their_own(tmp_path):
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("seq", pa.int64())])
    given_schema = pa.schema([("seq", pa.int64()), ("at", pa.timestamp("us", "Europe/Berlin"))])
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    batch = pa.RecordBatch.from_pylist([{"seq": 1, "at": at}], schema=given_schema)
    with DataFiles(place(tmp_path), schema, "w") as files:
        files.write(batch)
        [file] = files.finish()
    assert pq.read_table(tmp_path / file.path).to_pylist() == [{"at": at, "seq": 1}]
    assert file.maximum("seq") == 1
    assert file.maximum("nobody") is None


@given(st.text(max_size=80), st.text(max_size=80))
def test_folders_of_different_values_differ_and_are_plain(one, other):
    for text in (one, other):
        assert set(folder_name(text)) <= set(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
        )
    assert (folder_name(one) == folder_name(other)) == (one == other)


def test_texts_of_partition_values():
    assert partition_text(True) == "true"
    assert partition_text("") is None
    assert partition_text(None) is None
    assert partition_text(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01 00:00:00"
    assert partition_text(date(2026, 1, 1)) == "2026-01-01"
    assert partition_text(Decimal("1.500")) == "1.500"
    assert partition_text(Decimal("0E-7")) == "0.0000000"
    assert partition_text(math.nan) == "NaN"
    assert partition_text(-math.inf) == "-Infinity"


def test_the_choice_of_dictionaries_is_made_anew_for_some_files_and_for_larger_ones():
    same, different = (pa.table({"n": [n * step for n in range(100)]}) for step in (0, 1))
    choices = DictionaryChoices()
    assert choices.of("one", same) is True
    assert choices.of("two", different) is False
    assert [choices.of("one", different) for _ in range(choices.FILES)] == [
        *[True] * (choices.FILES - 1),
        False,
    ]
    many = pa.concat_tables([same] * 5)
    assert choices.of("one", many) is True
    assert choices.of("one", pa.table({"m": range(100)})) is False
