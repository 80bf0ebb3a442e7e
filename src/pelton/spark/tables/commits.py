"""Commits that happen once: files become part of a table together with a mark, whatever its format.

The mark is part of the commit: with Delta the application transaction of the protocol, with Iceberg a property of the
table. :mod:`pelton.spark.tables.marks` decides about a mark that the table has already. A commit also notes its run,
its number of rows and a token, by which the table shows whether it has this very commit.

An attempt fails when another writer came between. Then the table is opened again, and the mark decides whether the
commit must still be made. The process keeps an opened table and brings it up to date before each use. Does not depend
on Spark.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from pelton.spark.tables.marks import Marks
from pelton.spark.tables.places import Place, TableError
from pelton.spark.tables.schemas import check_partitions
from pelton.spark.tables.table import FilesGoneError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    import pyarrow as pa

    from pelton.spark.tables.marks import Found, Mark
    from pelton.spark.tables.places import Folder
    from pelton.spark.tables.table import Table, TableFormat, Where, Write

_TRIES = 8
# Concurrent maintenance may have removed a file of this age as a left-over.
_SURELY_THERE_SECONDS = 30 * 60


def format_of(where: Where) -> TableFormat:
    """The format of the table at a location; its library is imported at the first use."""
    if isinstance(where, Place):
        from pelton.spark.delta.table import DELTA

        return DELTA
    from pelton.spark.iceberg.table import ICEBERG

    return ICEBERG


class Tables:
    """The tables that a process has opened, and its last commits to them.

    Commits may come from several threads; those to one table are made one after the other. Errors are
    :class:`TableError`.
    """

    def __init__(self) -> None:
        """Opens no table."""
        self._opened: dict[Where, Table] = {}
        self._locks: dict[Where, threading.RLock] = {}
        self._marks = Marks()

    def opened(self, where: Where) -> Table | None:
        """The table at its newest version; None when it does not exist. Raises when it can't be
        read.
        """
        table = format_of(where).open(where, self._opened.pop(where, None))
        if table is not None:
            self._opened[where] = table
        return table

    def there(self, where: Where) -> Table:
        """The table at its newest version; :class:`TableError` when it does not exist."""
        table = self.opened(where)
        if table is None:
            raise format_of(where).missing(where)
        return table

    def at(self, where: Where, version: int | None = None, time: datetime | None = None) -> Table:
        """The table now, at a version or at a time, for readers; :class:`TableError` when it does not exist."""
        form = format_of(where)
        newest = version is None and time is None
        table = self.opened(where) if newest else form.at(where, version, time)
        if table is None:
            raise form.missing(where)
        table.check_readable()
        return table

    def forget(self, where: Where) -> None:
        """Open the table again next time."""
        self._opened.pop(where, None)

    def last_of(self, where: Where, mark: Mark) -> Found | None:
        """The last batch of a query that a table holds, with the note of its commit."""
        table = self.opened(where)
        return None if table is None else table.found(mark)

    def batch_of(self, where: Where, query: str) -> int | None:
        """The last batch of a query that a table holds; None when it holds none, or does not exist."""
        table = self.opened(where)
        return None if table is None else table.last(query)

    def create(self, where: Where, schema: pa.Schema, partition_by: Sequence[str] = ()) -> Table:
        """Create a table without rows, or open the one that another writer creates at this moment."""
        form = format_of(where)
        check_partitions(schema, partition_by, all_columns=form.columns_first)
        form.create(where, schema, partition_by)
        table = self.opened(where)
        if table is None:
            raise TableError(f"the table {where} was removed while it was being made")
        return table

    def prepare(self, where: Where, write: Write) -> Table:
        """The table with all columns that the rows of a write need; created when it does not exist."""
        form = format_of(where)
        by = write.partition_by or ()
        check_partitions(write.schema, by, all_columns=form.columns_first)
        failed: Exception | None = None
        for attempt in range(_TRIES):
            table = self.opened(where) or self.create(where, write.schema, by)
            try:
                table.widen(write)
            except TableError:
                raise
            except form.failures as problem:
                self.forget(where)
                failed = problem
                if not form.raced(problem):
                    break
                time.sleep(0.01 * 2**attempt)
            else:
                return table
        raise form.failed("cannot add columns to", where, failed)

    def commit(self, where: Where, write: Write) -> bool:
        """Make the files part of the table, all or none; False when the table holds the mark already.

        Creates a table that needs no columns first. Raises when the rows don't fit, another driver runs the same
        query, the checkpoint is older than the table, or the store fails; :class:`FilesGoneError` when files that
        it removes are not there.
        """
        check_there(where, write)
        return self.once(where, write, lambda table: table.commit(write))

    def once(self, where: Where, write: Write, change: Callable[[Table], None]) -> bool:
        """Run ``change``, which commits with the mark of ``write``, unless the table holds it.

        Runs it again on the newest version when another writer came between. Returns and raises as
        :meth:`commit` does.
        """
        with self._locks.setdefault(where, threading.RLock()):
            made = self._once(where, write, change)
            self._marks.note(where, write.mark)
            return made

    def _once(self, where: Where, write: Write, change: Callable[[Table], None]) -> bool:
        form = format_of(where)
        failed: Exception | None = None
        for attempt in range(_TRIES):
            table = self.opened(where)
            if table is None:
                table = self._missing(where, write)
            if failed is not None and table.made(write):
                return True  # the failure came after the commit
            if self._held(table, write, where, raced=failed is not None):
                return False
            before = table.version()
            try:
                change(table)
            except FilesGoneError as gone:
                raise FilesGoneError(f"another writer has changed {where}: {gone}") from None
            except TableError:
                raise
            except form.failures as problem:
                self.forget(where)
                failed = problem
                if not form.raced(problem):
                    break
                time.sleep(0.01 * 2**attempt)
                continue
            table.settle(before)
            return True
        table = self.opened(where)
        if table is not None and table.made(write):
            return True
        raise form.failed("cannot commit to the table", where, failed) from None

    def _missing(self, where: Where, write: Write) -> Table:
        if write.target is not None:
            raise TableError(f"the table {where} was removed while rows for it were written")
        return self.create(where, write.schema, write.partition_by or ())

    def _held(self, table: Table, write: Write, where: Where, *, raced: bool) -> bool:
        rows = write.rows if write.check_again else None
        found = None if write.mark is None else table.found(write.mark)
        return self._marks.held(
            where, write.mark, found, rows=rows, raced=raced, again_until=write.again_until
        )


HERE = Tables()
"""The tables of this process."""


def check_there(where: Where, write: Write) -> None:
    """Check that old files still exist: a table must not name files that maintenance removed."""
    before_ms = int((time.time() - _SURELY_THERE_SECONDS) * 1000)
    old = [file.path for file in write.files if file.written_ms < before_ms]
    if not old:
        return
    target = write.target
    assert target is not None or isinstance(where, Place)  # other formats need columns first
    folder: Folder = where if target is None else target.folder  # type: ignore[assignment]  # as above
    gone = [info.path for info in folder.files().get_file_info(old) if not info.is_file]
    if gone:
        raise TableError(
            f"{len(gone)} files of this batch were removed from {where} before their commit, as by"
            " maintenance that keeps less than a batch takes"
        )
