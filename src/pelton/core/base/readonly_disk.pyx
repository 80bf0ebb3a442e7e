"""Disks for readers: `ReadOnlyDisk` refuses writes, `OverlayDisk` keeps writes in memory.

`ReadOnlyDisk` opens files for reading. It can hold a folder as it was at one moment, also while a server writes in it: it opens all
files, then checks that every name still belongs to the file that it opened, and repeats this if not. So the reader sees each file
up to its size at the open, and no file that others depend on is missing. A power cut at that moment could have left this state
(everything written, nothing half removed).

`OverlayDisk` lies over another disk: writes, renames and removals go to memory, and `changes()` lists what they would have
changed. Recovery on it finds exactly what an opening would find.

Knows nothing of the contents of the files.
"""
import errno as codes
import os
import stat

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy
from pelton.core.base.disk cimport Disk

from pelton.core.base.disk import check_regular, open_to_read

cdef enum:
    TRIES_MAX = 100
    LARGE_BYTES = 65536           # of a read that counts as progress


def refuse(path: str = "") -> None:
    """OSError EROFS."""
    raise OSError(codes.EROFS, os.strerror(codes.EROFS), path)


cdef class ReadOnlyDisk(Disk):
    """The machine's disk, for reading."""

    def __cinit__(self) -> None:
        self.held = {}
        self.sizes = {}
        self.folders = {}

    def __del__(self) -> None:
        for handle, _ in self.held.values():
            os.close(handle)

    cdef int open(self, str path, bint create) except -1:
        cdef int handle
        if path in self.held:
            kept, size = self.held[path]
            handle = os.dup(kept)
            self.sizes[handle] = size
            return handle
        if (create and not os.path.lexists(path)) or os.path.dirname(path) in self.folders:
            if not create:
                if self.exists(path):
                    check_regular(path)
                raise FileNotFoundError(codes.ENOENT, os.strerror(codes.ENOENT), path)
            refuse(path)
        return open_to_read(path)

    cdef int close(self, int handle) except -1:
        self.sizes.pop(handle, None)
        os.close(handle)
        return 0

    cdef int write_at(self, int handle, const char* p, size_t n, uint64_t offset) except -1:
        refuse()

    cdef int sync(self, int handle) except -1:
        return 0

    cdef uint64_t size(self, int handle) except? 18446744073709551615:
        limit = self.sizes.get(handle)
        return Disk.size(self, handle) if limit is None else limit

    cdef int64_t read_at(self, int handle, char* p, size_t n, uint64_t offset) except -1:
        limit = self.sizes.get(handle)
        if limit is not None:
            if offset >= <uint64_t>limit:
                return 0
            n = min(n, <size_t>(<uint64_t>limit - offset))
        return Disk.read_at(self, handle, p, n, offset)

    cdef int truncate(self, int handle, uint64_t size) except -1:
        refuse()

    cdef bint in_background(self) noexcept:
        return False

    def make_dir(self, path: str) -> None:
        """Refused."""
        refuse(path)

    def rename(self, old: str, new: str) -> None:
        """Refused."""
        refuse(old)

    def link(self, path: str, other: str) -> None:
        """Refused."""
        refuse(other)

    def unlink(self, path: str) -> None:
        """Refused."""
        refuse(path)

    def remove_tree(self, path: str) -> None:
        """Refused."""
        refuse(path)

    def sync_dir(self, path: str) -> None:
        """Nothing to do."""

    def list_dir(self, path: str) -> list[str]:
        """Names in a folder, as they were when it was held."""
        if path in self.folders:
            return list(self.folders[path])
        return Disk.list_dir(self, path)

    def exists(self, path: str) -> bool:
        """Whether there is, or was when the folder was held, such a name."""
        folder, _, name = path.rpartition("/")
        if folder in self.folders:
            return name in self.folders[folder]
        return Disk.exists(self, path)

    def is_dir(self, path: str) -> bool:
        """Whether it is a folder."""
        return os.path.isdir(path)

    def is_file(self, path: str) -> bool:
        """Whether it is a regular file, or was one when its folder was held."""
        return path in self.held or os.path.isfile(path)

    def facts(self, path: str) -> tuple[int, int, int, int]:
        """(inode, size, mtime in ns, ctime in ns); a file that was changed differs in one of them."""
        if path in self.held:
            said = os.fstat(self.held[path][0])
            return said.st_ino, self.held[path][1], said.st_mtime_ns, said.st_ctime_ns
        said = os.stat(path)
        return said.st_ino, said.st_size, said.st_mtime_ns, said.st_ctime_ns

    def hold(self, path: str) -> bool:
        """Hold the folder as it is at one moment of this call; False: there is no such folder.

        OSError EBUSY when its names change faster than they can be opened.
        """
        self.release(path)
        for _ in range(TRIES_MAX):
            try:
                names = sorted(os.listdir(path))
            except FileNotFoundError:
                return False
            held = hold_once(path, names)
            if held is not None:
                self.held.update(held)
                self.folders[path] = [name for name in names if not name.endswith(".tmp")]
                return True
        raise OSError(codes.EBUSY, "its files change too fast", path)

    def redirect(self, path: str, other: str) -> None:
        """From now on, read a file of a held folder from another file."""
        handle = open_to_read(other)
        os.close(self.held[path][0])
        self.held[path] = handle, os.fstat(handle).st_size

    def release(self, path: str) -> None:
        """End hold(): read the folder as it is now."""
        if self.folders.pop(path, None) is None:
            return
        for name in [each for each in self.held if os.path.dirname(each) == path]:
            os.close(self.held.pop(name)[0])


