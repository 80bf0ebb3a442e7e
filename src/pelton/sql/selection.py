"""The selection of a query on a stream: sequences, times and subjects. A source reads no more than
that.

A selection is never narrower than the filter that it comes from, and may be wider: the table
applies the whole filter to the rows that a source gives. So whatever a filter says that is not
understood here costs time and no correctness.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from pelton.arrow import TIMESTAMP
from pelton.core.protocol.subjects import matches
from pelton.sql.expressions import Call, Field, Literal, UnreadableError, tree_of

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from pelton.sql.expressions import Node

END = (1 << 63) - 1
"""Above every sequence and every time."""
SUBJECTS_MAX = 64
"""More subjects than this are not given to a source: it then reads all of them."""


@dataclass(frozen=True)
class Selection:
    """Messages with ``first <= sequence < stop``, ``since_ns <= time < until_ns``, and one of ``subjects``.

    ``subjects`` are subjects or patterns; None stands for all, () for none.
    """

    first: int = 1
    stop: int = END
    since_ns: int = 0
    until_ns: int = END
    subjects: tuple[str, ...] | None = None

    @property
    def empty(self) -> bool:
        """Whether no message can be meant."""
        return self.first >= self.stop or self.since_ns >= self.until_ns or self.subjects == ()

    def also(self, other: Selection) -> Selection:
        """The messages that both select, or somewhat more."""
        subjects = self.subjects if other.subjects is None else other.subjects
        if self.subjects is not None and other.subjects is not None:
            subjects = tuple(each for each in other.subjects if _within(each, self.subjects))
            if any("*" in each or ">" in each for each in other.subjects):
                subjects = self.subjects
        return Selection(
            max(self.first, other.first),
            min(self.stop, other.stop),
            max(self.since_ns, other.since_ns),
            min(self.until_ns, other.until_ns),
            subjects,
        )

    def either(self, other: Selection) -> Selection:
        """The messages that one of them selects, or somewhat more."""
        if self.empty or other.empty:
            return other if self.empty else self
        subjects = None
        if self.subjects is not None and other.subjects is not None:
            subjects = tuple(dict.fromkeys(self.subjects + other.subjects))
        return Selection(
            min(self.first, other.first),
            max(self.stop, other.stop),
            min(self.since_ns, other.since_ns),
            max(self.until_ns, other.until_ns),
            subjects,
        )


EVERYTHING = Selection()
NOTHING = Selection(stop=0)


def selection_of(condition: pc.Expression | None) -> Selection:
    """The selection of a filter over the columns ``seq``, ``ts``, ``ts_ns`` and ``subject``."""
    if condition is None:
        return EVERYTHING
    try:
        found = _selected(tree_of(condition))
    except UnreadableError:
        return EVERYTHING
    if found.subjects is not None and len(found.subjects) > SUBJECTS_MAX:
        found = replace(found, subjects=None)
    return found


def is_literal(subject: str) -> bool:
    """Whether a server takes this as a filter that means the subject itself and no others."""
    tokens = subject.split(".")
    return all(tokens) and not any(
        token in ("*", ">") or any(c.isspace() or not c.isprintable() for c in token)
        for token in tokens
    )


def _within(subject: str, patterns: tuple[str, ...]) -> bool:
    return any(matches(subject, each) for each in patterns)


def _selected(node: Node) -> Selection:
    if isinstance(node, Literal):
        # NULL and FALSE keep no row
        known = pa.types.is_boolean(node.value.type) or pa.types.is_null(node.value.type)
        return NOTHING if known and node.value.as_py() is not True else EVERYTHING
    if not isinstance(node, Call):
        return EVERYTHING
    if node.function in ("and_kleene", "and"):
        left, right = map(_selected, node.arguments)
        return left.also(right)
    if node.function in ("or_kleene", "or"):
        left, right = map(_selected, node.arguments)
        return left.either(right)
    if node.function == "if_else":
        # of `x IN (...)`: whether x is known, the test, NULL
        _, test, other = map(_selected, node.arguments)
        return test.either(other)
    if node.function == "is_in":
        return _among(node)
    if node.function in _OPERATORS:
        return _compared(node)
    return EVERYTHING


_OPERATORS = {
    "equal": "equal",
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
}
"""Comparisons, each with the one that means the same when its sides change places."""


def _compared(node: Call) -> Selection:
    left, right = node.arguments
    operator = node.function
    if isinstance(right, Field) and isinstance(left, Literal):
        left, right, operator = right, left, _OPERATORS[operator]
    if not (isinstance(left, Field) and isinstance(right, Literal)):
        return EVERYTHING
    return _of_value(left.name, operator, right.value)


def _among(node: Call) -> Selection:
    (column,) = node.arguments
    if not isinstance(column, Field) or node.options is None:
        return EVERYTHING
    found = NOTHING
    for value in node.options["value_set"].values:
        found = found.either(_of_value(column.name, "equal", value))
    return found


def _of_value(column: str, operator: str, value: pa.Scalar) -> Selection:
    if not value.is_valid:
        return EVERYTHING
    if column == "subject":
        text = value.as_py()
        if operator != "equal" or not isinstance(text, str) or not is_literal(text):
            return EVERYTHING
        return Selection(subjects=(text,))
    if column == "ts" and pa.types.is_timestamp(value.type):
        try:
            micros = value.cast(TIMESTAMP).value
        except pa.ArrowInvalid:
            return EVERYTHING
        low, stop = _range(operator, micros)
        # a time is cut to microseconds: those of 5 µs are 5,000 to 5,999 ns
        return Selection(since_ns=_clamped(low * 1000), until_ns=_clamped(stop * 1000))
    if column in ("seq", "ts_ns") and pa.types.is_integer(value.type):
        low, stop = map(_clamped, _range(operator, value.as_py()))
        if column == "ts_ns":
            return Selection(since_ns=low, until_ns=stop)
        return Selection(first=max(1, low), stop=stop)
    return EVERYTHING


def _range(operator: str, value: int) -> tuple[int, int]:
    """The integers of a comparison, from a first one to below a second one."""
    low = {"equal": value, "greater": value + 1, "greater_equal": value}.get(operator, 0)
    stop = {"equal": value + 1, "less": value, "less_equal": value + 1}.get(operator, END)
    return low, stop


def _clamped(value: int) -> int:
    # a limit above END means no limit; below 0 there is nothing
    return max(0, min(value, END))
