"""Texts that are not UTF-8 and dates that Python lacks: the row goes aside, the others are written."""

import warnings

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812  the customary name

from pelton.spark.parsing import OptionError
from pelton.spark.tables import upsert
from pelton.spark.tables.aside_options import AsideOptions
from pelton.spark.tables.places import TableError
from pelton.spark.unfit import unfit_rows, without_values
from tests.spark import iceberg_help

BYTES = st.one_of(
    st.none(), st.text(max_size=3).map(str.encode), st.sampled_from([b"\xff", b"a\xed\xa0\x80"])
)
DAYS = st.one_of(
    st.none(), st.sampled_from([-719_163, -719_162, 0, 2_932_896, 2_932_897]), st.integers(0, 9)
)


def texts(values):
    made = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(made), made.buffers())


def is_fit(value, days):
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return days is None or -719_162 <= days <= 2_932_896


@given(st.lists(st.tuples(BYTES, DAYS), max_size=12), st.data())
def test_rows_are_found_as_one_by_one(rows, data):
    values, days = [row[0] for row in rows], [row[1] for row in rows]
    text, day = texts(values), pa.array(days, pa.int32()).cast(pa.date32())
    moment = pa.array([None if d is None else d * 86_400_000_000 for d in days], pa.int64())
    offsets = pa.array(range(len(rows) + 1), pa.int32())
    columns = {
        "text": text,
        "day": day,
        "moment": moment.cast(pa.timestamp("us", "UTC")),
        "list": pa.ListArray.from_arrays(offsets, text),
        "map": pa.MapArray.from_arrays(offsets, pa.array(["k"] * len(rows)), text),
        "struct": pa.StructArray.from_arrays([text, day], names=["text", "day"]),
    }
    batch = pa.record_batch(columns)
    start = data.draw(st.integers(0, len(rows)))
    by_text = [not is_fit(value, None) for value in values]
    by_day = [not is_fit(None, each) for each in days]
    both = [one or other for one, other in zip(by_text, by_day, strict=True)]
    wanted = [by_text, by_day, by_day, by_text, by_text, both]
    for name, bad in zip(columns, wanted, strict=True):
        found = unfit_rows(batch.select([name]).slice(start))
        assert sorted(found) == [row for row, one in enumerate(bad[start:]) if one]
    assert sorted(unfit_rows(batch)) == [row for row, one in enumerate(both) if one]
    plain = batch.select(["text", "day", "list"])
    assert unfit_rows(without_values(plain, unfit_rows(plain))) == {}


def rows_of(spark):
    """Five rows; sequences 2, 3 and 4 do not fit."""
    rows = [
        (1, b"a", 0, b"good"),
        (2, b"b", 0, b"bad\xff"),
        (3, b"c", 3_000_000, b"day"),
        (4, b"d\xfe", 0, b"key"),
        (5, b"e", 0, "gr\u00fcn".encode()),
    ]
    made = spark.createDataFrame(rows, "seq long, key binary, days int, word binary")
    return made.coalesce(1).select(
        "seq",
        F.col("key").cast("string").alias("key"),
        F.expr("date_add(date'1970-01-01', days)").alias("day"),
        F.create_map(F.lit("k"), F.array(F.col("word").cast("string"))).alias("words"),
    )


def check_side(folder):
    [path] = folder.iterdir()
    side = duckdb.sql(f"select seq, reason, data.key, epoch from '{path}' order by seq").fetchall()
    assert [row[0] for row in side] == [2, 3, 4]
    assert "words" in side[0][1]
    assert side[1][1] == "column day is outside the years 1 to 9999"
    assert side[2][1] == "column key is not UTF-8: b'd\\xfe'"
    assert [row[2] for row in side] == [b"b", b"c", b"d\xfe"]
    data = pq.read_table(path, columns=["data"])["data"].combine_chunks()
    assert data.field("words").to_pylist()[0] == [(b"k", [b"bad\xff"])]


