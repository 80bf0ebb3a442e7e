"""The files that a disk keeps open; see open_files.pyx."""


cdef class OpenFile:
    cdef int handle              # -1: not open now
    cdef bint syncing            # a sync of the handle is running: the file stays open
    cdef int failure             # errno of the close that made room; the next opening raises it
    cdef OpenFile older          # its neighbours in OpenFiles; None while it is not open
    cdef OpenFile newer

    cdef void hold(self, bint syncing) noexcept
    cdef void fail(self, int error) noexcept
    cdef int check(self, str path) except -1                    # raises the error of the close that made room


cdef class OpenFiles:
    cdef readonly int count
    cdef public int limit
    cdef OpenFile ends           # closes the ring: its `newer` is the oldest file, its `older` the newest

    cdef int add(self, OpenFile file, int handle) except -1     # opened with this handle
    cdef int drop(self, OpenFile file) except -1                # returns its handle; the caller closes it
    cdef int link(self, OpenFile file) except -1
    cdef int unlink(self, OpenFile file) except -1
    cdef int touch(self, OpenFile file) except -1               # it is in use: it becomes the newest
    cdef OpenFile closable(self)                                # the oldest file without a running sync, but never the newest; or None
