"""A disk in memory that does as it is told: what stands behind PyDisk while files are fuzzed."""

from __future__ import annotations

import errno


class MemoryDisk:
    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = {name: bytearray(data) for name, data in (files or {}).items()}
        self.folders = {name.rpartition("/")[0] for name in self.files}
        self.handles: dict[int, bytearray] = {}
        self.next_handle = 3

    def open(self, path: str, create: bool) -> int:
        if path in self.folders:
            raise IsADirectoryError(errno.EISDIR, "a folder", path)
        if path not in self.files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.files[path] = bytearray()
        self.next_handle += 1
        self.handles[self.next_handle] = self.files[path]
        return self.next_handle

    def close(self, handle: int) -> None:
        del self.handles[handle]

    def write_at(self, handle: int, data: bytes, offset: int) -> None:
        content = self.handles[handle]
        if offset > len(content):
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data

    def read_at(self, handle: int, n: int, offset: int) -> bytes:
        return bytes(self.handles[handle][offset : offset + n])

    def sync(self, handle: int) -> None:
        pass

    def size(self, handle: int) -> int:
        return len(self.handles[handle])

    def truncate(self, handle: int, size: int) -> None:
        content = self.handles[handle]
        del content[size:]
        content.extend(bytes(size - len(content)))

    def make_dir(self, path: str) -> None:
        while path not in self.folders:
            self.folders.add(path)
            path = path.rpartition("/")[0]

    def list_dir(self, path: str) -> list[str]:
        start = path + "/"
        names = [*self.files, *self.folders]
        return sorted({n[len(start) :].partition("/")[0] for n in names if n.startswith(start)})

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def rename(self, old: str, new: str) -> None:
        if old in self.files:
            self.files[new] = self.files.pop(old)
            return
        start = old + "/"
        self.files = {
            (new + name[len(old) :] if name.startswith(start) else name): data
            for name, data in self.files.items()
        }
        self.folders = {
            new + name[len(old) :] if (name + "/").startswith(start) else name
            for name in self.folders
        }

    def unlink(self, path: str) -> None:
        self.files.pop(path, None)

    def remove_tree(self, path: str) -> None:
        start = path + "/"
        self.files = {n: data for n, data in self.files.items() if not n.startswith(start)}
        self.folders = {n for n in self.folders if not (n + "/").startswith(start)}

    def sync_dir(self, path: str) -> None:
        pass

    def open_folder(self, path: str) -> int:
        if path not in self.folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        self.next_handle += 1
        self.handles[self.next_handle] = bytearray()
        return self.next_handle

    def copy(self) -> dict[str, bytes]:
        """What is in its files."""
        return {name: bytes(data) for name, data in self.files.items()}
