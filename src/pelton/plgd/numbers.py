"""Unsigned numbers of a hub in columns that are signed, as those of Spark and of tables are.

No store of a hub has a version above 2^63 - 1, so a message with one is no event. The sequence of a
connection comes from a device, which may send any number: a sequence above 2^63 - 1 becomes null,
and the event stays.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .reasons import Reason

SIGNED_MAX = 2**63 - 1
"""The greatest version that a store of a hub can hold."""


def above(column: Any) -> Any:
    """Which numbers of an unsigned column are too large; false for null."""
    return pc.fill_null(pc.greater(column, pa.scalar(SIGNED_MAX, pa.uint64())), False)


def fitting(table: pa.Table) -> pa.Table:
    """A table of `decode_batch` whose versions and sequences fit; their type is still unsigned."""
    too_large = above(table["sequence"])
    if pc.any(too_large).as_py():
        table = replaced(table, "sequence", too_large, pa.scalar(None, pa.uint64()))
    too_large = above(table["version"])
    if not pc.any(too_large).as_py():
        return table
    told = pc.binary_join_element_wise(
        "version", table["version"].cast(pa.string()), "is none of a hub", " "
    )
    instead: dict[str, Any] = {"error": pa.scalar(Reason.EVENT.value), "error_detail": told}
    for name in ("error", "error_detail", "event_type", "kind", "version"):
        value = instead.get(name, pa.scalar(None, table.schema.field(name).type))
        table = replaced(table, name, too_large, value)
    return table


def replaced(table: pa.Table, name: str, chosen: Any, value: Any) -> pa.Table:
    """A table with other values in some rows of a column."""
    place, kind = table.schema.get_field_index(name), table.schema.field(name).type
    return table.set_column(place, name, pc.if_else(chosen, value, table[name]).cast(kind))
