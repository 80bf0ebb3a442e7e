"""Replacing files of a table by others, for upserts and compactions.

:func:`snapshot` returns the files of a version; :func:`replace` makes one commit that removes files
and adds others. A caller that computed these from one version compares it with the snapshot of a
newer one; with ``alone`` the commit is made on that version or not at all.

Does not depend on the contents of the files.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from deltalake.transaction import RemoveAction

from pelton.spark.tables.commits import lacking_columns
from pelton.spark.tables.files import StoredFile, actions_of, as_arrow, relative, unread_features
from pelton.spark.tables.key_matching import Bounds, comparable_bounds
from pelton.spark.tables.parquet import partition_text
from pelton.spark.tables.places import TableError
from pelton.spark.tables.schemas import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from deltalake import DeltaTable

    from pelton.spark.tables.commits import Write

# Paths in the log: of the printable characters, deltalake encodes these.
_ENCODED = set(' \\{^}%`]">[<#|*?')
AS_IT_IS = "".join(chr(code) for code in range(32, 127) if chr(code) not in _ENCODED)
# Writer features that do not restrict a commit which removes and adds files, or that do not as long
# as the table makes no use of them, which is checked for each.
_FEATURES = {
    *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"),
    *("columnMapping", "timestampNtz", "v2Checkpoint", "deletionVectors"),
    "variantType",
}


@dataclass(frozen=True)
class Active:
    """A file of a table's version; ``logged`` is its path in the log."""

    logged: str
    stored: StoredFile
    modified_ms: int
    bounds: dict[str, Bounds] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """The files of a version by their paths in the log, and the names of those with deletion vectors.

    ``definition`` has the other properties of the table on which a commit depends.
    """

    files: dict[str, Active]
    with_deletions: frozenset[str]
    definition: tuple[Any, ...]


def snapshot(table: DeltaTable, bounds_of: Sequence[str] = ()) -> Snapshot:
    """The files of the table's version, with trustworthy bounds of the columns ``bounds_of``.

    Raises :class:`TableError` for a table whose files cannot be replaced here.
    """
    protocol, metadata = table.protocol(), table.metadata()
    configuration = metadata.configuration
    bad = unread_features(table)
    bad += [name for name in protocol.writer_features or () if name not in {*_FEATURES, *bad}]
    if bad:
        raise TableError(f"the table {table.table_uri} uses {', '.join(bad)}, not supported here")
    definition = (
        *(metadata.id, table.schema().to_json(), tuple(metadata.partition_columns)),
        *(tuple(sorted(configuration.items())), protocol.min_reader_version),
        *(protocol.min_writer_version, tuple(protocol.writer_features or ())),
    )
    deletions = frozenset[str]()
    if "deletionVectors" in (protocol.reader_features or ()):
        found = as_arrow(table.deletion_vectors())
        deletions = frozenset(str(name).rsplit("/", 1)[-1] for name in found[0].to_pylist())
    files = {file.logged: file for file in _active(table, bounds_of)}
    return Snapshot(
        files,
        frozenset(name for name in files if unquote(name).rsplit("/", 1)[-1] in deletions),
        definition,
    )


def _active(table: DeltaTable, bounds_of: Sequence[str]) -> Iterable[Active]:
    actions = actions_of(table)
    names = table.metadata().partition_columns
    plain = ["path", "size_bytes", "modification_time", *(f"partition.{name}" for name in names)]
    bounds = _bounds(table, actions, bounds_of) if bounds_of else {}
    for number, row in enumerate(actions.select(plain).to_pylist()):
        partition = tuple((name, partition_text(row[f"partition.{name}"])) for name in names)
        path = relative(row["path"], table.table_uri)
        yield Active(
            row["path"],
            StoredFile(path, row["size_bytes"], partition),
            row["modification_time"],
            {name: (low[number], high[number]) for name, (low, high) in bounds.items()},
        )


def _bounds(
    table: DeltaTable, actions: pa.Table, names: Sequence[str]
) -> dict[str, tuple[list[Any], list[Any]]]:
    found = {}
    for one in schema_of(table):
        columns = [f"{bound}.{one.name}" for bound in ("min", "max")]
        # A dot can also separate a column from a field in it.
        if one.name not in names or "." in one.name or not {*columns} <= {*actions.column_names}:
            continue
        low, high = (comparable_bounds(actions[column], one.type) for column in columns)
        if low is not None and high is not None:
            found[one.name] = low, high
    return found


def can_be_named(file: Active) -> bool:
    """Whether ``deltalake`` writes the path of the file as the log has it.

    A removal with another spelling would remove nothing.
    """
    return quote(unquote(file.logged), safe=AS_IT_IS) == file.logged


def replace(
    table: DeltaTable,
    write: Write,
    removed: Iterable[Active],
    *,
    data_change: bool = True,
    alone: bool = True,
) -> None:
    """Commit the files of ``write``, and remove the files ``removed`` in the same commit.

    With ``alone`` the commit is made on the opened version or not at all; otherwise also on a newer one
    that still has all of ``removed``. Raises :class:`TableError` when the log spells a path differently.
    """
    now_ms = int(time.time() * 1000)
    actions: list[Any] = []
    for file in removed:
        if not can_be_named(file):
            raise TableError(
                f"the log of {table.table_uri} has the path {file.logged} in a spelling that"
                " deltalake does not write, so that it cannot be removed"
            )
        partition = dict(file.stored.partition)
        path, size = unquote(file.logged), file.stored.size
        actions.append(RemoveAction(path, data_change, now_ms, size, partition))
    lacking = lacking_columns(table, write.schema)
    actions += [file.add_action(lacking, data_change=data_change) for file in write.files]
    table.create_write_transaction(
        actions,
        mode="append",
        schema=table.schema(),
        partition_by=table.metadata().partition_columns,
        commit_properties=write.properties(replaces=True, alone=alone),
    )
