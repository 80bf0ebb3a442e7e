"""Nodes as messages of the JetStream API: names, types, durations, sizes; every mistake with its place.

A duration is text (``10m``, ``1h30m``, ``7d``) or, as in the API, a whole number of nanoseconds. A size is a number
of bytes or text (``64KB``, ``10GiB``: powers of 1024; ``10G``: powers of 1000). A closed set of words is read in any
case. A limit of -1 in a duration means none.
"""

from __future__ import annotations

import json
import re
import types
from base64 import b64decode
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from pelton.api.fields import Choice, Instant, Number
from pelton.api.sizes import parse_size
from pelton.api.times import (
    DurationTooLongError,
    parse_instant,
    parse_long_duration,
    parse_time,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pelton.apply.model import Declared, Node

T = TypeVar("T", bound=msgspec.Struct)

SECOND_NS = 1_000_000_000
_SHORTEST_NS = 1_000_000
_SIZES = frozenset({"max_bytes", "max_msg_size", "max_value_size"})


class _Wrong(Exception):  # carries the text only
    """A value does not fit; the text says why."""


def shown(value: object) -> str:
    """The kind of this value, for error texts."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= 60 else "a long text"
    if isinstance(value, int | float):
        return str(value)
    return "a list" if isinstance(value, list) else "a map"


def unknown(name: str, known: Iterable[str]) -> str:
    """The error for a name that nothing has: with the name that was probably meant."""
    names = sorted(known)
    folded = {each.lower().replace("_", ""): each for each in names}
    close = get_close_matches(name.lower().replace("_", ""), folded, 1, 0.6)
    if close:
        return f'unknown key "{name}"; did you mean "{folded[close[0]]}"?'
    known_are = f"known are {', '.join(names)}" if names else "there are none here"
    return f'unknown key "{name}"; {known_are}'


def duration_ns(value: object) -> int:
    """A duration in nanoseconds; ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"expected a duration such as 10m or 7d, got {shown(value)}")
    if isinstance(value, int):
        if 0 < value < _SHORTEST_NS:
            raise ValueError(f'{value} needs a unit, such as "{value}s"; a number is nanoseconds')
        return max(value, 0)
    text = value.strip()
    if not text:
        return 0
    if re.fullmatch(r"-?\d{1,40}", text, re.ASCII):
        return duration_ns(int(text))
    try:
        total = parse_long_duration(text)
    except DurationTooLongError:
        raise
    except ValueError:
        raise ValueError(f'"{value}" is not a duration such as 250ms, 10m, 1h30m or 7d') from None
    if total < 0:
        raise ValueError(f'"{value}" is negative')
    return total


def size_bytes(text: str) -> int:
    """A size in bytes; ValueError."""
    if re.fullmatch(r"-\d{1,20}", text.strip()):
        return int(text)
    return parse_size(text, bare=1000)


def structured(declared: Declared, node: Node, kind: type[T]) -> T:
    """A map as a message; notes every mistake in ``declared`` and goes on."""
    message = kind()
    if not isinstance(node.value, dict):
        declared.wrong(node.at, f"expected a map, got {shown(node.value)}")
        return message
    hints = _hints(kind)
    for name, inner in node.value.items():
        hint = hints.get(name)
        if hint is None:
            declared.wrong(inner.at, unknown(name, hints))
        elif inner.value is not None:
            try:
                setattr(message, name, _value(declared, name, inner, hint))
            except (_Wrong, ValueError) as problem:
                declared.wrong(inner.at, f"{name}: {problem}")
    return message


@cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    from typing import get_type_hints

    return get_type_hints(kind, include_extras=True)


def fields_of(kind: type[msgspec.Struct]) -> frozenset[str]:
    """The names of a message's fields."""
    return frozenset(_hints(kind))


