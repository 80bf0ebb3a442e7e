"""Addresses, files and writes for tests of Iceberg tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pelton[iceberg]")
pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed: pelton[iceberg]")

from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from pelton.spark.iceberg.data_files import Target
from pelton.spark.iceberg.options import Address
from pelton.spark.tables.commits import Tables
from pelton.spark.tables.maintenance import Plan, Report
from pelton.spark.tables.maintenance import maintain as maintained
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.parquet import write_rows
from pelton.spark.tables.table import Write
from tests.spark.tables_help import SCHEMA, batch_of

_numbers = itertools.count()


def properties_of(folder: Path) -> dict[str, str]:
    """A catalog in a file, and tables in a folder beside it."""
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse"
    return {"type": "sql", "uri": uri, "warehouse": warehouse}


def address_of(folder: Path, table: str = "lake.t", **more: str) -> Address:
    """A table in a catalog of its own."""
    given = properties_of(folder) | more
    return Address("test", tuple(table.split(".")), tuple(sorted(given.items())))


def table_of(address: Address) -> Table:
    """The table as another program opens it."""
    return load_catalog(address.catalog, **dict(address.properties)).load_table(address.table)


def sequences(address: Address) -> list[int]:
    """What another reader finds in the table, in order."""
    rows = table_of(address).scan(selected_fields=("seq",)).to_arrow()
    return sorted(rows["seq"].to_pylist())


def prepare(
    address: Address,
    schema: pa.Schema,
    *,
    partition_by: tuple[str, ...] | None = None,
    merge_schema: bool = False,
) -> Target:
    """What writers of rows must know of the table, which has their columns then."""
    need = Write(schema, partition_by=partition_by, merge_schema=merge_schema)
    table = Tables().prepare(address, need)
    return table.target(table.check(need).columns)


def maintain(
    address: Address, keep_hours: int = 7 * 24, *, target_bytes: int | None = None, **given: object
) -> Report:
    """Maintain a table; without ``target_bytes`` files are not compacted."""
    compacting = {"compact": False} if target_bytes is None else {"target_bytes": target_bytes}
    return maintained(address, Plan(keep_hours=keep_hours, **compacting, **given))


def write_of(
    address: Address,
    seqs: Iterable[int],
    mark: Mark | None = None,
    *,
    schema: pa.Schema = SCHEMA,
    merge: bool = False,
    partition_by: tuple[str, ...] | None = None,
    **given: object,
) -> Write:
    """A write of one row per sequence."""
    return rows_of(
        address, batch_of(seqs, schema), mark, merge=merge, partition_by=partition_by, **given
    )


def rows_of(
    address: Address,
    rows: pa.RecordBatch,
    mark: Mark | None = None,
    *,
    merge: bool = False,
    partition_by: tuple[str, ...] | None = None,
    rows_per_file: int | None = None,
    **given: object,
) -> Write:
    """A write of these rows."""
    target = prepare(address, rows.schema, merge_schema=merge, partition_by=partition_by)
    files = write_rows([rows], target, f"f{next(_numbers)}", rows_per_file)
    return Write(rows.schema, files, mark=mark, target=target, **given)
