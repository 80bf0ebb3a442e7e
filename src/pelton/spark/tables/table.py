"""The protocol between the engine of tables and the formats, and the values that they exchange.

::

    engine     commits, merges, compaction, maintenance, changes, writer, reader     written once
    protocol   TableFormat, Table                                                    this module
    formats    pelton.spark.delta, pelton.spark.iceberg                              one module each

A :class:`Table` is a table as it was opened. It makes one attempt of a commit, on the version that it has; the engine
repeats attempts and decides by the marks whether one is needed. Does not depend on Spark.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pelton.spark.tables.places import TableError
from pelton.spark.tables.schemas import table_type

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from typing import TypeAlias

    import pyarrow as pa
    import pyarrow.dataset as ds

    from pelton.spark.iceberg.options import Address
    from pelton.spark.tables.evolution import Evolution
    from pelton.spark.tables.key_matching import Bounds
    from pelton.spark.tables.maintenance import Plan
    from pelton.spark.tables.marks import Found, Mark
    from pelton.spark.tables.parquet import ParquetFiles
    from pelton.spark.tables.places import Folder, Place
    from pelton.spark.tables.syncing import Syncs

    Where: TypeAlias = Place | Address
    """The location of a table, which also says its format."""


class FilesGoneError(TableError):
    """Another writer has removed or changed files that a commit removes: it must be planned again."""


@dataclass(frozen=True)
class StoredFile:
    """One file of a table, as the table has it; or one of ``parts`` parts, cut by row groups."""

    path: str
    size: int
    partition: tuple[tuple[str, str | None], ...]
    part: int = 0
    parts: int = 1
    entry: Any = field(default=None, compare=False, repr=False)
    """The format's own description, if it needs one to read the file."""


@dataclass(frozen=True)
class Active:
    """A file of a table's version; ``logged`` is its name in the table, ``order`` grows with later commits."""

    logged: str
    stored: StoredFile
    order: int
    rows: int | None = field(default=None, compare=False)
    """The number of its rows, where it is known."""
    bounds: dict[str, Bounds] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """The files of a version by their names in the table, and the names of those with deleted rows.

    ``definition`` has the other properties of the table on which a commit depends.
    """

    files: dict[str, Active]
    with_deletions: frozenset[str]
    definition: tuple[Any, ...]


@dataclass(frozen=True)
class Totals:
    """The number of a table's files, their bytes, and their rows where the table knows them."""

    files: int
    bytes: int
    rows: int | None


class WrittenFile(Protocol):
    """A file in a table's folder that is not yet part of the table."""

    @property
    def path(self) -> str:
        """The path in the folder."""

    @property
    def rows(self) -> int:
        """The number of rows."""

    @property
    def written_ms(self) -> int:
        """When it was written."""


class Target(Protocol):
    """What writers of files must know of a table; picklable, since it travels to the executors."""

    @property
    def folder(self) -> Folder:
        """Where the files go."""

    def open(
        self,
        prefix: str,
        *,
        rows_per_file: int | None = None,
        bytes_per_file: int | None = None,
        syncs: Syncs | None = None,
    ) -> ParquetFiles[Any]:
        """A writer of files whose names begin with ``prefix``, which no other attempt uses."""


