"""Batches of Spark into tables: what the pure transforms make, once, whatever is run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pelton.plgd.codec import Envelope
from pelton.plgd.columns import decode_batch
from pelton.plgd.spark import dead_letters, decoded, sharing
from pelton.plgd.spark.batches import take_batch
from pelton.plgd.spark.homes import CatalogHome
from pelton.plgd.spark.lake import Lake
from pelton.plgd.spark.sharing import COLUMNS
from pelton.plgd.tables import TABLES
from pelton.plgd.tables.batch import MESSAGES
from pelton.plgd.tables.buckets import bucket_key, bucket_of
from pelton.plgd.tables.settings import Settings
from pelton.spark.tables.commits import HERE
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import TableError
from tests.plgd import vectors
from tests.plgd.tables_help import IcebergLake, Memory, cut
from tests.plgd.test_tables_truth import FAULTS, run_of
from tests.spark.iceberg_help import table_of
from tests.ways import EVERY_WAY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SETTINGS = Settings(buckets=2, late_s=60.0)
KINDS = ["delta", "iceberg"]


def frame(spark: SparkSession, messages: pa.Table) -> DataFrame:
    """Messages as ``format("jetstream")`` gives them."""
    renamed = messages.drop_columns(["bucket", "headers"]).rename_columns({"received": "ts"})
    return spark.createDataFrame(renamed)


def rows_of(folder: Path, name: str) -> list[str]:
    table = DeltaTable(str(folder / name)).to_pyarrow_table()
    return sorted(map(repr, table.select(TABLES[name].schema.names).to_pylist()))


def rows_in(lake: Lake, name: str) -> list[str]:
    """What another reader finds in a table of a lake."""
    if isinstance(lake.home, CatalogHome):
        table = table_of(lake.tables[name]).scan().to_arrow()
        rows = table.select(TABLES[name].schema.names).cast(TABLES[name].schema)
        return sorted(map(repr, rows.to_pylist()))
    folder = lake.places[name].folder
    assert folder is not None
    return rows_of(folder.parent, name)


def made(kind: str, folder: Path, settings: Settings = SETTINGS) -> Lake:
    return IcebergLake(folder, settings) if kind == "iceberg" else Lake(folder, settings)


@pytest.fixture(scope="module")
def messages() -> pa.Table:
    short: dict[str, Any] = {"devices": 6, "duration_s": 900.0, "session_s": 200.0}
    return run_of(seed=2, faults=FAULTS, **short)[1]


@pytest.fixture(scope="module")
def memory(messages: pa.Table) -> Memory:
    memory = Memory(SETTINGS)
    memory.run(messages)
    return memory


@pytest.mark.parametrize("size", [1, 3, 100])
def test_blocks_have_each_message_in_its_bucket(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    subjects = [
        "plgd.owners.o.devices.d1.metadata.devicemetadataupdated",
        "plgd.owners.o.devices.d2.resources.h.resourcechanged.leadrt.oic.wk.d",
        "plgd.owners.o.registrations.devicesregistered",
        *("events.d1.metadata.x", "events.d1", "plgd.owners", "orders.new", "plgd", "", None),
        *("plgd.owners.o.devices", "plgd.owners.o.devices.", "plgd.owners.o.other.d1", "."),
    ]
    count = len(subjects)
    headers = [None, *[[("Nats-Msg-Id", [str(n), "again"])] for n in range(1, count)]]
    given = {"stream": ["S"] * count, "seq": range(count), "ts": range(count), "subject": subjects}
    given |= {"headers": headers, "data": [bytes([n]) * n for n in range(count)]}
    types = [f.with_name("ts" if f.name == "received" else f.name) for f in MESSAGES][:-1]
    rows = pa.table(
        given, schema=pa.schema([types[[t.name for t in types].index(n)] for n in COLUMNS])
    )
    monkeypatch.setattr(sharing, "BLOCK_ROWS", size)
    made = list(sharing.shared(rows.to_batches(max_chunksize=2), 7))
    got: list[dict[str, Any]] = []
    for batch in made:
        for bucket, block in zip(batch["bucket"].to_pylist(), batch["block"], strict=True):
            mine = pa.Table.from_batches(sharing.unpacked(block), MESSAGES).to_pylist()
            assert {row["bucket"] for row in mine} == {bucket}
            got += mine
    wanted = rows.rename_columns({"ts": "received"}).to_pylist()
    for row in wanted:
        row["subject"] = row["subject"] or ""
        row["bucket"] = bucket_of(bucket_key(row["subject"]), 7)
    assert sorted(got, key=lambda row: row["seq"]) == wanted
    assert list(sharing.shared([], 7)) == []


def test_decoded_is_decode_batch(spark: SparkSession, messages: pa.Table) -> None:
    some = messages.slice(0, 500)
    got = decoded(frame(spark, some), content="json").toArrow().sort_by("seq")
    wanted = decode_batch(some["subject"], some["data"], content="json")
    for name in wanted.schema.names:
        assert got[name].to_pylist() == wanted[name].to_pylist(), name
    bad = dead_letters(decoded(frame(spark, messages))).toArrow()
    assert bad.column_names == ["stream", "seq", "ts", "reason", "detail", "payload"]
    assert set(bad["seq"].to_pylist()) > set()
    assert bad["payload"].null_count == 0
    # Spark has no unsigned numbers.
    envelope = Envelope.FromString(vectors.CHANGED)
    envelope.version = 2**64 - 1
    columns = {"seq": [1, 2], "subject": [vectors.CHANGED_SUBJECT] * 2}
    columns["data"] = [envelope.SerializeToString(), vectors.CHANGED]
    rows = decoded(spark.createDataFrame(pa.table(columns))).toArrow().sort_by("seq")
    assert rows["version"].to_pylist() == [None, 7]
    assert rows["error"].to_pylist() == ["event", None]
    assert rows["error_detail"][0].as_py() == f"version {2**64 - 1} is none of a hub"
    assert rows["payload"].to_pylist() == [columns["data"][0], None]


@pytest.mark.parametrize("kind", KINDS)
def test_batches_make_the_tables(
    spark: SparkSession, messages: pa.Table, memory: Memory, tmp_path: Path, kind: str
) -> None:
    lake = made(kind, tmp_path)
    lake.create()
    for number, part in enumerate(cut(messages, 1500)):
        mark = Mark("q", number, "run")
        counts = take_batch(lake, frame(spark, part), mark)
        assert counts.messages == len(part)
    again = take_batch(lake, frame(spark, part), Mark("q", number, "another run"))
    assert again.messages == len(part)
    for name in TABLES:
        assert rows_in(lake, name) == sorted(map(repr, memory.rows(name))), name
    last = max(row["last_ns"] for row in memory.rows("aggregates"))
    assert lake.greatest("aggregates", "last_ns") == last
    assert lake.dataset("raw").count_rows() == len(messages)
    with pytest.raises(TableError, match="2 buckets"):
        made(kind, tmp_path, Settings(buckets=3)).create()


class Killed(BaseException):
    """The process dies here."""


def dying(lake: Lake, lives: int) -> Lake:
    """The same tables, whose process dies behind a number of commits."""
    commit = lake.take

    def take(*args: Any) -> None:
        nonlocal lives
        lives -= 1
        if lives < 0:
            raise Killed
        commit(*args)

    lake.take = take  # type: ignore[method-assign]  # it dies on purpose
    return lake


@pytest.mark.parametrize(
    ("kind", "lives"),
    [("delta", 4), ("iceberg", 4), *(pytest.param("delta", n, marks=EVERY_WAY) for n in (1, 8))],
)
def test_a_batch_that_was_killed_between_commits_is_made_whole(
    spark: SparkSession,
    messages: pa.Table,
    memory: Memory,
    tmp_path: Path,
    kind: str,
    lives: int,
) -> None:
    lake = made(kind, tmp_path)
    lake.create()
    half = len(messages) // 2
    first, second = frame(spark, messages.slice(0, half)), frame(spark, messages.slice(half))
    take_batch(lake, first, Mark("q", 0, "run"))
    other = made(kind, tmp_path)
    other.create()
    with pytest.raises(Killed):
        take_batch(dying(other, lives), second, Mark("q", 1, "run"))
    if kind == "delta":
        for place in lake.places.values():
            HERE.forget(place)
    take_batch(lake, second, Mark("q", 1, "run 2"))
    for name in TABLES:
        assert rows_in(lake, name) == sorted(map(repr, memory.rows(name))), name
