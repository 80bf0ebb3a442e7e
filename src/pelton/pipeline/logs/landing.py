"""Writes each micro-batch into two tables, exactly once: ``lines`` and ``counts``.

``lines`` has one row per message. It takes a batch with the batch's transactions (see
:mod:`pelton.spark.tables.stream_tables`). Rows at or below the table's mark are left out, so even
a query that lost its checkpoint and begins at the first message adds nothing twice.

``counts`` has one row per minute, program and level. It is a running sum over ``lines`` in order of
sequence: its own mark says up to which sequence lines are counted. Each step reads the lines
between that mark and the mark of ``lines``, and one commit adds their counts and moves the mark. So
a process may die anywhere between the two tables: the next step counts exactly what is not counted
yet. Readers see one row per key at any time, and the counts add up to the rows of ``lines``
whenever both marks agree.

Does not know where lines come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

from pelton.pipeline.logs.progress import Summary
from pelton.spark.tables.stream_tables import Batch, Table, write_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame

_TIME = pa.timestamp("us", "UTC")
LINES_SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("ts", _TIME),
        ("subject", pa.string()),
        ("host", pa.string()),
        ("file", pa.string()),
        ("identity", pa.string()),
        ("offset", pa.int64()),
        ("time", _TIME),
        ("level", pa.string()),
        ("program", pa.string()),
        ("pid", pa.int32()),
        ("message", pa.string()),
        ("raw", pa.string()),
        ("raw_bytes", pa.binary()),
    ]
)
COUNT_KEYS = ("minute", "program", "level")
COUNTS_SCHEMA = pa.schema(
    [("minute", _TIME), ("program", pa.string()), ("level", pa.string()), ("lines", pa.int64())]
)


@dataclass
class Landed:
    """The content of the tables, for the display."""

    rows: int = 0
    batches: int = 0
    last_seq: int = 0


class Landing:
    """The two tables in one folder, and the step for a micro-batch."""

    def __init__(self, folder: Path, source_id: str) -> None:
        """``source_id`` identifies the stream: its name and the time when it was created."""
        self.lines = Table(folder / "lines", LINES_SCHEMA)
        self.counts = Table(folder / "counts", COUNTS_SCHEMA)
        self._source_id = source_id
        self.landed = Landed(self.lines.rows(), 0, self.lines.mark(source_id))

    def step(self, lines: DataFrame, query_id: str, batch_id: int) -> None:
        """Bring the tables up to the end of a batch, in ``foreachBatch``; a batch may repeat."""
        mark = self.lines.mark(self._source_id)
        if not self.lines.has(query_id, batch_id):
            fresh = lines.where(F.col("seq") > mark) if mark else lines
            prefix = f"{query_id}-{batch_id:09d}"
            files = write_files(fresh.select(LINES_SCHEMA.names), self.lines, prefix)
            if files:
                mark = max(file.maximum("seq") for file in files)
                self.lines.append(files, Batch(query_id, batch_id, self._source_id, mark))
                self.landed.rows += sum(file.rows for file in files)
        self._count(Batch(query_id, batch_id, self._source_id, mark))
        self.landed.batches += 1
        self.landed.last_seq = mark
        if self.lines.maintain() | self.counts.maintain():
            self.landed.rows = self.lines.rows()

    def catch_up(self) -> None:
        """Count the lines that a process left uncounted when it died between the two tables.

        Call it before the first batch.
        """
        mark = self.lines.mark(self._source_id)
        self._count(Batch("pelton", mark, self._source_id, mark))

    def _count(self, batch: Batch) -> None:
        counted = self.counts.mark(self._source_id)
        if counted < batch.last_seq:
            rows = self.lines.scan(["time", "ts", "program", "level"], counted, batch.last_seq)
            self.counts.add_up(count_lines(rows), COUNT_KEYS, ["lines"], batch)


def count_lines(rows: pa.Table) -> pa.Table:
    """Lines per minute, program and level.

    Equals :func:`pelton.pipeline.logs.transforms.per_minute`, without Spark.
    """
    minute = pc.floor_temporal(pc.coalesce(rows["time"], rows["ts"]), unit="minute")
    keys = pa.table(
        {
            "minute": pc.cast(minute, _TIME),
            "program": pc.coalesce(rows["program"], pa.scalar("")),
            "level": rows["level"],
        }
    )
    counted = keys.group_by(list(COUNT_KEYS)).aggregate([([], "count_all")])
    return counted.rename_columns([*COUNT_KEYS, "lines"]).cast(COUNTS_SCHEMA)


def batch_function(landing: Landing) -> Callable[[DataFrame, int], None]:
    """The function for ``foreachBatch``: gets the query's id from Spark and calls the landing."""

    def land(lines: DataFrame, batch_id: int) -> None:
        query_id = lines.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if query_id is None:
            raise RuntimeError("a micro-batch without a query id: not called by foreachBatch")
        landing.step(lines, query_id, batch_id)

    return land


def summarise(landing: Landing, messages: int, *, drained: bool) -> Summary:
    """The content of the tables, for comparison with ``messages`` of the stream.

    Rows, distinct lines of files, counts, and the frequent values of both.
    """
    where = landing.lines.delta.to_pyarrow_dataset().to_table(columns=["identity", "offset"])
    from_files = where.filter(pc.is_valid(where["identity"]))
    distinct = from_files.group_by(["identity", "offset"]).aggregate([]).num_rows
    counts = landing.counts.delta.to_pyarrow_dataset().to_table()
    return Summary(
        messages=messages,
        rows=where.num_rows,
        distinct_lines=distinct,
        foreign_rows=where.num_rows - from_files.num_rows,
        counted=int(pc.sum(counts["lines"]).as_py() or 0),
        drained=drained,
        programs=_top(counts, "program", 5),
        levels=_top(counts, "level", 10),
    )


def _top(counts: pa.Table, key: str, at_most: int) -> list[tuple[str, int]]:
    sums = counts.group_by(key).aggregate([("lines", "sum")])
    ordered = sums.sort_by([("lines_sum", "descending"), (key, "ascending")]).slice(0, at_most)
    return list(zip(ordered[key].to_pylist(), ordered["lines_sum"].to_pylist(), strict=True))
