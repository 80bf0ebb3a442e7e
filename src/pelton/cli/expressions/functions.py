"""The functions of expressions. A predicate is a Python function of an item and its index."""

from __future__ import annotations

import datetime
import json
import math
from typing import TYPE_CHECKING, Any

from pelton.api.times import DurationTooLongError, parse_long_duration
from pelton.cli.expressions.syntax import ExpressionError

if TYPE_CHECKING:
    from collections.abc import Callable

    Predicate = Callable[[Any, int], Any]


def items_of(value: Any) -> list[Any]:
    """The items of a list or the values of a map; ExpressionError for anything else, [] for nil."""
    if value is None:
        return []
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return list(value.values())
    raise ExpressionError(f"{shown_kind(value)} is no list")


def shown_kind(value: Any) -> str:
    """The kind of a value, for messages."""
    kinds: list[tuple[type, str]] = [
        (bool, "a truth value"),
        (int, "a number"),
        (float, "a number"),
        (str, "a text"),
        (list, "a list"),
        (dict, "a map"),
        (datetime.datetime, "a time"),
        (datetime.timedelta, "a duration"),
    ]
    return next((name for kind, name in kinds if isinstance(value, kind)), "nil")


def truth(value: Any) -> bool:
    """The value, which must be true or false."""
    if isinstance(value, bool):
        return value
    raise ExpressionError(f"{shown_kind(value)} is neither true nor false")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise ExpressionError(f"{shown_kind(value)} is no text")


def _hits(values: Any, predicate: Predicate) -> list[int]:
    return [index for index, each in enumerate(items_of(values)) if truth(predicate(each, index))]


def _find(values: Any, predicate: Predicate, place: int) -> Any:
    hits = _hits(values, predicate)
    return items_of(values)[hits[place]] if hits else None


def _length(value: Any) -> int:
    if isinstance(value, str | list | dict):
        return len(value)
    raise ExpressionError(f"{shown_kind(value)} has no length")


def _of(values: tuple[Any, ...]) -> list[Any]:
    return values[0] if len(values) == 1 and isinstance(values[0], list) else list(values)


def duration(text: Any) -> datetime.timedelta:
    """1h30m; also 7d and the other units of the command line."""
    plain = _text(text)
    try:
        ns = parse_long_duration(plain)
    except DurationTooLongError as problem:
        raise ExpressionError(str(problem)) from None
    except ValueError:
        raise ExpressionError(f'"{plain}" is no duration') from None
    return datetime.timedelta(microseconds=ns / 1000)


def date(text: Any) -> datetime.datetime:
    """A time of RFC 3339, or a date."""
    plain = _text(text)
    if plain[-1:] == "Z" and "." in plain:  # Python takes no nanoseconds
        plain = (
            plain[:-1].partition(".")[0]
            + "."
            + plain[:-1].partition(".")[2][:6].ljust(6, "0")
            + "Z"
        )
    try:
        found = datetime.datetime.fromisoformat(plain)
    except ValueError:
        raise ExpressionError(f'"{plain}" is no time') from None
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def _number(kind: type, value: Any) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise ExpressionError(f"{value!r} is no number") from None


def _json(text: Any) -> Any:
    try:
        return json.loads(_text(text))
    except ValueError as error:
        raise ExpressionError(f"not JSON: {error}") from None


def _grouped(values: Any, predicate: Predicate) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for index, each in enumerate(items_of(values)):
        found.setdefault(str(predicate(each, index)), []).append(each)
    return found


def _sum(values: Any, predicate: Predicate | None = None) -> Any:
    found = items_of(values)
    return sum(predicate(each, at) for at, each in enumerate(found)) if predicate else sum(found)


def _count(values: Any, predicate: Predicate | None = None) -> int:
    if predicate is None:
        return sum(truth(each) for each in items_of(values))
    return len(_hits(values, predicate))


def _unique(values: Any) -> list[Any]:
    found: list[Any] = []
    for each in items_of(values):
        if each not in found:
            found.append(each)
    return found


