"""The files of a table's version, and the files that each commit added, for planning reads.

A stream of a table is the files of one version (the snapshot), followed by the files that each later
commit added. A position in it is the next file to read::

    {"table": "<id>", "version": 7, "file": 2, "snapshot": false}
        the id of the table, which a new table does not share; the third file that commit 7 added

(``.again`` belongs to :mod:`pelton.spark.filling`.)

Commits that only move rows into other files (compaction) add nothing. Commits that change or remove
rows are errors, unless the reader skips them.

Does not depend on Spark, the format, or the contents of the files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pelton.spark.filling import AGAIN
from pelton.spark.tables.commits import HERE
from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pelton.spark.tables.table import StoredFile, Table, Where

_KEPT_COMMITS = 1000


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


class Changes:
    """The commits of one table, each read once; used by one reader on the driver."""

    def __init__(self, where: Where, *, skip_changes: bool = False) -> None:
        """Reads no commit. ``skip_changes`` skips commits that change rows."""
        self._where = where
        self._skip = skip_changes
        self._kept: dict[tuple[int, bool], list[StoredFile]] = {}
        self._table: Table | None = None

    def latest(self) -> tuple[str, int]:
        """The table's id and its newest version."""
        table = self._table = HERE.at(self._where)
        return table.id(), table.version()

    def table(self) -> Table:
        """The table as it was seen last."""
        if self._table is None:
            self._table = HERE.at(self._where)
        return self._table

    def first(self, number: int) -> int:
        """The version at which a stream begins that is to begin with the rows of a commit."""
        return self.table().first(number)

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
            self._kept[key] = self._read(*key)
        return self._kept[key]

    def _read(self, version: int, snapshot: bool) -> list[StoredFile]:
        table = self.table()
        if snapshot:
            then = table.as_of(version)
            then.check_readable()
            return then.files()
        found = table.added(version)
        if found is None and not self._skip:
            raise TableError(
                f"{table.named(version)} of {self._where} changes or removes rows, which a stream"
                " cannot pass on; skipChangeCommits=true passes over such commits"
            )
        return found or []


def tasks(
    files: Iterable[StoredFile], at_most_bytes: int, *, divisible: bool = True
) -> list[tuple[StoredFile, ...]]:
    """Files in groups of about ``at_most_bytes`` bytes; larger files are cut into parts, if they are ``divisible``."""
    groups: list[tuple[StoredFile, ...]] = []
    group: list[StoredFile] = []
    filled = 0
    for file in files:
        parts = max(1, round(file.size / at_most_bytes)) if divisible else 1
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
