"""What a query does whose table is behind it: fails, begins anew, or makes the batches between again.

A table is compared before each batch with what :mod:`penstock.spark.holding` remembers of it; a hole is
filled by :mod:`penstock.spark.filling`. Knows nothing of the kind of table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.filling import FillingError, filling_batch, note_end, put_back
from penstock.spark.holding import (
    BEGIN,
    FAIL,
    FILL,
    Held,
    Memory,
    table_before,
    table_behind,
    table_missing,
)
from penstock.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.spark.tables.marks import Found, Mark


class TableBehind(TableError):
    """A table lacks batches of its query that it held, or is gone. ``batch`` is the last one that it
    holds; -1 for none.
    """

    def __init__(self, text: str, batch: int) -> None:
        """What is wrong, for people."""
        super().__init__(text)
        self.batch = batch


class Watched:
    """A table of a query, compared with what is remembered of it, before and after each batch."""

    def __init__(self, memory: Memory, if_behind: str = FAIL) -> None:
        """``if_behind`` as users say it."""
        self.memory = memory
        self._if_behind = if_behind
        self._behind = False
        self._holds = -1
        self._filling: int | None = None
        """The batch that may be written though the table is behind."""

    def look(
        self,
        there: bool,
        batch_of: Callable[[str], int | None],
        *,
        batch: int | None = None,
        begun: bool = False,
        replaces: bool = False,
    ) -> None:
        """Compare the table, before anything is written.

        ``there``: whether there is a table; ``batch_of`` has its last batch of a query. ``batch`` is
        the one that is to be written, where that is known. ``begun``: a table that is not there was
        to hold something, though no note says so. ``replaces``: the batch comes in place of all
        rows. Raises :class:`TableBehind` when rows of batches before are missing.
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
        """The same where nothing can be noted, as in a checkpoint of another machine: every batch
        leaves its mark, so that of the one before must be there.
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
        """That it is the one for which :meth:`look` found nothing to be missing."""
        if self._filling not in (None, batch):
            raise TableBehind(
                f"the table {self.memory.where} holds batch {self._holds} of the query, whose checkpoint"
                f" was put back to it while batch {batch} was made. Start the query again",
                self._holds,
            )

    def taken(self, mark: Mark, *, rows: bool) -> None:
        """Remember that the table holds a batch now; without rows, what it held before."""
        known = self.memory.recall()
        note_end(self.memory.checkpoint)
        if rows:
            later = known is not None and known.query == mark.name and known.batch > mark.number
            if self._behind or not later:  # a batch that came again changes nothing
                self.memory.note(Held(self.memory.where, mark.number, mark.name))
        elif self._behind and known is not None and self._holds >= 0:
            self.memory.note(Held(self.memory.where, self._holds, known.query))
        elif self._behind or known is None:
            self.memory.note(Held(self.memory.where))


def fill(checkpoint: Path, where: str, batch: int) -> str:
    """Put the checkpoint back to the last batch that a table holds; what to tell the user.

    Raises :class:`TableError` when that cannot be.
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
