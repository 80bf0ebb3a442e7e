"""Tables that are not there, not whole or not as asked: an error of one line, never rows that are not
what was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from pelton.spark.delta.source import DeltaDataSource
from pelton.spark.parsing import OptionError
from pelton.spark.tables import writer as writers
from pelton.spark.tables.places import TableError
from tests.spark.tables_help import SCHEMA, batch_of

HUSH = "hush-hush"


class Task:
    """A task of Spark's, as far as a writer looks at it."""

    @staticmethod
    def get() -> type[Task]:
        return Task

    @staticmethod
    def partitionId() -> int:  # noqa: N802  Spark's name
        return 0

    @staticmethod
    def taskAttemptId() -> int:  # noqa: N802  Spark's name
        return 1


@pytest.fixture(autouse=True)
def _task(monkeypatch):
    monkeypatch.setattr(writers, "TaskContext", Task)


def write(path: object, schema: pa.Schema = SCHEMA, seqs: int = 3, **given: str) -> None:
    source = DeltaDataSource({"path": str(path), **given})
    writer = source.writer(from_arrow_schema(schema), overwrite=False)
    arrays = [pa.array([number] * seqs).cast(kind) for number, kind in enumerate(schema.types)]
    rows = iter([pa.RecordBatch.from_arrays(arrays, schema=schema)] if arrays else [])
    writer.commit([writer.write(rows)])


def read(path: object, **given: str) -> int:
    source = DeltaDataSource({"path": str(path), **given})
    reader = source.reader(source.schema())
    return sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))


def follow(path: object, **given: str) -> int:
    source = DeltaDataSource({"path": str(path), **given})
    reader = source.streamReader(source.schema())
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    return sum(
        batch.num_rows for part in reader.partitions(begin, end) for batch in reader.read(part)
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write(tmp_path / "t")
    return tmp_path / "t"


def refused(text: str, way: Callable[..., object], *given: object, **more: str) -> None:
    with pytest.raises((TableError, OptionError), match=text) as caught:
        way(*given, **more)
    said = str(caught.value)
    assert "\n" not in said
    assert "<unknown>" not in said
    assert HUSH not in said


def test_it_works(table):
    assert read(table) == follow(table) == 3
    assert len(batch_of(range(3))) == 3


def test_what_is_no_table(tmp_path):
    for way in (read, follow):
        refused("there is no table at", way, tmp_path / "none")
        refused("there is no table at", way, tmp_path)
    (tmp_path / "file").write_text("x")
    for way in (read, follow, write):
        refused("cannot (open|make) the table .*file", way, tmp_path / "file")
    refused("cannot (make|write|open) .*nothing", write, "/proc/nothing/t")


def damage_log(table: Path) -> None:
    min((table / "_delta_log").glob("*.json")).write_text("no JSON\n")


def remove_files(table: Path) -> None:
    for each in table.glob("*.parquet"):
        each.unlink()


def cut_files(table: Path) -> None:
    for each in table.glob("*.parquet"):
        each.write_bytes(each.read_bytes()[:-20])


def ways(*some: Callable[..., object]) -> Iterator[object]:
    yield from some


@pytest.mark.parametrize(
    ("harm", "text", "hurt"),
    [
        (damage_log, "cannot open the table", (read, follow, write)),
        (remove_files, "is missing: a vacuum removed", (read, follow)),
        (cut_files, "cannot be read", (read, follow)),
    ],
)
def test_a_table_that_is_not_whole(table, harm, text, hurt):
    harm(table)
    for way in hurt:
        refused(text, way, table)


def test_versions_and_times_that_there_are_none_of(table):
    refused("cannot be read at version 99", read, table, versionAsOf="99")
    refused(
        r"cannot be read at time 2001-.*its log begins at 20",
        read,
        table,
        timestampAsOf="2001-01-01T00:00:00Z",
    )
    assert read(table, timestampAsOf="2999-01-01T00:00:00Z") == 3
    refused(
        "startingVersion is 99, but the table .* version 1", follow, table, startingVersion="99"
    )
    assert follow(table, startingVersion="2") == 0
    assert follow(table, startingVersion="0") == 3


def test_columns_that_do_not_fit(table):
    other = pa.schema([("seq", pa.string()), ("word", pa.string())])
    refused("column seq is string, in the table bigint", write, table, other)
    more = SCHEMA.append(pa.field("x", pa.int32()))
    refused("column x int is not in the table", write, table, more)
    refused("columns names nope, but", read, table, columns="nope")
    refused("no option 'nope'", read, table, nope="1")
    refused("no option 'nope'", write, table, nope="1")
    new = table.parent / "new"
    refused("partitionBy names nope", write, new, partitionBy="nope")
    refused("partitionBy names every column", write, new, partitionBy="seq,word")
    refused("is partitioned not at all", write, table, partitionBy="word")
    twice = pa.schema([("a", pa.int64()), ("A", pa.int64())])
    refused("a table holds a name once, in any case", write, new, twice)
    refused("cannot make the table|column", write, new, pa.schema([]))


def test_a_store_that_does_not_answer():
    store = {
        "storage.aws_region": "eu",
        "storage.aws_endpoint_url": "http://127.0.0.1:1",
        "storage.allow_http": "true",
        "storage.aws_access_key_id": "a",
        "storage.aws_secret_access_key": HUSH,
        "storage.max_retries": "0",
    }
    for way in (read, follow, write):
        refused("cannot open the table s3://nobody/t: .*127", way, "s3://nobody/t", **store)