def write(rows, table, kind, **options):
    if kind == "jetstream_iceberg":
        options = {**iceberg_options(table), **options}
    else:
        options["path"] = str(table)
    rows.write.format(kind).mode("append").options(**options).save()


def iceberg_options(table):
    properties = iceberg_help.properties_of(table)
    catalog = {f"catalog.{name}": value for name, value in properties.items()}
    return {"table": "lake.t", "catalog": "test", **catalog}


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["jetstream_delta", "jetstream_iceberg"])
def test_a_table_takes_the_rows_that_fit(spark, kind, tmp_path):
    table, side = tmp_path / "table", tmp_path / "side"
    table.mkdir()
    rows = rows_of(spark)
    with pytest.raises(PySparkException, match=r"\(seq 2\) cannot be written: column words"):
        write(rows, table, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write(rows, table, kind, onRowError="side", errorPath=str(side))
    check_side(side)
    if kind == "jetstream_delta":
        found = DeltaTable(table).to_pyarrow_table()
    else:
        found = iceberg_help.table_of(iceberg_help.address_of(table)).scan().to_arrow()
    assert sorted(found["seq"].to_pylist()) == [1, 5]
    found.validate(full=True)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_an_upsert_takes_the_newest_row_that_fits(spark, tmp_path):
    rows = rows_of(spark)
    older = rows.where("seq = 1").withColumn("key", F.lit("c"))  # of the key whose newest is unfit
    rows = rows.unionByName(older)
    table, side = tmp_path / "table", tmp_path / "side"
    with pytest.raises(TableError, match=r"\(seq [234]\) cannot be written"):
        upsert(rows, 0, table, keys=["key"], query_id="q")
    upsert(rows, 0, table, keys=["key"], query_id="q", on_row_error="side", error_path=side)
    check_side(side)
    found = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert sorted((row["key"], row["seq"]) for row in found) == [("a", 1), ("c", 1), ("e", 5)]
    # The same batch again, without rows that do not fit.
    upsert(rows.where("seq in (1, 5)"), 1, table, keys=["key"], query_id="q")
    assert len(DeltaTable(table).to_pyarrow_table()) == 3


def test_options_that_contradict_one_another(tmp_path):
    with pytest.raises(OptionError, match="errorPath"):
        AsideOptions("side", None)
    with pytest.raises(OptionError, match="onRowError=side"):
        AsideOptions("fail", str(tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_an_upsert_puts_null_keys_and_sequences_aside(spark, tmp_path):
    rows = [(1, "a", "x"), (2, None, "y"), (None, "b", "z"), (4, "b", "w"), (None, None, "v")]
    rows = spark.createDataFrame([*rows, (3, "a", "u")], "seq long, key string, word string")
    table, side = tmp_path / "table", tmp_path / "side"
    with pytest.raises(TableError, match="key and seq must not be null"):
        upsert(rows, 0, table, keys=["key"], query_id="q")
    options = {"keys": ["key"], "query_id": "q", "on_row_error": "side", "error_path": side}
    for _ in range(2):  # the second time as Spark does after a failure
        with pytest.warns(UserWarning, match="3 rows could not be written into the table"):
            upsert(rows, 0, table, **options)
    found = DeltaTable(table).to_pyarrow_table().to_pylist()
    assert sorted((row["key"], row["seq"]) for row in found) == [("a", 3), ("b", 4)]
    [path] = side.iterdir()
    aside = duckdb.sql(f"select seq, reason, data.word from '{path}' order by data.word").fetchall()
    assert aside == [
        (None, "column key is null", b"v"),
        (2, "column key is null", b"y"),
        (None, "column seq is null", b"z"),
    ]
    with pytest.warns(UserWarning, match="1 rows"):  # a batch without a row that fits
        upsert(rows.where("word = 'y'"), 1, table, **options)
    assert len(DeltaTable(table).to_pyarrow_table()) == 2
