"""The tables of a hub's events as Iceberg tables, with each row once, as in the Delta tables.

A catalog has them in one namespace. Without other properties it is a SQLite file beside them (`folders` has a note of
any other)::

    FOLDER/catalog.db             which metadata file of each table is the newest
    FOLDER/plgd/events/           its data and metadata

A batch is one commit of each table that it concerns, with the query and the number of the batch. The commit replaces
files of the snapshot that the batch worked by, or is not made.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.conversions import from_bytes
from pyiceberg.types import LongType

from pelton.spark.iceberg.catalogs import data_folder, failed, load, without_secret_ones
from pelton.spark.iceberg.commits import HERE, FilesGoneError, Write, batch_of, prepare
from pelton.spark.iceberg.options import DEFAULT_CATALOG, address
from pelton.spark.iceberg.tails import Tail, data_files, newest_of
from pelton.spark.tables.files import StoredFile
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.parquet import partition_text
from pelton.spark.tables.places import TableError

from ..tables.folders import CATALOG, NAMESPACE, Noted, note, noted
from ..tables.schemas import RAW, TABLES, Way
from .lake import Begun, ChangedTableError, Lake, check_columns, held_of
from .lake import rows_of as stored_rows

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from pelton.spark.iceberg.options import Address

    from ..tables.schemas import TableSchema
    from ..tables.settings import Settings

_BUCKETS = "pelton.plgd.buckets"


def catalog_beside(folder: Path) -> dict[str, str]:
    """The properties of a catalog in a file of a folder, with its tables beside it."""
    there = folder.absolute()
    return {"type": "sql", "uri": f"sqlite:///{there}/{CATALOG}", "warehouse": f"file://{there}"}


def address_beside(folder: Path, name: str) -> Address:
    """A table whose catalog is in a file of a folder, or where its note says."""
    try:
        there = noted(folder)
    except ValueError as problem:
        raise TableError(str(problem)) from None
    properties = there.properties or catalog_beside(folder)
    return address(f"{there.namespace}.{name}", DEFAULT_CATALOG, properties)


def dataset_beside(folder: Path, name: str) -> ds.Dataset | None:
    """The rows of a table whose catalog a folder has, or has a note of; None if it is not there."""
    where = address_beside(folder, name)
    table = load(where)
    return None if table is None else rows_of(where, table, TABLES[name].schema)


def rows_of(where: Address, table: Table, schema: pa.Schema) -> ds.Dataset:
    """The rows of a table as it was loaded."""
    files = data_files(where, table, newest_of(table))
    if not files:
        return ds.dataset(schema.empty_table())
    folder = data_folder(table, where)
    paths = [relative(folder.uri, file, where) for file in files]
    return ds.dataset(paths, schema=schema, filesystem=folder.files(), format="parquet")


def relative(folder: str, file: DataFile, where: Address) -> str:
    """The path of a file in the table's folder."""
    if not file.file_path.startswith(f"{folder}/"):
        raise TableError(f"{file.file_path} is not in the folder of {where}")
    return file.file_path.removeprefix(f"{folder}/")


def before(where: Address, table: Table, snapshot: Snapshot) -> int | None:
    """The snapshot before one; None for the first of a table. Raises if it has expired."""
    found = snapshot.parent_snapshot_id
    # A catalog forgets a parent that has expired; the first snapshot has the sequence number 1.
    is_first = found is None and (snapshot.sequence_number or 0) <= 1
    if is_first or (found is not None and table.snapshot_by_id(found) is not None):
        return found
    told = snapshot.summary
    raise TableError(
        f"the snapshot of {where} before batch {told and told['pelton.batch']} has expired, but the"
        " batch needs it: `pelton plgd maintain` keeps it, other ways to expire snapshots do not"
    )


