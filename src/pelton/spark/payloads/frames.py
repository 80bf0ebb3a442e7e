"""Payloads of a DataFrame as a column, and the schema that its payloads have.

:func:`decoded` adds a struct and, with ``rescue``, a text with what the struct does not hold::

    data                          value              _rescued
    {"id": 1, "more": true}       {id: 1}            {"more":true}
    {"id": "x"}                   {id: null}         {"id":"x"}
    {"id":                        null               {"error":"...","payload":"{\\"id\\":"}

Workers do the work. Works with batches and streams, and keeps no state.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from pelton.spark.older import from_arrow, to_arrow
from pelton.spark.parsing import OptionError
from pelton.spark.payloads import whole
from pelton.spark.payloads.conversion import (
    BrokenPayload,
    Fit,
    Rest,
    UnknownTypeError,
    as_json,
    fit_of,
)
from pelton.spark.payloads.formats import Format, Json
from pelton.spark.payloads.inference import grown, merged, seen_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_AT_ONCE = 1000
_SHOWN_BYTES = 64 * 1024


@dataclass(frozen=True)
class Payloads:
    """A column of payloads: their format, and the columns that they become. Without ``rescue`` the rest is lost."""

    format: Format
    column: str = "data"
    into: str = "value"
    rescue: str | None = "_rescued"


def decoded(rows: DataFrame, payloads: Payloads, schema: StructType) -> DataFrame:
    """Rows with the struct of each payload, and with its rest. Raises :class:`OptionError`."""
    from pyspark.sql import types

    added = [types.StructField(payloads.into, schema)]
    if payloads.rescue is not None:
        added.append(types.StructField(payloads.rescue, types.StringType()))
    column = _column(rows, payloads)
    taken = {each.name.lower() for each in added}
    kept = [each for each in rows.schema.fields if each.name.lower() not in taken]
    kind = cast("pa.StructType", to_arrow(types.StructType(added)).field(0).type)
    try:
        fit_of(kind)
    except UnknownTypeError as wrong:
        raise OptionError(
            f"the schema of {payloads.into} has {wrong}, which no payload has"
        ) from None
    names = [each.name for each in kept]

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = Decoder(payloads.format, kind)
        for batch in batches:
            value, rest = decoder.columns(batch.column(column))
            columns = [batch.column(name) for name in names]
            columns += [value, rest][: len(added)]
            yield pa.RecordBatch.from_arrays(columns, names=[*names, *(one.name for one in added)])

    return rows.mapInArrow(work, types.StructType([*kept, *added]))


def schema_seen(rows: DataFrame, payloads: Payloads, have: StructType | None) -> StructType | None:
    """The schema of a batch's payloads: that of ``have`` with new fields, or a first one.

    Runs a job. None without ``have`` if no payload has a field.
    """
    kind = None if have is None else cast("pa.StructType", pa.struct(list(to_arrow(have))))
    column = _column(rows, payloads)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        found = Seen(payloads.format, kind)
        for batch in batches:
            found.add(batch.column(column))
        context = TaskContext.get()
        part = context.partitionId() if context is not None else 0
        yield pa.RecordBatch.from_pydict({"part": [part], "schema": [_packed(found.type)]})

    told = rows.select(f"`{column}`").mapInArrow(work, "part long, schema binary").collect()
    seen: pa.DataType | None = None
    for _, packed in sorted((row.part, row.schema) for row in told if row.schema is not None):
        seen = merged(seen, pa.ipc.read_schema(pa.BufferReader(packed)).field(0).type)
    if kind is None:
        return None if seen is None else _spark(cast("pa.StructType", seen))
    more = grown(kind, seen)
    return have if more == kind else _spark(more)


def _spark(kind: pa.StructType) -> StructType:
    return from_arrow(pa.schema(kind.fields))


def _packed(kind: pa.DataType | None) -> bytes | None:
    if kind is None:
        return None
    packed: bytes = pa.schema([pa.field("value", kind)]).serialize().to_pybytes()
    return packed


def _column(rows: DataFrame, payloads: Payloads) -> str:
    """The name of the column of payloads. Raises :class:`OptionError` if there is none."""
    folded = {each.name.lower(): each for each in rows.schema.fields}
    found = folded.get(payloads.column.lower())
    if found is None:
        raise OptionError(
            f"there is no column {payloads.column} with payloads; there are {', '.join(rows.columns)}"
        )
    if found.dataType.typeName() not in ("binary", "string"):
        raise OptionError(
            f"column {found.name} is {found.dataType.simpleString()}; payloads are binary or string"
        )
    return found.name


class Decoder:
    """From payloads to a column of one type, and their rest as JSON."""

    def __init__(self, form: Format, kind: pa.StructType) -> None:
        """Reads no payload."""
        self._read = form.reader()
        self._kind = kind
        self._fit = fit_of(kind)
        self._whole = isinstance(form, Json) and whole.reads(kind)

    def columns(self, payloads: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The values of the payloads, and the rest of each; null if all is in the value."""
        values, rests = [], []
        for data in _slices(payloads):
            value = whole.read(data, self._kind) if self._whole else None
            rest = pa.nulls(len(data), pa.string())
            if value is None:
                fitted, left = _one_by_one(data, self._read, self._fit)
                value, rest = pa.array(fitted, self._kind), pa.array(left, pa.string())
            values.append(value.cast(self._kind))
            rests.append(rest)
        if not values:
            return pa.array([], self._kind), pa.array([], pa.string())
        return pa.concat_arrays(values), pa.concat_arrays(rests)


