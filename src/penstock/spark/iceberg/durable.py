"""Files of Iceberg tables that are on the disk before anybody names them.

A catalog names a metadata file, that names manifests, those name data files. On a local disk each is
forced out when it is closed, and its name in the folder with it, so that no power failure leaves a
name of something that is not there. On object stores a file that was closed is there.

``pyiceberg`` makes the class by its name, which a catalog's property ``py-io-impl`` says.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO, PyArrowLocalFileSystem

from penstock.spark.tables.places import to_disk

if TYPE_CHECKING:
    from pyarrow import fs

NAME = f"{__name__}.DurableFileIO"
"""What ``py-io-impl`` is set to."""


class _Forced(io.FileIO):
    """A file that is on the disk when it is closed."""

    def close(self) -> None:
        """Return when the file and its name are there."""
        if self.closed:
            return
        os.fsync(self.fileno())
        super().close()
        to_disk(Path(os.fsdecode(str(self.name))).parent)


class _DurableFolder(PyArrowLocalFileSystem):
    """This machine's files."""

    def open_output_stream(self, path: str, *args: Any, **kwargs: Any) -> pa.NativeFile:
        """A file that is on the disk when it is closed; folders are made."""
        new = []
        folder = Path(path).parent
        while not folder.exists():
            new.append(folder)
            folder = folder.parent
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        for made in new:
            to_disk(made.parent)
        return pa.PythonFile(io.BufferedWriter(_Forced(path, "wb"), 2**20), mode="w")


class DurableFileIO(PyArrowFileIO):
    """``pyiceberg``'s own way to files through Arrow, with this machine's forced to the disk."""

    def _initialize_local_fs(self) -> fs.FileSystem:
        return _DurableFolder()
