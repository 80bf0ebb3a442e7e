"""A table that lacks batches of its query: the query fails, begins again, or runs the missing batches again.

Before each batch a table is compared with its note (:mod:`pelton.spark.holding`);
:mod:`pelton.spark.filling` fills a hole. Does not depend on the kind of table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.spark.filling import FillingError, filling_batch, note_end, put_back
from pelton.spark.holding import (
    BEGIN,
    FAIL,
    FILL,
    Held,
    Memory,
    table_before,
    table_behind,
    table_missing,
)
from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pelton.spark.tables.marks import Found, Mark


class TableBehind(TableError):
    """A table is gone, or lacks batches of its query that it held before.

    ``batch`` is the last batch that it holds; -1 for none.
    """

    def __init__(self, text: str, batch: int) -> None:
        """``text`` is the error for the user."""
        super().__init__(text)
        self.batch = batch


class Watched:
    """A query's table, compared with its note before each batch; the note is renewed after it."""

    def __init__(self, memory: Memory, if_behind: str = FAIL) -> None:
        """``if_behind`` is the value of the option."""
        self.memory = memory
        self._if_behind = if_behind
        self._behind = False
        self._holds = -1
        self._filling: int | None = None
        """The batch that may be written although the table is behind."""

    def look(
        self,
        there: bool,
        batch_of: Callable[[str], int | None],
        *,
        batch: int | None = None,
        begun: bool = False,
        replaces: bool = False,
    ) -> None:
        """Compare the table with its note, before anything is written.

        ``there`` says whether the table exists; ``batch_of`` returns its last batch of a query. ``batch`` is
        the batch to write, where it is known. ``begun`` says that the query must have written the table
        before, although there is no note. ``replaces`` says that the batch replaces all rows. Raises
        :class:`TableBehind` when rows of earlier batches are missing.
        """
        held = self.memory.recall()
        found = None if held is None or not there else batch_of(held.query)
        self._holds = -1 if found is None else found
        behind = table_behind(held, there, found)
        if not behind and not there and begun:
            behind = table_missing(self.memory.where)
        self._behind = bool(behind)
        if not behind or self._if_behind == BEGIN:
            return
        checkpoint = self.memory.checkpoint
        if held is not None and checkpoint is not None:
            self._filling = filling_batch(checkpoint, held.batch, self._holds)
            if self._filling is not None and batch in (None, self._filling):
                return
            if self._if_behind == FILL and not replaces:
                raise TableBehind(fill(checkpoint, held.where, self._holds), self._holds)
        if self._if_behind != FILL or not replaces:
            raise TableBehind(behind, self._holds)

    def compare(self, last: Found | None, batch: int) -> None:
        """Compare the table's mark with the batch to write, when there can be no note.

        That is so with a checkpoint on another machine: every batch leaves its mark, so the mark of the
        previous batch must be there.
        """
        if self._if_behind == BEGIN or batch == 0:
            return
        if last is None or (last.each and last.number < batch - 1):
            holds = -1 if last is None else last.number
            behind = table_before(self.memory.where, holds, batch)
            if self._if_behind == FILL:
                behind += (
                    ". ifBehind=fill needs the checkpoint in a folder of the driver's machine, given as"
                    " option checkpointLocation"
                )
            raise TableBehind(behind, holds)

    def check_batch(self, batch: int) -> None:
        """Check that ``batch`` is the one that fills the hole :meth:`look` has found, if any."""
        if self._filling not in (None, batch):
            raise TableBehind(
                f"the table {self.memory.where} holds batch {self._holds} of the query, whose checkpoint"
                f" was put back to it while batch {batch} was made. Start the query again",
                self._holds,
            )

    def taken(self, mark: Mark, *, rows: bool) -> None:
        """Note that the table holds a batch; for a batch without rows, the batch that it held
        before.
        """
        known = self.memory.recall()
        note_end(self.memory.checkpoint)
        if rows:
            later = known is not None and known.query == mark.name and known.batch > mark.number
            if self._behind or not later:  # a batch that runs again changes nothing
                self.memory.note(Held(self.memory.where, mark.number, mark.name))
        elif self._behind and known is not None and self._holds >= 0:
            self.memory.note(Held(self.memory.where, self._holds, known.query))
        elif self._behind or known is None:
            self.memory.note(Held(self.memory.where))


def fill(checkpoint: Path, where: str, batch: int) -> str:
    """Put the checkpoint back to the last batch that a table holds; returns the text for the user.

    Raises :class:`TableError` when that fails.
    """
    try:
        again = put_back(checkpoint, batch)
    except FillingError as reason:
        raise TableError(f"the table {where} cannot be filled: {reason}") from None
    except OSError as problem:
        raise TableError(
            f"the table {where} cannot be filled: the checkpoint {checkpoint} cannot be written:"
            f" {problem}"
        ) from None
    return (
        f"the table {where} holds batch {batch} of the query, whose checkpoint was put back to it."
        f" Start the query again: it makes batches {batch + 1} to {again.until} again"
    )
