"""The disk as an object that the caller passes in: system calls, or a Python object in their place.

Reads and writes on the machine's own disk make no Python object. Knows nothing of records or of the meaning of folders.

The reserve is a file whose room is given up for the first write that finds the disk full. So the bytes that are accepted already, and
all that removes data, can still be written. `spent` is set from then on until `refill` has made the file again: callers that would add
data look at it and refuse.
"""
import contextlib
import errno as codes
import os
import resource
import stat
from contextlib import suppress

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EACCES, EBADF, EDQUOT, EINTR, EINVAL, EMFILE, ENFILE, ENOSPC, EROFS, errno
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from pelton.core.base.open_files cimport OpenFile, OpenFiles
from pelton.core.base.syncs cimport sync_handles

cdef extern from "<fcntl.h>" nogil:
    int c_open "open"(const char*, int, ...)
    int O_RDWR
    int O_RDONLY
    int O_CREAT
    int O_CLOEXEC
    int O_DIRECTORY

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <fcntl.h>
    #ifndef SYNC_FILE_RANGE_WRITE
    #define SYNC_FILE_RANGE_WRITE 0
    #define sync_file_range(handle, offset, n, flags) ((void)0, 0)
    #endif
    """
    int sync_file_range(int, int64_t, int64_t, unsigned int) nogil
    unsigned int SYNC_FILE_RANGE_WRITE

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int)
    ssize_t pwrite(int, const void*, size_t, int64_t)
    ssize_t pread(int, void*, size_t, int64_t)
    int fdatasync(int)
    int ftruncate(int, int64_t)
    int64_t lseek(int, int64_t, int)
    int SEEK_END


cdef enum:
    OPEN_FILES_MIN = 16
    OPEN_FILES_MAX = 1048576     # when the process may open any number


cdef int fail(object what=None) except -1:
    cdef int code = errno
    if what is None:
        raise OSError(code, os.strerror(code))
    raise OSError(code, os.strerror(code), what)


def check_regular(path: str) -> None:
    """OSError when the path is not a regular file: the open of a pipe would block, and a device may do anything."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return                                       # opening says it
    if not stat.S_ISREG(mode):
        raise OSError(codes.EISDIR if stat.S_ISDIR(mode) else codes.EINVAL, "not a regular file", path)


def open_to_read(path: str) -> int:
    """Open a regular file for reading; return the handle. OSError."""
    check_regular(path)
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def open_files_limit() -> int:
    """How many files a disk keeps open: half of the descriptors of the process. The others are for connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else max(min(soft // 2, OPEN_FILES_MAX), OPEN_FILES_MIN)


cdef int open_parents(Disk disk, object paths, list handles, list errors) except -1:
    """Open folders that are synced with the files of groups; their errors have places behind those of the groups."""
    for path in paths:
        errors.append(None)
        try:
            handles.append((len(errors) - 1, disk.open_folder(path)))
        except OSError as error:
            errors[len(errors) - 1] = error
    return 0


cdef int sync_folders(Disk disk, dict folders, list errors) except -1:
    """Sync folders, each with the groups that are in it. On the machine's disk they are synced together."""
    cdef list found = [None] * len(folders)
    cdef Py_ssize_t i
    if type(disk) is Disk and len(folders) > 1:
        found = disk.sync_paths(list(folders))
    else:
        for i, folder in enumerate(folders):
            try:
                disk.sync_dir(folder)
            except OSError as error:
                found[i] = error
    for i, inside in enumerate(folders.values()):
        spread(errors, inside, found[i])
    return 0


cdef int spread(list errors, list groups, object error) except -1:
    """Note an error of a folder for the groups that depend on it; None: there was none."""
    cdef Py_ssize_t i
    for i in groups if error is not None else ():
        errors[i] = error
    return 0


