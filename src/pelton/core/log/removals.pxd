"""The removals since the last write, and the lost sequences of a log. See removals.pyx."""
from libc.stdint cimport uint64_t
from pelton.core.log.record cimport Ranges


cdef class Removals:
    cdef Ranges ranges                       # removed since the last write, not recorded yet
    cdef readonly list lost                  # (first_seq, count, reason) of lost sequences; count 0: no message is lost, but another
                                             # record between first_seq - 1 and first_seq is
    cdef readonly object guard               # None, or the object that saves the newest messages before they are removed: see files.pyi
    cdef readonly uint64_t guard_above       # the log asks the guard about messages with a higher sequence

    cdef int guarded_by(self, object guard) except -1
    cdef int guard_from(self, uint64_t seq) except -1           # set guard_above
    cdef int add(self, uint64_t first, uint64_t count) except -1
    cdef uint64_t highest(self) noexcept                        # the highest sequence of the ranges; 0: there are none
    cdef void written(self) noexcept                            # the ranges are recorded
    cdef uint64_t removed_below(self, uint64_t first_seq) noexcept      # the floor: every lower sequence is removed and none of them is lost
    cdef list lost_within(self, uint64_t first, uint64_t end)   # the entries of `lost` that overlap first .. end - 1, ascending
    cdef int say_gone(self, uint64_t first, uint64_t end, list lost) except -1     # add first .. end - 1 to the ranges, except lost sequences
    cdef int forget_lost(self, uint64_t first, uint64_t last) except -1     # drop entries of `lost` that begin there: they never were messages
    cdef int purged(self, uint64_t end) except -1               # everything below `end` was purged: `lost` has no sequence of it any more
