"""Tables that others change beside a pipeline, and tables of an older and of a newer Pelton."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType
from pyspark.sql import SparkSession

from pelton.plgd.fleet import Faults
from pelton.plgd.spark.batches import take_batch
from pelton.plgd.spark.homes import CatalogHome
from pelton.plgd.spark.lake import Begun, Lake
from pelton.plgd.spark.maintaining import look_after
from pelton.plgd.tables import TABLES
from pelton.plgd.tables.opening import dataset
from pelton.plgd.tables.settings import Settings
from pelton.spark.tables.maintenance import Plan
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import TableError
from pelton.spark.tables.table import FilesGoneError
from tests.plgd.spark.test_batches import KINDS, frame, made, rows_in
from tests.plgd.tables_help import IcebergLake, Memory, cut
from tests.plgd.test_tables_truth import FAULTS, run_of
from tests.ways import EVERY_WAY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
LATE: dict[str, Any] = {"devices": 6, "duration_s": 900.0, "session_s": 60.0}
SETTINGS = Settings(buckets=2, late_s=0.0)


class Beside(Lake):
    """Tables that are compacted while a batch is made, each time that it begins, until it was made again."""

    again = 0
    compacted = 0

    def begin(self, mark: Mark) -> Begun:
        begun = super().begin(mark)
        for done in look_after(self, Plan(keep_hours=1), None):
            assert done.error is None
            self.compacted += done.report.compacted
        return begun

    def commit(self, *args: Any) -> Any:
        try:
            return super().commit(*args)
        except FilesGoneError:
            self.again += 1
            raise


class IcebergBeside(Beside, IcebergLake):
    """The same of Iceberg tables."""


def with_late_ends(messages: pa.Table) -> pa.Table:
    """The same messages, but the first confirmations come at the end, when their commands have expired."""
    late = pc.ends_with(messages["subject"], ".resourceupdated").to_numpy().copy()
    late[len(messages) // 2 :] = False
    assert late.any()
    parts = [messages.filter(pa.array(~late)), messages.filter(pa.array(late))]
    seq = messages.schema.get_field_index("seq")
    return pa.concat_tables(parts).set_column(seq, "seq", messages["seq"])


# Beside Delta tables another process maintains: tests/cli/test_plgd_maintain.py.
@pytest.mark.parametrize("kind", [IcebergBeside, pytest.param(Beside, marks=EVERY_WAY)])
def test_maintenance_beside_a_run_loses_and_stops_nothing(
    spark: SparkSession, tmp_path: Path, kind: type[Beside]
) -> None:
    _, messages = run_of(seed=5, faults=FAULTS, command_interval_s=10.0, **LATE)
    messages = with_late_ends(messages)
    memory = Memory(SETTINGS)
    lake = kind(tmp_path, SETTINGS)
    lake.create()
    for number, part in enumerate(cut(messages, len(messages) // 4 + 1)):
        memory.run(part)
        take_batch(lake, frame(spark, part), Mark("q", number, "run"))
    assert lake.compacted > 0
    assert lake.again > 0
    for name in TABLES:
        assert rows_in(lake, name) == sorted(map(repr, memory.rows(name))), name


def without(lake: Lake, name: str, column: str) -> None:
    """Make the tables as an older Pelton does, which lacks a column."""
    table = TABLES[name]
    field = table.schema.get_field_index(column)
    older = pa.schema([f for f in table.schema if f.name != column])
    assert field >= 0
    if isinstance(lake.home, CatalogHome):
        from pelton.spark.iceberg.catalogs import create

        lake.home.prepare()
        create(lake.tables[name], older, table.partition_by)
        return
    from deltalake import Schema

    folder = lake.tables[name].folder
    assert folder is not None
    DeltaTable.create(
        str(folder),
        Schema.from_arrow(older),
        partition_by=list(table.partition_by),
        description=f"{table.meaning}; 2 buckets",
    )


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_an_older_version_get_its_columns_and_tables(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    _, messages = run_of(seed=5, faults=Faults(), **LATE)
    messages = messages.slice(0, 400)
    memory = Memory(SETTINGS)
    lake = made(kind, tmp_path, SETTINGS)
    # All other tables are not there at all, as if the newer version brought them.
    for name, column in [("events", "etag"), ("sessions", "duration_s")]:
        without(lake, name, column)
    lake.create()
    memory.run(messages)
    take_batch(lake, frame(spark, messages), Mark("q", 0, "run"))
    for name in TABLES:
        assert rows_in(lake, name) == sorted(map(repr, memory.rows(name))), name
    # An older reader asks for the columns that it knows.
    known = dataset(tmp_path, "events").to_table(columns=["device_id", "version"])
    assert len(known) == len(memory.table("events"))


def test_tables_of_a_newer_version_are_not_written(tmp_path: Path) -> None:
    lake = Lake(tmp_path, SETTINGS)
    lake.create()
    newer = [Field("battery", PrimitiveType("double"))]
    DeltaTable(str(tmp_path / "events")).alter.add_columns(newer)
    Lake(tmp_path, SETTINGS).create()  # rows are added there: those of this version have none
    DeltaTable(str(tmp_path / "sessions")).alter.add_columns(newer)
    with pytest.raises(TableError, match=r"battery, which this version does not know"):
        Lake(tmp_path, SETTINGS).create()
