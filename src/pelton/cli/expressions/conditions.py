"""Conditions: an expression that is true or false for a set of named values.

A field that is not there is nil, as in the ``nats`` command. Comparing nil with a number is an error there; here it
is false, so that one stream without the field doesn't end a search.
"""

from __future__ import annotations

import datetime
import operator
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pelton.cli.expressions.functions import FUNCTIONS, date, items_of, shown_kind, truth
from pelton.cli.expressions.syntax import ExpressionError, Node, parse
from pelton.cli.values import PATTERN_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LONGEST_RANGE = 1_000_000
_POWER_MOST = 1024
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Condition:
    """A condition, ready for use; ExpressionError with a mark below the place if the text is wrong."""

    def __init__(self, text: str, names: tuple[str, ...]) -> None:
        """``names`` are the values that it may use."""
        self.text = text
        try:
            self._tree = parse(text)
            _check(self._tree, frozenset(names) | {"$env"})
        except ExpressionError as error:
            raise _located(text, error) from None

    def holds(self, values: Mapping[str, Any], now: datetime.datetime) -> bool:
        """Whether it is true for these values; ExpressionError if it is no truth value."""
        scope = {**values, "$env": dict(values)}
        try:
            return truth(_Run(now).value(self._tree, scope, []))
        except ExpressionError as error:
            raise _located(self.text, error) from None
        except RecursionError:
            raise ExpressionError("the expression is too deep") from None


def _located(text: str, error: ExpressionError) -> ExpressionError:
    """The error with the place in the expression."""
    if error.at < 0:
        return ExpressionError(f"expression: {error}")
    rest = text[error.at : error.at + 20]
    where = f'at "{rest}"' if rest else "at the end"
    return ExpressionError(f"expression, {where}: {error}", error.at)


def _check(node: Node, names: frozenset[str]) -> None:
    """Names and functions must be known; ExpressionError with the nearest one."""
    if node.kind == "name" and node.parts[0] not in names:
        raise ExpressionError(_unknown("name", node.parts[0], names), node.at)
    if node.kind == "call":
        name = node.parts[0]
        if name not in FUNCTIONS and name != "now":
            raise ExpressionError(_unknown("function", name, (*FUNCTIONS, "now")), node.at)
    if node.kind == "let":
        name, value, inner = node.parts
        _check(value, names)
        _check(inner, names | {name})
        return
    for each in _nodes(node.parts):
        _check(each, names)


def _unknown(what: str, name: str, known: Any) -> str:
    near = get_close_matches(name, [each for each in known if each[0] != "$"], 1, 0.6)
    return f"there is no {what} {name}" + (f'; did you mean "{near[0]}"?' if near else "")


def _nodes(parts: Any) -> list[Node]:
    found: list[Node] = []
    for each in parts:
        if isinstance(each, Node):
            found.append(each)
        elif isinstance(each, tuple):
            found += _nodes(each)
    return found


class _Run:
    """Works out values. The time is given, so that all streams are measured by the same."""

    def __init__(self, now: datetime.datetime) -> None:
        self._now = now

    def value(self, node: Node, scope: Mapping[str, Any], items: list[tuple[Any, int]]) -> Any:
        """The value of a node; ``items`` are those of the predicates around it, the inner one last."""
        try:
            found = getattr(self, f"_{node.kind}")(node.parts, scope, items)
        except ExpressionError as error:
            raise ExpressionError(str(error), node.at if error.at < 0 else error.at) from None
        except (TypeError, ValueError, ArithmeticError, IndexError, AttributeError) as error:
            raise ExpressionError(str(error), node.at) from None
        return found

    def _constant(self, parts: Any, scope: Any, items: Any) -> Any:
        return parts[0]

    def _name(self, parts: Any, scope: Any, items: Any) -> Any:
        return scope.get(parts[0])

    def _let(self, parts: Any, scope: Any, items: Any) -> Any:
        name, value, inner = parts
        return self.value(inner, {**scope, name: self.value(value, scope, items)}, items)

    def _list(self, parts: Any, scope: Any, items: Any) -> Any:
        return [self.value(each, scope, items) for each in parts[0]]

    def _map(self, parts: Any, scope: Any, items: Any) -> Any:
        return {
            str(self.value(key, scope, items)): self.value(value, scope, items)
            for key, value in parts[0]
        }

    def _item(self, parts: Any, scope: Any, items: Any) -> Any:
        if not items:
            raise ExpressionError("# has a meaning only in a predicate such as any(list, # > 1)")
        item, index = items[-1]
        if parts[0] not in ("", "index"):
            raise ExpressionError(f"there is no #{parts[0]}")
        return index if parts[0] == "index" else item

    def _if(self, parts: Any, scope: Any, items: Any) -> Any:
        test, yes, no = parts
        return self.value(yes if truth(self.value(test, scope, items)) else no, scope, items)

    def _else(self, parts: Any, scope: Any, items: Any) -> Any:
        found = self.value(parts[0], scope, items)
        return found if found not in (None, False, 0, "") else self.value(parts[1], scope, items)

    def _member(self, parts: Any, scope: Any, items: Any) -> Any:
        inner, key = (self.value(each, scope, items) for each in parts[:2])
        if isinstance(inner, dict):
            return inner.get(key) if isinstance(key, str) else inner.get(str(key))
        if isinstance(inner, list | str) and isinstance(key, int) and not isinstance(key, bool):
            if not -len(inner) <= key < len(inner):
                raise ExpressionError(f"there is no item {key} of {len(inner)}")
            return inner[key]
        if inner is None:
            return None
        raise ExpressionError(f"{shown_kind(inner)} has no field {key}")

    def _slice(self, parts: Any, scope: Any, items: Any) -> Any:
        inner = self.value(parts[0], scope, items)
        begin, end = (
            None if each is None else self.value(each, scope, items) for each in parts[1:]
        )
        return inner[begin:end] if isinstance(inner, str) else items_of(inner)[begin:end]

    def _predicate(self, parts: Any, scope: Any, items: Any) -> Any:
        return lambda item, index: self.value(parts[0], scope, [*items, (item, index)])

    def _call(self, parts: Any, scope: Any, items: Any) -> Any:
        name, arguments = parts
        given = [self.value(each, scope, items) for each in arguments]
        if name == "now":
            return self._now
        return FUNCTIONS[name](*given)

    def _unary(self, parts: Any, scope: Any, items: Any) -> Any:
        sign, inner = parts[0], self.value(parts[1], scope, items)
        if sign == "not":
            return not truth(inner)
        return -inner if sign == "-" else +inner

    def _binary(self, parts: Any, scope: Any, items: Any) -> Any:
        sign = parts[0]
        left = self.value(parts[1], scope, items)
        if sign in ("and", "or"):
            if truth(left) == (sign == "or"):
                return left
            return truth(self.value(parts[2], scope, items))
        if sign == "??":
            return self.value(parts[2], scope, items) if left is None else left
        return _combined(sign, left, self.value(parts[2], scope, items))


