"""Merges into tables with their own rules: constraints, generated columns, a change data feed.

``deltalake`` enforces these rules, so it makes the merge. But its files have statistics by which some
readers skip rows wrongly, so the engine rewrites these files in a second commit, which changes no row. When the
process dies between the two commits, the files stay as they are.

Does not depend on Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.spark.delta.schemas import own_rules
from pelton.spark.tables.table import Upserted

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

    from pelton.spark.tables.table import KeyedRows

_DELETE = "pelton delete"


def has_rules(table: DeltaTable) -> bool:
    """Whether a merge has to do more than replace rows."""
    feed = table.metadata().configuration.get("delta.enableChangeDataFeed", "false")
    return feed.lower() == "true" or bool(own_rules(table))


def merge_by_rules(table: DeltaTable, batch: KeyedRows, properties: CommitProperties) -> Upserted:
    """Commit the merge of a batch into a table that has rules.

    Raises the errors of ``deltalake``: rows break the rules, or another writer came between.
    """
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
        commit_properties=properties,
    )
    merging = merging.when_matched_delete(f"{newer} AND {delete}")
    merging = merging.when_matched_update({**values, **sums}, newer)
    if sums:
        merging = merging.when_matched_update(sums, f"NOT {newer}")
    counts = merging.when_not_matched_insert(values, f"NOT {delete}").execute()
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