def _one_by_one(
    payloads: pa.Array, read: Callable[[bytes], Any], fit: Fit
) -> tuple[list[Any], Sequence[str | None]]:
    fitted: list[Any] = []
    rests: list[str | None] = []
    for each in payloads:
        payload = each.as_py()
        if payload is None:
            fitted.append(None)
            rests.append(None)
            continue
        try:
            value = read(payload)
            if type(value) is not dict:
                raise BrokenPayload(f"it is {_kind_of(value)}, not an object")
        except BrokenPayload as problem:
            fitted.append(None)
            rests.append(_broken(payload, problem))
            continue
        rest: Rest = {}
        fitted.append(fit(value, rest))
        rests.append(as_json(rest) if rest else None)
    return fitted, rests


def _kind_of(value: object) -> str:
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, str):
        return "a text"
    return "null" if value is None else "a number" if isinstance(value, int | float) else "a value"


def _broken(payload: bytes, problem: BrokenPayload) -> str:
    shown = payload[:_SHOWN_BYTES]
    try:
        text = shown.decode()
    except UnicodeDecodeError:
        text = base64.b64encode(shown).decode()
    return as_json({"error": str(problem), "payload": text})


def _slices(payloads: pa.Array) -> Iterator[pa.Array]:
    data = payloads.cast(pa.binary())
    for begin in range(0, len(data), _AT_ONCE):
        yield data.slice(begin, _AT_ONCE)


class Seen:
    """What payloads have beside the fields of a schema; without one, all that they have."""

    def __init__(self, form: Format, have: pa.StructType | None) -> None:
        """Saw nothing yet."""
        self.type: pa.DataType | None = None
        self._format = form
        self._have = have
        self._own = type(form).seen is Format.seen  # its values say all that there is
        self._read = form.reader()
        self._fit = None if have is None else fit_of(have)
        self._whole = isinstance(form, Json) and have is not None and whole.reads(have)

    def add(self, payloads: pa.Array) -> None:
        """Look at payloads."""
        for data in _slices(payloads):
            if self._fit is None or not self._own:
                self.type = merged(self.type, self._format.seen(data))
            elif not self._whole or whole.read(data, self._have) is None:
                self.type = merged(self.type, seen_in(self._with_rest(data, self._fit)))

    def _with_rest(self, payloads: pa.Array, fit: Fit) -> Iterator[Any]:
        for each in payloads:
            payload = each.as_py()
            try:
                value = None if payload is None else self._read(payload)
            except BrokenPayload:
                continue
            rest: Rest = {}
            if type(value) is dict and (fit(value, rest), rest)[1]:
                yield value
