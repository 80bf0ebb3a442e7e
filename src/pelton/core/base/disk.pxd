"""The disk as an object that is handed in: the only place of the core that touches files.

`Disk` is the machine's own (system calls, no Python objects per call). `PyDisk` forwards to a Python object with the same
verbs, so that a simulated disk (torn writes, lost writes, bit flips, full) can stand in. Handles are small integers.
Failures raise OSError with the errno.
"""
from libc.stdint cimport int64_t, uint64_t
from pelton.core.base.open_files cimport OpenFile, OpenFiles


cdef class Disk:
    cdef readonly OpenFiles open_files
    cdef readonly str reserve_path        # None: there is no reserve
    cdef readonly uint64_t reserve_bytes
    cdef readonly bint spent              # the disk is full, and the room of the reserve was released to earlier writes
    cdef bint release(self, int code) except -1           # after a write that failed: whether to repeat it in the room of the reserve
    cdef int allocate(self, int handle, uint64_t size) except -1      # make an empty file have this size, with its room
    cdef int open(self, str path, bint create) except -1                                   # read-write; creates (mode 0600) when asked
    cdef int close(self, int handle) except -1
    # files that stay open between uses, as long as there are descriptors for them (core/base/open_files)
    cdef int open_again(self, OpenFile file, str path) except -1       # open a file that was closed to make room; returns the handle
    cdef int keep_open(self, OpenFile file, int handle) except -1      # it was opened; others may be closed
    cdef int close_file(self, OpenFile file) except -1                 # nothing to do when it is not open
    cdef bint close_oldest(self) except -1                             # close the file that can be spared best; False: there is none
    cdef bint short_of_handles(self, int error) noexcept               # whether the process or the system has no more
    cdef int open_path(self, str path, int flags) except -2            # -1: errno says why
    cdef int write_at(self, int handle, const char* p, size_t n, uint64_t offset) except -1        # all of it, or OSError
    cdef int64_t read_at(self, int handle, char* p, size_t n, uint64_t offset) except -1   # as much as there is; 0 at the end
    cdef int sync(self, int handle) except -1                                              # fdatasync
    cdef uint64_t size(self, int handle) except? 18446744073709551615
    cdef int truncate(self, int handle, uint64_t size) except -1
    cdef int hasten(self, int handle) noexcept    # have its bytes be on their way when sync() is called
    cdef int sync_groups(self, list handles, list errors) except -1
    cdef int sync_at_once(self, const int* handles, int* errors, int n) except -1          # the errno of each, 0 for success
    cdef object write_temporary(self, list paths, bytes data, bint durable, list handles, Py_ssize_t group)
    cdef bint in_background(self) noexcept        # handles may be given to the reactor to be synced while turns go on; else: at once, by sync()
    # by path (cold): defined in Python for both, see disk.pyi: make_dir, make_dir_durable, list_dir, rename, unlink, remove_tree, sync_dir, exists,
    # read_file, write_file_atomic(path, data): temporary file, fsync, rename, fsync of the folder; write_files_atomic,
    # write_groups


cdef class PyDisk(Disk):
    cdef object target
    cdef bint background