cdef class Disk:
    """The machine's disk. All paths are absolute or relative to the working directory; failures raise OSError."""

    def __cinit__(self, *args, **options) -> None:
        self.open_files = OpenFiles(open_files_limit())

    cdef int open_path(self, str path, int flags) except -2:
        cdef bytes name = os.fsencode(path)
        cdef const char* p = name
        cdef int handle
        while True:
            handle = c_open(p, flags | O_CLOEXEC, 0o600)
            if handle >= 0 or errno != EINTR and not (self.short_of_handles(errno) and self.close_oldest()):
                return handle

    cdef bint short_of_handles(self, int error) noexcept:
        return error == EMFILE or error == ENFILE

    cdef int open(self, str path, bint create) except -1:
        cdef int handle, code
        check_regular(path)
        while True:
            handle = self.open_path(path, O_RDWR | (O_CREAT if create else 0))
            if handle < 0 and not create and (errno == EROFS or errno == EACCES):
                handle = self.open_path(path, O_RDONLY)  # reading goes on; a write is refused as it would be
            if handle >= 0:
                return handle
            code = errno
            if not self.release(code):
                raise OSError(code, os.strerror(code), path)

    cdef int open_again(self, OpenFile file, str path) except -1:
        file.check(path)
        return self.keep_open(file, self.open(path, False))

    cdef int keep_open(self, OpenFile file, int handle) except -1:
        self.open_files.add(file, handle)
        while self.open_files.count > self.open_files.limit and self.close_oldest():
            pass
        return handle

    cdef int close_file(self, OpenFile file) except -1:
        if file.handle >= 0:
            self.close(self.open_files.drop(file))
        return 0

    cdef bint close_oldest(self) except -1:
        cdef OpenFile file = self.open_files.closable()
        if file is None:
            return False
        try:
            self.close_file(file)
        except OSError as error:
            file.fail(error.errno or codes.EIO)
        return True

    cdef int close(self, int handle) except -1:
        # After EINTR the descriptor is gone on Linux: closing again could hit another file.
        if c_close(handle) != 0 and errno != EINTR:
            fail()
        return 0

    cdef int write_at(self, int handle, const char* p, size_t n, uint64_t offset) except -1:
        cdef ssize_t k
        cdef int code
        while n:
            k = pwrite(handle, p, n, <int64_t>offset)
            if k < 0:
                if errno == EINTR:
                    continue
                if errno == EBADF:
                    raise OSError(EROFS, os.strerror(EROFS))
                code = errno
                if self.release(code):
                    continue
                raise OSError(code, os.strerror(code))
            p += k
            n -= k
            offset += k
        return 0

    cdef int64_t read_at(self, int handle, char* p, size_t n, uint64_t offset) except -1:
        cdef ssize_t k
        cdef int64_t got = 0
        while n:
            k = pread(handle, p, n, <int64_t>offset)
            if k < 0:
                if errno == EINTR:
                    continue
                fail()
            if k == 0:
                break
            p += k
            n -= k
            offset += k
            got += k
        return got

    cdef int sync(self, int handle) except -1:
        cdef int rc
        with nogil:
            rc = fdatasync(handle)
            while rc != 0 and errno == EINTR:
                rc = fdatasync(handle)
        if rc != 0:
            fail()
        return 0

    cdef uint64_t size(self, int handle) except? 18446744073709551615:
        cdef int64_t n = lseek(handle, 0, SEEK_END)
        if n < 0:
            fail()
        return n

    cdef int truncate(self, int handle, uint64_t size) except -1:
        while ftruncate(handle, <int64_t>size) != 0:
            if errno == EINVAL:
                raise OSError(EROFS, os.strerror(EROFS))     # opened for reading alone
            if errno != EINTR:
                fail()
        return 0

    cdef bint in_background(self) noexcept:
        return True

    # --- the reserve ---------------------------------------------------------------------------------

    cdef bint release(self, int code) except -1:
        if self.reserve_path is None or self.spent or (code != ENOSPC and code != EDQUOT):
            return False
        self.spent = True
        try:
            self.unlink(self.reserve_path)
        except OSError:
            return False
        return True

    cdef int allocate(self, int handle, uint64_t size) except -1:
        os.posix_fallocate(handle, 0, size)
        return 0

    def keep_reserve(self, path: str, size: int) -> None:
        """Use the file of this path as the reserve; `refill` makes it."""
        self.reserve_path = path
        self.reserve_bytes = size

    def refill(self) -> bool:
        """Make the reserve, unless it is there; False: the disk refuses, and `refill` is to be tried again."""
        cdef bint before = self.spent
        cdef int handle
        self.spent = True                            # the room for these writes is not taken from the reserve
        try:
            handle = self.open(self.reserve_path, True)
            try:
                if self.size(handle) != self.reserve_bytes:
                    self.truncate(handle, 0)
                    self.allocate(handle, self.reserve_bytes)
            finally:
                self.close(handle)
        except OSError as error:
            with suppress(OSError):
                self.unlink(self.reserve_path)
            self.spent = before or error.errno in (ENOSPC, EDQUOT)
            return False
        self.spent = False
        return True

    def make_dir(self, path: str) -> None:
        """Make a folder (mode 0700) and its parents; no error when it is there."""
        os.makedirs(path, mode=0o700, exist_ok=True)

    def make_dir_durable(self, path: str) -> None:
        """make_dir, with the names of what was made on the disk when it returns."""
        cdef list missing = []
        cdef str at = path
        while at and not self.exists(at):
            missing.append(at)
            at = os.path.dirname(at)
        if not missing:
            return
        if os.path.dirname(at):
            # The process that made it may have ended before it synced the name. The folder may belong to another user.
            with contextlib.suppress(PermissionError):
                self.sync_dir(os.path.dirname(at))
        for at in reversed(missing):
            self.make_dir(at)
            self.sync_dir(os.path.dirname(at) or ".")

    def list_dir(self, path: str) -> list[str]:
        """Names in a folder, sorted; an empty list when there is no such folder."""
        while True:
            try:
                return sorted(os.listdir(path))
            except FileNotFoundError:
                return []
            except OSError as error:
                if not (self.short_of_handles(error.errno) and self.close_oldest()):
                    raise

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of that name."""
        return os.path.lexists(path)

    def rename(self, old: str, new: str) -> None:
        """Rename, replacing what was there."""
        try:
            os.replace(old, new)
        except OSError as error:                     # the folder needs room for a longer list of names
            if not self.release(error.errno or 0):
                raise
            os.replace(old, new)

    def link(self, path: str, other: str) -> None:
        """Give a file a second name."""
        os.link(path, other)

    def unlink(self, path: str) -> None:
        """Remove a file; no error when it is gone already."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        """Remove a folder with all in it; no error when there is none. Symbolic links in it are removed, not followed."""
        if not os.path.lexists(path):
            return
        for base, folders, files in os.walk(path, topdown=False):
            for name in files:
                os.unlink(os.path.join(base, name))
            for name in folders:
                inner = os.path.join(base, name)
                if os.path.islink(inner):
                    os.unlink(inner)
                else:
                    os.rmdir(inner)
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable."""
        handle = Disk.open_folder(self, path)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def open_folder(self, path: str) -> int:
        """A handle to sync the names in a folder by."""
        cdef int handle = self.open_path(path, O_RDONLY | O_DIRECTORY)
        if handle < 0:
            fail(path)
        return handle

    def read_file(self, path: str) -> bytes:
        """The whole content of a file; FileNotFoundError when there is none."""
        cdef int handle = self.open(path, False)
        cdef uint64_t n
        cdef int64_t got
        cdef bytes data
        try:
            n = self.size(handle)
            data = PyBytes_FromStringAndSize(NULL, n)
            got = self.read_at(handle, PyBytes_AS_STRING(data), n, 0)
            return data if <uint64_t>got == n else data[:got]
        finally:
            self.close(handle)

    def write_file_atomic(self, path: str, data: bytes, durable: bool = True) -> None:
        """Replace a file as a whole: temporary file, fsync, rename, fsync of the folder (the syncs only when durable)."""
        self.write_files_atomic([path], data, durable)

    def write_files_atomic(self, list paths, data: bytes, durable: bool = True) -> None:
        """The same for several files of one folder that get the same content: their syncs go to the disk together. Replaced
        one after the other: after a failure some are the old ones, each is whole.
        """
        cdef object error = self.write_groups([(paths, data, "")], durable)[0]
        if error is not None:
            raise error

    def write_groups(self, list groups, durable: bool = True) -> list:
        """write_files_atomic for several groups (paths, data, parent), with two waits for the disk. Returns None or an OSError for each."""
        cdef list errors = [None] * len(groups)
        cdef list handles = []
        cdef int handle
        cdef Py_ssize_t i
        parents, folders = {}, {}
        for i, (paths, data, parent) in enumerate(groups):
            errors[i] = self.write_temporary(paths, data, durable, handles, i)
            if parent:
                parents.setdefault(parent, []).append(i)
        if durable:
            open_parents(self, parents, handles, errors)
            self.sync_groups(handles, errors)
            for i, inside in enumerate(parents.values(), len(groups)):
                spread(errors, inside, errors[i])
        for i, handle in handles:
            try:
                self.close(handle)
            except OSError as error:
                errors[i] = error
        del errors[len(groups):]
        for i, (paths, _, _) in enumerate(groups):
            try:
                for path in paths if errors[i] is None else ():
                    self.rename(path + ".tmp", path)
            except OSError as error:
                errors[i] = error
            if errors[i] is None:
                folders.setdefault(os.path.dirname(paths[0]) or ".", []).append(i)
                continue
            for path in paths:
                with suppress(OSError):
                    self.unlink(path + ".tmp")     # on a full disk it would hold room that others need
        if durable:
            sync_folders(self, folders, errors)
        return errors

    def sync_paths(self, list paths) -> list:
        """Sync files and folders, with one wait for the disk. Returns None or an OSError for each."""
        cdef list errors = [None] * len(paths)
        cdef list handles = []
        cdef Py_ssize_t i
        for i, path in enumerate(paths):
            try:
                try:
                    handles.append((i, self.open(path, False)))
                except IsADirectoryError:
                    handles.append((i, self.open_folder(path)))
            except OSError as error:
                errors[i] = error
        self.sync_groups(handles, errors)
        for i, handle in handles:
            try:
                self.close(handle)
            except OSError as error:
                errors[i] = error
        return errors

    cdef int sync_groups(self, list handles, list errors) except -1:
        """Sync the files of the groups that have no error yet; `handles` are (group, handle)."""
        cdef Py_ssize_t i
        cdef int handle, n = 0
        cdef int* numbers
        cdef int* codes_found
        wanted = [(i, handle) for i, handle in handles if errors[i] is None]
        numbers = <int*>malloc((2 * len(wanted) + 1) * sizeof(int))
        if numbers == NULL:
            raise MemoryError
        codes_found = numbers + len(wanted)
        try:
            for _, handle in wanted:
                numbers[n] = handle
                n += 1
            self.sync_at_once(numbers, codes_found, n)
            n = 0
            for i, _ in wanted:
                if codes_found[n]:
                    errors[i] = OSError(codes_found[n], os.strerror(codes_found[n]))
                n += 1
        finally:
            free(numbers)
        return 0

    cdef int sync_at_once(self, const int* handles, int* errors, int n) except -1:
        if type(self) is Disk:
            with nogil:
                sync_handles(handles, errors, n)
            return 0
        cdef int i
        for i in range(n):
            errors[i] = 0
            try:
                self.sync(handles[i])
            except OSError as error:
                errors[i] = error.errno or codes.EIO
        return 0

    cdef object write_temporary(self, list paths, bytes data, bint durable, list handles, Py_ssize_t group):
        """Write the temporary files of a group and add their handles; return the OSError that prevents it."""
        cdef const char* p = data
        cdef size_t n = len(data)
        cdef int handle
        try:
            for path in paths:
                handle = self.open(path + ".tmp", True)
                handles.append((group, handle))
                self.truncate(handle, 0)
                self.write_at(handle, p, n, 0)
                if durable and len(handles) > 1:
                    self.hasten(handle)
        except OSError as error:
            return error
        return None

    cdef int hasten(self, int handle) noexcept:
        # So that the sync of another file takes this one along as far as the file system can; a sync of its own follows.
        sync_file_range(handle, 0, 0, SYNC_FILE_RANGE_WRITE)
        return 0