def _value(declared: Declared, name: str, node: Node, hint: Any) -> Any:
    optional = False
    marks: list[Any] = []
    while True:
        if get_origin(hint) is Annotated:
            marks += hint.__metadata__
            hint = get_args(hint)[0]
        elif get_origin(hint) in (Union, types.UnionType):
            hint = next(part for part in get_args(hint) if part is not type(None))
            optional = True
        else:
            break
    value = node.value
    for mark in marks:
        if isinstance(mark, Number):
            return _number(name, value, mark)
        if isinstance(mark, Instant):
            return _moment(value, optional)
        if isinstance(mark, Choice):
            return _word(value, get_args(hint), dict(mark.aliases))
    if get_origin(hint) is Literal:
        return _word(value, get_args(hint), {})
    if get_origin(hint) is list:
        items = value if isinstance(value, list) else None
        if items is None:
            raise _Wrong(f"expected a list, got {shown(value)}")
        return [_value(declared, name, each, get_args(hint)[0]) for each in items]
    if get_origin(hint) is dict:
        return texts(node)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return structured(declared, node, hint)
    if hint is bool:
        if not isinstance(value, bool):
            raise _Wrong(f"expected true or false, got {shown(value)}")
        return value
    if not isinstance(value, str):
        raise _Wrong(f"expected a text, got {shown(value)}")
    return value


def texts(node: Node) -> dict[str, str]:
    """A map of texts; numbers and truths become texts. ValueError."""
    if not isinstance(node.value, dict):
        raise ValueError(f"expected a map of texts, got {shown(node.value)}")
    found: dict[str, str] = {}
    for name, inner in node.value.items():
        if isinstance(inner.value, list | dict) or inner.value is None:
            raise ValueError(f'"{name}": expected a text, got {shown(inner.value)}')
        found[name] = inner.value if isinstance(inner.value, str) else shown(inner.value)
    return found


def bytes_of(node: Node) -> bytes:
    """The value of an entry: a text as UTF-8, ``{base64: ...}`` as bytes, anything else as JSON. ValueError."""
    if isinstance(node.value, str):
        return node.value.encode()
    if isinstance(node.value, dict) and node.value.keys() == {"base64"}:
        text = node.value["base64"].value
        if not isinstance(text, str):
            raise ValueError(f"base64: expected a text, got {shown(text)}")
        try:
            return b64decode(text, validate=True)
        except ValueError:
            raise ValueError("base64: this is not Base64") from None
    return json.dumps(plain_value(node), ensure_ascii=False, separators=(",", ":")).encode()


def plain_text(node: Node) -> str:
    """A number or truth as Terraform writes it in a text. ValueError for a list or map."""
    if isinstance(node.value, list | dict) or node.value is None:
        raise ValueError(f"expected a text, got {shown(node.value)}; jsonencode(...) makes one")
    return node.value if isinstance(node.value, str) else shown(node.value)


def plain_value(node: Node) -> Any:
    """A node without places: what JSON can hold."""
    if isinstance(node.value, dict):
        return {name: plain_value(each) for name, each in node.value.items()}
    if isinstance(node.value, list):
        return [plain_value(each) for each in node.value]
    return node.value


def _number(name: str, value: object, mark: Number) -> int:
    if mark.name == "time.Duration":
        value = duration_ns(value)
    elif name in _SIZES and isinstance(value, str):
        value = size_bytes(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Wrong(f"expected a whole number, got {shown(value)}")
    if not mark.low <= value <= mark.high:
        bound = f"maximum {mark.high}" if value > mark.high else f"minimum {mark.low}"
        raise _Wrong(f"{value} is out of range ({bound})")
    return value


def _moment(value: object, optional: bool) -> int:
    if not isinstance(value, str):
        raise _Wrong(f"expected a time such as 2026-01-02T15:04:05Z, got {shown(value)}")
    try:
        return parse_instant(value) if optional else parse_time(value)
    except ValueError:
        raise _Wrong(f'"{value}" is not a time such as 2026-01-02T15:04:05Z') from None


def _word(value: object, words: tuple[str, ...], aliases: dict[str, str]) -> str:
    text = value.lower() if isinstance(value, str) else None
    if text is not None and text in aliases:
        return aliases[text]
    if text in words:
        assert text is not None
        return text
    close = get_close_matches(text or "", words, 1, 0.6)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    raise _Wrong(f"expected {' or '.join(words)}, got {shown(value)}{hint}")
