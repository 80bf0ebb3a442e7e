"""Merges: the rows of a batch replace older rows with the same keys, in one commit.

The merge reads a few columns of each file that may hold such rows, file after file, and rewrites a
file only when one of its rows changes::

    file       rows of the batch's keys     the file is
    a          none                         left, and mostly not even opened
    b          none that is older           left
    c          some                         removed; its other rows and the newer ones are written

When other writers have committed since the plan, the written files stay valid as long as no file with rows
of these keys was removed or added; then only the commit is repeated. Otherwise the whole merge is.

A merge needs a few times the memory of the batch, five bytes for each row of a file, and the row
groups that it is writing. The library of a format merges tables with their own rules, because it enforces these;
the files that it wrote are then rewritten. Does not depend on Spark or the format.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pelton.spark.tables.commits import Tables, check_there
from pelton.spark.tables.compaction import rewrite
from pelton.spark.tables.evolution import conformed
from pelton.spark.tables.key_matching import Keys
from pelton.spark.tables.places import TableError
from pelton.spark.tables.rows import ahead
from pelton.spark.tables.table import Active, Snapshot, Table, Upserted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pelton.spark.tables.table import KeyedRows, Rows, Target, Write

FILE_BYTES = 128 * 2**20
_READ_ROWS = 32 * 1024
_LOOKED_UP_ROWS = 256 * 1024
DELETED_AT = "deleted_at"
"""The column of a table that keeps deleted rows for a time: when the row was deleted."""
_Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Made:
    """The computed and written result of a merge, and the version that it is based on."""

    of: Snapshot
    concerned: frozenset[str]
    removed: tuple[Active, ...]
    files: tuple[Any, ...]
    target: Target
    did: Upserted


@dataclass
class _Found:
    """For each row of a file: the batch's row with its key, or -1; and whether it changes the row:
    if it is newer, or if the batch has sums.
    """

    file: Active
    rows: int = 0
    at: _Numbers = field(default_factory=lambda: np.empty(0, np.int32))
    newer: _Numbers = field(default_factory=lambda: np.empty(0, bool))


class Merge:
    """The merge of one batch into one table."""

    def __init__(self, batch: KeyedRows, write: Write, forget_before: float | None = None) -> None:
        """Rows that were deleted before ``forget_before`` are left out of the files that it writes.

        Raises :class:`TableError` when two rows have the same key, or sequences are nested."""
        if pa.types.is_nested(batch.rows.schema.field(batch.sequence).type):
            raise TableError(
                f"upsert: {batch.sequence} must be a plain value, by which rows are newer"
            )
        self._batch = batch
        self._write = write
        self._forget = (
            None
            if forget_before is None
            else pa.scalar(int(forget_before * 1_000_000)).cast(pa.timestamp("us", "UTC"))
        )
        self._keys = Keys(batch.rows, batch.keys)
        self._sequence = batch.rows.column(batch.sequence).combine_chunks()
        self._deletes: _Numbers = batch.deletes.to_numpy(zero_copy_only=False)
        self._made: _Made | None = None
        self._by_rules = Upserted()

    @property
    def did(self) -> Upserted:
        """The counts of the last commit."""
        return self._made.did if self._made else self._by_rules

    def commit(self, table: Table) -> None:
        """Commit the merge on the table as it was opened.

        Fails as the format does when there is a newer version; then it can be called again. Raises
        :class:`TableError` when the rows don't fit.
        """
        table.widen(self._write)
        if (found := table.merge_by_rules(self._batch, self._write)) is not None:
            self._made = None
            self._by_rules, files = found
            groups = [(file,) for file in files if table.can_replace(file)]
            rewrite(Tables(), table.where, groups)
            return
        now, columns = table.snapshot(self._batch.keys), table.columns()
        made = self._made
        if made is None or not self._stands(made, now, table, columns):
            made = self._made = self._make(now, table, columns)
        write = replace(
            self._write,
            schema=columns,
            files=made.files,
            removed=made.removed,
            replaces=True,
            alone=True,
            target=made.target,
            did=vars(made.did),
        )
        check_there(table.where, write)
        table.commit(write)

    def _stands(self, made: _Made, now: Snapshot, table: Table, columns: pa.Schema) -> bool:
        """Whether a merge into the newer version would be the same."""
        if made.of.definition != now.definition or not made.concerned <= now.files.keys():
            return False
        added = [file for path, file in now.files.items() if path not in made.of.files]
        return not any((each.at >= 0).any() for each in self._found(added, table, columns))

    def _make(self, now: Snapshot, table: Table, columns: pa.Schema) -> _Made:
        concerned, removed = [], []
        found = np.zeros(self._batch.rows.num_rows, bool)
        updated = deleted = 0
        table.check_keys(self._batch)
        target, rows = table.target(columns), table.rows(columns)
        name = f"upsert-{uuid.uuid4().hex[:12]}-00000-0"
        with target.open(name, bytes_per_file=FILE_BYTES) as out:
            for each in self._found(now.files.values(), table, columns):
                file, at, newer = each.file, each.at, each.newer
                there = at[at >= 0]
                if not there.size:
                    continue
                found[there] = True
                concerned.append(file.logged)
                if file.logged in now.with_deletions:
                    raise TableError(
                        f"{file.logged} of {table.where} has rows that are deleted in place"
                        " (deletion vectors, delete files), which an upsert does not take into account"
                    )
                if not newer.any():
                    continue
                removed.append(file)
                gone = int(self._deletes[at[newer]].sum())
                deleted += gone
                updated += int(newer.sum()) - gone
                for batch in self._rewritten(file, rows, columns, at, newer):
                    out.write(batch)
            new = ~found & ~self._deletes
            for batch in self._inserted(new, columns):
                out.write(batch)
            files = out.finish()
        did = Upserted(int(new.sum()), updated, deleted)
        return _Made(now, frozenset(concerned), tuple(removed), tuple(files), target, did)

    def _candidates(self, files: Iterable[Active]) -> Iterator[Active]:
        """The files that may hold rows of the batch's keys, partition by partition."""
        may = [
            file for file in files if self._keys.may_be_in(dict(file.stored.partition), file.bounds)
        ]
        yield from sorted(may, key=lambda one: (str(one.stored.partition), one.order))

    def _found(self, files: Iterable[Active], table: Table, schema: pa.Schema) -> Iterator[_Found]:
        """The matches of the batch in those of the files that may hold some of its keys.

        It looks up many rows at a time, because each lookup costs about as much as the batch has rows.
        """
        names = {*self._batch.keys, self._batch.sequence}
        few = table.rows(pa.schema([one for one in schema if one.name in names]))
        at_once = max(_LOOKED_UP_ROWS, 2 * self._batch.rows.num_rows)
        begun: list[_Found] = []
        waiting: list[pa.RecordBatch] = []
        many = 0
        for file in self._candidates(files):
            begun.append(_Found(file))
            for rows in few.read([file.stored], _READ_ROWS):
                begun[-1].rows += rows.num_rows
                waiting.append(rows)
                many += rows.num_rows
                if many >= at_once:
                    self._look_up(waiting, begun)
                    waiting, many = [], 0
            if waiting and len(begun[-1].at):  # the rest of a large file
                self._look_up(waiting, begun)
                waiting, many = [], 0
            if not waiting:
                yield from begun
                begun = []
        if waiting:
            self._look_up(waiting, begun)
        yield from begun

    def _look_up(self, waiting: list[pa.RecordBatch], begun: list[_Found]) -> None:
        """Look up rows, which belong to the files in ``begun`` that are not complete, in order."""
        schema = waiting[0].schema
        columns = [pa.concat_arrays([each[one] for each in waiting]) for one in schema.names]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        at = self._keys.rows_of(rows)
        newer = at >= 0 if self._batch.sums else self._newer(at, rows.column(self._batch.sequence))
        done = 0
        for each in begun:
            more = each.rows - len(each.at)
            each.at = np.concatenate([each.at, at[done : done + more]])
            each.newer = np.concatenate([each.newer, newer[done : done + more]])
            done += more

    def _newer(self, found: _Numbers, sequence: pa.Array) -> _Numbers:
        there = found >= 0
        newer = np.zeros(len(found), bool)
        if there.any():
            ours = self._sequence.take(pa.array(found[there]))
            theirs = sequence.filter(pa.array(there))
            above = pc.greater(ours, theirs)
            if pa.types.is_floating(ours.type):  # a NaN is greater than all numbers, as in Spark
                above = pc.or_(above, pc.and_not(pc.is_nan(ours), pc.is_nan(theirs)))
            newer[there] = above.fill_null(False).to_numpy(zero_copy_only=False)
        return newer

    def _rewritten(
        self, file: Active, reader: Rows, schema: pa.Schema, at: _Numbers, newer: _Numbers
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a file: rows that stay, and rows that newer ones replace."""
        begin = 0
        for rows in ahead(reader.read([file.stored], _READ_ROWS)):
            end = begin + rows.num_rows
            changed, ours = newer[begin:end], at[begin:end]
            begin = end
            if not changed.any():
                yield self._remembered(rows)
                continue
            yield self._remembered(rows.filter(pa.array(~changed)))
            update = changed.copy()
            update[changed] = ~self._deletes[ours[changed]]
            old = rows.filter(pa.array(update))
            columns = self._merged(old, ours[update])
            yield from _as(schema, [columns[one.name] for one in schema])
        if begin != len(at):
            raise TableError(f"{file.logged} changed while it was read")

    def _remembered(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows without those that were deleted long ago."""
        if self._forget is None or DELETED_AT not in rows.schema.names:
            return rows
        gone = pc.less(rows[DELETED_AT], self._forget).fill_null(False)
        return rows.filter(pc.invert(gone)) if gone.true_count else rows

    def _merged(self, old: pa.RecordBatch, at: _Numbers) -> dict[str, Any]:
        """The columns of rows of a file, with those of the batch's rows ``at`` in their place."""
        batch = self._batch
        new = batch.rows.take(pa.array(at))
        columns = {name: old[name] for name in old.schema.names}
        if not batch.sums:
            return columns | {name: new[name] for name in new.column_names}
        newer = pa.array(self._newer(at, old[batch.sequence]))
        for name in new.column_names:
            if name in batch.sums:
                try:
                    both = pc.add_checked(old[name], new[name])
                except pa.ArrowInvalid:
                    raise TableError(f"upsert: the sum of {name} is too large for it") from None
                columns[name] = pc.coalesce(both, old[name], new[name])
            else:
                columns[name] = pc.if_else(newer, new[name], old[name])
        return columns

    def _inserted(self, new: _Numbers, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Rows whose keys the table lacks; columns that the batch lacks are null."""
        rows = self._batch.rows.filter(pa.array(new))
        names = {*rows.column_names}
        columns = [
            rows[one.name] if one.name in names else pa.nulls(rows.num_rows, one.type)
            for one in schema
        ]
        yield from _as(schema, columns)


def _as(schema: pa.Schema, columns: list[pa.ChunkedArray]) -> Iterator[pa.RecordBatch]:
    """Columns as rows of a table, which another writer may have given more fields meanwhile."""
    for batch in pa.table(columns, names=schema.names).to_batches(_READ_ROWS):
        yield conformed(batch, schema)
