"""Marks: what makes a commit to a table one that happens once, and what it means to find one there.

A mark is a name, such as a query's id, and a number that grows, such as its batch::

    the table holds      of a mark (query, 7) the commit is
    (query, 6) or none   made
    (query, 7)           not made: Spark runs a batch again that it did not note as done
    (query, 8)           refused: the checkpoint is older than the table; not made, where batch 7
                         comes again to fill the hole of another table of the query
    (query, 6), and another driver commits (query, 7) first    refused

Beside the mark a table notes which run of the query made the commit and how many rows it has. So a
second driver is told from a batch that comes again, and a batch that comes again with other rows (a
checkpoint that was put back) from one that is the same.

Knows nothing of how a table keeps marks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Hashable


@dataclass(frozen=True)
class Mark:
    """What makes a commit unique. ``run`` is that of the query, new at each start; '' without."""

    name: str
    number: int
    run: str = ""


@dataclass(frozen=True)
class Found:
    """What a table holds of a name: the last number, and the rows of that commit where it says.

    ``each``: from then on every number leaves its mark, also those without rows.
    """

    number: int
    rows: int | None = None
    each: bool = False


@dataclass
class Marks:
    """What a process knows of the marks it has seen committed, by table and name."""

    _last: dict[tuple[Hashable, str], tuple[str, int]] = field(default_factory=dict)

    def note(self, where: Hashable, mark: Mark | None) -> None:
        """The table holds the mark, as this process has seen."""
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
        """Whether the table at ``where`` holds the mark, and so the commit is not to be made.

        ``rows`` are those of the commit, None when they are not to be compared; ``raced`` says that
        the table did not hold the mark a moment ago; batches up to ``again_until`` may come again
        as they were. Raises :class:`TableError` when it should not
        hold it.
        """
        if mark is None or found is None or found.number < mark.number:
            return False
        run, number = self._last.get((where, mark.name), ("", -1))
        # In one run of a query only its first batch can have been committed by an earlier run.
        in_mid_run = mark.run != "" and run == mark.run and number < mark.number
        if mark.number <= again_until and not raced:
            if found.number > mark.number:
                return True
            in_mid_run = False
        if raced or in_mid_run:
            raise TableError(
                f"another driver has committed batch {mark.number} of query {mark.name} to {where}:"
                " two drivers run on one checkpoint. This one gives up; no row is there twice"
            )
        if found.number > mark.number:
            raise TableError(
                f"the table {where} holds batch {found.number} of query {mark.name}, this is batch"
                f" {mark.number}: another driver runs on the checkpoint, or the checkpoint is older"
                " than the table and a new one must begin behind the rows of the table"
            )
        if rows is not None and found.rows is not None and found.rows != rows:
            raise TableError(
                f"the table {where} holds batch {mark.number} of query {mark.name} with"
                f" {found.rows} rows, but it has {rows} now: the checkpoint was put back, or the"
                " source lost rows. checkReplay=false takes what the table holds for right"
            )
        return True
