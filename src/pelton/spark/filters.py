"""Conditions for rows and files of Arrow's types: which rows they keep, which files have none of them.

Does not depend on Spark or a format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from pelton.spark.conditions import Term
from pelton.spark.parsing import OptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

_COMPARED: dict[str, Any] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_BY_BOUNDS = ("=", "in", "<", "<=", ">", ">=")
_TEXT_CHARACTERS = 32
_CUT_US = 999
Bounds = Mapping[str, tuple[Any, Any]]
"""The least and the greatest value of columns, as :func:`comparable` has them; of floats and decimals none."""


@dataclass(frozen=True)
class Filter:
    """Terms with values in the types of their columns."""

    terms: tuple[Term, ...]
    kinds: Mapping[str, pa.DataType]

    @classmethod
    def of(cls, terms: Iterable[Term], schema: pa.Schema) -> Filter:
        """The terms for rows of a schema; names in any case.

        Raises :class:`OptionError` for a column that is not there, and a value that its type does not have.
        """
        folded = {each.name.lower(): each for each in schema}
        found = []
        for term in terms:
            field = folded.get(term.column.lower())
            if field is None:
                near = nearest(term.column, schema.names)
                meant = f"did you mean {near}?" if near else f"there are {', '.join(schema.names)}"
                raise OptionError(f"where names the column {term.column}; {meant}")
            if types.is_nested(field.type) and term.sign not in ("null", "not null"):
                raise OptionError(f"where compares {field.name}, which is no plain value")
            values = tuple(_typed(each, field) for each in term.values)
            found.append(Term(field.name, term.sign, values))
        kinds = {term.column: folded[term.column.lower()].type for term in found}
        return cls(tuple(found), kinds)

    @property
    def columns(self) -> list[str]:
        """The columns that are asked about, each once."""
        return list(self.kinds)

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that meet the condition."""
        mask: Any = None
        for term in self.terms:
            one = _mask(term, batch.column(term.column))
            mask = one if mask is None else pc.and_(mask, one)
        return batch if mask is None else batch.filter(mask)

    def may_be_in(self, partition: Mapping[str, pa.Scalar], bounds: Bounds) -> bool:
        """Whether a file may have such rows: by the values of partition columns, and bounds of others."""
        for term in self.terms:
            if term.column in partition:
                value = pa.array([partition[term.column].as_py()], self.kinds[term.column])
                if not _mask(term, value)[0].as_py():
                    return False
            elif term.column in bounds and not self._within(term, *bounds[term.column]):
                return False
        return True

    def _within(self, term: Term, low: Any, high: Any) -> bool:
        if low is None or high is None or term.sign not in _BY_BOUNDS:
            return True
        values = [comparable(each) for each in term.values]
        if isinstance(low, str):  # bounds of texts are often cut
            low, high = low[:_TEXT_CHARACTERS], high[:_TEXT_CHARACTERS]
            values = [each[:_TEXT_CHARACTERS] for each in values]
        elif types.is_timestamp(self.kinds[term.column]):
            high += _CUT_US  # some writers cut times to milliseconds
        if term.sign in ("=", "in"):
            return any(low <= each <= high for each in values)
        [value] = values
        if term.sign in ("<=", ">=") or isinstance(low, str):  # a text is longer than its beginning
            return bool(low <= value if term.sign in ("<", "<=") else high >= value)
        return bool(low < value if term.sign == "<" else high > value)


def _mask(term: Term, column: pa.Array) -> pa.Array:
    if term.sign in ("null", "not null"):
        return column.is_null() if term.sign == "null" else column.is_valid()
    floating = types.is_floating(column.type)
    if floating:
        column = column.cast(pa.float64())
    if term.sign in ("in", "not in"):
        found = pc.is_in(column, pa.array([each.as_py() for each in term.values], column.type))
        found = found if term.sign == "in" else pc.invert(found)
        return pc.and_(found, column.is_valid())
    found = _COMPARED[term.sign](column, term.values[0])
    if floating and term.sign in (">", ">=", "!="):
        found = pc.or_(found, pc.is_nan(column))
    return pc.fill_null(found, False)


def comparable(value: pa.Scalar) -> Any:
    """A value in the form of bounds: a text, or a number for dates, times and whole numbers."""
    if types.is_date32(value.type):
        return value.cast(pa.int32()).as_py()
    return value.cast(pa.int64()).as_py() if types.is_timestamp(value.type) else value.as_py()


def _typed(value: Any, field: pa.Field) -> pa.Scalar:
    """A value of the text as one of the column's type, without loss. Raises :class:`OptionError`."""
    kind = field.type
    try:
        if isinstance(value, bool) or types.is_boolean(kind):
            if not (isinstance(value, bool) and types.is_boolean(kind)):
                raise ValueError
            return pa.scalar(value, kind)
        if isinstance(value, Decimal):
            return _number(value, kind)
        if types.is_string(kind) or types.is_large_string(kind):
            return pa.scalar(value, kind)
        if types.is_date(kind):
            return pa.scalar(date.fromisoformat(value), kind)
        if types.is_timestamp(kind):
            found = datetime.fromisoformat(value)
            if kind.tz is None and found.tzinfo is not None:
                raise ValueError
            if kind.tz is not None and found.tzinfo is None:
                found = found.replace(tzinfo=UTC)
            return pa.scalar(found, kind)
        raise ValueError
    except (ValueError, OverflowError, pa.ArrowException):
        raise OptionError(f"where compares {field.name}, which is {kind}, with {value}") from None


def _number(value: Decimal, kind: pa.DataType) -> pa.Scalar:
    if types.is_integer(kind):
        if value != value.to_integral_value():
            raise ValueError
        return pa.scalar(int(value), kind)
    if types.is_floating(kind):  # Spark compares floats as doubles
        return pa.scalar(float(value), pa.float64())
    if types.is_decimal(kind):
        return pa.scalar(value, kind)
    raise ValueError
