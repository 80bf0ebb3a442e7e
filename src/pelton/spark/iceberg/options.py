"""The options of ``format("jetstream_iceberg")``.

``catalog.<name>`` options go to the catalog unchanged; ``pyiceberg`` defines them. Does not depend on Spark, and opens
nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pelton.spark.parsing import OptionError, Row, missing, parse, text
from pelton.spark.tables import options as common
from pelton.spark.tables.options import SPARKS, read_options, version_number, write_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pelton.spark.tables.options import ReadOptions, WriteOptions

FORMAT = "jetstream_iceberg"
_CATALOG = "catalog."
DEFAULT_CATALOG = "default"


@dataclass(frozen=True)
class Address:
    """The name of a table and its catalog. ``properties`` may hold secrets."""

    catalog: str
    table: tuple[str, ...]
    properties: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        """The names, and only the names of the properties."""
        given = ", ".join(name for name, _ in self.properties)
        return f"Address({str(self)!r}{', properties ' + given if given else ''})"

    def __str__(self) -> str:
        """The name of the table for users."""
        return ".".join((self.catalog, *self.table))

    @property
    def namespace(self) -> tuple[str, ...]:
        """The namespace of the table in the catalog."""
        return self.table[:-1]


def _table(text: str) -> tuple[str, ...]:
    parts = tuple(text.split("."))
    if len(parts) < 2 or not all(re.fullmatch(r"[^\s/\\]+", part) for part in parts):
        raise OptionError("namespace.name, such as sales.orders")
    return parts


def address(table: str, catalog: str, properties: Mapping[str, str]) -> Address:
    """The address of a table that a user names; raises :class:`OptionError`."""
    try:
        return Address(catalog, _table(table), tuple(sorted(properties.items())))
    except OptionError as wanted:
        raise OptionError(f"the table is {table!r}, but must be {wanted}") from None


TABLE = Row("table", "table", _table, "Namespace and name of the table. Required.")
CATALOG = Row("catalog", "catalog", text, "Name of the catalog.")
WRITE_ROWS: tuple[Row, ...] = (TABLE, CATALOG, *common.WRITE_ROWS)
READ_ROWS: tuple[Row, ...] = (
    TABLE,
    CATALOG,
    *common.READ_ROWS,
    Row("snapshotId", "version", version_number, "The table at a snapshot. Batch only."),
)


def _parse(rows: tuple[Row, ...], given: Mapping[str, str], doing: str) -> dict[str, Any]:
    properties: dict[str, str] = {}
    rest: dict[str, str] = {}
    for name, value in given.items():
        folded = name.lower()
        if folded.startswith(_CATALOG):
            properties[name[len(_CATALOG) :]] = str(value)
        elif folded == "path":
            rest.setdefault("table", str(value))  # set by save(), start() and load()
        elif folded not in SPARKS:
            rest[name] = str(value)
    values: dict[str, Any] = parse(rows, rest, format_name=f"{FORMAT}, {doing},")
    if "table" not in values:
        raise missing("table", "sales.orders", given)
    catalog, table = values.pop("catalog", DEFAULT_CATALOG), values.pop("table")
    values["where"] = Address(catalog, table, tuple(sorted(properties.items())))
    return values


def parse_write(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Parse the options of a write. Raises :class:`OptionError`."""
    return write_options(_parse(WRITE_ROWS, given, "writing"), given, streaming=streaming)


def parse_read(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Parse the options of a read. Raises :class:`OptionError`."""
    return read_options(_parse(READ_ROWS, given, "reading"), "snapshotId", streaming=streaming)
