"""The newest part of a table's log on this machine, read and written commit by commit.

``deltalake`` builds a table's list of files again with each commit, and lists the folder of the log
several times: both grow with every batch. A `Tail` knows the version, the marks and, if asked, the
files of a table. It reads the commits after them, and writes the next one, so the cost of a commit
depends on the commit alone::

    _delta_log/00000000000000000041.json    known
    _delta_log/00000000000000000042.json    of another writer: read
    _delta_log/00000000000000000043.json    this commit: synced under another name, linked if the name is free

The link is what decides between two writers, as it is for ``deltalake``. A table that asks more of its writers than
files and marks has no tail, neither has one in an object store: their commits are `pelton.spark.tables.commits`'.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pelton.spark.tables.commits import HERE, identity
from pelton.spark.tables.files import StoredFile, relative
from pelton.spark.tables.places import TableError, to_disk
from pelton.spark.tables.replacing import AS_IT_IS, Active, snapshot
from pelton.spark.tables.statistics import STATISTICS_OF

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from deltalake import DeltaTable

    from pelton.spark.tables.commits import Write
    from pelton.spark.tables.data_files import DataFile
    from pelton.spark.tables.places import Place

INTERVAL = "delta.checkpointInterval"
_CLEANUP = "delta.enableExpiredLogCleanup"
_PLAIN = {
    *(INTERVAL, STATISTICS_OF, "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"),
    *(_CLEANUP, "delta.minReaderVersion", "delta.minWriterVersion"),
}
"""Properties that ask nothing of a commit."""


class NoTail(Exception):
    """The log has, or would get, what only ``deltalake`` should write."""


class Tail:
    """The newest part of a log; `read` first. Errors are :class:`TableError`."""

    def __init__(self, place: Place, *, with_files: bool) -> None:
        """Opens nothing. ``with_files``: `files` has the table's files."""
        self.place = place
        self.with_files = with_files
        self.version = -1
        self.files: dict[str, Active] = {}
        """The files by their paths in the log."""
        self._marks: dict[str, int | None] = {}
        self._known: object = None
        self._interval = 0
        self._opened: DeltaTable
        self._log: Path

    def read(self) -> None:
        """Read the commits that are new. :class:`NoTail` if the table can have no tail."""
        if self.version < 0 or self._known != identity(self._name(self.version)):
            self._open()
        while True:
            try:
                text = self._name(self.version + 1).read_bytes()
            except FileNotFoundError:
                return
            except OSError as problem:
                raise TableError(f"cannot read the log of {self.place}: {problem}") from None
            try:
                actions = [json.loads(line) for line in text.splitlines() if line]
            except ValueError:
                where = self._name(self.version + 1)
                raise TableError(f"{where} is no commit of a table: it is damaged") from None
            if any("metaData" in action or "protocol" in action for action in actions):
                self._open()
                continue
            self._apply(actions)
            self._now_at(self.version + 1)

    def last(self, name: str) -> int | None:
        """The last number of a mark's name."""
        if name not in self._marks:
            self._marks[name] = self._opened.transaction_version(name)
        return self._marks[name]

    def commit(self, write: Write, removed: Sequence[Active]) -> bool:
        """Add the files of ``write`` and remove others in one commit behind all that was read.

        False, and nothing is done, if another writer was first: `read` again.
        """
        actions = [_info(write), *map(_removal, removed), *map(_addition, write.files)]
        if write.mark is not None:
            told = {"appId": write.mark.name, "version": write.mark.number}
            actions.append({"txn": told | {"lastUpdated": int(time.time() * 1000)}})
        text = "".join(f"{json.dumps(action, separators=(',', ':'))}\n" for action in actions)
        try:
            if not self._put(self._name(self.version + 1), text.encode()):
                return False
        except OSError as problem:
            raise TableError(f"cannot commit to the table {self.place}: {problem}") from None
        self._apply(actions)
        self._now_at(self.version + 1)
        if self._interval and self.version % self._interval == 0:
            self._checkpoint()
        return True

    def _open(self) -> None:
        folder = self.place.folder
        table = HERE.opened(self.place)
        if table is None:
            raise TableError(f"there is no table at {self.place}")
        if folder is None or not _is_plain(table):
            raise NoTail
        self._log = folder / "_delta_log"
        self._opened = table
        # The marks that were not asked for yet are asked of the table when they are.
        self._marks = {name: table.transaction_version(name) for name in self._marks}
        self.files = snapshot(table).files if self.with_files else {}
        self._interval = int(table.metadata().configuration.get(INTERVAL, "100"))
        self._now_at(table.version())

    def _name(self, version: int) -> Path:
        return self._log / f"{version:020}.json"

    def _now_at(self, version: int) -> None:
        self.version = version
        self._known = identity(self._name(version))

    def _apply(self, actions: Sequence[Mapping[str, Any]]) -> None:
        for action in actions:
            if (txn := action.get("txn")) is not None:
                self._marks[txn["appId"]] = txn["version"]
            if not self.with_files:
                continue
            if (gone := action.get("remove")) is not None:
                self.files.pop(gone["path"], None)
            if (new := action.get("add")) is not None:
                self.files[new["path"]] = self._active(new)

    def _active(self, new: Mapping[str, Any]) -> Active:
        path = relative(new["path"], self.place.uri)
        # An empty text is a null in the protocol.
        partition = tuple(
            (name, new["partitionValues"].get(name) or None)
            for name in self._opened.metadata().partition_columns
        )
        return Active(
            new["path"], StoredFile(path, new["size"], partition), new["modificationTime"]
        )

    def _put(self, path: Path, text: bytes) -> bool:
        """Write a commit if no other has its name."""
        other = path.with_name(f"_commit_{uuid.uuid4().hex}.json.tmp")
        try:
            with other.open("xb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(other, path)
            except FileExistsError:
                return False
        finally:
            other.unlink(missing_ok=True)
        to_disk(self._log)
        return True

    def _checkpoint(self) -> None:
        """Write the state after all commits as one file, and remove expired commits. It only makes opening faster."""
        from deltalake.exceptions import DeltaError

        try:
            table = HERE.opened(self.place)
            if table is not None and table.version() == self.version:
                table.create_checkpoint()
                if table.metadata().configuration.get(_CLEANUP) != "false":
                    table.cleanup_metadata()
        except (DeltaError, OSError, TableError):
            HERE.forget(self.place)


def _is_plain(table: DeltaTable) -> bool:
    protocol, metadata = table.protocol(), table.metadata()
    return (
        protocol.min_reader_version == 1
        and protocol.min_writer_version <= 2
        and metadata.configuration.keys() <= _PLAIN
        and "delta.invariants" not in table.schema().to_json()
    )


def _info(write: Write) -> dict[str, Any]:
    told: dict[str, Any] = {
        "timestamp": int(time.time() * 1000),
        "operation": "WRITE",
        "operationParameters": {
            "mode": "Append",
            "partitionBy": json.dumps(list(write.partition_by or ())),
        },
        "isBlindAppend": False,
        "engineInfo": "pelton",
    }
    return {"commitInfo": told | write.note()}


def _removal(file: Active) -> dict[str, Any]:
    return {
        "remove": {
            "path": file.logged,
            "dataChange": True,
            "deletionTimestamp": int(time.time() * 1000),
            "extendedFileMetadata": True,
            "partitionValues": dict(file.stored.partition),
            "size": file.stored.size,
        }
    }


def _addition(file: DataFile) -> dict[str, Any]:
    return {
        "add": {
            "path": quote(file.path, safe=AS_IT_IS),
            "partitionValues": dict(file.partition),
            "size": file.size,
            "modificationTime": file.written_ms,
            "dataChange": True,
            "stats": file.stats,
        }
    }
