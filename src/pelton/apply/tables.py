"""Tables of a dialect's names: to the fields of the API, and back.

An `Attribute` says which field a name stands for (``placement.cluster``: a field of a field), in which unit, and what
the dialect's own tool assumes if the name is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pelton.api.times import format_duration
from pelton.apply.model import Declared, Node
from pelton.apply.values import SECOND_NS, duration_ns, shown, unknown

if TYPE_CHECKING:
    from collections.abc import Collection

Unit: TypeAlias = Literal["", "seconds", "text", "ns", "not", "percent"]


@dataclass(frozen=True)
class Attribute:
    """The meaning of a name of a dialect.

    unit: "seconds", "text" (``10m``) and "ns" are durations (a list of them too); "not" is the opposite truth;
    "percent" a number of percent. within: the names in this map, or in each map of this list. single: a list of them
    holds one.
    """

    wire: str
    unit: Unit = ""
    default: str | int | bool | None = None
    within: Mapping[str, Attribute] | None = None
    single: bool = False


Table: TypeAlias = Mapping[str, Attribute]


def plain(name: str, *names: str) -> dict[str, Attribute]:
    """Attributes that have the API's own names."""
    return {each: Attribute(each) for each in (name, *names)}


# -- reading ---------------------------------------------------------------------------------------


def translate(
    declared: Declared, node: Node, table: Table, besides: Collection[str] = ()
) -> dict[str, Node]:
    """A map of a dialect with the names and units of the API; notes mistakes in ``declared``.

    ``besides``: names that the caller reads.
    """
    found: dict[str, Node] = {}
    if not isinstance(node.value, dict):
        declared.wrong(node.at, f"expected a map, got {shown(node.value)}")
        return found
    for name, inner in node.value.items():
        if name in besides:
            continue
        attribute = table.get(name)
        if attribute is None:
            declared.wrong(inner.at, unknown(name, [*table, *besides]))
        elif inner.value is not None:
            try:
                _put(found, attribute.wire, _read(declared, inner, attribute))
            except ValueError as problem:
                declared.wrong(inner.at, f"{name}: {problem}")
    for name, attribute in table.items():
        if attribute.default is not None and name not in node.value:
            given = Node(attribute.default, node.place)
            _put(found, attribute.wire, _read(declared, given, attribute))
    return found


def _put(found: dict[str, Node], path: str, node: Node) -> None:
    first, _, rest = path.partition(".")
    if not rest:
        found[first] = node
        return
    outer = found.setdefault(first, Node({}, node.place, node.key))
    assert isinstance(outer.value, dict)
    _put(outer.value, rest, node)


def _read(declared: Declared, node: Node, attribute: Attribute) -> Node:
    if attribute.within is not None:
        if isinstance(node.value, list) and attribute.single:
            if len(node.value) != 1:
                raise ValueError(f"expected it once, got it {len(node.value)} times")
            return replace(_read(declared, node.value[0], attribute), key=node.key)
        if isinstance(node.value, list):
            items = [translate(declared, each, attribute.within) for each in node.value]
            pairs = zip(node.value, items, strict=True)
            return replace(node, value=[replace(each, value=item) for each, item in pairs])
        return replace(node, value=translate(declared, node, attribute.within))
    if isinstance(node.value, list):
        return replace(node, value=[_read(declared, each, attribute) for each in node.value])
    return replace(node, value=_converted(node.value, attribute.unit))


def _converted(value: Any, unit: Unit) -> Any:
    if unit == "seconds":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"expected a number of seconds, got {shown(value)}")
        return max(round(value * SECOND_NS), 0)
    if unit == "text":
        if not isinstance(value, str):
            raise ValueError(f'expected a duration as text, such as "10m", got {shown(value)}')
        return duration_ns(value)
    if unit == "ns":
        return duration_ns(value)
    if unit == "not":
        if not isinstance(value, bool):
            raise ValueError(f"expected true or false, got {shown(value)}")
        return not value
    if unit == "percent":
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"expected a number of percent, got {shown(value)}")
        return f"{value}%" if value else ""
    return value


# -- writing ---------------------------------------------------------------------------------------


def untranslate(fields: Mapping[str, Any], table: Table) -> dict[str, Any]:
    """Fields of the API with the names and units of a dialect. Fields without a name are left out."""
    found: dict[str, Any] = {}
    for name, attribute in table.items():
        value = _take(fields, attribute.wire)
        default = attribute.default
        if value is None:
            if default is None:
                continue
            value = _ZEROS.get(type(_converted(default, attribute.unit)))
            if value is None:
                continue
        written = _write(value, attribute)
        if written is not None and written != default:
            found[name] = written
    return found


_ZEROS: dict[type, Any] = {bool: False, int: 0, str: ""}


def _take(fields: Mapping[str, Any], path: str) -> Any:
    value: Any = fields
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _write(value: Any, attribute: Attribute) -> Any:
    if attribute.within is not None:
        if isinstance(value, list):
            return [untranslate(each, attribute.within) for each in value]
        return untranslate(value, attribute.within)
    if isinstance(value, list) and attribute.unit:
        return [_write(each, attribute) for each in value]
    if attribute.unit == "seconds":
        return value // SECOND_NS if value % SECOND_NS == 0 else value / SECOND_NS
    if attribute.unit == "text":
        return duration_text(value)
    if attribute.unit == "ns":
        return int(value)  # of a type that no writer of YAML knows
    if attribute.unit == "not":
        return not value
    if attribute.unit == "percent":
        digits = value.removesuffix("%")
        return int(digits) if digits.isdigit() else None
    return value


def duration_text(ns: int) -> str:
    """``24h``, ``1m30s``: a duration without its zeros at the end."""
    text = format_duration(ns)
    if text.endswith("m0s"):
        text = text.removesuffix("0s")
    return text.removesuffix("0m") if text.endswith("h0m") else text
