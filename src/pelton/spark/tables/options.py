"""The options that all formats of tables share: Spark's strings, parsed into frozen values.

The tables of rows define each option; a format adds those of its locations. Does not depend on Spark, and opens
nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pelton.spark.conditions import parse_condition
from pelton.spark.holding import FAIL, IF_BEHIND, checkpoint_given
from pelton.spark.parsing import (
    SEQUENCE_MAX,
    OptionError,
    Row,
    count,
    duration,
    flag,
    no_pushdown,
    size,
    text,
)
from pelton.spark.tables.aside_options import (
    ASIDE_ROWS,
    FAILING,
    AsideOptions,
    take_aside,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pelton.spark.conditions import Term
    from pelton.spark.tables.table import Where

LEAST_KEEP_HOURS = 1
KEEP_HOURS = 7 * 24
SPARKS = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark adds for itself."""


def column_names(text: str) -> tuple[str, ...]:
    """Parse names of columns with commas between."""
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names or len(set(names)) < len(names):
        raise OptionError("one or more names of columns with commas between, each once")
    return names


def version_number(text: str) -> int:
    """Parse a whole number from 0 on."""
    if not text.isascii() or not text.isdigit() or int(text) > SEQUENCE_MAX:
        raise OptionError("a version of the table, such as 0 or 17")
    return int(text)


def hours(text: str) -> int:
    """Parse a duration of an hour or more; returns whole hours."""
    seconds = duration(text)
    if seconds < LEAST_KEEP_HOURS * 3600:
        raise OptionError("a duration of an hour or more, such as 1h or 7d")
    return math.ceil(seconds / 3600)


def point_in_time(text: str) -> datetime:
    """Parse a time, in UTC if it names no zone."""
    try:
        parsed = datetime.fromisoformat(text.strip())
    except ValueError:
        raise OptionError("a time such as 2026-10-16T23:04:01Z") from None
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed


def _starting(text: str) -> int | str:
    word = text.strip().lower()
    if word in ("snapshot", "latest"):
        return word
    try:
        return version_number(word)
    except OptionError:
        raise OptionError("snapshot, latest, or a version such as 17") from None


@dataclass(frozen=True)
class WriteOptions:
    """The options of one writer. ``None`` means "not given"."""

    where: Where
    partition_by: tuple[str, ...] | None = None
    merge_schema: bool = False
    overwrite_schema: bool = False
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

    where: Where
    columns: tuple[str, ...] | None = None
    condition: tuple[Term, ...] = ()
    version: int | None = None
    time: datetime | None = None
    starting: int | str = "snapshot"
    files_per_trigger: int = 1000
    skip_changes: bool = False
    batch_rows: int = 8192
    partition_bytes: int = 64 * 2**20


MAINTENANCE_ROWS = (
    Row("maintainEvery", "maintain_every", count, "Maintain the table after so many commits."),
    Row("retention", "keep_hours", hours, "How long maintainEvery keeps files of old versions."),
)
WRITE_ROWS: tuple[Row, ...] = (
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
    Row("columns", "columns", column_names, "Read only these columns, in this order."),
    Row(
        "where",
        "condition",
        parse_condition,
        "Only rows that meet this: day = DATE'2026-11-29' and amount > 5. Batch only.",
    ),
    Row("timestampAsOf", "time", point_in_time, "The table at a time. Batch only."),
    Row(
        "startingVersion",
        "starting",
        _starting,
        "Where a query without a checkpoint begins: snapshot, latest, or a version.",
    ),
    Row("maxFilesPerTrigger", "files_per_trigger", count, "At most so many files in a batch."),
    Row(
        "skipChangeCommits",
        "skip_changes",
        flag,
        "Pass over commits that change or remove rows, instead of failing.",
    ),
    Row("batchRows", "batch_rows", count, "Rows in one Arrow batch at most."),
    Row("partitionBytes", "partition_bytes", size, "About so many bytes of files per task."),
    Row(
        "pushdown",
        "pushdown",
        no_pushdown,
        "false: Spark would give later queries of a DataFrame what the first one's where() left.",
    ),
)


def write_options(
    values: dict[str, Any], given: Mapping[str, str], *, streaming: bool
) -> WriteOptions:
    """The options of a write from their values. Raises :class:`OptionError`."""
    aside = take_aside(values)
    options = WriteOptions(**values, aside=aside, checkpoint=checkpoint_given(given))
    if (options.mark_name is None) != (options.mark_number is None):
        raise OptionError("txnAppId and txnVersion go together")
    if streaming and options.mark_name is not None:
        raise OptionError("txnAppId is for batch writes; a query has its id and its batches")
    if streaming and options.overwrite_schema:
        raise OptionError("overwriteSchema is for batch writes")
    return options


def read_options(values: dict[str, Any], version: str, *, streaming: bool) -> ReadOptions:
    """The options of a read from their values; ``version`` is the name of the option for a version.

    Raises :class:`OptionError`.
    """
    values.pop("pushdown", None)
    options = ReadOptions(**values)
    if options.version is not None and options.time is not None:
        raise OptionError(f"give either {version} or timestampAsOf")
    if streaming and options.condition:
        raise OptionError("where is for batch reads; a stream takes Spark's where()")
    if streaming and (options.version is not None or options.time is not None):
        raise OptionError(f"{version} and timestampAsOf are for batch reads; see startingVersion")
    return options