class IcebergLake(Lake):
    """The tables of one namespace of a catalog. Raises :class:`TableError` as every table does."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        settings: Settings,
        catalog: Mapping[str, str] | None = None,
        *,
        name: str = DEFAULT_CATALOG,
        namespace: str = NAMESPACE,
    ) -> None:
        """``catalog`` are the properties of a catalog; without them it is in ``folder``. `create` makes the tables."""
        self.settings = settings
        self.folder = Path(folder)
        self.own = not catalog
        self.noted = Noted(namespace, without_secret_ones(catalog or {}))
        given = dict(catalog or catalog_beside(self.folder))
        self.addresses = {table: address(f"{namespace}.{table}", name, given) for table in TABLES}
        self.targets = {}
        self.places = {}
        self.known = {table: Tail(where) for table, where in self.addresses.items()}

    def create(self) -> None:
        """Make the tables that are not there; refuse those that were made with other buckets."""
        if self.own:
            self.folder.mkdir(parents=True, exist_ok=True)
        buckets = str(self.settings.buckets)
        for name, schema in TABLES.items():
            where = self.addresses[name]
            if (there := load(where)) is not None:
                check_columns(schema, [f.name for f in there.schema().fields], where)
            target = prepare(
                where, schema.schema, partition_by=schema.partition_by, merge_schema=True
            )
            self.targets[name] = target
            self.places[name] = target.folder
            table = self.at(name)
            made = table.properties.get(_BUCKETS)
            if made is None:
                try:
                    with table.transaction() as change:
                        change.set_properties({_BUCKETS: buckets, "comment": schema.meaning})
                except Exception as problem:
                    # Any library may raise here; the error is reported.
                    raise failed("cannot make the table", where, problem) from None
            elif made != buckets:
                raise TableError(
                    f"the table {where} was made with {made} buckets, not with {buckets} buckets:"
                    " the number of buckets of a table does not change"
                )
        note(self.folder, self.noted)

    def at(self, name: str) -> Table:
        """A table as it is now."""
        table = load(self.addresses[name])
        if table is None:
            raise TableError(f"there is no table {self.addresses[name]}")
        return table

    def begin(self, mark: Mark) -> Begun:
        """The state of the tables before a batch."""
        begun = Begun(mark)
        for name, schema in TABLES.items():
            if schema.way is Way.APPEND:
                continue
            files = self.files_before(name, mark)
            begun.active[name] = {self.relative(name, file): file for file in files}
            begun.held[name] = held_of(self.stored(name, files))
        return begun

    def files_before(self, name: str, mark: Mark) -> list[DataFile]:
        """The files of a table before a batch."""
        tail = self.known[name]
        table = tail.read()
        last = batch_of(table, mark.name)
        if last is None or last < mark.number:
            return list(tail.files().values())
        return data_files(self.addresses[name], table, self.snapshot_before(name, table, mark))

    def snapshot_before(self, name: str, table: Table, mark: Mark) -> int | None:
        """The snapshot before a batch that a table holds; None for a table without rows then."""
        last = batch_of(table, mark.name)
        for snapshot in reversed(table.metadata.snapshots):
            told = snapshot.summary
            if told is None or told["pelton.query"] != mark.name:
                continue
            if told["pelton.batch"] == str(mark.number):
                return before(self.addresses[name], table, snapshot)
        raise TableError(
            f"the table {self.addresses[name]} holds batch {last} of query {mark.name}, this is batch"
            f" {mark.number}: the checkpoint is older than the table"
        )

    def relative(self, name: str, file: DataFile) -> str:
        """The path of a file in the table's folder."""
        return relative(self.targets[name].folder.uri, file, self.addresses[name])

    def stored(self, name: str, files: Iterable[DataFile]) -> list[StoredFile]:
        """Files as those of every table are described."""
        columns = TABLES[name].partition_by
        types = [TABLES[name].schema.field(column).type for column in columns]
        found = []
        for file in files:
            values = [file.partition[place] for place in range(len(columns))]
            texts = [
                partition_text(None if value is None else pa.scalar(value, kind).as_py())
                for value, kind in zip(values, types, strict=True)
            ]
            partition = tuple(zip(columns, texts, strict=True))
            found.append(StoredFile(self.relative(name, file), file.file_size_in_bytes, partition))
        return found

    def take(self, name: str, mark: Mark, files: Sequence[Any], removed: Sequence[Any]) -> None:
        """One commit of one table, once."""
        write = Write(self.targets[name], files, mark, removed=tuple(removed))
        tail = self.known[name]
        try:
            HERE.commit(self.addresses[name], write, tail.commit, tail.read)
        except FilesGoneError as gone:
            raise ChangedTableError(str(gone)) from None

    def files(self, name: str) -> list[StoredFile]:
        """The files of a table as it is now."""
        return self.stored(name, self.now(name))

    def now(self, name: str) -> list[DataFile]:
        """The entries of a table's files as it is now."""
        table = self.at(name)
        return data_files(self.addresses[name], table, newest_of(table))

    def dataset(self, name: str) -> ds.Dataset:
        """The rows of a table as it is now."""
        return rows_of(self.addresses[name], self.at(name), TABLES[name].schema)

    def greatest(self, name: str, column: str) -> int:
        """The greatest number of a column, by what the manifests say of the table's files; 0 without rows."""
        number = self.at(name).schema().find_field(column).field_id
        bounds = [(file.upper_bounds or {}).get(number) for file in self.now(name)]
        return max((int(from_bytes(LongType(), one)) for one in bounds if one), default=0)

    def newest(self, table: TableSchema) -> tuple[Mark, pa.Table]:
        """The last batch that a table holds, and its rows there."""
        name, now = table.name, self.at(table.name)
        for snapshot in reversed(now.metadata.snapshots):
            told = snapshot.summary
            if told is None or told["pelton.query"] is None:
                continue
            then, former = (
                data_files(self.addresses[name], now, one)
                for one in (snapshot.snapshot_id, before(self.addresses[name], now, snapshot))
            )
            old = {file.file_path for file in former}
            new = self.stored(name, [file for file in then if file.file_path not in old])
            mark = Mark(str(told["pelton.query"]), int(str(told["pelton.batch"])))
            return mark, stored_rows(self.places[name], new, table)
        raise TableError(f"the table {self.addresses[name]} does not say which batch it holds")

    def made_with(self) -> int | None:
        """The number of buckets of tables that are there."""
        if self.own and not (self.folder / CATALOG).is_file():
            return None
        table = load(self.addresses[RAW.name])
        number = None if table is None else table.properties.get(_BUCKETS)
        return None if number is None else int(number)

    def last_batch(self, name: str, query: str) -> int | None:
        """The last batch of a query that a table holds."""
        return batch_of(load(self.addresses[name]), query)

    def where(self, name: str) -> str:
        """The name of a table, for a person."""
        return str(self.addresses[name])