def _sorted(values: Any, order: Any = "asc") -> list[Any]:
    return sorted(items_of(values), reverse=order == "desc")


def _sorted_by(values: Any, predicate: Predicate, order: Any = "asc") -> list[Any]:
    found = list(enumerate(items_of(values)))
    found.sort(key=lambda pair: predicate(pair[1], pair[0]), reverse=order == "desc")
    return [each for _, each in found]


def _median(*values: Any) -> Any:
    found = sorted(_of(values))
    if not found:
        return 0
    middle = len(found) // 2
    return found[middle] if len(found) % 2 else (found[middle - 1] + found[middle]) / 2


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": _length,
    "lower": lambda text: _text(text).lower(),
    "upper": lambda text: _text(text).upper(),
    "trim": lambda text, letters=None: _text(text).strip(letters),
    "trimPrefix": lambda text, part: _text(text).removeprefix(part),
    "trimSuffix": lambda text, part: _text(text).removesuffix(part),
    "hasPrefix": lambda text, part: _text(text).startswith(part),
    "hasSuffix": lambda text, part: _text(text).endswith(part),
    "indexOf": lambda text, part: _text(text).find(part),
    "lastIndexOf": lambda text, part: _text(text).rfind(part),
    "split": lambda text, by, most=0: _text(text).split(by, most - 1 if most else -1),
    "replace": lambda text, old, new: _text(text).replace(old, new),
    "join": lambda values, by="": str(by).join(_text(each) for each in items_of(values)),
    "abs": abs,
    "ceil": lambda value: float(math.ceil(value)),
    "floor": lambda value: float(math.floor(value)),
    "round": lambda value: float(math.floor(value + 0.5)),
    "max": lambda *values: max(_of(values)),
    "min": lambda *values: min(_of(values)),
    "sum": _sum,
    "mean": lambda *values: sum(_of(values)) / len(_of(values)),
    "median": _median,
    "int": lambda value: _number(int, value),
    "float": lambda value: _number(float, value),
    "string": lambda value: value if isinstance(value, str) else json.dumps(value, default=str),
    "type": lambda value: (
        "bool"
        if isinstance(value, bool)
        else {int: "int", float: "float", str: "string", list: "array", dict: "map"}.get(
            type(value), "nil" if value is None else "unknown"
        )
    ),
    "toJSON": lambda value: json.dumps(value, indent=2, default=str),
    "fromJSON": _json,
    "keys": lambda value: list(value) if isinstance(value, dict) else items_of(value),
    "values": items_of,
    "first": lambda values: next(iter(items_of(values)), None),
    "last": lambda values: (items_of(values) or [None])[-1],
    "take": lambda values, count: items_of(values)[:count],
    "reverse": lambda values: items_of(values)[::-1],
    "concat": lambda *values: [item for each in values for item in items_of(each)],
    "uniq": _unique,
    "sort": _sorted,
    "sortBy": _sorted_by,
    "get": lambda value, key: (
        value.get(key) if isinstance(value, dict) else dict(enumerate(items_of(value))).get(key)
    ),
    "all": lambda values, test: len(_hits(values, test)) == len(items_of(values)),
    "any": lambda values, test: bool(_hits(values, test)),
    "one": lambda values, test: len(_hits(values, test)) == 1,
    "none": lambda values, test: not _hits(values, test),
    "filter": lambda values, test: [items_of(values)[at] for at in _hits(values, test)],
    "map": lambda values, make: [make(each, at) for at, each in enumerate(items_of(values))],
    "count": _count,
    "find": lambda values, test: _find(values, test, 0),
    "findLast": lambda values, test: _find(values, test, -1),
    "findIndex": lambda values, test: (_hits(values, test) or [-1])[0],
    "findLastIndex": lambda values, test: (_hits(values, test) or [-1])[-1],
    "groupBy": _grouped,
    "duration": duration,
    "date": date,
}
