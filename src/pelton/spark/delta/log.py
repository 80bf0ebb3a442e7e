"""A Delta table's log: the files of a version with their statistics, and the features that a reader must know."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from pelton.spark.tables.places import TableError, to_disk

if TYPE_CHECKING:
    from pathlib import Path

    from deltalake import DeltaTable

    from pelton.spark.tables.places import Place

_NOT_READ = ("typeWidening", "variantType")
_VARIANT = re.compile(r'ype":\s*"variant"')


def unread_features(table: DeltaTable) -> list[str]:
    """The features of the table that a reader must know to give the right rows, and does not."""
    features = table.protocol().reader_features or []
    bad = [name for name in _NOT_READ if name in features]
    # deltalake also gives the feature to tables without such columns.
    if "variantType" in bad and not _VARIANT.search(table.schema().to_json()):
        bad.remove("variantType")
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        bad.append("columnMapping")
    return bad


def deletions(table: DeltaTable) -> pa.Table | None:
    """The files with rows that deletion vectors delete; None for a table without the feature."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return None
    return as_arrow(table.deletion_vectors())


def as_arrow(rows: Any) -> pa.Table:
    """Rows that ``deltalake`` gives. ``pa.table`` would import pandas, in each process of Spark."""
    return pa.RecordBatchReader.from_stream(rows).read_all()


def actions_of(table: DeltaTable) -> pa.Table:
    """The files of the table's version as the log has them, a row for each, with their statistics."""
    return as_arrow(table.get_add_actions(flatten=True))


def load_at(table: DeltaTable, time: datetime) -> None:
    """Load the version of the table at a time; ValueError when the table did not exist yet."""
    # Ask the newest version for the history: delta-rs numbers the commits of an older one wrongly.
    made = {commit.get("version"): commit.get("timestamp") for commit in table.history()}
    table.load_as_version(time)
    # For a time before the first version, delta-rs loads that version.
    begin = made.get(table.version())
    if isinstance(begin, int) and begin > time.timestamp() * 1000:
        text = datetime.fromtimestamp(begin / 1000, UTC).isoformat(timespec="milliseconds")
        raise ValueError(f"its log begins at {text}")


def relative(path: str, uri: str) -> str:
    """The path of a file relative to the table's folder, from the path in the log.

    Raises :class:`TableError` for a file outside the folder.
    """
    if "://" in path or path.startswith("/"):
        raise TableError(f"the table {uri} names files of another table, which is not supported")
    return unquote(path)


def log_to_disk(place: Place, before: int, version: int) -> None:
    """Sync the commits behind version ``before`` of a table on this machine."""
    if place.folder is None:
        return
    log = place.folder / "_delta_log"
    for number in range(before + 1, version + 1):
        for path in log.glob(f"{number:020}*"):
            to_disk(path)
    to_disk(log)


def identity(path: Path | None) -> object:
    """The identity of a file, which differs from that of a file made in its place."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
