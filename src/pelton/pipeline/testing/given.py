"""The rows of a test as Arrow tables: values become the types of a source's columns.

Columns that a row leaves out have defaults: ``seq`` counts on, a time is :data:`TIME`, the stream, the bucket and
the subject are those of the source; others are null.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from pelton.pipeline.description.cases import CaseError, rows_in
from pelton.pipeline.description.problems import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from pelton.pipeline.description.cases import Row, Rows
    from pelton.pipeline.description.model import Source

TIME = datetime(2026, 1, 1, tzinfo=UTC)
"""The time of a message whose row has none."""
BASE64 = "_base64"
"""After the name of a binary column: its value in base64."""
_PAYLOADS = ("data", "value")
_JSON = msgspec.json.Encoder(decimal_format="number")


def schema_of(source: Source | None, rows: Rows | None) -> StructType | None:
    """The columns of a source; None if neither its format nor the rows say them. Needs a JVM."""
    from pyspark.sql.types import StructType

    text = None if rows is None else rows.schema
    if text is None and source is not None:
        text = source.schema or _fixed(source)
    if text is None:
        return None
    try:
        made = StructType.fromDDL(text)
    except Exception as error:  # from Spark's parser
        place = rows.place if rows is not None else f"line {source.line if source else 0}"
        said = str(error).strip().partition("\n")[0]
        raise CaseError(f"{place}: schema {text!r}: {said}") from None
    if not isinstance(made, StructType):
        raise CaseError(f"{rows.place if rows else ''}: schema {text!r} has no columns")
    return made


def _fixed(source: Source) -> str | None:
    options = {name: text for name, text in source.options.items() if name.lower() != "consumer"}
    if source.format == "jetstream_kv":
        from pelton.spark.buckets.kv_source import COLUMNS

        return COLUMNS
    if source.format != "jetstream":
        return None
    from pelton.spark.reading.options import parse_options
    from pelton.spark.reading.schema import schema_text

    return schema_text(parse_options(options, streaming=not source.static))


class Tables:
    """Makes the tables of one source, batch after batch."""

    def __init__(self, name: str, source: Source | None, schema: StructType) -> None:
        """``name`` is the node's name in messages."""
        from pelton.spark.older import to_arrow

        self.schema = schema
        self.arrow = to_arrow(schema)
        self._name = name
        self._defaults = {} if source is None else _defaults(source)
        self._next = 1

    def table(self, rows: Rows | None) -> pa.Table:
        """The rows as a table. Raises :class:`CaseError` for values that do not fit."""
        made = [self._row(row) for row in (rows_in(rows) if rows is not None else ())]
        return pa.Table.from_pylist(made, self.arrow)

    def _row(self, row: Row) -> dict[str, Any]:
        given = self._named(row)
        found: dict[str, Any] = {}
        for field in self.schema.fields:
            value = given.get(field.name, self._defaults.get(field.name))
            if field.name in ("seq", "revision") and field.name not in given and self._defaults:
                value = self._next
            try:
                found[field.name] = value_of(value, field.dataType)
                pa.scalar(found[field.name], self.arrow.field(field.name).type)
            except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
                kind = field.dataType.simpleString()
                said = f": {error}" if isinstance(error, Misfit) else ""
                raise CaseError(
                    f"{row.place}: {self._name}: {field.name} is {value!r}, not {kind}{said}"
                ) from None
        for name in ("seq", "revision"):
            if self._defaults and isinstance(found.get(name), int):
                self._next = found[name] + 1
        return found

    def _named(self, row: Row) -> dict[str, object]:
        """The row by names of columns, with payloads decoded."""
        names = self.schema.names
        if isinstance(row.value, str):
            payload = next((name for name in _PAYLOADS if name in names), None)
            if payload is None:
                raise CaseError(f"{row.place}: {self._name}: a row is names and values: {{id: 7}}")
            return {payload: row.value}
        made: dict[str, object] = {}
        for name, value in row.value.items():
            column = name.removesuffix(BASE64)
            if name in names:
                made[name] = value
            elif column in names and column != name:
                try:
                    made[column] = base64.b64decode(str(value), validate=True)
                except binascii.Error:
                    raise CaseError(f"{row.place}: {self._name}: {name} is not base64") from None
            else:
                hint = did_you_mean(name, names)
                raise CaseError(f"{row.place}: {self._name} has no column {name}{hint}")
        return made


