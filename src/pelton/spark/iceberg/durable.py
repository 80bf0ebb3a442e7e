"""Files of Iceberg tables that are synced before another file names them.

A catalog names a metadata file, this names manifests, and these name data files. On a local disk each
file is synced when it is closed, together with its name in the folder, so that after a power cut no
name refers to a missing file. In object stores a closed file is durable.

``pyiceberg`` creates the class by its name in the catalog's property ``py-io-impl``.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO, PyArrowLocalFileSystem

from pelton.spark.tables.places import to_disk

if TYPE_CHECKING:
    from pyarrow import fs

NAME = f"{__name__}.DurableFileIO"
"""The value for ``py-io-impl``."""


class _Forced(io.FileIO):
    """A file that is synced when it is closed."""

    def close(self) -> None:
        """Sync the file and its name, and close it."""
        if self.closed:
            return
        os.fsync(self.fileno())
        super().close()
        to_disk(Path(os.fsdecode(str(self.name))).parent)


class _DurableFolder(PyArrowLocalFileSystem):
    """The file system of this machine."""

    def open_output_stream(self, path: str, *args: Any, **kwargs: Any) -> pa.NativeFile:
        """Create a file that is synced when it is closed, and its folders."""
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
    """``pyiceberg``'s access to files through Arrow, with synced files on this machine."""

    def _initialize_local_fs(self) -> fs.FileSystem:
        return _DurableFolder()
