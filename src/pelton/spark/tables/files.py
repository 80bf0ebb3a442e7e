"""The files of a table's version, and the files that each commit added, for planning reads.

A stream of a table is the files of one version (the snapshot), followed by the files that each later
commit added. A position in it is the next file to read::

    {"table": "<id>", "version": 7, "file": 2, "snapshot": false}
        the id of the table, which a new table does not share; the third file that commit 7 added

(``.again`` belongs to :mod:`pelton.spark.filling`.)

Commits that only move rows into other files (compaction) add nothing. Commits that change or remove
rows are errors, unless the reader skips them.

Does not depend on Spark or the contents of the files.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from pelton.spark.filling import AGAIN
from pelton.spark.tables.commits import HERE
from pelton.spark.tables.parquet import partition_text
from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pelton.spark.tables.places import Place

_KEPT_COMMITS = 1000
_NOT_READ = ("typeWidening", "variantType")
_VARIANT = re.compile(r'ype":\s*"variant"')


@dataclass(frozen=True)
class StoredFile:
    """One file of a table, as its log has it; or one of ``parts`` parts, cut by row groups."""

    path: str
    size: int
    partition: tuple[tuple[str, str | None], ...]
    part: int = 0
    parts: int = 1


@dataclass(frozen=True)
class Position:
    """The next file of a stream of a table."""

    table: str
    version: int
    file: int = 0
    snapshot: bool = False

    def to_json(self) -> dict[str, Any]:
        """The offset in the form that Spark stores."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Position:
        """Parse an offset that :meth:`to_json` made."""
        return cls(**{name: value for name, value in stored.items() if name != AGAIN})


def table_at(place: Place, version: int | None = None, time: datetime | None = None) -> DeltaTable:
    """The table now, at a version or at a time; :class:`TableError` when it does not exist."""
    if version is None and time is None:
        table = HERE.opened(place)
        if table is None:
            raise TableError(f"there is no table at {place}")
    else:
        try:
            table = DeltaTable(
                place.uri, version=version, storage_options=place.storage_options or None
            )
            if time is not None:
                _load_at(table, time)
        except TableNotFoundError:
            raise TableError(f"there is no table at {place}") from None
        except (DeltaError, OSError, ValueError) as problem:
            asked = f"version {version}" if version is not None else f"time {time}"
            raise TableError(f"the table {place} cannot be read at {asked}: {problem}") from None
    bad = unread_features(table)
    if has_deletions(table):
        bad.append("deletionVectors")
    if bad:
        raise TableError(f"the table {place} uses {', '.join(bad)}, which is not supported")
    return table


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


def has_deletions(table: DeltaTable) -> bool:
    """Whether files of the table have rows that deletion vectors delete."""
    features = table.protocol().reader_features or []
    return "deletionVectors" in features and bool(as_arrow(table.deletion_vectors()).num_rows)


def as_arrow(rows: Any) -> pa.Table:
    """Rows that ``deltalake`` gives. ``pa.table`` would import pandas, in each process of Spark."""
    return pa.RecordBatchReader.from_stream(rows).read_all()


def actions_of(table: DeltaTable) -> pa.Table:
    """The files of the table's version as the log has them, a row for each, with their statistics."""
    return as_arrow(table.get_add_actions(flatten=True))


def _load_at(table: DeltaTable, time: datetime) -> None:
    """Load the version of the table at a time; ValueError when the table did not exist yet."""
    # Ask the newest version for the history: delta-rs numbers the commits of an older one wrongly.
    made = {commit.get("version"): commit.get("timestamp") for commit in table.history()}
    table.load_as_version(time)
    # For a time before the first version, delta-rs loads that version.
    begin = made.get(table.version())
    if isinstance(begin, int) and begin > time.timestamp() * 1000:
        text = datetime.fromtimestamp(begin / 1000, UTC).isoformat(timespec="milliseconds")
        raise ValueError(f"its log begins at {text}")