def _defaults(source: Source) -> dict[str, object]:
    options = {name.lower(): text for name, text in source.options.items()}
    if source.format == "jetstream_kv":
        return {"created": TIME, "operation": "PUT"}
    if source.format != "jetstream":
        return {}
    stream = options.get("stream", "STREAM").partition(",")[0].strip()
    subject = options.get("subject", "").partition(",")[0].strip()
    literal = subject and not any(token in ("*", ">") for token in subject.split("."))
    return {
        "stream": stream,
        "subject": subject if literal else stream.lower(),
        "ts": TIME,
        "ts_ns": int(TIME.timestamp()) * 10**9,
        "data": b"",
    }


class Misfit(ValueError):
    """A value that a type does not have; the text says which would be right."""


def value_of(value: object, kind: DataType) -> Any:
    """A value of a test in the form that Arrow takes for a type of Spark.

    Raises ValueError, TypeError or ArithmeticError.
    """
    from pyspark.sql import types as T  # noqa: N812  the customary name

    if value is None:
        return None
    if isinstance(kind, T.BinaryType):
        return payload_of(value)
    if isinstance(kind, T.StringType):
        return value if isinstance(value, str) else payload_of(value).decode()
    if isinstance(kind, T.BooleanType):
        return _checked(value, bool, "true or false")
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        return moment_of(value, zone=isinstance(kind, T.TimestampType))
    if isinstance(kind, T.DateType):
        return date.fromisoformat(_checked(value, str, "a date such as 2026-01-31"))
    if isinstance(kind, T.DecimalType):
        return round(Decimal(str(_number(value))), kind.scale)
    if isinstance(kind, T.FloatType | T.DoubleType):
        return float(value) if value in ("NaN", "Infinity", "-Infinity") else float(_number(value))
    if isinstance(kind, T.IntegralType):
        return _checked(value, int, "a whole number")
    return _nested(value, kind)


def _nested(value: Any, kind: Any) -> Any:
    from pyspark.sql import types as T  # noqa: N812  the customary name

    if isinstance(kind, T.ArrayType):
        items = value if isinstance(value, list) else [value]  # a header that is there once
        return [value_of(each, kind.elementType) for each in items]
    if isinstance(kind, T.MapType):
        pairs = _checked(value, dict, "names and values").items()
        return [
            (value_of(key, kind.keyType), value_of(each, kind.valueType)) for key, each in pairs
        ]
    if isinstance(kind, T.StructType):
        given = _checked(value, dict, "names and values")
        if unknown := [name for name in given if name not in kind.names]:
            raise Misfit(f"there is no field {unknown[0]}{did_you_mean(unknown[0], kind.names)}")
        return {each.name: value_of(given.get(each.name), each.dataType) for each in kind.fields}
    raise Misfit("a test cannot give a value of this type")


def payload_of(value: object) -> bytes:
    """The bytes of a payload: a text as it is, anything else as JSON."""
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else _JSON.encode(value)


def moment_of(value: object, *, zone: bool = True) -> datetime:
    """The time of an ISO text; in UTC where it names no zone."""
    if isinstance(value, datetime):
        return value
    found = datetime.fromisoformat(_checked(value, str, "a time such as 2026-01-31T12:00:00Z"))
    if not zone:
        return found.replace(tzinfo=None)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _number(value: object) -> int | Decimal | float:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | float):
        raise Misfit("it must be a number, without quotes")
    return value


def _checked(value: Any, kind: type, form: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise Misfit(f"it must be {form}")
    return value
