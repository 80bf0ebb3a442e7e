"""Files of the machine under other names, as a disk that is only read.

The files of a folder that a server writes in are held open, as they were at one moment
(core/base/readonly_disk). All others are opened when they are read.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from pelton.core.base.disk import open_to_read
from pelton.core.base.readonly_disk import hold_once

if TYPE_CHECKING:
    from collections.abc import Iterable

TRIES_MAX = 100


class MappedFiles:
    """The target of a PyDisk: names of files and folders, and where the files are."""

    def __init__(self) -> None:
        """No files yet."""
        self._files: dict[str, str] = {}  # name -> path
        self._held: dict[str, tuple[int, int]] = {}  # path -> (handle, size at that moment)
        self._folders: dict[str, set[str]] = {}  # folder -> names in it
        self._sizes: dict[int, int] = {}  # handle that was given out -> size

    def release(self) -> None:
        """Close the open files."""
        for handle, _ in self._held.values():
            os.close(handle)
        self._held.clear()

    # -- filling

    def add_folder(self, name: str) -> None:
        """Add a folder, and those that it is in."""
        while name not in self._folders:
            self._folders[name] = set()
            above, _, last = name.rpartition("/")
            if not last:
                return
            self.add_folder(above)
            self._folders[above].add(last)

    def add_file(self, name: str, path: str) -> None:
        """Add a file, and the folder that it is in."""
        folder, _, last = name.rpartition("/")
        self.add_folder(folder)
        self._folders[folder].add(last)
        self._files[name] = path

    def add_all(self, name: str, path: str, *, hold: bool) -> bool:
        """Add the files of one folder; ``hold``: as they are now. False: there is no such folder.

        OSError EBUSY when they change faster than they can be opened.
        """
        if hold:
            held = _hold(path)
            if held is None:
                return False
            self._held |= held
            found: Iterable[str] = held
        else:
            try:
                found = [
                    each.path for each in os.scandir(path) if each.is_file(follow_symlinks=False)
                ]
            except FileNotFoundError:
                return False
        self.add_folder(name)
        for each in found:
            self.add_file(f"{name}/{os.path.basename(each)}", each)
        return True

    def drop(self, name: str) -> None:
        """Remove a folder with everything in it."""
        for each in [file for file in self._files if file.startswith(f"{name}/")]:
            held = self._held.pop(self._files.pop(each), None)
            if held is not None:
                os.close(held[0])
        for each in [f for f in self._folders if f == name or f.startswith(f"{name}/")]:
            del self._folders[each]
        above, _, last = name.rpartition("/")
        self._folders.get(above, set()).discard(last)

    def content(self, name: str) -> bytes | None:
        """The bytes of a file; None: there is none."""
        if name not in self._files:
            return None
        handle = self.open(name, False)
        try:
            return self.read_at(handle, self.size(handle), 0)
        finally:
            self.close(handle)

    # -- the verbs of a disk

    def open(self, name: str, create: bool) -> int:
        """A handle for reading; OSError."""
        path = self._files.get(name)
        if path is None:
            if create or name in self._folders:
                self._refuse(name)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        if path not in self._held:
            return open_to_read(path)
        kept, size = self._held[path]
        handle = os.dup(kept)
        self._sizes[handle] = size
        return handle

    def close(self, handle: int) -> None:
        """Close a handle."""
        self._sizes.pop(handle, None)
        os.close(handle)

    def read_at(self, handle: int, n: int, offset: int) -> bytes:
        """As much as there is; b"" at the end."""
        limit = self._sizes.get(handle)
        if limit is not None:
            n = min(n, max(limit - offset, 0))
        parts = []
        while n > 0 and (part := os.pread(handle, n, offset)):
            parts.append(part)
            n -= len(part)
            offset += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def size(self, handle: int) -> int:
        """The size of a file."""
        limit = self._sizes.get(handle)
        return os.fstat(handle).st_size if limit is None else limit

    def list_dir(self, name: str) -> list[str]:
        """Names in a folder, sorted."""
        return sorted(self._folders.get(name, ()))

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of that name."""
        return name in self._files or name in self._folders

    def is_dir(self, name: str) -> bool:
        """Whether it is a folder."""
        return name in self._folders

    def sync(self, handle: int) -> None:
        """Nothing to do."""

    def sync_dir(self, name: str) -> None:
        """Nothing to do."""

    def _refuse(self, name: object, *_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(name))

    write_at = truncate = make_dir = rename = link = unlink = remove_tree = _refuse


def _hold(path: str) -> dict[str, tuple[int, int]] | None:
    for _ in range(TRIES_MAX):
        try:
            names = sorted(os.listdir(path))
        except FileNotFoundError:
            return None
        held = hold_once(path, names)
        if held is not None:
            return held
    raise OSError(errno.EBUSY, "its files change too fast", path)
