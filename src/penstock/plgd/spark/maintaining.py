"""Maintenance of a lake beside the run that fills it: old days go, small files become few, unused ones are removed.

=============  ==================================================================================================
old days       rows of days that ended longer ago than they are kept: of tables with open rows the closed ones alone
compaction     of Delta tables, as `penstock.spark.tables.maintenance` has it; and its removal of unused files
snapshots      of Iceberg tables those that are too old, and files that none of the others names
=============  ==================================================================================================

Tables with current rows keep them all: they tell duplicates and twins. A batch whose files are replaced meanwhile
is made again, so a run goes on.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import CommitFailedError, DeltaError

from penstock.spark.tables.files import table_at
from penstock.spark.tables.maintenance import maintain
from penstock.spark.tables.places import TableError

from ..tables.schemas import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from penstock.spark.tables.maintenance import Plan
    from penstock.spark.tables.places import Place

    from ..tables.schemas import TableSchema
    from .lake import Lake

TRIES = 6


def look_after(lake: Lake, plan: Plan, oldest: date | None) -> Iterator[Any]:
    """Maintain each table, and forget days before ``oldest``; a report for each. Raises :class:`TableError`."""
    for name, schema in TABLES.items():
        if lake.targets:
            from penstock.spark.iceberg.maintenance import maintain as maintain_iceberg

            where = lake.addresses[name]  # type: ignore[attr-defined]  # of an IcebergLake
            yield maintain_iceberg(where, plan.keep_hours, dry_run=plan.dry_run)
            continue
        if oldest is not None and not plan.dry_run:
            forget(lake.places[name], schema, oldest)
        yield maintain(lake.places[name], plan)


def forget(where: Place, schema: TableSchema, oldest: date) -> None:
    """Delete the rows of days before one, as whole files; open rows stay."""
    if "day" not in schema.partition_by:
        return
    closed = "is_open = false AND " if "is_open" in schema.partition_by else ""
    condition = f"{closed}day < '{oldest.isoformat()}'"
    for attempt in range(TRIES):
        try:
            table_at(where).delete(condition)
            return
        except CommitFailedError:
            time.sleep(0.05 * 2**attempt)
        except (DeltaError, OSError) as problem:
            raise TableError(f"cannot delete rows of the table {where}: {problem}") from None
    raise TableError(f"others change {where} each time its old rows are about to be deleted")
