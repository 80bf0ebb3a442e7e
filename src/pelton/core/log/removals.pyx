"""The removals since the last write, and the lost sequences of a log.

The next write records the removals as ranges of one REMOVE record. A lost sequence is not removed: no range names it, and each opening
reports it. Knows nothing of segments.
"""
from libc.stdint cimport uint64_t
from pelton.core.log.record cimport ranges_add, ranges_free


cdef class Removals:
    """The ranges that the next write records, and the list of lost sequences."""

    def __cinit__(self) -> None:
        self.lost = []

    def __dealloc__(self) -> None:
        ranges_free(&self.ranges)

    cdef int guarded_by(self, object guard) except -1:
        self.guard = guard
        return 0

    cdef int guard_from(self, uint64_t seq) except -1:
        self.guard_above = seq
        return 0

    cdef int add(self, uint64_t first, uint64_t count) except -1:
        return ranges_add(&self.ranges, first, count)

    cdef uint64_t highest(self) noexcept:
        cdef uint64_t top = 0
        cdef size_t k
        for k in range(self.ranges.count):
            top = max(top, self.ranges.items[k].first + self.ranges.items[k].count - 1)
        return top

    cdef void written(self) noexcept:
        self.ranges.count = 0

    cdef uint64_t removed_below(self, uint64_t first_seq) noexcept:
        cdef uint64_t below = first_seq
        for first, count, _ in self.lost:
            if count and first < below:
                below = first
        return below

    cdef list lost_within(self, uint64_t first, uint64_t end):
        return sorted([entry for entry in self.lost if entry[1] and entry[0] < end and first < entry[0] + entry[1]])

    cdef int say_gone(self, uint64_t first, uint64_t end, list lost) except -1:
        for low, count, _ in lost:
            if first < <uint64_t>low + <uint64_t>count and low < end:
                if first < low:
                    self.add(first, low - first)
                first = low + count
        if first < end:
            self.add(first, end - first)
        return 0

    cdef int forget_lost(self, uint64_t first, uint64_t last) except -1:
        self.lost[:] = [entry for entry in self.lost if entry[0] < first or entry[0] > last]
        return 0

    cdef int purged(self, uint64_t end) except -1:
        self.lost[:] = [(max(first, end), count - (max(first, end) - first), why) for first, count, why in self.lost if first + count > end]
        return 0
