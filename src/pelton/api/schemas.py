"""JSON schemas (draft 7) of the API's messages, made from their types, and the check of a value against one.

``schema_of`` knows the annotations of ``api/fields``. ``problems`` understands the words that ``schema_of`` writes:
type, properties, required, additionalProperties, items, enum, minimum, maximum, anyOf, $ref, format.
"""

from __future__ import annotations

import types
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from pelton.api.fields import Choice, Flatten, Instant, Number, Omit
from pelton.api.times import parse_instant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Schema = dict[str, Any]
DRAFT = "http://json-schema.org/draft-07/schema#"
_DEEPEST = 100


def schema_of(kind: type[msgspec.Struct], name: str, *, closed: bool) -> Schema:
    """The schema of a message; ``name`` is its type, such as ``io.nats.jetstream.api.v1.pub_ack_response``.

    ``closed``: other fields are wrong, and none is required, as in a request; otherwise the fields that a
    server always writes are required, and newer servers may write more.
    """
    definitions: dict[str, Schema] = {}
    found = _object(kind, definitions, closed)
    head: Schema = {
        "$schema": DRAFT,
        "$id": f"https://nats.io/schemas/{_path(name)}.json",
        "title": name,
        "description": _described(kind),
    }
    return {**head, **found, **({"definitions": definitions} if definitions else {})}


def _path(name: str) -> str:
    return name.removeprefix("io.nats.").replace(".", "/")


def _described(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())


def _object(kind: type[msgspec.Struct], definitions: dict[str, Schema], closed: bool) -> Schema:
    properties: dict[str, Schema] = {}
    required: list[str] = []
    names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    for field, hint in get_type_hints(kind, include_extras=True).items():
        if field not in names:
            continue  # a class variable
        marks = _marks(hint)
        if any(isinstance(each, Flatten) for each in marks):
            inner = _object(_struct_in(hint), definitions, closed)
            properties |= inner["properties"]  # all of them, or none
            continue
        properties[names[field]] = _value(hint, definitions, closed)
        if not closed and not any(isinstance(each, Omit) for each in marks):
            required.append(names[field])
    made: Schema = {"type": "object", "properties": properties}
    if required:
        made["required"] = required
    if closed:
        made["additionalProperties"] = False
    return made


def _marks(hint: Any) -> tuple[Any, ...]:
    """The annotations of a field, those inside included."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        return (*marks, *_marks(inner))
    return ()


def _struct_in(hint: Any) -> type[msgspec.Struct]:
    for each in _choices(hint):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    raise TypeError(f"{hint} has no message")


def _choices(hint: Any) -> list[Any]:
    """The types of a union, without annotations and None."""
    if get_origin(hint) is Annotated:
        return _choices(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return [found for each in get_args(hint) for found in _choices(each)]
    return [] if hint is type(None) else [hint]


def _value(hint: Any, definitions: dict[str, Schema], closed: bool) -> Schema:
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        for mark in marks:
            if isinstance(mark, Number):
                return {"type": "integer", "minimum": mark.low, "maximum": mark.high}
            if isinstance(mark, Instant):
                return {"type": "string", "format": "date-time"}
            if isinstance(mark, Choice):
                words = [*get_args(inner), *(word for word, _ in mark.aliases)]
                return {"type": "string", "enum": list(dict.fromkeys(words))}
        return _value(inner, definitions, closed)
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        found = [_value(each, definitions, closed) for each in get_args(hint)]
        return found[0] if len(found) == 1 else {"anyOf": found}
    if origin is Literal:
        return {"type": "string", "enum": list(get_args(hint))}
    if origin is list or origin is tuple:
        return {"type": "array", "items": _value(get_args(hint)[0], definitions, closed)}
    if origin is dict:
        return {
            "type": "object",
            "additionalProperties": _value(get_args(hint)[1], definitions, closed),
        }
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}  # it may hold itself
            definitions[hint.__name__] = {
                "description": _described(hint),
                **_object(hint, definitions, closed),
            }
        return {"$ref": f"#/definitions/{hint.__name__}"}
    return dict(_PLAIN.get(hint, {}))


_PLAIN: Mapping[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    type(None): {"type": "null"},
}


def problems(value: object, schema: Schema) -> list[str]:
    """The mistakes in a value, each with its place, such as ``config.retention``."""
    return list(_problems(value, schema, schema.get("definitions") or {}, "", 0))


def _problems(
    value: object, schema: Schema, definitions: Mapping[str, Schema], at: str, depth: int
) -> Iterator[str]:
    place = at or "the message"
    if depth > _DEEPEST:
        yield f"{place}: nested too deeply"
        return
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        each = [list(_problems(value, one, definitions, at, depth + 1)) for one in schema["anyOf"]]
        if all(each):
            yield from min(each, key=len)
        return
    wanted = schema.get("type")
    if wanted is not None and not _is(value, wanted):
        yield f"{place}: expected {_ARTICLES.get(wanted, wanted)}, got {_named(value)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is none of {', '.join(map(repr, schema['enum']))}"
    whole = isinstance(value, int) and not isinstance(value, bool) and "minimum" in schema
    if whole and not schema["minimum"] <= value <= schema["maximum"]:
        yield f"{place}: {value} is not between {schema['minimum']} and {schema['maximum']}"
    if isinstance(value, str) and schema.get("format") == "date-time" and not _is_time(value):
        yield f"{place}: {value!r} is no time such as 2026-01-02T15:04:05Z"
    if isinstance(value, dict):
        yield from _in_object(value, schema, definitions, at, depth)
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(
                item, schema.get("items") or {}, definitions, f"{at}[{index}]", depth + 1
            )


def _in_object(
    value: dict[str, Any],
    schema: Schema,
    definitions: Mapping[str, Schema],
    at: str,
    depth: int,
) -> Iterator[str]:
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in value:
            yield f"{at}.{name}: missing".removeprefix(".")
    other = schema.get("additionalProperties", True)
    for name, item in value.items():
        path = f"{at}.{name}".removeprefix(".")
        if name in properties:
            yield from _problems(item, properties[name], definitions, path, depth + 1)
        elif isinstance(other, dict):
            yield from _problems(item, other, definitions, path, depth + 1)
        elif not other:
            yield f"{path}: there is no such field"


_ARTICLES = {
    "object": "an object",
    "array": "a list",
    "integer": "a whole number",
    "null": "null",
} | {
    "string": "a text",
    "boolean": "true or false",
    "number": "a number",
}
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


def _is(value: object, wanted: str) -> bool:
    if isinstance(value, bool) and wanted != "boolean":
        return False
    return isinstance(value, _TYPES[wanted])


def _named(value: object) -> str:
    for name, kinds in _TYPES.items():
        if isinstance(value, kinds) and _is(value, name):
            return _ARTICLES[name]
    return type(value).__name__


def _is_time(text: str) -> bool:
    try:
        parse_instant(text)
    except ValueError:
        return False
    return True
