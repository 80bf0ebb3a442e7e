"""Results of tests: tables of what differs, data for programs, and a file in JUnit's form."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from pelton.pipeline.testing.comparing import ADDITIONAL, DIFFERENT, MISSING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pelton.pipeline.testing.comparing import Difference
    from pelton.pipeline.testing.running import Outcome

_CELL_MAX = 60
_ROWS_MAX = 20
_OPEN, _CLOSE = "»", "«"


def lines_of(difference: Difference) -> Iterator[str]:
    """A difference for people: a table of the rows that differ, with marks around such cells."""
    yield f"{difference.name}: {summary(difference)}"
    if not difference.rows:
        return
    columns = list(difference.columns)
    table = [["", *columns]]
    for row in difference.rows[:_ROWS_MAX]:
        if row.kind == DIFFERENT and row.expected is not None and row.got is not None:
            both = (_cells(columns, row.expected, row.cells), _cells(columns, row.got, row.cells))
            # A text and a number that look alike are told apart by quotes.
            exact = [
                place for place, (one, other) in enumerate(zip(*both, strict=True)) if one == other
            ]
            for place in [place for place in exact if columns[place] in row.cells]:
                name = columns[place]
                for cells, values in zip(both, (row.expected, row.got), strict=True):
                    cells[place] = _OPEN + repr(values[name]) + _CLOSE
            table += [["expected", *both[0]], ["got", *both[1]]]
        else:
            one = row.got if row.expected is None else row.expected
            table.append([row.kind, *_cells(columns, one or {}, ())])
    widths = [max(len(line[place]) for line in table) for place in range(len(table[0]))]
    for line in table:
        yield "  " + "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()
    if (more := len(difference.rows) - _ROWS_MAX) > 0:
        yield f"  and {more} more"


def summary(difference: Difference) -> str:
    """A difference in one line."""
    if difference.problem:
        return difference.problem
    if not difference.rows:
        return f"{difference.expected} rows expected, {difference.got} made"
    kinds = [row.kind for row in difference.rows]
    parts = [(DIFFERENT, "differ"), (MISSING, "missing"), (ADDITIONAL, "additional")]
    said = [f"{kinds.count(kind)} {word}" for kind, word in parts if kind in kinds]
    equal = difference.expected - kinds.count(DIFFERENT) - kinds.count(MISSING)
    return f"{', '.join(said)}, {equal} as expected"


def _cells(columns: Sequence[str], values: dict[str, Any], differing: Sequence[str]) -> list[str]:
    made = []
    for name in columns:
        text = shown(values[name]) if name in values else ""
        made.append(f"{_OPEN}{text}{_CLOSE}" if name in differing else text)
    return made


def shown(value: Any) -> str:
    """A value in one line: null, a text as it is, anything else as in JSON."""
    plain = as_plain(value)
    if plain is None:
        return "null"
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= _CELL_MAX else text[: _CELL_MAX - 3] + "..."


def as_plain(value: Any) -> Any:
    """A value as JSON has it; a payload as text where it is one."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(name): as_plain(each) for name, each in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) for each in value):  # a map
            return as_plain(dict(value))
        return [as_plain(each) for each in value]
    return value


def as_data(outcome: Outcome) -> dict[str, Any]:
    """A result for programs."""
    return {
        "test": outcome.case.name,
        "place": outcome.case.place,
        "passed": outcome.passed,
        "seconds": round(outcome.seconds, 3),
        "problem": outcome.problem or None,
        "differences": [
            {
                "step": each.name,
                "summary": summary(each),
                "rows": [
                    {
                        "kind": row.kind,
                        "expected": as_plain(row.expected),
                        "got": _named(row.got, each.columns),
                        "cells": list(row.cells),
                    }
                    for row in each.rows
                ],
            }
            for each in outcome.differences
        ],
    }


def _named(got: dict[str, Any] | None, columns: Sequence[str]) -> Any:
    return None if got is None else as_plain({name: got[name] for name in columns})


def text_of(outcome: Outcome) -> str:
    """Why a test failed, in lines."""
    lines = [line for each in outcome.differences for line in lines_of(each)]
    return "\n".join([*lines, *([outcome.problem] if outcome.problem else [])])


def write_junit(path: Path, pipeline: str, outcomes: Sequence[Outcome]) -> None:
    """Write the results as a file that readers of JUnit's reports take. Raises OSError."""
    failed = [each for each in outcomes if not each.passed]
    suite = ElementTree.Element(
        "testsuite",
        name=pipeline,
        tests=str(len(outcomes)),
        failures=str(sum(not each.problem for each in failed)),
        errors=str(sum(bool(each.problem) for each in failed)),
        time=f"{sum(each.seconds for each in outcomes):.3f}",
    )
    for each in outcomes:
        case = ElementTree.SubElement(
            suite, "testcase", name=each.case.name, classname=pipeline, time=f"{each.seconds:.3f}"
        )
        if each.passed:
            continue
        said = each.problem or "; ".join(f"{d.name}: {summary(d)}" for d in each.differences)
        kind = "error" if each.problem else "failure"
        ElementTree.SubElement(case, kind, message=said).text = text_of(each)
    tree = ElementTree.ElementTree(suite)
    tree.write(path, encoding="utf-8", xml_declaration=True)
