"""Writes and reads the messages as JSON, in the way of a NATS server.

Encoding: fields are in declared order, zero values are left out where the field says so, maps are
sorted by key, `<`, `>` and `&` are escaped, times are RFC 3339, bytes are base64. Decoding: keys
match in any case, later ones win, null leaves a field unchanged, several documents one after
another fill the same object, and a wrong type is an error that names the field.

The annotations of `api/fields` describe each field; a plan per message class is made once. This module
does not depend on any message.
"""

from __future__ import annotations

import base64
import binascii
import json
import types
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from pelton.api.fields import Choice, Flatten, Instant, Number, Omit
from pelton.api.scan import JsonFaultError, documents
from pelton.api.times import format_instant, format_time, parse_instant, parse_time
from pelton.core.base.quoting import quoted_letter
from pelton.core.protocol.json_scan import unicode_only

T = TypeVar("T", bound=msgspec.Struct)

Encoder = Callable[[Any], Any]


class JsonError(ValueError):
    """The body is not a valid message; str() is the text after `invalid JSON: `."""


class _Literal(str):
    """A number that is not whole, in the spelling of the JSON text."""

    __slots__ = ()


class _Kind(msgspec.Struct, frozen=True):
    """One type: the writer and the reader of its values."""

    encode: Encoder | None  # None: the value as it is
    decode: Callable[[_Reader, Any, Any, str], Any]  # reader, JSON value, present value, path
    name: str
    pointer: bool = False  # in lists
    plain: type | None = None  # values of exactly this type are accepted as they are,
    low: int = 0  # except numbers below this
    high: int = 0  # or above this
    keeps_zero: bool = False  # left out only if it is None: an object, or an optional time


class _Field(msgspec.Struct, frozen=True):
    name: str
    kind: _Kind
    omit: bool
    flatten: type[msgspec.Struct] | None


class _Reader(msgspec.Struct):
    strict: bool  # unknown fields are errors
    open_choices: bool  # unknown words in closed sets are kept (answers of newer servers)
    objects: int = -1  # how many more objects are allowed; negative: any number

    def count(self) -> None:
        """Count one more object. JsonError: there are too many."""
        if self.objects == 0:
            raise JsonError(f"too many objects, maximum allowed is {MAX_OBJECTS}")
        self.objects -= 1


MAX_OBJECTS = 5_000
"""Limit of objects in one request, and of keys in another case; both are slow in Python."""
_DOCUMENTS_MOST = 500  # documents one after another
_BRACKETS_MOST = 100_000  # higher, because lists and texts have brackets too
_QUOTED_MOST = 4096  # letters of a client's text in an error
_DIGITS_MOST = 100  # a longer whole number fits no field
_PARSER = msgspec.json.Decoder(float_hook=_Literal)
_SCALARS: dict[type, str] = {str: "string", bool: "bool"}


def encode(message: msgspec.Struct) -> bytes:
    """A message as JSON bytes."""
    tree = _tree(message)
    try:
        text = msgspec.json.encode(tree, enc_hook=_plain)
    except UnicodeEncodeError:
        text = msgspec.json.encode(_clean(tree), enc_hook=_plain)
    return _escaped(text)


def encode_part(value: object) -> bytes:
    """A plain value, such as a map of numbers, as JSON bytes. A message can hold the bytes as
    `msgspec.Raw` in place of the value.
    """
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = msgspec.json.encode(_clean(value))
    return _escaped(text)


def _escaped(text: bytes) -> bytes:
    if b"<" in text or b">" in text or b"&" in text:
        text = text.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")
    return text


def _plain(value: object) -> int:
    """For a number that is too long for a Python int."""
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"a message field can not be {value!r}")


def decode_request(kind: type[T], body: bytes, *, strict: bool = True, bounded: bool = False) -> T:
    """A request body as a message, as a server reads it; an empty body gives the zero message.

    JsonError if the body is invalid. `bounded`: the body comes from a client and may have at most
    MAX_OBJECTS objects.
    """
    most = MAX_OBJECTS if bounded else -1
    return _decode(kind, body, _Reader(strict, open_choices=False, objects=most))


def decode_response(kind: type[T], body: bytes) -> T:
    """A server's answer as a message; ignores unknown fields. JsonError if it is invalid."""
    return _decode(kind, body, _Reader(strict=False, open_choices=True))


