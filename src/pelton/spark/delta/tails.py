"""The files and marks of a table on this machine, known from one commit to the next.

``deltalake`` lists the files of a version by going through all of them, so the list takes longer as a table grows.
A `Tail` keeps it, and reads only the commits that are new::

    _delta_log/00000000000000000041.json    known
    _delta_log/00000000000000000042.json    read

It writes nothing: commits are made by `pelton.spark.tables.commits`. A table in an object store has no tail. A table
with reader features has none either, because its commits mean more than files and marks.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pelton.spark.delta.log import identity, relative
from pelton.spark.delta.table import Delta
from pelton.spark.tables.commits import HERE
from pelton.spark.tables.places import TableError
from pelton.spark.tables.table import Active, StoredFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pelton.spark.tables.places import Place

INTERVAL = "delta.checkpointInterval"


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
        self._opened: Delta
        self._log: Path

    def read(self) -> bool:
        """Read the commits that are new; False if the table can have no tail."""
        known = self.version >= 0 and self._known == identity(self._name(self.version))
        if not known and not self._open():
            return False
        while True:
            try:
                text = self._name(self.version + 1).read_bytes()
            except FileNotFoundError:
                return True
            except OSError as problem:
                raise TableError(f"cannot read the log of {self.place}: {problem}") from None
            try:
                actions = [json.loads(line) for line in text.splitlines() if line]
            except ValueError:
                where = self._name(self.version + 1)
                raise TableError(f"{where} is no commit of a table: it is damaged") from None
            if any("metaData" in action or "protocol" in action for action in actions):
                if not self._open():
                    return False
                continue
            self._apply(actions)
            self._now_at(self.version + 1)

    def last(self, query: str) -> int | None:
        """The last batch of a query."""
        if query not in self._marks:
            self._marks[query] = self._opened.last(query)
        return self._marks[query]

    def _open(self) -> bool:
        folder = self.place.folder
        table = HERE.opened(self.place)
        if table is None:
            raise TableError(f"there is no table at {self.place}")
        assert isinstance(table, Delta)  # at a place
        if folder is None or table.table.protocol().min_reader_version > 1:
            self.version = -1
            return False
        self._log = folder / "_delta_log"
        self._opened = table
        # The marks that were not asked for yet are asked of the table when they are.
        self._marks = {name: table.last(name) for name in self._marks}
        self.files = table.snapshot().files if self.with_files else {}
        self._now_at(table.version())
        return True

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
            (name, new["partitionValues"].get(name) or None) for name in self._opened.partition_by()
        )
        return Active(
            new["path"], StoredFile(path, new["size"], partition), new["modificationTime"]
        )
