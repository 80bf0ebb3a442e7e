"""What was removed and is not yet a record, and what is lost. See removals.pyx."""
from libc.stdint cimport uint64_t
from penstock.core.log.record cimport Ranges


cdef class Removals:
    cdef Ranges ranges                       # removed in this turn, not yet a record
    cdef readonly list lost                  # (first_seq, count, reason) of what damage has cost; count 0: messages are all there, what
                                             # else was written between first_seq - 1 and first_seq is not
    cdef readonly object guard               # None, or the object that notes what messages say before they are removed: see files.pyi
    cdef readonly uint64_t guard_above       # ... of messages with a higher sequence

    cdef int guarded_by(self, object guard) except -1
    cdef int guard_from(self, uint64_t seq) except -1           # the guard is asked about messages with a higher sequence
    cdef int add(self, uint64_t first, uint64_t count) except -1
    cdef uint64_t highest(self) noexcept                        # of the ranges; 0: there are none
    cdef void written(self) noexcept                            # the ranges are a record
    cdef uint64_t removed_below(self, uint64_t first_seq) noexcept      # everything below was removed, nothing of it was lost
    cdef list lost_within(self, uint64_t first, uint64_t end)   # of what is lost, in order
    cdef int say_gone(self, uint64_t first, uint64_t end, list lost) except -1     # these were removed, but for what is lost
    cdef int forget_lost(self, uint64_t first, uint64_t last) except -1     # what begins there is lost no more: it never was a message
    cdef int purged(self, uint64_t end) except -1               # everything below was purged, with what is lost of it
