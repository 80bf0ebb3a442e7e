"""Makes docs/reference/plgd-tables.md, the list of the tables of a plgd hub's events.

Run without arguments to write it; with --check to exit 1 when it is not current.
"""

import sys
from pathlib import Path

import pyarrow as pa

from pelton.plgd.tables.schemas import TABLES, TableSchema, Way

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/plgd-tables.md"
HEAD = """# Tables of a plgd hub's events

The pipeline makes these tables from a [hub's events](plgd-events.md). Each table is a folder of its
name. `tools/gen_plgd_tables.py` makes this page from `pelton.plgd.tables.TABLES`, where programs
find the same.

- Every row is there once, whatever is killed. A message that arrives twice is two rows of `raw`,
  and one row of `events`.
- Versions decide, not the order of arrival: of two changes of a resource the one with the greater
  `incarnation` and `version` is the later one.
- `incarnation` counts how often the versions of an aggregate began again, because its device was
  deleted and came back, or the hub was restored.
- All rows of a device have the same `bucket`. A query with a condition on `bucket` or `day` reads only
  a part of the files.
- `_ns` is the hub's time in ns since 1970; a `time` is in UTC.

A table takes rows in one of three ways:

| way | rows |
|---|---|
| append | rows are added, and stay |
| current | one row for each key; a newer row replaces it |
| open | one row for each key; it may change while `is_open` is true, and stays afterwards |

| table | way | what it has |
|---|---|---|
"""


def type_name(kind: pa.DataType) -> str:
    """The name of a type, as Spark says it."""
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{one.name}: {type_name(one.type)}' for one in kind)}>"
    names = {pa.int64(): "bigint", pa.int32(): "int", pa.float64(): "double", pa.bool_(): "boolean"}
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return names.get(kind) or str(kind).removesuffix("32[day]")


def section(table: TableSchema) -> str:
    """One table."""
    key = ", ".join(f"`{name}`" for name in table.key)
    parts = ", ".join(f"`{name}`" for name in table.partition_by)
    rows = "\n".join(f"| `{c.name}` | {type_name(c.type)} | {c.meaning} |" for c in table.columns)
    text = table.meaning[0].upper() + table.meaning[1:]
    return f"""
## `{table.name}`

{text}. Key: {key}. Partitions: {parts}.

| column | type | meaning |
|---|---|---|
{rows}
"""


def reference() -> str:
    """The page."""
    ways = {Way.APPEND: "append", Way.CURRENT: "current", Way.OPEN: "open"}
    listed = "".join(f"| `{t.name}` | {ways[t.way]} | {t.meaning} |\n" for t in TABLES.values())
    return HEAD + listed + "".join(map(section, TABLES.values()))


def main() -> int:
    """Write it, or with --check say whether it is current."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text() != reference())
    PAGE.write_text(reference())
    return 0


if __name__ == "__main__":
    sys.exit(main())
