"""Entries of a key-value bucket, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.cli.output import moment, number, payload, print_table, readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pelton.client.keyvalue.entries import KvEntry


def entry_data(entry: KvEntry[bytes], *, value: bool = True) -> dict[str, object]:
    """An entry in JSON; without its value if that was not delivered."""
    found: dict[str, object] = {
        "bucket": entry.bucket,
        "key": entry.key,
        "revision": entry.revision,
        "created": moment(entry.created_ns),
        "operation": entry.operation,
    }
    if entry.marker_reason:
        found["marker_reason"] = entry.marker_reason
    if entry.deleted:
        return found
    return found | (payload(entry.data) if value else {"size": entry.size})


def entry_value(entry: KvEntry[bytes]) -> str:
    """The value of an entry in one cell; "" for a marker."""
    return "" if entry.deleted else readable(entry.data).replace("\n", "\\n")


def print_entries(entries: Sequence[KvEntry[bytes]]) -> None:
    """Print revisions as a table."""
    columns = ("Key", "Revision", "Op", "Created", "Length", "Value")
    rows = [
        (
            entry.key,
            number(entry.revision),
            entry.operation,
            moment(entry.created_ns),
            number(entry.size),
            entry_value(entry),
        )
        for entry in entries
    ]
    print_table(columns, rows, right=frozenset(("Revision", "Length")))
