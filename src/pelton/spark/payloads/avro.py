"""Schemas of Avro as types of Arrow."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from pelton.errors import not_installed
from pelton.spark.parsing import OptionError

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_UTC = pa.timestamp("us", "UTC")
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": _UTC,
    "timestamp-micros": _UTC,
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
    "time-millis": pa.string(),
    "time-micros": pa.string(),
}


def parsed(text: str) -> Any:
    """A schema as ``fastavro`` uses it. Raises :class:`OptionError`."""
    try:
        import fastavro
    except ModuleNotFoundError as problem:
        raise not_installed(problem, "formats") from None
    try:
        return fastavro.parse_schema(json.loads(text))
    except Exception as problem:  # ValueError, and many of the library
        raise OptionError(f"an Avro schema, not {text[:80]!r}: {problem}") from None


def struct_of(schema: Any) -> pa.StructType:
    """The type of the records of a schema. Raises :class:`OptionError` for another schema."""
    names: dict[str, Any] = {}
    kind = _type(schema, names, ())
    if not pa.types.is_struct(kind):
        raise OptionError(f"an Avro schema of records, not of {kind}")
    return kind


def _type(schema: Any, names: dict[str, Any], within: tuple[str, ...]) -> pa.DataType:
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        return _type(kinds[0], names, within) if len(kinds) == 1 else pa.string()
    if isinstance(schema, str):
        if schema in names:
            return _type(names[schema], names, within)
        return _PLAIN.get(schema, pa.string())
    kind, name = schema["type"], schema.get("name")
    if name is not None:
        names.setdefault(name, schema)
    if isinstance(kind, dict | list):
        return _type(kind, names, within)
    if schema.get("logicalType") == "decimal" and schema["precision"] <= 38:
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if schema.get("logicalType") in _LOGICAL:
        return _LOGICAL[schema["logicalType"]]
    if kind in ("record", "error"):
        if name in within:
            raise OptionError(f"an Avro schema without records inside of themselves, as {name} is")
        fields = [
            pa.field(each["name"], _type(each["type"], names, (*within, name)))
            for each in schema["fields"]
        ]
        return pa.struct(fields)
    if kind == "array":
        return pa.list_(pa.field("element", _type(schema["items"], names, within)))
    if kind == "map":
        return pa.map_(pa.string(), _type(schema["values"], names, within))
    return _type(kind, names, within)
