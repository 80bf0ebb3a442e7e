"""One attempt of a commit to an Iceberg table: files and a mark become part of it, and others go.

One commit holds both, so a table has both or neither::

    property   pelton.query.<query id>   {"number": 7, "run": ..., "rows": ..., "token": ...}
    snapshot   pelton.query, pelton.batch, pelton.token in its summary

The property decides: it stays when snapshots expire. The summary is for users, and identifies a
commit whose answer did not arrive.

A commit requires that the table's newest snapshot is the one that it was made for. ``pyiceberg`` would
repeat it on a snapshot that came between. That is right for rows and wrong for a mark: of two drivers
both would win. So a commit is tried once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import AssertTableUUID
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT, KeyDefaultDict
from pyiceberg.utils.concurrent import ExecutorFactory

from pelton.spark.iceberg.data_files import described
from pelton.spark.iceberg.schemas import in_files
from pelton.spark.tables.table import FilesGoneError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table.metadata import TableMetadata

    from pelton.spark.tables.table import Write

_Changed = tuple["ManifestFile", list[ManifestEntry]]

PROPERTY = "pelton.query."
QUERY, BATCH, TOKEN = "pelton.query", "pelton.batch", "pelton.token"


class _OneAttempt(Transaction):
    """Changes that are committed unchanged, or not at all."""

    _known: tuple[TableMetadata, Any, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with the changes so far. It is asked many times between two changes, and copied once."""
        known, now = self._known, (self._table.metadata, self._updates)
        if known is None or known[0] is not now[0] or known[1] is not now[1]:
            known = self._known = (*now, super().table_metadata)
        return known[2]

    def commit_transaction(self) -> Table:
        """Commit once. Raises ``CommitFailedException`` when another commit came between."""
        same_table = AssertTableUUID(uuid=self.table_metadata.table_uuid)
        self._table._do_commit(
            updates=self._updates, requirements=(*self._requirements, same_table)
        )
        return self._table


class _Replacing(_OverwriteFiles):
    """Files in place of others, with any operation: ``pyiceberg`` counts for some only.

    It reads each manifest once, and leaves out manifests that name only files which earlier commits removed:
    ``pyiceberg`` reads each twice, and keeps them all, so that each commit takes longer than the one before.
    """

    _parts: tuple[list[ManifestFile], list[_Changed]] | None = None

    def _divided(self) -> tuple[list[ManifestFile], list[_Changed]]:
        """The manifests that stay as they are, and those that name removed files, with their entries."""
        if self._parts is not None:
            return self._parts
        snapshot = self._transaction.table_metadata.snapshot_by_name(self._target_branch)
        evaluators = KeyDefaultDict(self._build_manifest_evaluator)  # not asked by several threads
        stay: list[ManifestFile] = []
        asked: list[ManifestFile] = []
        for manifest in snapshot.manifests(self._io) if snapshot else ():
            if not (manifest.has_added_files() or manifest.has_existing_files()):
                continue
            of_rows = manifest.content == ManifestContent.DATA
            may_name = of_rows and evaluators[manifest.partition_spec_id](manifest)
            (asked if may_name else stay).append(manifest)
        changed: list[_Changed] = []
        read = ExecutorFactory.get_or_create().map(self.fetch_manifest_entry, asked)
        for manifest, entries in zip(asked, read, strict=True):
            if any(entry.data_file in self._deleted_data_files for entry in entries):
                changed.append((manifest, entries))
            else:
                stay.append(manifest)
        self._parts = stay, changed
        return self._parts

    def _deleted_entries(self) -> list[ManifestEntry]:
        """What the commit says of the files that it removes."""
        found = [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.DELETED,
                snapshot_id=self._snapshot_id,
                sequence_number=entry.sequence_number,
                file_sequence_number=entry.file_sequence_number,
                data_file=entry.data_file,
            )
            for _, entries in self._divided()[1]
            for entry in entries
            if entry.data_file in self._deleted_data_files
        ]
        self._validate_required_deletes(found)
        return found

    def _existing_manifests(self) -> list[ManifestFile]:
        """The manifests of the files that stay."""
        stay, changed = self._divided()
        found = list(stay)
        for manifest, entries in changed:
            kept = [entry for entry in entries if entry.data_file not in self._deleted_data_files]
            if kept:
                with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
                    for entry in kept:
                        writer.existing(entry)
                found.append(writer.to_manifest_file())
        return found

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        """What the snapshot says of itself."""
        meant, self._operation = self._operation, Operation.OVERWRITE
        try:
            found = super()._summary(snapshot_properties)
        finally:
            self._operation = meant
        return found.model_copy(update={"operation": meant})