cdef class PyDisk(Disk):
    """Forwards each call to a Python object: open(path, create) -> handle, close(handle), write_at(handle, bytes, offset),
    read_at(handle, n, offset) -> bytes, sync(handle), size(handle), truncate(handle, size); and by path make_dir, list_dir,
    exists, rename, unlink, remove_tree, sync_dir. The methods for whole files use these calls, so tests cover them, too.

    With background, the reactor does the syncs of streams, as on the machine's own disk: its `on_sync` does them at any time. The
    target then also has open_folder(path) -> handle, to sync names.
    """

    def __init__(self, target: object, background: bool = False) -> None:
        self.target = target
        self.background = background

    cdef int open(self, str path, bint create) except -1:
        return self.target.open(path, bool(create))

    cdef int close(self, int handle) except -1:
        self.target.close(handle)
        return 0

    cdef int write_at(self, int handle, const char* p, size_t n, uint64_t offset) except -1:
        cdef bytes data = PyBytes_FromStringAndSize(p, n)
        try:
            self.target.write_at(handle, data, offset)
        except OSError as error:
            if not self.release(error.errno or 0):
                raise
            self.target.write_at(handle, data, offset)
        return 0

    cdef int64_t read_at(self, int handle, char* p, size_t n, uint64_t offset) except -1:
        cdef bytes data = self.target.read_at(handle, n, offset)
        if <size_t>len(data) > n:
            raise OSError(5, "a disk gave more bytes than asked for")
        memcpy(p, PyBytes_AS_STRING(data), len(data))
        return len(data)

    cdef int sync(self, int handle) except -1:
        self.target.sync(handle)
        return 0

    cdef uint64_t size(self, int handle) except? 18446744073709551615:
        return self.target.size(handle)

    cdef int truncate(self, int handle, uint64_t size) except -1:
        self.target.truncate(handle, size)
        return 0

    cdef bint in_background(self) noexcept:
        return self.background

    cdef int allocate(self, int handle, uint64_t size) except -1:
        self.target.write_at(handle, bytes(size), 0)
        return 0

    cdef int hasten(self, int handle) noexcept:
        return 0

    def make_dir(self, path: str) -> None:
        """Forwarded."""
        self.target.make_dir(path)

    def open_folder(self, path: str) -> int:
        """Forwarded."""
        return self.target.open_folder(path)

    def list_dir(self, path: str) -> list[str]:
        """Forwarded; sorted here."""
        return sorted(self.target.list_dir(path))

    def exists(self, path: str) -> bool:
        """Forwarded."""
        return bool(self.target.exists(path))

    def rename(self, old: str, new: str) -> None:
        """Forwarded."""
        self.target.rename(old, new)

    def link(self, path: str, other: str) -> None:
        """Forwarded."""
        self.target.link(path, other)

    def unlink(self, path: str) -> None:
        """Forwarded."""
        self.target.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Forwarded."""
        self.target.remove_tree(path)

    def sync_dir(self, path: str) -> None:
        """Forwarded."""
        self.target.sync_dir(path)
