"""Counts of the rows that a sink gets, made by Spark on the way, and of rejected rows by condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from pelton.pipeline.description.model import Sink

ROWS = "rows"
_FAILED = "failed "


class Counted(NamedTuple):
    """Rows of a batch, and how many of them failed each condition of ``expect``."""

    rows: int
    failed: Mapping[str, int] = {}


def aggregates(rows: DataFrame, sink: Sink) -> list[Column]:
    """What Spark is to observe; the conditions only if the sink takes the column with their names."""
    from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

    from pelton.pipeline.running.rejected import REASONS

    conditions = sink.conditions if REASONS in rows.columns else ()
    return [
        F.count(F.lit(1)).alias(ROWS),
        *(
            F.count_if(F.array_contains(F.col(f"`{REASONS}`"), name)).alias(_FAILED + name)
            for name in conditions
        ),
    ]


def counted_of(observed: Any) -> Counted:
    """The counts in what Spark has observed, a Row or a dictionary."""
    found = observed if isinstance(observed, dict) else observed.asDict()
    failed = {
        name.removeprefix(_FAILED): int(value or 0)
        for name, value in found.items()
        if name.startswith(_FAILED)
    }
    return Counted(int(found[ROWS] or 0), failed)
