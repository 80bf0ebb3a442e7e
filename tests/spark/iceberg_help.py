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

from pelton.spark.iceberg.commits import Write, prepare
from pelton.spark.iceberg.data_files import WrittenFile, write_rows
from pelton.spark.iceberg.options import Address
from pelton.spark.tables.marks import Mark
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
    files: list[WrittenFile] = write_rows([rows], target, f"f{next(_numbers)}", rows_per_file)
    return Write(target, files, mark, **given)
