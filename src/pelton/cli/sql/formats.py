"""Results of ``pelton sql`` in their formats: for people, for programs, for other tools.

A format takes batches of Arrow rows as they come. ``table`` and ``md`` need all rows for the widths of
their columns; the others write while the query runs.
"""

from __future__ import annotations

import base64
import csv
import datetime
import decimal
import io
import json
import math
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from pelton.cli.output import print_table, readable
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

FORMATS = ("table", "json", "jsonl", "csv", "md", "parquet", "arrow")
BINARY = frozenset(("parquet", "arrow"))
CELL_MAX = 200
"""The most characters of a cell of a table."""


class Output(Protocol):
    """Where rows go."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take more rows."""

    def end(self) -> None:
        """No more rows follow."""


def output_for(name: str, schema: pa.Schema, file: BinaryIO) -> Output:
    """The output of a format into an open file, which stays open."""
    return _OUTPUTS[name](schema, file)


# -- values ---------------------------------------------------------------------------------------


def rows_of(batch: pa.RecordBatch) -> Iterator[list[Any]]:
    """The rows as values that JSON can hold; bytes in base64, times and intervals as texts."""
    columns = [[plain(each) for each in _dicts(column).to_pylist()] for column in batch.columns]
    yield from (list(row) for row in zip(*columns, strict=True))


def objects_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows by the names of their columns; a name that is there twice gets a number."""
    names = unique(batch.schema.names)
    for row in rows_of(batch):
        yield dict(zip(names, row, strict=True))


def unique(names: list[str]) -> list[str]:
    """The names, each of them once."""
    found: list[str] = []
    for name in names:
        made, number = name, 1
        while made in found:
            number += 1
            made = f"{name}_{number}"
        found.append(made)
    return found


class _Map(dict[Any, Any]):
    """What was a map: its keys may be anything."""


def _dicts(column: pa.Array) -> Any:
    """The column, with maps as dicts where it has them at the top."""
    if not pa.types.is_map(column.type):
        return column
    return _Listed([None if each is None else _Map(each) for each in column.to_pylist()])


class _Listed:
    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def to_pylist(self) -> list[Any]:
        return self._values


def plain(value: Any) -> Any:
    """A value of Arrow as one that JSON has."""
    if isinstance(value, datetime.datetime):
        text = value.isoformat()
        return text.removesuffix("+00:00") + "Z" if value.tzinfo is not None else text
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
        return str(value)
    if isinstance(value, decimal.Decimal):
        whole = value == value.to_integral_value()
        return int(value) if whole else float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def cell(value: Any) -> str:
    """A value of Arrow as text for people."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        text = readable(value)
    else:
        made = plain(value)
        text = made if isinstance(made, str) else _json(made)
    text = " ".join(text.splitlines()) if "\n" in text else text
    return text if len(text) <= CELL_MAX else text[: CELL_MAX - 1] + "…"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# -- formats --------------------------------------------------------------------------------------


class _Gathered:
    """Keeps all rows, and prints them at the end."""

    def __init__(self, schema: pa.Schema, file: BinaryIO) -> None:
        self.schema = schema
        self.file = file
        self.rows: list[list[str]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [[cell(each) for each in _dicts(c).to_pylist()] for c in batch.columns]
        self.rows += [list(row) for row in zip(*columns, strict=True)]

    def numbers(self) -> list[bool]:
        return [
            pa.types.is_integer(each.type)
            or pa.types.is_floating(each.type)
            or pa.types.is_decimal(each.type)
            for each in self.schema
        ]


class _Table(_Gathered):
    """Aligned columns."""

    def end(self) -> None:
        names = unique(self.schema.names)
        right = frozenset(
            n for n, is_number in zip(names, self.numbers(), strict=True) if is_number
        )
        print_table(names, self.rows, right=right)


class _Markdown(_Gathered):
    """A table of Markdown."""

    def end(self) -> None:
        names = unique(self.schema.names)
        lines = [names, ["--:" if number else "---" for number in self.numbers()], *self.rows]
        for line in lines:
            cells = " | ".join(shown(each).replace("|", "\\|") for each in line)
            self.file.write(f"| {cells} |\n".encode())
        self.file.flush()


class _Lines:
    """One JSON object a line."""

    def __init__(self, schema: pa.Schema, file: BinaryIO) -> None:
        self.file = file

    def write(self, batch: pa.RecordBatch) -> None:
        text = "".join(_json(row) + "\n" for row in objects_of(batch))
        self.file.write(text.encode("utf-8", "backslashreplace"))
        self.file.flush()

    def end(self) -> None:
        self.file.flush()


class _Json:
    """One JSON array of objects."""

    def __init__(self, schema: pa.Schema, file: BinaryIO) -> None:
        self.file = file
        self.begun = False

    def write(self, batch: pa.RecordBatch) -> None:
        for row in objects_of(batch):
            self.file.write(b",\n  " if self.begun else b"[\n  ")
            self.begun = True
            self.file.write(_json(row).encode("utf-8", "backslashreplace"))

    def end(self) -> None:
        self.file.write(b"\n]\n" if self.begun else b"[]\n")
        self.file.flush()


class _Csv:
    """Comma separated values with a line of names (RFC 4180, lines end in LF).

    At a terminal control characters are escaped: it would obey them.
    """

    def __init__(self, schema: pa.Schema, file: BinaryIO) -> None:
        self.file = file
        self._escapes = file.isatty()
        self._lines([unique(schema.names)])

    def _lines(self, rows: list[list[Any]]) -> None:
        if self._escapes:
            rows = [
                [shown(each) if isinstance(each, str) else each for each in row] for row in rows
            ]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self.file.write(text.getvalue().encode("utf-8", "backslashreplace"))

    def write(self, batch: pa.RecordBatch) -> None:
        rows = [
            [_json(each) if isinstance(each, dict | list | bool) else each for each in row]
            for row in rows_of(batch)
        ]
        self._lines(rows)
        self.file.flush()

    def end(self) -> None:
        self.file.flush()


class _Parquet:
    """A Parquet file, compressed with zstd."""

    def __init__(self, schema: pa.Schema, file: BinaryIO) -> None:
        from pelton.cli import parquet

        self._schema = named_once(schema)
        self._writer = parquet.writer(file, self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))

    def end(self) -> None:
        self._writer.close()


class _Arrow:
    """An Arrow IPC stream."""

    def __init__(self, schema: pa.Schema, file: BinaryIO) -> None:
        self._writer = pa.ipc.new_stream(file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def end(self) -> None:
        self._writer.close()


def named_once(schema: pa.Schema) -> pa.Schema:
    """The schema with each name once."""
    names = unique(schema.names)
    return pa.schema([each.with_name(name) for each, name in zip(schema, names, strict=True)])


_OUTPUTS: dict[str, Callable[[pa.Schema, BinaryIO], Output]] = {
    "table": _Table,
    "json": _Json,
    "jsonl": _Lines,
    "csv": _Csv,
    "md": _Markdown,
    "parquet": _Parquet,
    "arrow": _Arrow,
}
