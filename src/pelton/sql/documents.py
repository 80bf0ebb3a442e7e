"""JSON payloads as typed columns: which columns, with which types, and the query that makes them.

The types come from the user, or from a sample of the messages. A payload that is no JSON object, and a
value that does not fit its type, are null. Pure, but for the sample that ``inferred`` reads.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pelton.sql.kinds import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    import duckdb

SAMPLE_ROWS = 1000
Structure = dict[str, Any]
"""Name of a field -> its type in SQL as text, a Structure, or a list with one of both."""

_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_ ]*(\(\s*\d+\s*(,\s*\d+\s*)?\))?(\[\])*")


def stated(text: str) -> Structure:
    """The types of ``"name TYPE, other TYPE"``, in SQL's words. ValueError."""
    found: Structure = {}
    for part in re.split(r",(?![^()]*\))", text):
        name, _, kind = part.strip().partition(" ")
        name, kind = name.strip('"'), kind.strip()
        if not name or not _TYPE.fullmatch(kind):
            raise ValueError(
                f'"{part.strip()}" is not a column and its type, such as "price DOUBLE"'
            )
        if name in found:
            raise ValueError(f"column {name} is named twice")
        found[name] = kind
    return found


def inferred(
    connection: duckdb.DuckDBPyConnection, table: str, rows: int = SAMPLE_ROWS
) -> Structure:
    """The fields of the payloads of the first ``rows`` messages, with types that fit these.

    Empty when none of them is a JSON object.
    """
    name = quoted(table)
    found = connection.execute(
        f"""SELECT json_group_structure(text::JSON) FROM (SELECT text FROM {name}
            WHERE text IS NOT NULL LIMIT {int(rows)})
            WHERE json_valid(text) AND json_type(text) = 'OBJECT'"""
    ).fetchone()
    structure = json.loads(found[0]) if found and found[0] else {}
    return _plain(structure) if isinstance(structure, dict) else {}


def _plain(structure: Any) -> Any:
    """The structure with types that any later value of the field fits into, as far as one can know."""
    if isinstance(structure, dict):
        return {name: _plain(each) for name, each in structure.items()}
    if isinstance(structure, list):
        return [_plain(each) for each in structure]
    if structure in ("UBIGINT", "NULL"):
        return {"UBIGINT": "BIGINT", "NULL": "VARCHAR"}[structure]
    return structure


def query(table: str, structure: Structure, taken: Iterable[str]) -> str:
    """The query of a table's columns and those of its payloads.

    A field without a name, or whose name the table has already, in any case, gets ``payload_`` before
    it. Fields without a name inside of others are left out.
    """
    used = {name.lower() for name in taken}
    columns = []
    for name in structure:
        shown = name
        while not shown or shown.lower() in used:
            shown = f"payload_{shown}"
        used.add(shown.lower())
        if not name:  # no struct has a field without a name; "/" is its JSON pointer
            kind = literal(json.dumps(_unique(structure[name])))
            columns.append(f"json_transform(json_extract(json, '/'), {kind}) AS {quoted(shown)}")
            continue
        columns.append(f"payload.{quoted(name)} AS {quoted(shown)}")
    if not columns:
        return f"SELECT * FROM {quoted(table)}"
    types = literal(json.dumps(_unique(structure)))
    return (
        f"SELECT * EXCLUDE (json, payload), {', '.join(columns)} FROM ("
        f"SELECT *, json_transform(json, {types}) AS payload FROM ("
        f"SELECT *, CASE WHEN json_valid(text) THEN text END AS json FROM {quoted(table)}))"
    )


def _unique(structure: Any) -> Any:
    """A type without the fields that no struct can have: a second name in another case, an empty name."""
    if isinstance(structure, list):
        return [_unique(each) for each in structure]
    if not isinstance(structure, dict):
        return structure
    found: Structure = {}
    seen = {""}
    for name, kind in structure.items():
        if name.lower() not in seen:
            seen.add(name.lower())
            found[name] = _unique(kind)
    return found or "JSON"
