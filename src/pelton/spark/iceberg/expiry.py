"""Expiry of Iceberg tables: old snapshots go, and files that nothing names.

Each commit leaves files and a snapshot, which every later commit writes again; a batch that dies leaves
files.

==========  =====================================================================================
snapshots   those that were replaced more than ``keep_hours`` ago expire; those of branches and
            tags stay
files       older files in the table's folder that no snapshot names are removed: data files with
            names of this writer, manifests and metadata
==========  =====================================================================================

So the table can be read as it was at any time of the last ``keep_hours``, and the files of a running
reader or batch stay as long.
"""

from __future__ import annotations

import itertools
import re
import time
from typing import TYPE_CHECKING

from pyarrow import fs
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO

from pelton.spark.iceberg.catalogs import data_folder, load
from pelton.spark.iceberg.commits import QUERY
from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from pelton.spark.iceberg.options import Address
    from pelton.spark.tables.maintenance import Plan

_TRIES = 5
_OUR_DATA = re.compile(
    r".+-[0-9a-f]{12}-[0-9]{5,}-[0-9]+(-p[0-9]{4}of[0-9]{4})?-[0-9]{3,}\.parquet"
)
_METADATA = re.compile(r".+\.avro|[0-9]+-.+\.metadata\.json")


def expire(address: Address, plan: Plan) -> tuple[list[str], int]:
    """Expire old snapshots of a table, and remove unused files; returns the files, and the number of snapshots."""
    before = int((time.time() - plan.keep_hours * 3600) * 1000)
    table, expired = _expire(address, before, batch_stays=plan.batch_stays, dry_run=plan.dry_run)
    named = set(_named(table, expired))
    removed = sorted(_remove(table, address, named, before, dry_run=plan.dry_run))
    return removed, len(expired)


def _table(address: Address) -> Table:
    table = load(address)
    if table is None:
        raise TableError(f"there is no table {address}")
    return table


def _expire(
    address: Address, before: int, *, batch_stays: bool, dry_run: bool
) -> tuple[Table, set[int]]:
    """Expire the old snapshots; returns the table without them, and their ids."""
    for attempt in range(_TRIES):
        table = _table(address)
        kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
        if batch_stays:
            kept |= _of_newest_batch(table.metadata)
        replaced = replaced_ms(table.metadata)
        old = {number for number, when in replaced.items() if when < before} - kept
        if not old or dry_run:
            return table, old
        try:
            table.maintenance.expire_snapshots().by_ids(list(old)).commit()
        except CommitFailedException:
            time.sleep(0.05 * 2**attempt)
            continue
        except ValueError:
            left = {each.snapshot_id for each in _table(address).metadata.snapshots}
            if old <= left:
                raise
            continue  # another maintenance has expired some of them
        return _table(address), old
    raise TableError(
        f"other writers change {address} each time before the expiry of its snapshots is committed"
    )


def _of_newest_batch(metadata: TableMetadata) -> set[int]:
    """The newest snapshot of a query, and the one before it."""
    for snapshot in reversed(metadata.snapshots):
        if snapshot.summary is not None and snapshot.summary[QUERY] is not None:
            return {snapshot.snapshot_id, snapshot.parent_snapshot_id or 0}
    return set()


def replaced_ms(metadata: TableMetadata) -> dict[int, int]:
    """When each snapshot was replaced by a later one, or made, if none is known that replaced it."""
    found = {each.snapshot_id: each.timestamp_ms for each in metadata.snapshots}
    followed = [
        (each.parent_snapshot_id, each.timestamp_ms)
        for each in metadata.snapshots
        if each.parent_snapshot_id is not None
    ]
    log = metadata.snapshot_log
    followed += [(old.snapshot_id, new.timestamp_ms) for old, new in itertools.pairwise(log)]
    for number, when in followed:
        if number in found:
            found[number] = max(found[number], when)
    return found


def _named(table: Table, expired: set[int]) -> Iterator[str]:
    """Paths of all files that the table names without the expired snapshots."""
    metadata, io = table.metadata, table.io
    yield _path(table.metadata_location)
    yield from (_path(entry.metadata_file) for entry in metadata.metadata_log)
    yield from (_path(each.statistics_path) for each in metadata.statistics)
    read: set[str] = set()
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id in expired:
            continue
        yield _path(snapshot.manifest_list)
        for manifest in snapshot.manifests(io):
            if manifest.manifest_path in read:
                continue
            read.add(manifest.manifest_path)
            yield _path(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
                yield _path(entry.data_file.file_path)


def _path(uri: str) -> str:
    """The path of a file, the same for all spellings of its address."""
    return PyArrowFileIO.parse_location(uri)[2].lstrip("/")


def _remove(
    table: Table, address: Address, named: set[str], before: int, *, dry_run: bool
) -> Iterator[str]:
    """Remove old files from the table's folders that are not named; returns their paths."""
    data = data_folder(table, address)
    location = table.properties.get("write.metadata.path") or f"{table.location()}/metadata"
    for uri, ours in ((data.uri, _OUR_DATA), (location.rstrip("/"), _METADATA)):
        scheme, host, root = PyArrowFileIO.parse_location(uri, table.io.properties)
        assert isinstance(table.io, PyArrowFileIO)  # data_folder has checked it
        system = table.io.fs_by_scheme(scheme, host)
        chosen = fs.FileSelector(root, recursive=True, allow_not_found=True)
        for found in system.get_file_info(chosen):
            wanted = found.is_file and ours.fullmatch(found.base_name) is not None
            if not wanted or found.path.lstrip("/") in named:
                continue
            if found.mtime is None or found.mtime.timestamp() * 1000 >= before:
                continue
            if dry_run or _deleted(system, found.path):
                yield found.path


def _deleted(system: fs.FileSystem, path: str) -> bool:
    """Delete a file; False if another maintenance has deleted it."""
    try:
        system.delete_file(path)
    except FileNotFoundError:
        return False
    return True
