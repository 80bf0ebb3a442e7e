"""The options of ``format("jetstream_iceberg")``: Spark's strings, parsed into frozen values.

The tables of rows define each option. ``catalog.<name>`` options go to the catalog unchanged;
``pyiceberg`` defines them.

Does not depend on Spark, and opens nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pelton.spark.holding import FAIL, IF_BEHIND, checkpoint_given
from pelton.spark.parsing import OptionError, Row, count, flag, missing, parse, size, text
from pelton.spark.tables.aside_options import (
    ASIDE_ROWS,
    FAILING,
    AsideOptions,
    take_aside,
)
from pelton.spark.tables.options import (
    KEEP_HOURS,
    MAINTENANCE_ROWS,
    column_names,
    point_in_time,
    version_number,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

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


@dataclass(frozen=True)
class WriteOptions:
    """The options of one writer. ``None`` means "not given"."""

    address: Address
    partition_by: tuple[str, ...] | None = None
    merge_schema: bool = False
    rows_per_file: int | None = None
    check_replay: bool = True
    mark_name: str | None = None
    mark_number: int | None = None
    if_behind: str = FAIL
    maintain_every: int | None = None
    keep_hours: int = KEEP_HOURS
    aside: AsideOptions = FAILING
    checkpoint: str | None = None
    """The checkpoint folder of the query that writes."""


@dataclass(frozen=True)
class ReadOptions:
    """The options of one reader. ``None`` means "not given"."""

    address: Address
    columns: tuple[str, ...] | None = None
    snapshot: int | None = None
    time: datetime | None = None
    partition_bytes: int = 64 * 2**20


TABLE = Row("table", "table", _table, "Namespace and name of the table. Required.")
CATALOG = Row("catalog", "catalog", text, "Name of the catalog.")
WRITE_ROWS: tuple[Row, ...] = (
    TABLE,
    CATALOG,
    Row(
        "partitionBy",
        "partition_by",
        column_names,
        "Columns by whose values a new table is divided.",
    ),
    Row("mergeSchema", "merge_schema", flag, "Add columns that the table does not have."),
    Row("maxRecordsPerFile", "rows_per_file", count, "Begin another file after so many rows."),
    Row(
        "checkReplay",
        "check_replay",
        flag,
        "A batch that the table holds must come again with as many rows.",
    ),
    Row("txnAppId", "mark_name", text, "Name of a batch write that is made once, with txnVersion."),
    Row("txnVersion", "mark_number", version_number, "Number of a batch write under its txnAppId."),
    IF_BEHIND,
    *MAINTENANCE_ROWS,
    *ASIDE_ROWS,
)
READ_ROWS: tuple[Row, ...] = (
    TABLE,
    CATALOG,
    Row("columns", "columns", column_names, "Read only these columns, in this order."),
    Row("snapshotId", "snapshot", version_number, "The table at a snapshot."),
    Row("timestampAsOf", "time", point_in_time, "The table at a time."),
    Row("partitionBytes", "partition_bytes", size, "About so many bytes of files per task."),
)
# Spark adds these options for itself.
_SPARKS = frozenset({"checkpointlocation", "queryname"})


def _parse(rows: tuple[Row, ...], given: Mapping[str, str], doing: str) -> dict[str, Any]:
    properties: dict[str, str] = {}
    rest: dict[str, str] = {}
    for name, value in given.items():
        folded = name.lower()
        if folded.startswith(_CATALOG):
            properties[name[len(_CATALOG) :]] = str(value)
        elif folded == "path":
            rest.setdefault("table", str(value))  # set by save(), start() and load()
        elif folded not in _SPARKS:
            rest[name] = str(value)
    values: dict[str, Any] = parse(rows, rest, format_name=f"{FORMAT}, {doing},")
    if "table" not in values:
        raise missing("table", "sales.orders", given)
    catalog, table = values.pop("catalog", DEFAULT_CATALOG), values.pop("table")
    values["address"] = Address(catalog, table, tuple(sorted(properties.items())))
    return values


def parse_write(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Parse the options of a write. Raises :class:`OptionError`."""
    values = _parse(WRITE_ROWS, given, "writing")
    aside = take_aside(values)
    options = WriteOptions(**values, aside=aside, checkpoint=checkpoint_given(given))
    if (options.mark_name is None) != (options.mark_number is None):
        raise OptionError("txnAppId and txnVersion go together")
    if streaming and options.mark_name is not None:
        raise OptionError("txnAppId is for batch writes; a query has its id and its batches")
    return options


def parse_read(given: Mapping[str, str]) -> ReadOptions:
    """Parse the options of a read. Raises :class:`OptionError`."""
    options = ReadOptions(**_parse(READ_ROWS, given, "reading"))
    if options.snapshot is not None and options.time is not None:
        raise OptionError("give either snapshotId or timestampAsOf")
    return options
