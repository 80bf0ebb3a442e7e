"""The statistics that the log has of the tables: of columns that grow along the stream, which every reader bears."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema

from pelton.plgd.spark import lake
from pelton.plgd.spark.homes import CHECKPOINT_EACH, DeltaHome
from pelton.plgd.tables import TABLES, Settings
from pelton.plgd.tables.schemas import BOUNDED
from pelton.spark.delta.data_files import DeltaTarget
from pelton.spark.delta.statistics import STATISTICS_OF, columns_of
from pelton.spark.delta.table import Delta
from pelton.spark.delta.tails import INTERVAL
from pelton.spark.tables.compaction import compact
from tests.plgd.tables_help import Memory, cut
from tests.plgd.test_pages import Tables
from tests.plgd.test_tables_truth import FAULTS, run_of

SETTINGS = Settings(buckets=2)


@pytest.fixture(scope="module")
def messages() -> pa.Table:
    short: dict[str, Any] = {"devices": 5, "duration_s": 600.0, "session_s": 200.0}
    return run_of(seed=4, faults=FAULTS, **short)[1]


def with_statistics(table: DeltaTable) -> list[set[str]]:
    """The columns that have some, of each file by its entry in the log."""
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    names = [name for name in actions.column_names if name.startswith("null_count.")]
    return [
        {name.removeprefix("null_count.") for name in names if row[name] is not None}
        for row in actions.to_pylist()
    ]


def older(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tables made, and files written, as before the property was there."""

    def complete(home: DeltaHome, name: str, table: Any, told: str) -> None:
        schema = TABLES[name]
        DeltaTable.create(
            home.where(name).uri,
            Schema.from_arrow(schema.schema),
            partition_by=list(schema.partition_by),
            description=f"{schema.meaning}; {told}",
            configuration={INTERVAL: "10"},
        )

    def target(home: DeltaHome, name: str, table: Delta) -> DeltaTarget:
        return table.target(TABLES[name].schema)

    monkeypatch.setattr(DeltaHome, "complete", complete)
    monkeypatch.setattr(DeltaHome, "target", target)
    monkeypatch.setattr(lake.Lake, "tail", lambda *_: None)  # each commit by deltalake
    tables.lake.create()


def check(tables: Tables, messages: pa.Table) -> None:
    """Every reader finds the rows of a device, of a version, of a null and of a time, as all rows have them."""
    memory = Memory(SETTINGS)
    memory.run(messages)
    for name in TABLES:
        columns = TABLES[name].schema.names
        found = tables.lake.dataset(name).to_table(columns=columns).to_pylist()
        assert sorted(map(repr, found)) == sorted(map(repr, memory.rows(name))), name
    rows = memory.rows("events")
    device = next(row["device_id"] for row in rows if row["device_id"])
    version = rows[-1]["version"]
    seq = sorted(row["seq"] for row in rows)[len(rows) // 2]
    wanted = [
        sum(row["device_id"] == device for row in rows),
        sum(row["version"] == version for row in rows),
        sum(row["status"] is None for row in rows),
        sum(row["seq"] >= seq for row in rows),
    ]
    table = DeltaTable(tables.lake.places["events"].uri)
    rows_of = table.to_pyarrow_dataset()
    asked = [
        ds.field("device_id") == device,
        ds.field("version") == version,
        ds.field("status").is_null(),
        ds.field("seq") >= seq,
    ]
    assert [rows_of.count_rows(filter=one) for one in asked] == wanted
    texts = [f"device_id = '{device}'", f"version = {version}", "status is null", f"seq >= {seq}"]
    queries = [f"select seq from t where {text}" for text in texts]
    with duckdb.connect() as duck:
        duck.register("t", rows_of)
        assert [len(duck.execute(one).fetchall()) for one in queries] == wanted
    engine = QueryBuilder().register("t", table)
    found_by = [pa.table(engine.execute(one).read_all()).num_rows for one in queries]
    assert found_by == wanted
    scan = pl.scan_delta(tables.lake.places["events"].uri)
    filters = [
        pl.col("device_id") == device,
        pl.col("version") == version,
        pl.col("status").is_null(),
        pl.col("seq") >= seq,
    ]
    assert [scan.filter(one).collect().height for one in filters] == wanted


def test_the_log_has_bounds_of_what_grows_along_the_stream(
    tmp_path: Path, messages: pa.Table
) -> None:
    tables = Tables(tmp_path, SETTINGS)
    for part in cut(messages, 400):
        tables.take(part)
    for name, schema in TABLES.items():
        assert schema.bounded
        assert set(schema.bounded) == BOUNDED & set(schema.schema.names)
        table = DeltaTable(tables.lake.places[name].uri)
        assert columns_of(table.metadata().configuration) == frozenset(schema.bounded)
        assert all(columns <= set(schema.bounded) for columns in with_statistics(table))
    check(tables, messages)
    assert tables.lake.greatest("raw", "seq") == len(messages)


def test_tables_of_an_older_version_go_on(
    tmp_path: Path, messages: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = list(cut(messages, 400))
    tables = Tables.__new__(Tables)
    tables.lake, tables.number = lake.Lake(tmp_path, SETTINGS), -1
    with monkeypatch.context() as before:
        older(tables, before)
        for part in parts[:2]:
            tables.take(part)
        table = DeltaTable(tables.lake.places["events"].uri)
        assert all("device_id" in columns for columns in with_statistics(table))
    tables.lake.create()
    for part in parts[2:]:
        tables.take(part)
    check(tables, messages)
    table = DeltaTable(tables.lake.places["events"].uri)
    assert table.metadata().configuration[INTERVAL] == CHECKPOINT_EACH
    version = table.version()
    tables.lake.create()  # which finds nothing to do
    assert DeltaTable(tables.lake.places["events"].uri).version() == version


def test_compaction_keeps_to_the_columns(tmp_path: Path, messages: pa.Table) -> None:
    tables = Tables(tmp_path, SETTINGS)
    for part in cut(messages, 300):
        tables.take(part)
    for name, schema in TABLES.items():
        place = tables.lake.places[name]
        compact(place, 2**27)
        table = DeltaTable(place.uri)
        assert all(columns <= set(schema.bounded) for columns in with_statistics(table))
    check(tables, messages)


@pytest.mark.parametrize(
    ("told", "names"),
    [
        (None, None),
        ("", None),
        ("a", {"a"}),
        ("a,`b c` , d", {"a", "b c", "d"}),
        ("a,b.c", None),
    ],
)
def test_a_table_says_which_columns_it_wants(told: str | None, names: set[str] | None) -> None:
    configuration = {} if told is None else {STATISTICS_OF: told}
    assert columns_of(configuration) == names
