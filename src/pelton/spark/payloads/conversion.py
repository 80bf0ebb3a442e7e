"""Values as columns of Arrow; what does not fit a type is kept as JSON.

A value either is held by its type without loss or goes to the rest, under its path::

    schema                       value                              rest
    id long, s struct<a:int>     {"id": "x", "s": {"a": 1, "b": 2}}   {"id": "x", "s.b": 2}

A text column holds every value: others than texts as JSON. A null is held by every type. Does not depend on Spark.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Iterable

Rest = dict[str, Any]
Fit = Callable[[Any, Rest], Any]
"""From a value to one that Arrow takes; adds what does not fit to the rest, by path ("" is the value itself)."""

_EXACT_INTEGER = 2**53


class UnknownTypeError(ValueError):
    """A type that no payload has; the text names it."""


class BrokenPayload(ValueError):
    """The payload is none of its format; the text says why."""


class Misfit(Exception):
    """A value that its type does not hold without loss."""


def fit_of(kind: pa.DataType) -> Fit:
    """How values get this type. Raises :class:`UnknownTypeError`."""
    if types.is_struct(kind):
        return _struct(kind)
    if types.is_list(kind) or types.is_large_list(kind):
        return _list(kind.value_type)
    if types.is_map(kind):
        if not types.is_string(kind.key_type):
            raise UnknownTypeError(f"map with keys of type {kind.key_type}; keys are strings")
        return _map(kind.item_type)
    exact = _plain(kind)

    def fit(value: Any, rest: Rest) -> Any:
        if value is None:
            return None
        try:
            return exact(value)
        except (Misfit, ValueError, OverflowError, InvalidOperation):
            rest[""] = value
            return None

    return fit


def column(values: Iterable[Any], kind: pa.DataType, fit: Fit) -> tuple[pa.Array, list[Rest]]:
    """Values as a column, and the rest of each."""
    rests: list[Rest] = []
    fitted = []
    for value in values:
        rest: Rest = {}
        fitted.append(fit(value, rest))
        rests.append(rest)
    return pa.array(fitted, kind), rests


def as_json(value: Any) -> str:
    """A value as JSON on one line; bytes in base64, times in ISO 8601, other types as text."""
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (TypeError, ValueError, RecursionError):  # such as keys that are no text
        return str(value)


def _struct(kind: pa.StructType) -> Fit:
    fields = {each.name: (each.name, fit_of(each.type)) for each in kind.fields}
    folded = {name.lower(): each for name, each in fields.items()}

    def fit(value: Any, rest: Rest) -> Any:
        if type(value) is not dict:
            if value is not None:
                rest[""] = value
            return None
        found: dict[str, Any] = {}
        for key, each in value.items():
            there = fields.get(key)
            if there is None:
                # Spark compares names in any case. A field of the exact name goes first.
                there = folded.get(key.lower()) if isinstance(key, str) else None
                if there is None or there[0] in value or there[0] in found:
                    if each is not None:
                        rest[str(key)] = each
                    continue
            name, inner = there
            more: Rest = {}
            found[name] = inner(each, more)
            for path, lost in more.items():
                rest[key if not path else f"{key}{'' if path[0] == '[' else '.'}{path}"] = lost
        return found

    return fit


def _list(kind: pa.DataType) -> Fit:
    inner = fit_of(kind)

    def fit(value: Any, rest: Rest) -> Any:
        if type(value) not in (list, tuple):
            if value is not None:
                rest[""] = value
            return None
        found = []
        for number, each in enumerate(value):
            more: Rest = {}
            found.append(inner(each, more))
            for path, lost in more.items():
                dot = "." if path and path[0] != "[" else ""
                rest[f"[{number}]{dot}{path}"] = lost
        return found

    return fit


def _map(kind: pa.DataType) -> Fit:
    inner = fit_of(kind)

    def fit(value: Any, rest: Rest) -> Any:
        if type(value) is not dict:
            if value is not None:
                rest[""] = value
            return None
        found = []
        for key, each in value.items():
            more: Rest = {}
            found.append((str(key), inner(each, more)))
            for path, lost in more.items():
                dot = "." if path and path[0] != "[" else ""
                rest[f"{key}{dot}{path}"] = lost
        return found

    return fit


def _plain(kind: pa.DataType) -> Callable[[Any], Any]:
    """From a value to one that the type holds; raises Misfit and ValueError."""
    if types.is_string(kind) or types.is_large_string(kind):
        return _text
    if types.is_boolean(kind):
        return _boolean
    if types.is_signed_integer(kind):
        return _integer(2 ** (kind.bit_width - 1))
    if types.is_float64(kind) or types.is_float32(kind):
        return _double if types.is_float64(kind) else _float
    if types.is_decimal128(kind):
        return _decimal(kind.precision, kind.scale)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return _bytes
    if types.is_date32(kind):
        return _date
    if types.is_timestamp(kind):
        return _time if kind.tz else _local_time
    raise UnknownTypeError(str(kind))


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    if isinstance(value, bytes):
        return value.decode()
    return as_json(value)


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise Misfit
    return value


def _integer(bound: int) -> Callable[[Any], int]:
    def integer(value: Any) -> int:
        if type(value) is float and value.is_integer() and abs(value) <= _EXACT_INTEGER:
            value = int(value)
        if type(value) is not int or not -bound <= value < bound:
            raise Misfit
        return value

    return integer


def _double(value: Any) -> float:
    if type(value) not in (int, float):
        raise Misfit
    found = float(value)
    if not math.isfinite(found):
        raise Misfit
    return found


def _float(value: Any) -> float:
    found = _double(value)
    if abs(found) > 3.4028235e38:
        raise Misfit
    return found


def _decimal(precision: int, scale: int) -> Callable[[Any], Decimal]:
    def decimal(value: Any) -> Decimal:
        if type(value) not in (int, float, str, Decimal):
            raise Misfit
        found = Decimal(repr(value) if type(value) is float else value)
        if not found.is_finite():
            raise Misfit
        shown = found.quantize(Decimal(1).scaleb(-scale))
        if shown != found or abs(shown) >= Decimal(10) ** (precision - scale):
            raise Misfit
        return shown

    return decimal


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if type(value) is not str:
        raise Misfit
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise Misfit from None


def _date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if type(value) is not str or len(value) != 10:
        raise Misfit
    return date.fromisoformat(value)


def _moment(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if type(value) is not str or len(value) < 16:
        raise Misfit
    return datetime.fromisoformat(value)


def _time(value: Any) -> datetime:
    """A point in time; one without a zone is in UTC."""
    found = _moment(value)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _local_time(value: Any) -> datetime:
    found = _moment(value)
    if found.tzinfo is not None:
        raise Misfit
    return found
