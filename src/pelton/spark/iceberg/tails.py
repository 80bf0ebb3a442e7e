"""The files of an Iceberg table, known from one commit of this process to the next.

A plan of a table reads all of its manifests, so it takes longer with every commit. A `Tail` knows the files of one
snapshot. A commit of this process adds and removes files of the `Tail`, and nothing is read; after a commit of another
writer the table is planned again. Where a catalog says where a table's metadata is, an unchanged table is not loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.spark.iceberg.catalogs import failed, load, location_of
from pelton.spark.iceberg.commits import add
from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from pelton.spark.iceberg.commits import Write
    from pelton.spark.iceberg.options import Address


def data_files(where: Address, table: Table, snapshot: int | None) -> list[DataFile]:
    """The files of a snapshot, by all of its manifests."""
    if snapshot is None:
        return []
    try:
        return [task.file for task in table.scan(snapshot_id=snapshot).plan_files()]
    except Exception as problem:
        # Any library may raise here; the error is reported.
        raise failed("cannot plan a read of", where, problem) from None


def newest_of(table: Table) -> int | None:
    """The newest snapshot of a table as it was loaded; None without rows."""
    newest = table.current_snapshot()
    return None if newest is None else newest.snapshot_id


class Tail:
    """The newest state of one table. Errors are :class:`TableError`."""

    def __init__(self, where: Address) -> None:
        """Reads nothing."""
        self.where = where
        self._table: Table | None = None
        self._of: tuple[str, int | None] | None = None
        self._files: dict[str, DataFile] = {}

    def read(self) -> Table:
        """The table as it is now."""
        known = self._table
        if known is not None and location_of(self.where) == known.metadata_location:
            return known
        self._table = load(self.where)
        if self._table is None:
            raise TableError(f"there is no table {self.where}")
        return self._table

    def files(self) -> dict[str, DataFile]:
        """The files of the table that was read, by their paths."""
        table = self.read() if self._table is None else self._table
        of = _identity(table)
        if self._of != of:
            self._files = {one.file_path: one for one in data_files(self.where, table, of[1])}
            self._of = of
        return self._files

    def commit(self, table: Table, write: Write) -> None:
        """One attempt of a commit, as :func:`pelton.spark.iceberg.commits.add`; the files follow it."""
        before = _identity(table)
        self._table = None  # an attempt that fails leaves the table without its history
        added = add(table, write)
        if self._of == before:
            for file in write.removed:
                self._files.pop(file.file_path, None)
            for file in added:
                file.spec_id = write.target.spec_id  # as of an entry that was read
                self._files[file.file_path] = file
            self._of = _identity(table)
        self._table = table


def _identity(table: Table) -> tuple[str, int | None]:
    return str(table.metadata.table_uuid), newest_of(table)
