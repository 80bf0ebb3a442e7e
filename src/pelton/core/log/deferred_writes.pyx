"""Deferred writes: what the disk has refused and is still to be written.

    first   done before the next append or removal is written: cutting a torn end, the file of the newest segment, syncs of
            names, and writes that the owner adds (states of consumers beyond the end of the log)
    late    can wait: index files, copies of bytes that were cut off

Clients may have seen the effect of removals that are not recorded yet (by a limit, for example), so the first write that succeeds is
synced before it returns (`sync_next`). core/log/recovery_writes says how an opening gets such writes. Knows nothing of what they do.
"""
from pelton.core.base.disk cimport Disk


cdef class DeferredWrites:
    """The deferred writes of one log."""

    def __init__(self, Disk disk) -> None:
        self.disk = disk
        self.first, self.late = [], []

    cdef int refused(self, object call) except -1:
        self.sync_next = True
        return 0 if call is None else self.add_first(call)

    cdef int add_first(self, object call) except -1:
        self.first.append(call)
        return 0

    cdef int put_off(self, object call) except -1:
        self.late.append(call)
        return 0

    cdef int do_first(self) except -1:
        while self.first:
            self.first[0]()
            del self.first[0]
        return 0

    cdef bint do_late(self) except -1:
        if not self.late:
            return False
        call = self.late.pop(0)
        try:
            call()
        except OSError:
            self.late.append(call)           # goes to the end of the list
            raise
        return True

    cdef int unlink_later(self, str path) except -1:
        self.stale = path
        return 0

    cdef bint need_sync(self) noexcept:
        return self.sync_next or self.stale is not None

    cdef int written(self) except -1:
        self.sync_next = False
        return self.unlink_stale()

    cdef int unlink_stale(self) except -1:
        if self.stale is not None:
            self.disk.unlink(self.stale)     # it would be valid again if the segment ever reached the same size
            self.stale = None
        return 0