def _combined(sign: str, left: Any, right: Any) -> Any:
    if sign == "==":
        return _same(left, right)
    if sign == "!=":
        return not _same(left, right)
    if sign in _ORDER:
        return _ordered(sign, left, right)
    if sign == "in":
        return _inside(left, right)
    if sign in _TEXTS:
        if left is None:
            return False
        if not (isinstance(left, str) and isinstance(right, str)):
            raise ExpressionError(
                f"{sign} needs two texts, not {shown_kind(left)} and {shown_kind(right)}"
            )
        return _TEXTS[sign](left, right)
    return _arithmetic(sign, left, right)


def _arithmetic(sign: str, left: Any, right: Any) -> Any:
    if sign == "..":
        if right - left > _LONGEST_RANGE:
            raise ExpressionError("the range is too long")
        return list(range(left, right + 1))
    if any(isinstance(each, bool) or each is None for each in (left, right)):
        raise ExpressionError(f"{sign} can't take {shown_kind(left)} and {shown_kind(right)}")
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        if not all(isinstance(each, int | float | datetime.timedelta) for each in (left, right)):
            raise ExpressionError(f"* can't take {shown_kind(left)} and {shown_kind(right)}")
        return left * right
    if sign == "/":
        return left / right
    if sign == "%":
        return math_remainder(left, right)
    if abs(left) > _POWER_MOST or abs(right) > _POWER_MOST:
        raise ExpressionError("the power is too large")
    return float(left) ** right


def math_remainder(left: Any, right: Any) -> int:
    """The remainder of a division, with the sign of the first number."""
    if not (isinstance(left, int) and isinstance(right, int)):
        raise ExpressionError("% needs two whole numbers")
    found = abs(left) % abs(right)
    return -found if left < 0 else found


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    return bool(left == right)


def _ordered(sign: str, left: Any, right: Any) -> bool:
    if left is None or right is None:
        return False
    if isinstance(left, datetime.datetime) and isinstance(right, str):
        right = date(right)
    if isinstance(right, datetime.datetime) and isinstance(left, str):
        left = date(left)
    try:
        return _ORDER[sign](left, right)
    except TypeError:
        text = f"{sign} can't compare {shown_kind(left)} with {shown_kind(right)}"
        raise ExpressionError(text) from None


def _inside(left: Any, right: Any) -> bool:
    if right is None:
        return False
    if isinstance(right, dict):
        return left in right
    if isinstance(right, list):
        return any(_same(left, each) for each in right)
    raise ExpressionError(f"in needs a list or a map, not {shown_kind(right)}")


def _matches(text: str, pattern: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except PATTERN_ERRORS as error:
        raise ExpressionError(f"{pattern!r} is no regular expression: {error}") from None


_TEXTS: dict[str, Callable[[str, str], bool]] = {
    "contains": lambda text, part: part in text,
    "startsWith": lambda text, part: text.startswith(part),
    "endsWith": lambda text, part: text.endswith(part),
    "matches": _matches,
}