def attempt(
    table: Table, write: Write, removed: Sequence[DataFile]
) -> tuple[Table, list[DataFile]]:
    """Commit files and a mark to the table as it was loaded; returns the table then, and the entries of the files.

    ``table`` stays as it is.
    """
    target: Any = write.target
    table = Table(
        table.name(),
        _without_history(table.metadata),
        table.metadata_location,
        table.io,
        table.catalog,
        table.config,
    )
    schema = in_files(table.schemas()[target.schema_id], target.names)
    spec = table.specs()[target.spec_id]
    transaction = _OneAttempt(table)
    if write.mark is not None:
        transaction.set_properties({PROPERTY + write.mark.name: json.dumps(write.note())})
        if not write.files and not write.overwrite and not removed:  # the commit has only a mark
            return transaction.commit_transaction(), []
    summary = _summary(write)
    producer: Any
    if write.overwrite or removed:
        producer = _Replacing(_operation(table, write), transaction, table.io, None, summary)
        for file in removed:
            producer.delete_data_file(file)
    else:
        snapshot = transaction.update_snapshot(snapshot_properties=summary)
        merged = table.properties.get("commit.manifest-merge.enabled", "").lower() == "true"
        producer = snapshot.merge_append() if merged else snapshot.fast_append()
    properties = dict(table.properties)
    files = list(described(write.files, target.folder.uri, schema, spec, properties))
    for file in files:
        producer.append_data_file(file)
    try:
        producer.commit()
    except ValidationException:
        named = {task.file for task in table.scan().plan_files()}
        gone = sorted(file.file_path for file in removed if file not in named)
        if not gone:
            raise
        raise FilesGoneError(f"{len(gone)} files are not in it, such as {gone[0]}") from None
    try:
        transaction.commit_transaction()
    except CommitFailedException:
        # Remove the files that were written for it, unless the commit was made and only its answer
        # did not arrive.
        if not made(table.refresh(), write):
            producer._clean_all_uncommitted()
        raise
    for file in files:
        file.spec_id = target.spec_id  # as of an entry that was read
    return table, files


def _operation(table: Table, write: Write) -> Operation:
    """What a commit that removes files says it does."""
    if table.current_snapshot() is None:
        return Operation.APPEND
    if write.same_rows:
        return Operation.REPLACE
    return Operation.OVERWRITE if write.files or write.overwrite else Operation.DELETE


def _summary(write: Write) -> dict[str, str]:
    """The properties in the summary of the snapshot."""
    if write.mark is None:
        return {TOKEN: write.token}
    return {TOKEN: write.token, QUERY: write.mark.name, BATCH: str(write.mark.number)}


def made(table: Table, write: Write) -> bool:
    """Whether the table has exactly this commit."""
    if write.mark is not None:
        kept = table.properties.get(PROPERTY + write.mark.name, "{}")
        if json.loads(kept).get("token") == write.token:
            return True
    summaries = (snapshot.summary for snapshot in table.metadata.snapshots)
    return any(found is not None and found[TOKEN] == write.token for found in summaries)


def _without_history(metadata: TableMetadata) -> TableMetadata:
    """The metadata of the table without old snapshots.

    A transaction copies its metadata many times. The commit has only changes, which the catalog applies
    to its metadata.
    """
    heads = {ref.snapshot_id for ref in metadata.refs.values()} | {metadata.current_snapshot_id}
    snapshots = [each for each in metadata.snapshots if each.snapshot_id in heads]
    return metadata.model_copy(update={"snapshots": snapshots, "snapshot_log": []})
