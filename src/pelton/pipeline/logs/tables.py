"""The tables that ``logs.yaml`` writes, read without Spark: for the display and the summary."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pelton.pipeline.logs.progress import Summary
from pelton.spark.tables.commits import Tables
from pelton.spark.tables.places import place

if TYPE_CHECKING:
    from pathlib import Path

_LINES = pa.schema([("identity", pa.string()), ("offset", pa.int64())])
_COUNTS = pa.schema([("program", pa.string()), ("level", pa.string()), ("lines", pa.int64())])


class Landed(NamedTuple):
    """The number of rows in ``lines``, and the greatest sequence."""

    rows: int = 0
    last_seq: int = 0


class LogTables:
    """Both tables in one folder. A table that does not exist yet has no rows."""

    def __init__(self, folder: Path) -> None:
        """Open nothing yet."""
        self.folder = folder
        self._tables = Tables()

    def landed(self) -> Landed:
        """The content of ``lines``, from the statistics of its files."""
        table = self._tables.opened(place(self.folder / "lines"))
        rows = 0 if table is None else table.totals().rows
        return Landed(rows, table.greatest("seq")) if table is not None and rows else Landed()

    def summarise(self, messages: int, *, drained: bool, unread: dict[str, str]) -> Summary:
        """The content of both tables, for comparison with ``messages`` of the stream."""
        lines = self._read("lines", _LINES)
        from_files = lines.filter(pc.is_valid(lines["identity"]))
        counts = self._read("counts", _COUNTS)
        return Summary(
            messages=messages,
            rows=lines.num_rows,
            distinct_lines=from_files.group_by(["identity", "offset"]).aggregate([]).num_rows,
            foreign_rows=lines.num_rows - from_files.num_rows,
            counted=int(pc.sum(counts["lines"]).as_py() or 0),
            drained=drained,
            programs=_top(counts, "program", 5),
            levels=_top(counts, "level", 10),
            unread=unread,
        )

    def _read(self, name: str, schema: pa.Schema) -> pa.Table:
        table = self._tables.opened(place(self.folder / name))
        if table is None:
            return schema.empty_table()
        return table.dataset(schema).to_table(columns=schema.names)


def _top(counts: pa.Table, key: str, at_most: int) -> list[tuple[str, int]]:
    sums = counts.group_by(key).aggregate([("lines", "sum")])
    ordered = sums.sort_by([("lines_sum", "descending"), (key, "ascending")]).slice(0, at_most)
    return list(zip(ordered[key].to_pylist(), ordered["lines_sum"].to_pylist(), strict=True))