def _decode(kind: type[T], body: bytes, reader: _Reader) -> T:
    if reader.objects >= 0 and body.count(b"[") + body.count(b"{") > _BRACKETS_MOST:
        raise JsonError(f"too many objects, maximum allowed is {MAX_OBJECTS}")
    message = kind()
    for number, value in enumerate(_parse(body)):
        if reader.objects >= 0 and number == _DOCUMENTS_MOST:
            raise JsonError(f"too many documents, maximum allowed is {_DOCUMENTS_MOST}")
        if value is None:
            continue
        if not isinstance(value, dict):
            target = f"Go value of type server.{_type_name(kind)}"
            raise JsonError(f"json: cannot unmarshal {_word(value)} into {target}")
        _fill(reader, message, value, _type_name(kind))
    return message


def _parse(body: bytes) -> Iterator[Any]:
    """Yields the value of each document; a document is parsed after the one before it was
    processed.
    """
    try:
        whole = _PARSER.decode(body)
    except (ValueError, RecursionError, msgspec.DecodeError):
        yield from _parse_each(body)
    else:
        yield whole


def _parse_each(body: bytes) -> Iterator[Any]:
    try:
        for part in documents(body):
            # invalid Unicode, or half a surrogate pair, is accepted
            clean = unicode_only(part.decode("utf-8", "surrogateescape"), escapes=True)
            try:
                value = _PARSER.decode(clean)
            except (ValueError, msgspec.DecodeError):  # a very long number
                value = json.loads(clean, parse_float=_Literal, parse_int=_whole)
            yield value
    except JsonFaultError as fault:
        raise JsonError(str(fault)) from None
    except RecursionError:
        raise JsonError("exceeded max depth") from None


def _whole(digits: str) -> int | _Literal:
    return int(digits) if len(digits) < _DIGITS_MOST else _Literal(digits)


# -- plans -----------------------------------------------------------------------------------------


@cache
def _plan(kind: type[msgspec.Struct]) -> tuple[_Field, ...]:
    # A class with annotations for callers may have `wire_hints`, which are those of the wire.
    hints = kind.__dict__.get("wire_hints") or get_type_hints(kind, include_extras=True)
    return tuple(_field(name, hints[name]) for name in kind.__struct_fields__)


@cache
def _index(kind: type[msgspec.Struct]) -> dict[str, tuple[str | None, _Field]]:
    """JSON key -> (field of this object that holds it, or None for this object, field)."""
    found: dict[str, tuple[str | None, _Field]] = {}
    for field in _plan(kind):
        if field.flatten is None:
            found[field.name] = (None, field)
        else:
            for inner in _plan(field.flatten):
                found.setdefault(inner.name, (field.name, field))
    return found


def _field(name: str, hint: Any) -> _Field:
    omit, flatten = False, None
    if get_origin(hint) is Annotated:
        marks = hint.__metadata__
        omit = any(isinstance(mark, Omit) for mark in marks)
        if any(isinstance(mark, Flatten) for mark in marks):
            flatten = _struct_of(hint)
    return _Field(name, _kind(hint), omit, flatten)


def _struct_of(hint: Any) -> type[msgspec.Struct]:
    for part in (get_args(hint)[0], *get_args(get_args(hint)[0])):
        if isinstance(part, type) and issubclass(part, msgspec.Struct):
            return part
    raise TypeError(f"no message class in {hint}")


def _kind(hint: Any) -> _Kind:
    marks: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        marks = hint.__metadata__
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, types.UnionType):
        inner = next(part for part in get_args(hint) if part is not type(None))
        every = (*marks, *getattr(inner, "__metadata__", ()))
        if instants := [mark for mark in every if isinstance(mark, Instant)]:
            read_instant = _read_time(parse_instant)
            return _optional(
                _Kind(
                    _writer(instants[0], format_instant), read_instant, "time.Time", keeps_zero=True
                )
            )
        return _optional(_kind(Annotated[inner, *marks] if marks else inner))
    for mark in marks:
        if isinstance(mark, Number):
            return _number(mark)
        if isinstance(mark, Instant):
            return _Kind(_writer(mark, format_time), _read_time(parse_time), "time.Time")
        if isinstance(mark, Choice):
            return _choice(mark, get_args(hint))
    if get_origin(hint) is list:
        return _list(_kind(get_args(hint)[0]), _zero(get_args(hint)[0]))
    if get_origin(hint) is dict:
        return _map(_kind(get_args(hint)[1]))
    if get_origin(hint) is Literal:
        return _choice(Choice(), get_args(hint))
    if hint is bytes:
        return _Kind(None, _read_bytes, "[]uint8")
    if hint in _SCALARS:
        return _scalar(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint)
    raise TypeError(f"a message field can not be {hint}")


