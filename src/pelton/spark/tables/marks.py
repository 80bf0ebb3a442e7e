"""Marks, which make a commit to a table happen once, and the meaning of a mark that a table has.

A mark is a name, such as a query's id, and a growing number, such as its batch::

    the table holds      the commit of a mark (query, 7)
    (query, 6) or none   is made
    (query, 7)           is not made: Spark runs a batch again that it did not note as done
    (query, 8)           is refused: the checkpoint is older than the table; not made, if batch 7
                         runs again to fill the hole of another table of the query
    (query, 6), and another driver commits (query, 7) first    is refused

Besides the mark, a table notes the run of the query that made the commit, and the number of rows.
These tell a second driver from a batch that runs again, and a repeated batch with other rows (of a
checkpoint that was put back) from one with the same rows.

Does not depend on the form in which a table keeps marks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Hashable


@dataclass(frozen=True)
class Mark:
    """The identity of a commit. ``run`` is that of the query, new at each start; '' without a
    query.
    """

    name: str
    number: int
    run: str = ""


@dataclass(frozen=True)
class Found:
    """The last number of a mark's name in a table, and the rows of that commit where they are
    noted.

    ``each``: from that commit on every number leaves its mark, also those without rows.
    """

    number: int
    rows: int | None = None
    each: bool = False


@dataclass
class Marks:
    """The marks that this process has seen committed, by table and name."""

    _last: dict[tuple[Hashable, str], tuple[str, int]] = field(default_factory=dict)

    def note(self, where: Hashable, mark: Mark | None) -> None:
        """Record that the table holds the mark."""
        if mark is not None:
            self._last[where, mark.name] = (mark.run, mark.number)

    def held(
        self,
        where: Hashable,
        mark: Mark | None,
        found: Found | None,
        *,
        rows: int | None,
        raced: bool,
        again_until: int = -1,
    ) -> bool:
        """Whether the table at ``where`` holds the mark, so that the commit must not be made.

        ``rows`` is the number of rows of the commit, None to compare none. ``raced`` says that the table did
        not hold the mark a moment ago. Batches up to ``again_until`` may run again unchanged. Raises
        :class:`TableError` when the table should not hold the mark.
        """
        if mark is None or found is None or found.number < mark.number:
            return False
        run, number = self._last.get((where, mark.name), ("", -1))
        # In one run of a query, only the first batch can have been committed by an earlier run.
        in_mid_run = mark.run != "" and run == mark.run and number < mark.number
        if mark.number <= again_until and not raced:
            if found.number > mark.number:
                return True
            in_mid_run = False
        if raced or in_mid_run:
            raise TableError(
                f"another driver has committed batch {mark.number} of query {mark.name} to {where}:"
                " two drivers run on one checkpoint. This one gives up; no row is written twice"
            )
        if found.number > mark.number:
            raise TableError(
                f"the table {where} holds batch {found.number} of query {mark.name}, this is batch"
                f" {mark.number}: another driver runs on the checkpoint, or the checkpoint is older"
                " than the table and a new one must begin after the rows of the table"
            )
        if rows is not None and found.rows is not None and found.rows != rows:
            raise TableError(
                f"the table {where} holds batch {mark.number} of query {mark.name} with"
                f" {found.rows} rows, but the batch has {rows} now: the checkpoint was put back, or the"
                " source lost rows. With checkReplay=false the rows of the table count as right"
            )
        return True
