"""Histories: a table with every version of each key, and the sequences between which it was the newest.

::

    k   seq   n     valid_from   valid_to   is_current
    a   1     5     1            7          false
    a   7     6     7            null       true          the newest version of a
    b   3     1     3            null       true

A batch closes the versions that it replaces, and adds its own. A late row gets its place between two versions, so the
table is the same in whichever order rows come. A row that deletes is a version, too, with ``is_deleted``: until the
next one the key does not exist. Two rows of a key with one sequence are the same version; the first one stays.

The table is divided by ``is_current``. A merge reads the current rows of its keys, and closed ones only for keys with
late rows. Does not depend on Spark or the format.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pelton.spark.tables.commits import check_there
from pelton.spark.tables.evolution import conformed
from pelton.spark.tables.key_matching import Keys
from pelton.spark.tables.merges import FILE_BYTES
from pelton.spark.tables.places import TableError
from pelton.spark.tables.rows import ahead
from pelton.spark.tables.table import Upserted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pelton.spark.tables.table import Active, KeyedRows, Rows, Table, Write

FROM, TO, CURRENT, DELETED = "valid_from", "valid_to", "is_current", "is_deleted"
OWN = (FROM, TO, CURRENT, DELETED)
"""The columns that a history adds to those of the rows."""
PARTITION_BY = (CURRENT,)
_READ_ROWS = 32 * 1024
_KEY = "pelton key"


def with_validity(schema: pa.Schema, sequence: str, *, deletes: bool) -> pa.Schema:
    """The columns of a history of rows with this schema. Raises :class:`TableError` for names that are taken."""
    taken = [name for name in schema.names if name.lower() in OWN]
    if taken:
        raise TableError(f"upsert: a history has its own columns {', '.join(taken)}; rename those")
    kind = schema.field(sequence).type
    added = [pa.field(FROM, kind), pa.field(TO, kind), pa.field(CURRENT, pa.bool_())]
    return pa.schema([*schema, *added, *([pa.field(DELETED, pa.bool_())] if deletes else [])])


def check_table(table: Table, *, history: bool) -> None:
    """Raises :class:`TableError` for a table without histories, or for one with them."""
    there = table.partition_by() == PARTITION_BY and {*OWN[:3]} <= {*table.columns().names}
    if history and not there:
        raise TableError(
            f"upsert: {table.where} has only the newest row of each key; a history needs a new table"
        )
    if there and not history:
        raise TableError(
            f"upsert: {table.where} has every version of each key: set history to true"
        )


@dataclass
class _Found:
    """What a merge reads of a table, and the files that it writes anew."""

    versions: list[pa.RecordBatch] = field(default_factory=list)
    removed: list[Active] = field(default_factory=list)


class HistoryMerge:
    """The merge of one batch into a table with histories."""

    def __init__(self, batch: KeyedRows, write: Write) -> None:
        """Takes all rows of a batch; ``write.schema`` is that of :func:`with_validity`."""
        rows, keys, start = batch.rows, batch.keys, batch.rows[batch.sequence]
        self._names = keys
        self._write = write
        self.did = Upserted()
        never = pa.repeat(False, rows.num_rows)
        columns = [*rows.columns, start, pa.nulls(rows.num_rows, start.type), never]
        if DELETED in write.schema.names:
            columns.append(batch.deletes)
        self._new = pa.table(columns, schema=write.schema)
        if nested := [name for name in keys if pa.types.is_nested(rows.schema.field(name).type)]:
            raise TableError(f"upsert: keys of a history are plain values; {nested[0]} is not")
        unique = rows.select(list(keys)).group_by(list(keys), use_threads=False).aggregate([])
        self._unique = unique.cast(pa.schema([write.schema.field(name) for name in keys]))
        self._keys = Keys(self._unique, keys)

    def commit(self, table: Table) -> None:
        """Commit the merge on the table as it was opened; fails as the format does on a newer version."""
        check_table(table, history=True)
        table.widen(self._write)
        columns = table.columns()
        now = table.snapshot(self._names)
        if now.with_deletions:
            raise TableError(
                f"files of {table.where} have rows that are deleted in place, which an upsert does not"
                " take into account"
            )
        target, reader = table.target(columns), table.rows(columns)
        few = table.rows(pa.schema([columns.field(name) for name in self._names]))
        found = _Found()
        with target.open(
            f"history-{uuid.uuid4().hex[:12]}-00000-0", bytes_per_file=FILE_BYTES
        ) as out:

            def take(files: Iterable[Active], keys: Keys) -> None:
                """Find the versions of keys, and write the other rows of their files anew."""
                for file in files:
                    if not _has(file, few, keys):
                        continue
                    found.removed.append(file)
                    for rows in ahead(reader.read([file.stored], _READ_ROWS)):
                        ours = keys.rows_of(rows) >= 0
                        found.versions.append(rows.filter(pa.array(ours)))
                        if not ours.all():
                            out.write(rows.filter(pa.array(~ours)))

            files = list(now.files.values())
            take([file for file in files if _is_current(file)], self._keys)
            if (late := self._late(found.versions)) is not None:
                take([file for file in files if not _is_current(file)], late)
            versions, did = self._merged(found.versions, columns)
            for batch in versions.to_batches(_READ_ROWS):
                out.write(batch)
            written = out.finish()
        self.did = did
        write = replace(
            self._write,
            schema=columns,
            files=tuple(written),
            removed=tuple(found.removed),
            replaces=True,
            alone=True,
            target=target,
            did=vars(did),
        )
        check_there(table.where, write)
        table.commit(write)

    def _late(self, versions: list[pa.RecordBatch]) -> Keys | None:
        """The keys with rows that are not newer than their current version."""
        newest = self._new[FROM].combine_chunks()
        descending = pc.sort_indices(newest, sort_keys=[("", "descending")]).to_numpy()
        first = np.full(self._unique.num_rows, -1, np.int64)
        first[_numbers(self._keys, self._new)[descending]] = descending  # the least one stays
        late = np.zeros(self._unique.num_rows, bool)
        for batch in versions:
            at = self._keys.rows_of(batch)
            least = newest.take(pa.array(first[at]))
            mask = pc.less_equal(least, batch.column(FROM)).to_numpy(zero_copy_only=False)
            late[at[mask]] = True
        if not late.any():
            return None
        return Keys(self._unique.filter(pa.array(late)), self._names)

    def _merged(self, old: list[pa.RecordBatch], columns: pa.Schema) -> tuple[pa.Table, Upserted]:
        """The versions of all keys of the batch, each valid until the next."""
        known = pa.Table.from_batches([conformed(each, columns) for each in old], columns)
        new = pa.Table.from_batches(
            [conformed(each, columns) for each in self._new.to_batches()], columns
        )
        both = pa.concat_tables([known, new])
        is_new = np.arange(both.num_rows) >= known.num_rows
        numbers = _numbers(self._keys, both)
        order = pc.sort_indices(
            pa.table(
                [pa.array(numbers), both[FROM], pa.array(is_new.astype(np.int8))],
                names=[_KEY, FROM, "new"],
            ),
            sort_keys=[(_KEY, "ascending"), (FROM, "ascending"), ("new", "ascending")],
        ).to_numpy()
        sorted_ = both.take(pa.array(order))
        key, starts = numbers[order], sorted_[FROM].combine_chunks()
        same_key = key[1:] == key[:-1]
        if len(starts) > 1:
            same_start = pc.equal(starts[1:], starts[:-1]).to_numpy(zero_copy_only=False)
        else:
            same_start = np.zeros(0, bool)
        first = np.concatenate([[True], ~(same_key & same_start)])[: len(starts)]
        kept, key = sorted_.filter(pa.array(first)), key[first]
        added = int((first & is_new[order]).sum())
        was_current = kept[CURRENT].to_numpy()
        starts = kept[FROM].combine_chunks()
        next_is_same = np.concatenate([key[1:] == key[:-1], [False]])[: len(starts)]
        following = pa.array(np.minimum(np.arange(len(starts)) + 1, max(len(starts) - 1, 0)))
        ends = pc.if_else(pa.array(next_is_same), starts.take(following), None)
        for name, values in ((TO, ends), (CURRENT, pa.array(~next_is_same))):
            kept = kept.set_column(columns.get_field_index(name), columns.field(name), values)
        return kept, Upserted(added, int((was_current & next_is_same).sum()))


def _is_current(file: Active) -> bool:
    return dict(file.stored.partition).get(CURRENT) == "true"


def _has(file: Active, few: Rows, keys: Keys) -> bool:
    """Whether a file has versions of some of the keys."""
    if not keys.may_be_in(dict(file.stored.partition), file.bounds):
        return False
    return any((keys.rows_of(rows) >= 0).any() for rows in few.read([file.stored], _READ_ROWS))


def _numbers(keys: Keys, rows: pa.Table) -> np.ndarray[Any, Any]:
    """For each row, the number of its key."""
    if not rows.num_rows:
        return np.empty(0, np.int64)
    batch = rows.select(list(keys.names)).combine_chunks().to_batches()[0]
    return keys.rows_of(batch)