def _optional(inner: _Kind) -> _Kind:
    encode = inner.encode

    def read(reader: _Reader, value: Any, present: Any, path: str) -> Any:
        return None if value is None else inner.decode(reader, value, present, path)

    return _Kind(encode, read, inner.name, keeps_zero=inner.keeps_zero)


def _scalar(python: type) -> _Kind:
    name = _SCALARS[python]

    def read(_: _Reader, value: Any, present: Any, path: str) -> Any:
        if value is None:
            return present
        if not isinstance(value, python) or isinstance(value, _Literal):
            raise _mismatch(value, path, name)
        return value

    return _Kind(None, read, name, plain=python)


def _number(mark: Number) -> _Kind:
    def read(_: _Reader, value: Any, present: Any, path: str) -> Any:
        if value is None:
            return present
        if isinstance(value, bool) or not isinstance(value, int):
            raise _mismatch(value, path, mark.name)
        if not mark.low <= value <= mark.high:
            raise _mismatch(_Literal(str(value)), path, mark.name)
        return value if mark.read is None else mark.read(value)

    write = mark.write
    encode = None if write is None else lambda value: int(write(value))
    if mark.read is not None:
        return _Kind(encode, read, mark.name)
    return _Kind(encode, read, mark.name, plain=int, low=mark.low, high=mark.high)


def _writer(mark: Instant, shown: Callable[[int], str]) -> Encoder:
    write = mark.write
    return shown if write is None else lambda value: shown(write(value))


def _choice(mark: Choice, words: tuple[str, ...]) -> _Kind:
    aliases = dict(mark.aliases)

    def read(reader: _Reader, value: Any, _: Any, path: str) -> Any:
        if type(value) is str and (value in words or value in aliases or reader.open_choices):
            return aliases.get(value, value)
        raw = msgspec.json.encode(value, enc_hook=_as_written).decode()
        raise JsonError(
            mark.error.format(
                raw=_quote(raw), value=_quote(value if isinstance(value, str) else "")
            )
        )

    return _Kind(None, read, "string")


def _as_written(number: str) -> msgspec.Raw:
    return msgspec.Raw(number.encode())


def _zero(hint: Any) -> Callable[[], Any]:
    """The function that makes the value for a null in a list."""
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return plain if isinstance(plain, type) else str


def _list(item: _Kind, zero: Callable[[], Any]) -> _Kind:
    encode, name = item.encode, f"[]{'*' if item.pointer else ''}{item.name}"

    def read(reader: _Reader, value: Any, _: Any, path: str) -> Any:
        if value is None:
            return []
        if not isinstance(value, list):
            raise _mismatch(value, path, name)
        if item.plain is not None:
            place = _odd(item, value)
            if place >= 0:
                item.decode(reader, value[place], zero(), f"{path}.{place}")
            return [zero() if element is None else element for element in value]
        return [
            item.decode(reader, element, zero(), f"{path}.{index}")
            for index, element in enumerate(value)
        ]

    return _Kind(
        None
        if encode is None
        else lambda value: [None if element is None else encode(element) for element in value],
        read,
        name,
    )


def _odd(item: _Kind, values: list[Any]) -> int:
    """The position of the first value that a list of plain values cannot hold; -1: none.

    A null is allowed.
    """
    kinds = set(map(type, values))
    nulls = type(None) in kinds
    if kinds <= {item.plain, type(None)}:
        if item.plain is not int:
            return -1
        numbers = [value for value in values if value is not None] if nulls else values
        if not numbers or (item.low <= min(numbers) and max(numbers) <= item.high):
            return -1
    for place, value in enumerate(values):
        if type(value) is not item.plain and value is not None:
            return place
        if type(value) is int and not item.low <= value <= item.high:
            return place
    return -1


