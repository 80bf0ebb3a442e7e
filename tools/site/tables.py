"""The parts of the reference that are tables of the code: calls, errors, metrics, cheat sheets, plgd's tables.

Each function returns Markdown.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

ROOT = Path(__file__).resolve().parents[2]


def api_calls() -> str:
    """The calls of the JetStream API, from the dispatch table."""
    from pelton.engine.calls.api_calls import CALLS, Body

    rows = ["| call | request | response | body |", "|---|---|---|---|"]
    for call in CALLS:
        request = "" if call.body in (Body.EMPTY, Body.IGNORED) else f"`{call.request.__name__}`"
        rows.append(f"| `{call.pattern}` | {request} | `{call.type}` | {call.body.value} |")
    return "\n".join(rows)


def errors() -> str:
    """The errors of the API, from tools/errors.toml."""
    rows = ["| err_code | code | class | description |", "|---|---|---|---|"]
    listed = tomllib.loads((ROOT / "tools/errors.toml").read_text(encoding="utf-8"))
    for err_code, row in listed.items():
        note = f" — {row['note']}" if "note" in row else ""
        description = row["description"].replace("|", "\\|")
        rows.append(f"| {err_code} | {row['code']} | `{row['name']}` | {description}{note} |")
    return "\n".join(rows)


def metrics() -> str:
    """The metrics of the server."""
    from pelton.server.monitor.metrics import METRICS, PREFIX

    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for kind in METRICS:
        name = PREFIX + kind.name + ("_total" if kind.counter else "")
        labels = ", ".join(kind.labels) or "–"
        sort = "counter" if kind.counter else "gauge"
        rows.append(f"| `{name}` | {sort} | {labels} | {kind.text} |")
    return "\n".join(rows)


def cheat_sheets() -> str:
    """The lines that `pelton cheat` prints."""
    from pelton.cli.cheat_sheets import CHEATS

    parts = []
    for topic, lines in CHEATS.items():
        blocks = ["\n".join([f"# {what}", *commands]) for what, commands in lines.items()]
        parts.append(f"## {topic}\n\n```sh\n" + "\n\n".join(blocks) + "\n```")
    return "\n\n".join(parts)


def plgd_tables() -> str:
    """The tables of a hub's events: a list, and the columns of each."""
    from pelton.plgd.tables.schemas import TABLES, Way

    ways = {Way.APPEND: "append", Way.CURRENT: "current", Way.OPEN: "open"}
    text = "| table | way | what it has |\n|---|---|---|\n"
    text += "".join(f"| `{t.name}` | {ways[t.way]} | {t.meaning} |\n" for t in TABLES.values())
    for table in TABLES.values():
        key = ", ".join(f"`{name}`" for name in table.key)
        parts = ", ".join(f"`{name}`" for name in table.partition_by)
        meaning = table.meaning[0].upper() + table.meaning[1:]
        text += f"\n## `{table.name}`\n\n{meaning}. Key: {key}. Partitions: {parts}.\n\n"
        text += "| column | type | meaning |\n|---|---|---|\n"
        text += "".join(
            f"| `{each.name}` | {type_name(each.type)} | {each.meaning} |\n"
            for each in table.columns
        )
    return text


def type_name(kind: pyarrow.DataType) -> str:
    """The name of a type in Spark."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        return f"array&lt;{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map&lt;{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        fields = ", ".join(f"{one.name}: {type_name(one.type)}" for one in kind)
        return f"struct&lt;{fields}>"
    names = {pa.int64(): "bigint", pa.int32(): "int", pa.float64(): "double", pa.bool_(): "boolean"}
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return names.get(kind) or str(kind).removesuffix("32[day]")
