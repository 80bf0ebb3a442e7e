"""Where the tables of a hub's events are: in a folder as Delta tables, or in a catalog as Iceberg tables.

A catalog has them in one namespace. Without other properties it is a SQLite file beside them (`folders` has a note of
any other)::

    FOLDER/catalog.db             which metadata file of each table is the newest
    FOLDER/plgd/events/           its data and metadata
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from deltalake.exceptions import DeltaError

from pelton.spark.delta.data_files import DeltaTarget
from pelton.spark.delta.statistics import STATISTICS_OF
from pelton.spark.delta.table import CHECKPOINT_INTERVAL, DELTA
from pelton.spark.delta.tails import INTERVAL
from pelton.spark.delta.tails import Tail as LogTail
from pelton.spark.iceberg.options import DEFAULT_CATALOG, address
from pelton.spark.tables.commits import HERE
from pelton.spark.tables.places import Place, TableError, place

from ..tables.folders import CATALOG, NAMESPACE, Noted, note, noted
from ..tables.schemas import RAW, TABLES

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import pyarrow.dataset as ds

    from pelton.spark.iceberg.options import Address
    from pelton.spark.tables.parquet import ParquetFiles
    from pelton.spark.tables.table import Active, Table, Target, Where

    from ..tables.schemas import TableSchema

CHECKPOINT_EACH = "50"
"""Commits between two checkpoints of a log: one takes the time of its files, each commit only that of its own."""

_BUCKETS = "pelton.plgd.buckets"


class Tail(Protocol):
    """The newest state of a table, known from one batch to the next; `read` first."""

    @property
    def files(self) -> dict[str, Active]:
        """The files of the table by their names there."""

    def read(self) -> bool:
        """Read the commits that are new; False if only the table itself has its files and marks."""

    def last(self, query: str) -> int | None:
        """The last batch of a query that the table holds."""


class Home(Protocol):
    """The place of all tables."""

    def where(self, name: str) -> Where:
        """The location of a table."""

    def tail(self, name: str, *, with_files: bool) -> Tail:
        """The newest state of a table; without files nobody asks for them."""

    def prepare(self) -> None:
        """Make what all tables need, before they are made."""

    def made_with(self, table: Table) -> str | None:
        """What a table says of its buckets: ``8 buckets``; None for one that is not complete."""

    def complete(self, name: str, table: Table | None, told: str) -> None:
        """Make a table that is not there, and give it its properties; it was made with ``told``."""

    def target(self, name: str, table: Table) -> Target:
        """What writers of a table's files must know; it goes to every task of every batch."""

    def finish(self) -> None:
        """All tables are there."""

    def buckets(self) -> int | None:
        """The number of buckets of tables that are there."""


@dataclass(frozen=True)
class NamedTarget:
    """A Delta table of this package."""

    folder: Place
    name: str

    def open(self, prefix: str, **given: Any) -> ParquetFiles[Any]:
        """With statistics of the columns that grow along the stream."""
        schema = TABLES[self.name]
        bounded = frozenset(schema.bounded)
        target = DeltaTarget(self.folder, schema.schema, schema.partition_by, bounded)
        return target.open(prefix, **given)


class DeltaHome:
    """Delta tables in one folder, or in an object store."""

    def __init__(
        self, folder: str | os.PathLike[str], storage: Mapping[str, str] | None = None
    ) -> None:
        """``storage`` are the options of an object store."""
        self._root = place(folder, storage)

    def where(self, name: str) -> Place:
        """A folder for each."""
        return Place(f"{self._root.uri}/{name}", self._root.storage)

    def tail(self, name: str, *, with_files: bool) -> Tail:
        """The newest part of the log."""
        return LogTail(self.where(name), with_files=with_files)

    def prepare(self) -> None:
        """Each table makes its folder."""

    def made_with(self, table: Table) -> str | None:
        """By the end of the description."""
        description = table.table.metadata().description or ""  # type: ignore[attr-defined]  # a Delta table
        return description.rpartition("; ")[2] or "none"

    def complete(self, name: str, table: Table | None, told: str) -> None:
        """With a name, a description and properties."""
        schema = TABLES[name]
        if table is not None:
            set_properties(table, schema)
            return
        DELTA.create(
            self.where(name),
            schema.schema,
            schema.partition_by,
            name=schema.name,
            description=f"{schema.meaning}; {told}",
            configuration=properties(schema),
        )

    def target(self, name: str, table: Table) -> Target:
        """Without columns, which every process knows."""
        return NamedTarget(self.where(name), name)

    def finish(self) -> None:
        """Nothing is noted."""

    def buckets(self) -> int | None:
        """By the description."""
        table = HERE.opened(self.where(RAW.name))
        told = "" if table is None else self.made_with(table) or ""
        number = told.removesuffix(" buckets")
        return int(number) if number.isdigit() else None


