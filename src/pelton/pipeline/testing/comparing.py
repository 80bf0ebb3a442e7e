"""Expected rows beside the rows that a step made.

Only the columns that an expected row names are compared. Rows are paired so that as many as possible are
equal, whatever their order; each row that is left is paired with the one it shares most cells with.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from pelton.pipeline.testing.given import moment_of, payload_of

if TYPE_CHECKING:
    from collections.abc import Sequence

MISSING, ADDITIONAL, DIFFERENT = "missing", "additional", "different"
_CLOSE = 1e-12
_PAIRED_MAX = 200
"""Rows that are left over are compared with each other up to this number."""


@dataclass(frozen=True)
class RowDifference:
    """A row that differs: ``expected`` or ``got`` is None where there is no such row.

    ``cells`` are the columns that differ.
    """

    kind: str
    expected: dict[str, object] | None
    got: dict[str, Any] | None
    cells: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """How the rows of a step differ from the expected ones."""

    name: str
    expected: int
    got: int
    columns: tuple[str, ...] = ()
    rows: tuple[RowDifference, ...] = field(default=())
    problem: str = ""


def compare(
    name: str,
    expected: Sequence[dict[str, object]],
    got: Sequence[dict[str, Any]],
    columns: Sequence[str],
    *,
    ordered: bool = False,
) -> Difference | None:
    """The difference; None if there is none. ``columns`` are those of the rows that were made."""
    named = list(dict.fromkeys(column for row in expected for column in row))
    if unknown := [column for column in named if column not in columns]:
        there = ", ".join(columns)
        problem = f"there is no column {unknown[0]}; there are: {there}"
        return Difference(name, len(expected), len(got), problem=problem)
    pairs = list(enumerate(range(min(len(expected), len(got))))) if ordered else []
    if not ordered:
        pairs = _paired(expected, got)
    found = []
    for place, other in pairs:
        cells = _unequal(expected[place], got[other])
        if cells:
            found.append(RowDifference(DIFFERENT, expected[place], got[other], cells))
    missing = set(range(len(expected))) - {place for place, _ in pairs}
    added = set(range(len(got))) - {other for _, other in pairs}
    found += [RowDifference(MISSING, expected[place], None) for place in sorted(missing)]
    found += [RowDifference(ADDITIONAL, None, got[other]) for other in sorted(added)]
    if not found:
        return None
    shown = tuple(named) or tuple(columns)
    return Difference(name, len(expected), len(got), shown, tuple(found))


def _unequal(expected: dict[str, object], got: dict[str, Any]) -> tuple[str, ...]:
    return tuple(name for name, value in expected.items() if not equal(value, got[name]))


def _paired(
    expected: Sequence[dict[str, object]], got: Sequence[dict[str, Any]]
) -> list[tuple[int, int]]:
    """Pairs of places: first all that can be equal, then those that are alike."""
    alike = [
        [other for other, row in enumerate(got) if not _unequal(wanted, row)] for wanted in expected
    ]
    match = _matching(alike)
    taken = set(match.values())
    left = [place for place in range(len(expected)) if place not in match][:_PAIRED_MAX]
    free = [other for other in range(len(got)) if other not in taken][:_PAIRED_MAX]
    scored = sorted(
        (len(_unequal(expected[place], got[other])), place, other)
        for place in left
        for other in free
    )
    for differing, place, other in scored:
        if place not in match and other not in taken and differing < len(expected[place]):
            match[place] = other
            taken.add(other)
    return sorted(match.items())


def _matching(alike: list[list[int]]) -> dict[int, int]:
    """As many pairs as possible of a place and one of the others that are alike (Kuhn's algorithm)."""
    match: dict[int, int] = {}
    holder: dict[int, int] = {}
    for place in range(len(alike)):
        came: dict[int, int] = {}  # the others that were reached, and from which place
        waiting = [place]
        while waiting:
            each = waiting.pop()
            for other in alike[each]:
                if other in came:
                    continue
                came[other] = each
                if other in holder:
                    waiting.append(holder[other])
                    continue
                step: int | None = other
                while step is not None:  # each place on the way takes the other it was reached by
                    owner = came[step]
                    before = match.get(owner)
                    match[owner], holder[step] = step, owner
                    step = before
                waiting.clear()
                break
    return match


def equal(expected: object, got: Any) -> bool:
    """Whether a value that was made is the expected one, as its author means it.

    Numbers are compared by value, times as moments, payloads as text or JSON, structs by the fields that
    are named; a text is never a number.
    """
    if expected is None or got is None:
        return expected is None and got is None
    if isinstance(got, bool) or isinstance(expected, bool):
        return isinstance(got, bool) and isinstance(expected, bool) and expected == got
    if isinstance(got, int | float | Decimal):
        return _number_equal(expected, got)
    if isinstance(got, datetime | date):
        return _time_equal(expected, got)
    if isinstance(got, bytes | str):
        return _text_equal(expected, got)
    if isinstance(got, list) and isinstance(expected, dict):  # a map
        return all(isinstance(each, tuple) for each in got) and equal(expected, dict(got))
    if isinstance(got, list):
        same = isinstance(expected, list) and len(expected) == len(got)
        return same and all(equal(*both) for both in zip(expected, got, strict=True))  # type: ignore[call-overload]  # it is a list
    if isinstance(got, dict):
        return isinstance(expected, dict) and all(
            name in got and equal(value, got[name]) for name, value in expected.items()
        )
    return str(expected) == str(got)


def _number_equal(expected: object, got: float | Decimal) -> bool:
    if isinstance(got, float) and not math.isfinite(got):
        return expected == {math.inf: "Infinity", -math.inf: "-Infinity"}.get(got, "NaN")
    if not isinstance(expected, int | float | Decimal):
        return False
    if isinstance(got, float):
        wanted = float(expected)
        return math.isclose(wanted, got, rel_tol=_CLOSE) or _single(wanted) == got
    return Decimal(str(expected)) == Decimal(got)


def _single(value: float) -> float:
    """The nearest number of 32 bits."""
    try:
        found: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return value
    return found


def _time_equal(expected: object, got: datetime | date) -> bool:
    try:
        if not isinstance(got, datetime):
            return str(expected) == got.isoformat()
        return moment_of(expected, zone=got.tzinfo is not None) == got
    except ValueError:
        return False


def _text_equal(expected: object, got: str | bytes) -> bool:
    if isinstance(expected, dict | list):
        try:
            return equal(expected, msgspec.json.decode(got))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
    if isinstance(got, str):
        return isinstance(expected, str) and expected == got
    return payload_of(expected) == got