def files_of(table: DeltaTable) -> list[StoredFile]:
    """The files of the table's version, always in the same order."""
    actions = actions_of(table)
    names = table.metadata().partition_columns
    found = [
        (
            row["modification_time"],
            StoredFile(
                relative(row["path"], table.table_uri),
                row["size_bytes"],
                tuple((name, partition_text(row[f"partition.{name}"])) for name in names),
            ),
        )
        for row in actions.to_pylist()
    ]
    found.sort(key=lambda pair: (pair[0], pair[1].path))
    return [file for _, file in found]


def relative(path: str, uri: str) -> str:
    """The path of a file relative to the table's folder, from the path in the log.

    Raises :class:`TableError` for a file outside the folder.
    """
    if "://" in path or path.startswith("/"):
        raise TableError(f"the table {uri} names files of another table, which is not supported")
    return unquote(path)


class Changes:
    """The commits of one table, each read once; used by one reader on the driver."""

    def __init__(self, place: Place, *, skip_changes: bool = False) -> None:
        """Reads no commit. ``skip_changes`` skips commits that change rows."""
        self._place = place
        self._skip = skip_changes
        self._files = place.files()
        self._kept: dict[tuple[int, bool], list[StoredFile]] = {}

    def latest(self) -> tuple[str, int]:
        """The table's id and its newest version."""
        table = table_at(self._place)
        return str(table.metadata().id), table.version()

    def advance(self, begin: Position, last: int, at_most: int) -> Position:
        """The position ``at_most`` files behind ``begin``, or behind version ``last``.

        The same arguments give the same position. Raises :class:`TableError` for commits that are
        gone or that change rows.
        """
        now, left = begin, at_most
        while now.version <= last and left > 0:
            files = len(self._at(now)) - now.file
            if files > left:
                return replace(now, file=now.file + left)
            left -= files
            now = Position(now.table, now.version + 1)
        return now

    def between(self, begin: Position, end: Position) -> Iterator[StoredFile]:
        """The files between two positions."""
        now = begin
        while (now.version, now.file) < (end.version, end.file):
            files = self._at(now)
            until = end.file if now.version == end.version else len(files)
            yield from files[now.file : until]
            now = Position(now.table, now.version + 1)

    def _at(self, position: Position) -> list[StoredFile]:
        key = position.version, position.snapshot
        if key not in self._kept:
            while len(self._kept) >= _KEPT_COMMITS:
                del self._kept[next(iter(self._kept))]
            if position.snapshot:
                self._kept[key] = files_of(table_at(self._place, position.version))
            else:
                self._kept[key] = self._added(position.version)
        return self._kept[key]

    def _added(self, version: int) -> list[StoredFile]:
        try:
            with self._files.open_input_stream(f"_delta_log/{version:020}.json") as log:
                actions = [json.loads(line) for line in log.read().splitlines() if line.strip()]
        except OSError:
            raise TableError(
                f"version {version} of {self._place} is no longer in its log"
                " (delta.logRetentionDuration); begin with a new checkpoint"
            ) from None
        adds = [action["add"] for action in actions if "add" in action]
        removes = [action["remove"] for action in actions if "remove" in action]
        if any(remove.get("dataChange", True) for remove in removes):
            if self._skip:
                return []
            raise TableError(
                f"version {version} of {self._place} changes or removes rows, which a stream"
                " cannot pass on; skipChangeCommits=true passes over such commits"
            )
        return [
            StoredFile(
                relative(add["path"], self._place.uri),
                add["size"],
                tuple(sorted((add.get("partitionValues") or {}).items())),
            )
            for add in adds
            if add.get("dataChange", True)
        ]


def tasks(files: Iterable[StoredFile], at_most_bytes: int) -> list[tuple[StoredFile, ...]]:
    """Files in groups of about ``at_most_bytes`` bytes; larger files are cut into parts."""
    groups: list[tuple[StoredFile, ...]] = []
    group: list[StoredFile] = []
    filled = 0
    for file in files:
        parts = max(1, round(file.size / at_most_bytes))
        if parts > 1:
            groups += [(replace(file, part=part, parts=parts),) for part in range(parts)]
            continue
        if group and filled + file.size > at_most_bytes:
            groups.append(tuple(group))
            group, filled = [], 0
        group.append(file)
        filled += file.size
    if group:
        groups.append(tuple(group))
    return groups