class Rows(Protocol):
    """Reads files of a table with some of its columns; picklable, as :class:`Target`."""

    def read(self, files: Iterable[StoredFile], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of files, in the same order each time. Raises :class:`TableError`."""


@dataclass(frozen=True)
class Write:
    """The files and the mark that become part of a table in one commit, and the files that go."""

    schema: pa.Schema
    files: Sequence[Any] = ()
    partition_by: tuple[str, ...] | None = None
    mark: Mark | None = None
    overwrite: bool = False
    merge_schema: bool = False
    overwrite_schema: bool = False
    check_again: bool = True
    again_until: int = -1
    """The argument of :meth:`pelton.spark.tables.marks.Marks.held`."""
    each: bool = False
    """Whether every batch of the query leaves its mark, also batches without rows."""
    replaces: bool = False
    """Whether the files take the place of ``removed``; the table has their columns."""
    removed: Sequence[Active] = ()
    """Files that the commit removes; :class:`FilesGoneError` if one is not in the table any more."""
    same_rows: bool = False
    """Whether the files have the rows of those that go: streams pass over the commit."""
    alone: bool = False
    """Whether the commit depends on all files of the table: it is made on the opened version or not at all."""
    target: Target | None = None
    """What the files were written for; a format whose files refer to columns by number needs it."""
    did: Mapping[str, int] = field(default_factory=dict)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def rows(self) -> int:
        """The number of rows of all files."""
        return sum(file.rows for file in self.files)

    def note(self) -> dict[str, Any]:
        """What a commit with a mark notes besides its name."""
        note: dict[str, Any] = {"rows": self.rows, "token": self.token}
        if self.mark is not None:
            note |= {"number": self.mark.number, "run": self.mark.run}
            note |= {"each": True} if self.each else {}
        return note


@dataclass(frozen=True)
class Upserted:
    """The counts of an upsert; all 0 when the table held the batch already."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True)
class KeyedRows:
    """The rows of a batch, one per key, with the table's types; ``deletes`` marks rows that delete."""

    rows: pa.Table
    deletes: pa.Array
    keys: tuple[str, ...]
    sequence: str
    sums: tuple[str, ...] = ()
    """Columns that are added to those of the table, whichever row is newer."""


class Table(ABC):
    """A table as it was opened. Errors are :class:`TableError`, or of the format's ``failures``."""

    where: Any

    @abstractmethod
    def id(self) -> str:
        """The identity of the table, which a new table in its place does not share."""

    @abstractmethod
    def version(self) -> int:
        """The number of its newest commit; it grows."""

    @abstractmethod
    def columns(self) -> pa.Schema:
        """Its columns, in the types of the engine."""

    @abstractmethod
    def partition_by(self) -> tuple[str, ...]:
        """The columns by whose values it is divided."""

    @abstractmethod
    def last(self, query: str) -> int | None:
        """The last batch of a query that it holds; None when it holds none."""

    @abstractmethod
    def found(self, mark: Mark) -> Found | None:
        """The last number of the mark's name; with its note if it is not less than the mark's."""

    @abstractmethod
    def made(self, write: Write) -> bool:
        """Whether one of the recent commits is this one."""

    @abstractmethod
    def check(self, write: Write) -> Evolution:
        """The columns of the rows as the table has them, and those that it needs first.

        Raises :class:`TableError` when the table cannot take the rows.
        """

    @abstractmethod
    def check_rules(self) -> None:
        """Raise :class:`TableError` for a table with rules about values that writers do not enforce."""

    @abstractmethod
    def widen(self, write: Write) -> None:
        """Add the columns and fields that the rows need, in a commit of its own."""

    @abstractmethod
    def target(self, columns: pa.Schema) -> Target:
        """What writers of files with these columns of the table must know."""

    @abstractmethod
    def check_readable(self) -> None:
        """Raise :class:`TableError` for a table that would be read wrong."""

    @abstractmethod
    def files(self) -> list[StoredFile]:
        """Its files, always in the same order."""

    @abstractmethod
    def snapshot(self, bounds_of: Sequence[str] = ()) -> Snapshot:
        """Its files, with trustworthy bounds of the columns ``bounds_of``.

        Raises :class:`TableError` for a table whose files cannot be replaced here.
        """

    @abstractmethod
    def can_replace(self, file: Active) -> bool:
        """Whether a compaction may replace the file."""

    @abstractmethod
    def check_keys(self, batch: KeyedRows) -> None:
        """Raise :class:`TableError` for keys that the table's partitions cannot tell apart."""

    @abstractmethod
    def rows(self, columns: pa.Schema) -> Rows:
        """A reader of its files with these columns."""

    @abstractmethod
    def totals(self) -> Totals:
        """Counts of its files."""

    @abstractmethod
    def added(self, version: int) -> list[StoredFile] | None:
        """The files that a commit added, in order; None if it changed or removed rows.

        Raises :class:`TableError` when the table does not know the commit any more.
        """

    @abstractmethod
    def first(self, number: int) -> int:
        """The version of a commit by the number that users know; raises if there is no such commit."""

    @abstractmethod
    def as_of(self, version: int) -> Table:
        """The table as a commit left it."""

    @abstractmethod
    def named(self, version: int) -> str:
        """A commit for a person: ``version 7``."""

    @abstractmethod
    def commit(self, write: Write) -> None:
        """One attempt of a commit, on the version that was opened. It may raise the format's ``failures``."""

    @abstractmethod
    def settle(self, before: int) -> None:
        """Have the commits after version ``before`` on the disk; the handle follows them."""

    def merge_by_rules(
        self, batch: KeyedRows, write: Write
    ) -> tuple[Upserted, list[Active]] | None:
        """A merge that the format's library makes, because the table has rules of its own; else None.

        Also returns the files that it wrote.
        """
        return None

    @abstractmethod
    def tidy(self, plan: Plan) -> tuple[list[str], int]:
        """Forget what was replaced earlier, and remove files that nothing needs.

        Returns the paths of the files, and the number of snapshots that expire.
        """

    @abstractmethod
    def snapshots(self) -> int | None:
        """How many snapshots it keeps; None for a format without any."""

    @abstractmethod
    def before(self, mark: Mark) -> Table:
        """The table as it was before the commit of a mark that it may hold."""

    @abstractmethod
    def newest(self) -> tuple[Mark, Table, Table] | None:
        """The last mark, the table with it and the table before; None without one."""

    @abstractmethod
    def greatest(self, column: str) -> int:
        """The greatest number of a column, by the bounds of its files; 0 without rows."""

    @abstractmethod
    def dataset(self, columns: pa.Schema) -> ds.Dataset:
        """Its rows as a dataset of Arrow."""


def unless_gone(removed: Iterable[Active], there: Collection[str]) -> None:
    """Raise :class:`FilesGoneError` unless all files that a commit removes are ``there``."""
    gone = [file.logged for file in removed if file.logged not in there]
    if gone:
        raise FilesGoneError(f"{len(gone)} files are not in it as they were, such as {gone[0]}")


class TableFormat(ABC):
    """One format of tables."""

    kind: ClassVar[str]
    """Its name for a person, with an article."""
    failures: ClassVar[tuple[type[Exception], ...]]
    """The errors of a failed commit, besides :class:`TableError`."""
    columns_first: ClassVar[bool]
    """Whether the table must have the columns before files are written."""
    divisible: ClassVar[bool]
    """Whether several tasks may read one file."""

    @abstractmethod
    def open(self, where: Any, known: Table | None) -> Table | None:
        """The table at its newest version, from one that was opened before if possible; None if there is none."""

    @abstractmethod
    def at(self, where: Any, version: int | None, time: datetime | None) -> Table | None:
        """The table at a version or at a time; None if there is no table."""

    @abstractmethod
    def create(self, where: Any, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """Create a table without rows; nothing if another writer creates it at this moment."""

    @abstractmethod
    def target(self, where: Any, schema: pa.Schema, partition_by: Sequence[str]) -> Target:
        """What writers must know of a table that is created with its first commit."""

    @abstractmethod
    def raced(self, problem: Exception) -> bool:
        """Whether another commit came between, so that an attempt may be made again."""

    @abstractmethod
    def failed(self, doing: str, where: Any, problem: object) -> TableError:
        """The error of a failed action in one line."""

    @abstractmethod
    def missing(self, where: Any) -> TableError:
        """The error of a table that is not there."""

    def fit(self, kind: pa.DataType) -> pa.DataType:
        """The table's type for a type of Arrow. Raises ``TypeError`` when there is none."""
        return table_type(kind)
