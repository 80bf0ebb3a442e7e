"""Merges into tables with their own rules: constraints, generated columns, a change data feed.

``deltalake`` enforces these rules, so it makes the merge. But its files have statistics by which some
readers skip rows wrongly, so a second commit, which changes no row, rewrites these files. When the
process dies between the two commits, the files stay as they are.

Does not depend on Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pelton.spark.tables.compaction import rewrite
from pelton.spark.tables.replacing import can_be_named, replace, snapshot
from pelton.spark.tables.schemas import own_rules

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from pelton.spark.tables.commits import Write
    from pelton.spark.tables.places import Place

_DELETE = "pelton delete"


@dataclass(frozen=True)
class Upserted:
    """The counts of an upsert; all 0 when the table held the batch already."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True)
class Rows:
    """The rows of a batch, one per key, with the table's types; ``deletes`` marks rows that delete."""

    rows: pa.Table
    deletes: pa.Array
    keys: tuple[str, ...]
    sequence: str
    sums: tuple[str, ...] = ()
    """Columns that are added to those of the table, whichever row is newer."""


def has_rules(table: DeltaTable) -> bool:
    """Whether a merge has to do more than replace rows."""
    feed = table.metadata().configuration.get("delta.enableChangeDataFeed", "false")
    return feed.lower() == "true" or bool(own_rules(table))


def merge_by_rules(table: DeltaTable, batch: Rows, write: Write, place: Place) -> Upserted:
    """Commit the merge of a batch into a table that has rules.

    Raises the errors of ``deltalake``: rows break the rules, or another writer came between.
    """
    before, version = snapshot(table).files.keys(), table.version()
    source = batch.rows.append_column(_DELETE, batch.deletes)
    values = {_quoted(name): f"source.{_quoted(name)}" for name in batch.rows.column_names}
    sums = {each: _sum(each) for each in map(_quoted, batch.sums)}
    sequence, delete = _quoted(batch.sequence), f"source.{_quoted(_DELETE)}"
    newer = f"source.{sequence} > target.{sequence}"
    merging = table.merge(
        source,
        " AND ".join(f"target.{_quoted(key)} = source.{_quoted(key)}" for key in batch.keys),
        source_alias="source",
        target_alias="target",
        commit_properties=write.properties(),
    )
    merging = merging.when_matched_delete(f"{newer} AND {delete}")
    merging = merging.when_matched_update({**values, **sums}, newer)
    if sums:
        merging = merging.when_matched_update(sums, f"NOT {newer}")
    counts = merging.when_not_matched_insert(values, f"NOT {delete}").execute()
    table.update_incremental()
    if table.version() == version:  # no row was newer, and the mark is not in the table
        replace(table, write, [])
    made = [file for path, file in snapshot(table).files.items() if path not in before]
    rewrite(table, place, [(file,) for file in made if can_be_named(file)])
    return Upserted(
        counts.get("num_target_rows_inserted", 0),
        counts.get("num_target_rows_updated", 0),
        counts.get("num_target_rows_deleted", 0),
    )


def _sum(column: str) -> str:
    ours, theirs = f"source.{column}", f"target.{column}"
    return f"coalesce({ours} + {theirs}, {ours}, {theirs})"


def _quoted(name: str) -> str:
    """The name of a column, quoted for an expression of ``deltalake``."""
    return '"' + name.replace('"', '""') + '"'
