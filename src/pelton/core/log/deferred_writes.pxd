"""Deferred writes: what the disk has refused and is still to be written. See deferred_writes.pyx."""
from pelton.core.base.disk cimport Disk


cdef class DeferredWrites:
    cdef Disk disk
    cdef readonly list first                 # before the next append: callables that raise OSError until they succeed
    cdef readonly list late                  # can wait
    cdef str stale                           # an index file to unlink as soon as its removals are written in the log
    cdef bint sync_next                      # the next write is synced before it returns

    cdef int refused(self, object call) except -1               # the disk refused a write; call repeats it, None: the next write repeats it
    cdef int add_first(self, object call) except -1
    cdef int put_off(self, object call) except -1
    cdef int do_first(self) except -1                           # OSError when the disk refuses: the remaining ones stay
    cdef bint do_late(self) except -1                           # do one; whether there was one. OSError when the disk refuses
    cdef int unlink_later(self, str path) except -1             # unlink this file, if any, after the next write
    cdef bint need_sync(self) noexcept                          # the next write is synced before it returns
    cdef int written(self) except -1                            # ... and it was
    cdef int unlink_stale(self) except -1
