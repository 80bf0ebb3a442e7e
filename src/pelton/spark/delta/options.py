"""The options of ``format("jetstream_delta")``.

``storage.<name>`` options go to the object store unchanged; ``deltalake`` defines them. Does not depend on Spark, and
opens nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pelton.spark.parsing import Row, flag, missing, parse, text
from pelton.spark.tables import options as common
from pelton.spark.tables.options import SPARKS, read_options, version_number, write_options
from pelton.spark.tables.places import place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pelton.spark.tables.options import ReadOptions, WriteOptions

FORMAT = "jetstream_delta"
_STORAGE = "storage."
PATH = Row("path", "path", text, "Folder or URL of the table. Required.")
WRITE_ROWS: tuple[Row, ...] = (
    PATH,
    *common.WRITE_ROWS,
    Row(
        "overwriteSchema",
        "overwrite_schema",
        flag,
        "An overwrite may change the columns, too. Batch only.",
    ),
)
READ_ROWS: tuple[Row, ...] = (
    PATH,
    *common.READ_ROWS,
    Row("versionAsOf", "version", version_number, "The table at a version. Batch only."),
)


def _parse(rows: tuple[Row, ...], given: Mapping[str, str], doing: str) -> dict[str, Any]:
    storage = {
        name[len(_STORAGE) :]: str(value)
        for name, value in given.items()
        if name.lower().startswith(_STORAGE)
    }
    rest = {
        name: str(value)
        for name, value in given.items()
        if name.lower() not in SPARKS and not name.lower().startswith(_STORAGE)
    }
    values = parse(rows, rest, format_name=f"{FORMAT}, {doing},")
    if "path" not in values:
        raise missing("path", "/data/orders", given)
    values["where"] = place(str(values.pop("path")), storage)
    return values


def parse_write(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Parse the options of a write. Raises :class:`OptionError`."""
    return write_options(_parse(WRITE_ROWS, given, "writing"), given, streaming=streaming)


def parse_read(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Parse the options of a read. Raises :class:`OptionError`."""
    return read_options(_parse(READ_ROWS, given, "reading"), "versionAsOf", streaming=streaming)
