"""The files that a disk keeps open, ordered by their last use, so that a process never runs out of descriptors.

A store has more files than a process may have open. Each of its files is opened when it is used, and stays open until others need its
descriptor: the one that was not used for the longest time is closed then, and its next use opens it again. A file whose handle a sync
thread has is never closed, nor is the newest one, which its user may hold at this moment.

Closing a file with bytes that are not synced loses no error: Linux reports an error of the write-back that nobody has seen to the next
sync of the file, whoever opens it. An error of the close itself is kept in `failure`.
"""


cdef class OpenFile:
    """A file that is open while it is used. Its owner knows its path."""

    def __cinit__(self) -> None:
        self.handle = -1

    cdef void hold(self, bint syncing) noexcept:
        self.syncing = syncing

    cdef void fail(self, int error) noexcept:
        self.failure = error

    cdef int check(self, str path) except -1:
        cdef int error = self.failure
        if error:
            self.failure = 0
            raise OSError(error, "the file could not be closed", path)
        return 0


cdef class OpenFiles:
    """The open files of one disk, a ring from the oldest to the newest. Opens and closes nothing itself (core/base/disk)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.ends = OpenFile()
        self.ends.older = self.ends.newer = self.ends

    cdef int add(self, OpenFile file, int handle) except -1:
        file.handle = handle
        self.count += 1
        return self.link(file)

    cdef int drop(self, OpenFile file) except -1:
        cdef int handle = file.handle
        self.unlink(file)
        file.handle = -1
        self.count -= 1
        return handle

    cdef int touch(self, OpenFile file) except -1:
        if file.newer is not self.ends:
            self.unlink(file)
            self.link(file)
        return 0

    cdef int link(self, OpenFile file) except -1:
        file.older, file.newer = self.ends.older, self.ends
        file.older.newer = self.ends.older = file
        return 0

    cdef int unlink(self, OpenFile file) except -1:
        file.older.newer, file.newer.older = file.newer, file.older
        file.older = file.newer = None
        return 0

    cdef OpenFile closable(self):
        cdef OpenFile file = self.ends.newer
        while file.syncing and file is not self.ends:
            file = file.newer
        return None if file is self.ends or file is self.ends.older else file