def hold_once(path: str, names: list) -> dict | None:
    """path -> (handle, size) of all files; None when a name vanished or was given to another file meanwhile."""
    held = {}
    good = False
    try:
        for name in names:
            each = f"{path}/{name}"
            if name.endswith(".tmp"):
                continue
            if not stat.S_ISREG(os.stat(each).st_mode):
                continue
            handle = open_to_read(each)
            held[each] = handle, 0
        for each, (handle, _) in held.items():
            mine, named = os.fstat(handle), os.stat(each)
            if (mine.st_dev, mine.st_ino) != (named.st_dev, named.st_ino):
                return None
        for each, (handle, _) in held.items():
            held[each] = handle, os.fstat(handle).st_size
        good = True
        return held
    except FileNotFoundError:
        return None
    finally:
        if not good:
            for handle, _ in held.values():
                os.close(handle)


cdef class OverlayDisk(Disk):
    """A disk over another one that keeps all writes in memory."""

    def __init__(self, Disk base, *, str forget="", progress=None) -> None:
        self.base = base
        self.forget = forget
        self.progress = progress
        self.patches = {}
        self.forgotten = set()
        self.files = {}
        self.gone = set()
        self.made = set()
        self.handles = {}
        self.next_handle = 1 << 20

    cdef int open(self, str path, bint create) except -1:
        cdef int handle = -1
        if path not in self.files:
            if path in self.gone or not self.base.exists(path):
                if not create:
                    raise FileNotFoundError(codes.ENOENT, os.strerror(codes.ENOENT), path)
                self.files[path] = bytearray()
                self.gone.discard(path)
            else:
                handle = self.base.open(path, False)
        self.next_handle += 1
        self.handles[self.next_handle] = (path, handle)
        return self.next_handle

    cdef int close(self, int handle) except -1:
        path, under = self.handles.pop(handle)
        if under >= 0:
            self.base.close(under)
        return 0

    cdef object own(self, int handle):
        # Moves a file into memory, if it is not there yet; returns its bytes.
        cdef bytes data
        path, under = self.handles[handle]
        if path not in self.files:
            data = self.base.read_file(path)
            self.files[path] = bytearray(data)
        return self.files[path]

    cdef int write_at(self, int handle, const char* p, size_t n, uint64_t offset) except -1:
        data = self.own(handle)
        if offset > <uint64_t>len(data):
            data.extend(bytes(offset - len(data)))
        data[offset:offset + n] = PyBytes_FromStringAndSize(p, n)
        return 0

    cdef int64_t read_at(self, int handle, char* p, size_t n, uint64_t offset) except -1:
        cdef bytes start
        cdef int64_t got
        path, under = self.handles[handle]
        data = self.files.get(path)
        if data is None:
            got = self.base.read_at(under, p, n, offset)
            if self.progress is not None and n > LARGE_BYTES:
                self.progress(got)
            start = self.patches.get(path)
            if start is not None and offset < <uint64_t>len(start):
                n = min(<size_t>got, <size_t>(len(start) - offset))
                memcpy(p, PyBytes_AS_STRING(start) + offset, n)
            return got
        if offset >= <uint64_t>PyByteArray_GET_SIZE(data):
            return 0
        n = min(n, <size_t>(PyByteArray_GET_SIZE(data) - offset))
        memcpy(p, PyByteArray_AS_STRING(data) + offset, n)
        return n

    cdef int sync(self, int handle) except -1:
        return 0

    cdef uint64_t size(self, int handle) except? 18446744073709551615:
        path, under = self.handles[handle]
        data = self.files.get(path)
        return self.base.size(under) if data is None else <uint64_t>len(data)

    cdef int truncate(self, int handle, uint64_t size) except -1:
        data = self.own(handle)
        del data[size:]
        data.extend(bytes(size - len(data)))
        return 0

    cdef bint in_background(self) noexcept:
        return False

    def make_dir(self, path: str) -> None:
        """In memory."""
        self.made.add(path)

    def list_dir(self, path: str) -> list[str]:
        """Names of both, sorted."""
        inside = f"{path}/"
        names = {name for name in self.base.list_dir(path) if inside + name not in self.gone}
        names.update(each[len(inside):].partition("/")[0] for each in (*self.files, *self.made) if each.startswith(inside))
        return sorted(names)

    def exists(self, path: str) -> bool:
        """Whether one of both has it."""
        return path in self.files or path in self.made or (path not in self.gone and self.base.exists(path))

    def rename(self, old: str, new: str) -> None:
        """In memory."""
        if self.forget and new.endswith(self.forget):
            self.files.pop(old, None)
            self.forgotten.add(new)
            return
        if old not in self.files:
            self.files[old] = bytearray(self.read_file(old))
        self.files[new] = self.files.pop(old)
        self.gone.discard(new)
        if self.base.exists(old):
            self.gone.add(old)

    def link(self, path: str, other: str) -> None:
        """In memory: a copy, as files that have two names are not changed any more."""
        self.files[other] = bytearray(self.read_file(path))
        self.gone.discard(other)

    def unlink(self, path: str) -> None:
        """In memory."""
        self.files.pop(path, None)
        if self.base.exists(path):
            self.gone.add(path)

    def remove_tree(self, path: str) -> None:
        """In memory."""
        for name in self.list_dir(path):
            self.remove_tree(f"{path}/{name}")
        self.made.discard(path)
        self.unlink(path)

    def sync_dir(self, path: str) -> None:
        """Nothing to do."""

    def is_dir(self, path: str) -> bool:
        """Whether it is a folder."""
        return path in self.made or (path not in self.files and path not in self.gone and self.base.is_dir(path))

    def facts(self, path: str) -> tuple[int, int, int, int]:
        """As that of a disk for reading; of what is in memory, the size alone."""
        if path in self.files:
            return 0, len(self.files[path]), 0, 0
        return self.base.facts(path)

    def patch(self, path: str, start: bytes) -> None:
        """From now on, a file of the other disk begins with these bytes."""
        self.patches[path] = start

    def read_start(self, str path, size_t n) -> bytes:
        """The first n bytes of a file, or what there is."""
        cdef int handle = self.open(path, False)
        cdef bytes data = PyBytes_FromStringAndSize(NULL, n)
        try:
            return data[:self.read_at(handle, PyBytes_AS_STRING(data), n, 0)]
        finally:
            self.close(handle)

    def changes(self) -> dict:
        """path -> the bytes that the file would have; None: the file would be removed."""
        return {path: bytes(data) for path, data in self.files.items()} | dict.fromkeys(self.gone)
