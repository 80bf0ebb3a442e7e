"""The tables' schemas: keys and partitions are columns, Delta can hold them, and the page lists them."""

from pathlib import Path

import pyarrow as pa
import pytest

from pelton.plgd.tables import TABLES, TableSchema, Way, commands
from pelton.plgd.tables.rows import OpenRows
from pelton.plgd.tables.schemas import COMMANDS
from pelton.plgd.tables.settings import Settings

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


@pytest.mark.parametrize(("deleted_s", "outcome"), [(105, "dropped"), (120, "expired")])
@pytest.mark.parametrize("at_once", [True, False])
def test_what_had_expired_before_its_resource_was_deleted_is_not_dropped(
    deleted_s: int, outcome: str, at_once: bool
) -> None:
    second = 1_000_000_000
    shared = dict.fromkeys(commands.COLUMNS) | {"aggregate_id": "a", "incarnation": 0, "bucket": 0}
    waits = {"event_type": "resourceupdatepending", "version": 1, "correlation_id": "one"}
    waits |= {"timestamp_ns": 100 * second, "valid_until_ns": 110 * second, "may_be_late": False}
    ends = {"event_type": "resourcedeleted", "version": 2, "correlation_id": "two", "status": "OK"}
    ends |= {"timestamp_ns": deleted_s * second, "may_be_late": False}
    rows = [shared | waits, shared | ends]
    table = OpenRows(COMMANDS, COMMANDS.schema.empty_table(), "aggregate_id")
    for part in [rows] if at_once else [[row] for row in rows]:
        commands.join(table, part, {})
        # Another device of the bucket is ahead of this one.
        commands.end_commands(table, 130 * second, Settings(late_s=60.0))
    [found] = [row for row in table.rows.values() if row["correlation_id"] == "one"]
    assert found["outcome"] == outcome
