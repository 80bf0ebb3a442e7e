"""Options of tables: every row reads what it promises; storage options stay secret."""

import pickle
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pelton.spark.delta.options import READ_ROWS, WRITE_ROWS, parse_read, parse_write
from pelton.spark.parsing import OptionError
from pelton.spark.tables.places import place

WRITING = {
    "path": "/data/t",
    "partitionBy": "day, stream",
    "mergeSchema": "true",
    "overwriteSchema": "false",
    "maxRecordsPerFile": "1000",
    "checkReplay": "FALSE",
    "txnAppId": "import",
    "txnVersion": "0",
    "checkpointLocation": "/data/c",
}
READING = {
    "path": "s3://bucket/t/",
    "columns": "seq,data",
    "versionAsOf": "0",
    "skipChangeCommits": "true",
    "startingVersion": "latest",
    "maxFilesPerTrigger": "5",
    "batchRows": "100",
    "partitionBytes": "1m",
    "pushdown": "false",
    "storage.aws_secret_access_key": "hush",
    "storage.aws_region": "eu",
}


def test_all_of_a_write():
    options = parse_write({name.upper(): text for name, text in WRITING.items()}, streaming=False)
    assert options.where == place("/data/t")
    assert options.partition_by == ("day", "stream")
    assert options.merge_schema
    assert not options.check_replay
    assert options.rows_per_file == 1000
    assert (options.mark_name, options.mark_number) == ("import", 0)
    assert pickle.loads(pickle.dumps(options)) == options


def test_all_of_a_read():
    options = parse_read(READING, streaming=False)
    assert options.where.uri == "s3://bucket/t"
    assert options.where.storage_options == {"aws_secret_access_key": "hush", "aws_region": "eu"}
    assert options.where.folder is None
    assert "hush" not in repr(options)
    assert "aws_secret_access_key" in repr(options)
    assert options.columns == ("seq", "data")
    assert options.version == 0
    assert options.starting == "latest"
    assert options.partition_bytes == 2**20
    times = parse_read({"path": "t", "timestampAsOf": "2026-10-16 23:04:01"}, streaming=False)
    assert times.time == datetime(2026, 10, 16, 23, 4, 1, tzinfo=UTC)
    assert times.where.folder == Path("t").absolute()


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/a b/ü", "/a b/ü"),
        ("file:///a/b%20c", "/a/b c"),
        ("file:/a/b", "/a/b"),
        ("b/c", str(Path("b/c").absolute())),
    ],
)
def test_folders(path, folder):
    assert str(place(path).folder) == folder


@pytest.mark.parametrize("path", ["", "hdfs://a/b", "dbfs:///x", "http://a"])
def test_other_addresses_are_refused(path):
    with pytest.raises(OptionError, match="s3://"):
        place(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("partitionBy", ""),
        ("partitionBy", "a,a"),
        ("mergeSchema", "yes"),
        ("maxRecordsPerFile", "0"),
        ("txnVersion", "-1"),
        ("txnAppId", ""),
        ("path", ""),
    ],
)
def test_bad_values_of_a_write(name, text):
    with pytest.raises(OptionError, match=rf"option {name} is .*, but must be .+"):
        parse_write({"path": "/t", name: text}, streaming=False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("columns", " , "),
        ("versionAsOf", "newest"),
        ("timestampAsOf", "soon"),
        ("startingVersion", "first"),
        ("maxFilesPerTrigger", "0"),
        ("skipChangeCommits", "1"),
        ("partitionBytes", "much"),
    ],
)
def test_bad_values_of_a_read(name, text):
    with pytest.raises(OptionError, match=rf"option {name} is .*, but must be .+"):
        parse_read({"path": "/t", name: text}, streaming=False)


@pytest.mark.parametrize(
    ("parser", "given_options", "streaming", "word"),
    [
        (parse_write, {}, True, "path is missing"),
        (parse_write, {"path": "/t", "txnAppId": "a"}, False, "go together"),
        (parse_write, {"path": "/t", "txnAppId": "a", "txnVersion": "1"}, True, "batch writes"),
        (parse_write, {"path": "/t", "overwriteSchema": "true"}, True, "batch writes"),
        (parse_write, {"path": "/t", "versionAsOf": "1"}, True, "no option 'versionAsOf'"),
        (parse_read, {"path": "/t", "versionAsOf": "1"}, True, "batch reads"),
        (
            parse_read,
            {"path": "/t", "versionAsOf": "1", "timestampAsOf": "2026-01-01"},
            False,
            "either",
        ),
    ],
)
def test_options_that_do_not_go_together(parser, given_options, streaming, word):
    with pytest.raises(OptionError, match=word):
        parser(given_options, streaming=streaming)


@pytest.mark.parametrize(
    ("rows", "heading"),
    [(WRITE_ROWS, "## Options of a write"), (READ_ROWS, "## Options of a read")],
)
def test_the_reference_names_every_option(rows, heading):
    page = (Path(__file__).parents[2] / "docs" / "reference" / "spark-tables.md").read_text()
    table = page.partition(heading)[2].partition("\n## ")[0]
    documented = set(re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE))
    names = {name.strip(" `") for cell in documented for name in cell.split(",")}
    assert names == {row.name for row in rows} | {"storage.*"}
