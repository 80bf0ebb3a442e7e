"""The tables' schemas: keys and partitions are columns, Delta can hold them, and the page lists them."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.plgd.tables import TABLES, TableSchema, Way

ROOT = Path(__file__).parents[2]

EVERY = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)


@EVERY
def test_keys_and_partitions_are_columns(table: TableSchema) -> None:
    names = table.schema.names
    assert len(set(names)) == len(names)
    assert set(table.key) <= set(names)
    assert tuple(names[-len(table.partition_by) :]) == table.partition_by
    assert table.partition_by[-1] == "bucket"
    assert (table.way is Way.OPEN) == ("is_open" in table.partition_by)


@EVERY
def test_a_table_has_no_unsigned_type(table: TableSchema) -> None:
    assert not any(pa.types.is_unsigned_integer(kind) for kind in table.schema.types)


def test_the_page_lists_the_tables() -> None:
    command = [sys.executable, ROOT / "tools/gen_plgd_tables.py", "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run tools/gen_plgd_tables.py"