def properties(schema: TableSchema) -> dict[str, str]:
    """The properties of a Delta table, which every writer reads."""
    return {INTERVAL: CHECKPOINT_EACH, STATISTICS_OF: ",".join(schema.bounded)}


def set_properties(table: Any, schema: TableSchema) -> None:
    """Give a table of an older Pelton the property that names the columns with statistics.

    Readers then ignore the statistics of other columns in older files. The property must not name a
    column without statistics in new files: some readers would find no matching row there.
    """
    there, wanted = table.configuration, properties(schema)
    if there.get(INTERVAL) != CHECKPOINT_INTERVAL:
        del wanted[INTERVAL]  # it is ours already, or somebody chose another
    if all(there.get(name) == value for name, value in wanted.items()):
        return
    try:
        table.table.alter.set_table_properties(wanted)
        table.table.update_incremental()
    except (DeltaError, OSError) as problem:
        raise TableError(f"cannot set properties of {table.where}: {problem}") from None


def catalog_beside(folder: Path) -> dict[str, str]:
    """The properties of a catalog in a file of a folder, with its tables beside it."""
    there = folder.absolute()
    return {"type": "sql", "uri": f"sqlite:///{there}/{CATALOG}", "warehouse": f"file://{there}"}


def dataset_beside(folder: Path, name: str) -> ds.Dataset | None:
    """The rows of a table whose catalog a folder has, or has a note of; None if it is not there."""
    try:
        there = noted(folder)
    except ValueError as problem:
        raise TableError(str(problem)) from None
    given = there.properties or catalog_beside(folder)
    table = HERE.opened(address(f"{there.namespace}.{name}", DEFAULT_CATALOG, given))
    return None if table is None else table.dataset(TABLES[name].schema)


class OpenedTail:
    """The table that the process keeps, which knows its files from one commit to the next."""

    def __init__(self, where: Where) -> None:
        """Opens nothing."""
        self._where = where
        self._table: Table

    @property
    def files(self) -> dict[str, Active]:
        """Those of the newest snapshot."""
        return self._table.snapshot().files

    def read(self) -> bool:
        """Load the table if it has changed."""
        self._table = HERE.there(self._where)
        return True

    def last(self, query: str) -> int | None:
        """By the table."""
        return self._table.last(query)


class CatalogHome:
    """Iceberg tables of one namespace of a catalog."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        catalog: Mapping[str, str] | None = None,
        *,
        name: str = DEFAULT_CATALOG,
        namespace: str = NAMESPACE,
    ) -> None:
        """``catalog`` are the properties of a catalog; without them it is in ``folder``."""
        from pelton.spark.iceberg.catalogs import without_secret_ones

        self.folder = Path(folder)
        self._own = not catalog
        self._name = name
        self._noted = Noted(namespace, without_secret_ones(catalog or {}))
        self._given = dict(catalog or catalog_beside(self.folder))

    def where(self, name: str) -> Address:
        """A name in the namespace."""
        return address(f"{self._noted.namespace}.{name}", self._name, self._given)

    def tail(self, name: str, *, with_files: bool) -> Tail:
        """The loaded table."""
        return OpenedTail(self.where(name))

    def prepare(self) -> None:
        """Make the folder of an own catalog."""
        if self._own:
            self.folder.mkdir(parents=True, exist_ok=True)

    def made_with(self, table: Table) -> str | None:
        """By a property."""
        made = table.table.properties.get(_BUCKETS)  # type: ignore[attr-defined]  # an Iceberg table
        return None if made is None else f"{made} buckets"

    def complete(self, name: str, table: Table | None, told: str) -> None:
        """With a comment and properties, in a second commit."""
        schema, where = TABLES[name], self.where(name)
        if table is not None and self.made_with(table) is not None:
            return
        there: Any = table or HERE.create(where, schema.schema, schema.partition_by)
        set_to = {_BUCKETS: told.removesuffix(" buckets"), "comment": schema.meaning}
        try:
            with there.table.transaction() as change:
                change.set_properties(set_to)
        except Exception as problem:
            # Any library may raise here; the error is reported.
            from pelton.spark.iceberg.catalogs import failed

            raise failed("cannot make the table", where, problem) from None

    def target(self, name: str, table: Table) -> Target:
        """With the numbers of the columns."""
        return table.target(TABLES[name].schema)

    def finish(self) -> None:
        """Note where the catalog is."""
        note(self.folder, self._noted)

    def buckets(self) -> int | None:
        """By the property."""
        if self._own and not (self.folder / CATALOG).is_file():
            return None
        table = HERE.opened(self.where(RAW.name))
        told = None if table is None else self.made_with(table)
        return None if told is None else int(told.removesuffix(" buckets"))
