"""Options of Iceberg tables: every row reads what it promises; properties of catalogs stay secret."""

import pickle
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pelton.spark.iceberg.options import READ_ROWS, WRITE_ROWS, Address, parse_read, parse_write
from pelton.spark.parsing import OptionError

WRITING = {
    "table": "lake.sales.orders",
    "catalog": "prod",
    "partitionBy": "day, stream",
    "mergeSchema": "true",
    "maxRecordsPerFile": "1000",
    "checkReplay": "FALSE",
    "txnAppId": "import",
    "txnVersion": "0",
    "catalog.uri": "http://rest:8181",
    "catalog.credential": "robot:hush",
    "checkpointLocation": "/data/c",
    "queryName": "orders",
}
READING = {
    "path": "sales.orders",
    "columns": "seq,data",
    "snapshotId": "77",
    "partitionBytes": "1m",
    "catalog.type": "sql",
}


def test_all_of_a_write():
    given = {name.upper(): text for name, text in WRITING.items() if "catalog." not in name}
    options = parse_write(given, streaming=False)
    assert options.where == Address("prod", ("lake", "sales", "orders"))
    assert options.where.namespace == ("lake", "sales")
    assert options.partition_by == ("day", "stream")
    assert options.merge_schema
    assert not options.check_replay
    assert options.rows_per_file == 1000
    assert (options.mark_name, options.mark_number) == ("import", 0)
    assert pickle.loads(pickle.dumps(options)) == options


def test_all_of_a_read():
    options = parse_read(READING, streaming=False)
    assert options.where == Address("default", ("sales", "orders"), (("type", "sql"),))
    assert options.columns == ("seq", "data")
    assert options.version == 77
    assert options.partition_bytes == 2**20
    times = parse_read({"table": "a.b", "timestampAsOf": "2026-10-16 23:04:01"}, streaming=False)
    assert times.time == datetime(2026, 10, 16, 23, 4, 1, tzinfo=UTC)


def test_properties_are_not_shown():
    options = parse_write(WRITING, streaming=False)
    assert dict(options.where.properties)["credential"] == "robot:hush"
    for shown in (repr(options), str(options), str(options.where)):
        assert "hush" not in shown
    assert "credential" in repr(options)
    assert str(options.where) == "prod.lake.sales.orders"


def test_a_table_given_twice_is_the_one_of_the_option():
    assert parse_read({"path": "a.b", "table": "c.d"}, streaming=False).where.table == ("c", "d")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("table", "orders"),
        ("table", "a..b"),
        ("table", "/data/orders.parquet/x"),
        ("catalog", ""),
        ("partitionBy", "a,a"),
        ("mergeSchema", "yes"),
        ("maxRecordsPerFile", "0"),
        ("txnVersion", "-1"),
    ],
)
def test_bad_values_of_a_write(name, text):
    with pytest.raises(OptionError, match=rf"option {name} is .*, but must be .+"):
        parse_write({"table": "a.b", name: text}, streaming=False)


@pytest.mark.parametrize(
    ("given_options", "streaming", "word"),
    [
        ({}, True, "table is missing"),
        ({"table": "a.b", "txnAppId": "a"}, False, "go together"),
        ({"table": "a.b", "txnAppId": "a", "txnVersion": "1"}, True, "batch writes"),
        ({"table": "a.b", "snapshotId": "1"}, True, "no option 'snapshotId'"),
        ({"table": "a.b", "overwriteSchema": "true"}, True, "no option 'overwriteSchema'"),
    ],
)
def test_options_that_do_not_go_together(given_options, streaming, word):
    with pytest.raises(OptionError, match=word):
        parse_write(given_options, streaming=streaming)


def test_a_read_is_of_a_snapshot_or_of_a_time():
    with pytest.raises(OptionError, match="either"):
        parse_read(
            {"table": "a.b", "snapshotId": "1", "timestampAsOf": "2026-01-01"}, streaming=False
        )
    with pytest.raises(OptionError, match="snapshotId is 'newest'"):
        parse_read({"table": "a.b", "snapshotId": "newest"}, streaming=False)


@pytest.mark.parametrize(
    ("rows", "heading"),
    [(WRITE_ROWS, "## Options of a write"), (READ_ROWS, "## Options of a read")],
)
def test_the_reference_names_every_option(rows, heading):
    page = (Path(__file__).parents[2] / "docs" / "reference" / "spark-iceberg.md").read_text()
    table = page.partition(heading)[2].partition("\n## ")[0]
    documented = set(re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE))
    names = {name.strip(" `") for cell in documented for name in cell.split(",")}
    assert names == {row.name for row in rows} | {"catalog.*"}