def _map(item: _Kind) -> _Kind:
    name = f"map[string]{item.name}"

    def read(reader: _Reader, value: Any, present: Any, path: str) -> Any:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise _mismatch(value, path, name)
        merged = dict(present or {})
        kinds = set(map(type, value.values()))
        if item.plain is str and kinds <= {str, type(None)}:
            nulls = type(None) in kinds
            merged |= {key: text or "" for key, text in value.items()} if nulls else value
            return merged
        for key, element in value.items():
            merged[key] = item.decode(reader, element, "", f"{path}.{key}")
        return merged

    def encode(value: Any) -> Any:
        return value if type(value) is msgspec.Raw else dict(sorted(value.items()))

    return _Kind(encode, read, name)


def _struct(kind: type[msgspec.Struct]) -> _Kind:
    name = f"server.{_type_name(kind)}"

    def read(reader: _Reader, value: Any, present: Any, path: str) -> Any:
        reader.count()
        if value is None:
            return present
        if not isinstance(value, dict):
            raise _mismatch(value, path, name)
        target = kind() if present is None else present
        _fill(reader, target, value, path)
        return target

    return _Kind(_tree, read, name, getattr(kind, "by_pointer", False), keeps_zero=True)


# -- writing ---------------------------------------------------------------------------------------


def _tree(message: Any) -> Any:
    if type(message) is msgspec.Raw:
        return message
    tree: dict[str, Any] = {}
    for field in _plan(message.__class__):
        value = getattr(message, field.name)
        if field.flatten is not None:
            if value is not None:
                tree.update(_tree(value))
            continue
        if field.omit and (value is None or (not value and not field.kind.keeps_zero)):
            continue
        encoder = field.kind.encode
        tree[field.name] = value if encoder is None or value is None else encoder(value)
    return tree


def _clean(value: Any) -> Any:
    """The same tree in valid Unicode; invalid bytes become U+FFFD."""
    if isinstance(value, _Literal):
        return value
    if isinstance(value, str):
        return unicode_only(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(element) for key, element in value.items()}
    if isinstance(value, list):
        return [_clean(element) for element in value]
    return value


# -- reading ---------------------------------------------------------------------------------------


def _fill(reader: _Reader, message: msgspec.Struct, value: dict[str, Any], path: str) -> None:
    index = _index(type(message))
    for key, element in value.items():
        found = index.get(key)
        if found is None:
            found = index.get(key.lower())
            reader.count()
        if found is None:
            if reader.strict:
                raise JsonError(f"json: unknown field {_quote(key)}")
            continue
        holder, field = found
        if holder is not None and field.flatten is not None:
            inner = getattr(message, holder)
            if inner is None:
                inner = field.flatten()
                setattr(message, holder, inner)
            _fill(reader, inner, {key: element}, path)
            continue
        present = getattr(message, field.name)
        setattr(
            message, field.name, field.kind.decode(reader, element, present, f"{path}.{field.name}")
        )


def _read_time(parse: Callable[[str], int]) -> Callable[[_Reader, Any, Any, str], Any]:
    def read(_: _Reader, value: Any, present: Any, path: str) -> Any:
        if value is None:
            return present
        if not isinstance(value, str) or isinstance(value, _Literal):
            raise _mismatch(0 if isinstance(value, _Literal) else value, path, "time.Time")
        try:
            return parse(value)
        except ValueError as error:
            raise JsonError(str(error)) from None

    return read


def _read_bytes(_: _Reader, value: Any, present: Any, path: str) -> Any:
    if value is None:
        return b""
    if not isinstance(value, str) or isinstance(value, _Literal):
        raise _mismatch(value, path, "[]uint8")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise JsonError("illegal base64 data") from None


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, _Literal):
        return f"number {value}"
    if isinstance(value, int):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _type_name(kind: type[msgspec.Struct]) -> str:
    return str(getattr(kind, "type_name", kind.__name__))


def _mismatch(value: Any, path: str, name: str) -> JsonError:
    where = path if path.rpartition(".")[2].isdigit() else f"Go struct field {path}"
    return JsonError(f"json: cannot unmarshal {_word(value)} into {where} of type {name}")


def _quote(text: str) -> str:
    """In quotation marks, with characters that are not printable escaped."""
    quoted: str = _clean(text[:_QUOTED_MOST])
    return '"' + "".join(map(quoted_letter, quoted)) + '"'
