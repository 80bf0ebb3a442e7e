"""Conditions of a read, the option ``where``: which rows it gives, and which files have none of them.

``day = DATE'2026-11-01' and amount >= 5 and kind in ('a', 'b')``: comparisons of a column with values,
``between``, ``in``, ``is null``, joined by ``and``. The meaning is Spark's: nothing is equal to null, and NaN is
above all numbers. :mod:`pelton.spark.filters` applies them.

Does not depend on Spark, Arrow or a format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pelton.spark.parsing import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<name>[A-Za-z_]\w*|`[^`]+`)"
    r"|(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<sign><=|>=|<>|!=|==|=|<|>|\(|\)|,))"
)
_FORM = "comparisons joined by and, such as day = DATE'2026-11-01' and seq >= 5"
_SAME = {"==": "=", "<>": "!="}
_COMPARED = ("=", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Term:
    """A column and what is said of it: a comparison, ``in``, ``null`` or ``not null``."""

    column: str
    sign: str
    values: tuple[Any, ...] = ()


def parse_condition(text: str) -> tuple[Term, ...]:
    """The terms of a condition, all of which must hold. Raises :class:`OptionError`."""
    return tuple(_Parser(text).terms())


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        place = 0
        while place < len(text.rstrip()):
            found = _TOKEN.match(text, place)
            if found is None or found.lastgroup is None:
                raise self._wrong(text[place:].strip())
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            place = found.end()
        self._tokens.reverse()

    def terms(self) -> Iterator[Term]:
        """The terms, in order."""
        yield from self._term()
        while self._tokens:
            if not self._word("and"):
                raise self._wrong(self._tokens[-1][1])
            yield from self._term()

    def _term(self) -> Iterator[Term]:
        kind, name = self._next()
        if kind != "name" or name.lower() in ("and", "or", "not", "in", "is", "between", "null"):
            raise self._wrong(name)
        column = name.strip("`")
        negative = self._word("not")
        if self._word("between"):
            if negative:
                raise self._wrong("not between")
            low = self._value()
            if not self._word("and"):
                raise self._wrong("between")
            yield Term(column, ">=", (low,))
            yield Term(column, "<=", (self._value(),))
        elif self._word("in"):
            yield Term(column, "not in" if negative else "in", self._list())
        elif not negative and self._word("is"):
            negative = self._word("not")
            if not self._word("null"):
                raise self._wrong("is")
            yield Term(column, "not null" if negative else "null")
        else:
            kind, sign = self._next()
            sign = _SAME.get(sign, sign)
            if negative or kind != "sign" or sign not in _COMPARED:
                raise self._wrong(sign)
            yield Term(column, sign, (self._value(),))

    def _list(self) -> tuple[Any, ...]:
        values = []
        opening = self._next()[1]
        while opening in ("(", ","):
            values.append(self._value())
            opening = self._next()[1]
        if opening != ")" or not values:
            raise self._wrong("in")
        return tuple(values)

    def _value(self) -> Any:
        kind, token = self._next()
        if kind == "number":
            return Decimal(token)
        if kind == "text":
            return token[1:-1].replace("''", "'")
        folded = token.lower()
        if kind == "name" and folded in ("true", "false"):
            return folded == "true"
        if folded in ("date", "timestamp") and self._tokens and self._tokens[-1][0] == "text":
            return self._value()
        raise self._wrong(token)

    def _next(self) -> tuple[str, str]:
        if not self._tokens:
            raise self._wrong("the end")
        return self._tokens.pop()

    def _word(self, word: str) -> bool:
        if not self._tokens or self._tokens[-1][0] != "name":
            return False
        found = self._tokens[-1][1].lower() == word
        if found:
            self._tokens.pop()
        return found

    def _wrong(self, at: str) -> OptionError:
        return OptionError(f"{_FORM}; it cannot be read at {at[:40]!r}")
