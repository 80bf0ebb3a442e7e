"""The location of a table: a folder of this machine, or a URL of an object store; and its files.

=====================  ============================================================
a path, ``file://``    pyarrow's own file system, and files reach the disk before they are named
``s3://``, ``s3a://``  the object store that ``deltalake`` has built in, with the options it knows
``gs://``              (``aws_access_key_id``, ``aws_endpoint_url``, ...)
``az://``, ``abfss://``
=====================  ============================================================

Does not depend on Spark; uses of Delta only that ``deltalake`` opens the same locations.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from pelton.spark.parsing import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyarrow import fs

_COLOURS = re.compile("\x1b\\[[0-9;]*m")
_FRAME = re.compile(r"[0-9]+: |at /|stack backtrace:")
_OBJECT_STORES = ("s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss")


class TableError(RuntimeError):
    """A table cannot be read or written as asked.

    The text says in one line which table, why, and what would help, without the colours and traces in the
    errors of libraries.
    """

    def __init__(self, text: str) -> None:
        """``text`` may have any number of lines."""
        lines = (line.strip() for line in _COLOURS.sub("", text).splitlines())
        super().__init__(" ".join(line for line in lines if line and not _FRAME.match(line)))


class Folder(Protocol):
    """The location of a table's files: a file system, and the folder if it is on this machine."""

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None when it is elsewhere."""

    def files(self) -> fs.FileSystem:
        """The file system; paths are relative to the folder."""


@dataclass(frozen=True)
class Place:
    """The root of a table; picklable, since it travels to the executors. ``storage`` may hold
    secrets.
    """

    uri: str
    storage: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        """The address, and only the names of the storage options."""
        names = ", ".join(name for name, _ in self.storage)
        return f"Place({self.uri!r}{', storage ' + names if names else ''})"

    def __str__(self) -> str:
        """The address."""
        return self.uri

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None when the table is elsewhere."""
        return None if "://" in self.uri else Path(self.uri)

    @property
    def storage_options(self) -> dict[str, str]:
        """The options that ``deltalake`` takes with the address."""
        return dict(self.storage)

    def files(self) -> fs.FileSystem:
        """The table's folder as a file system; paths are relative to it."""
        from pyarrow import fs

        folder = self.folder
        if folder is not None:
            return fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        handler: Any = DeltaStorageHandler(self.uri, self.storage_options)
        return fs.PyFileSystem(handler)


def place(given: str | os.PathLike[str], storage: Mapping[str, str] | None = None) -> Place:
    """The location that a user names; a relative path starts at the current directory.

    Raises :class:`OptionError` for an address of another kind.
    """
    text = os.fspath(given)
    options = tuple(sorted((storage or {}).items()))
    scheme = urlsplit(text).scheme if "://" in text else ""
    if not scheme and text.startswith("file:/"):
        scheme, text = "file", "file://" + text.removeprefix("file:")
    if scheme in _OBJECT_STORES:
        return Place(text.rstrip("/"), options)
    if scheme not in ("", "file") or not text:
        known = ", ".join(f"{name}://" for name in _OBJECT_STORES)
        raise OptionError(f"the table's path is {text!r}, but must be a folder or one of {known}")
    if scheme:
        text = unquote(urlsplit(text).path)
    return Place(str(Path(text).absolute()), options)


def to_disk(path: Path) -> None:
    """Sync a file, or the names in a folder; returns when they are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
