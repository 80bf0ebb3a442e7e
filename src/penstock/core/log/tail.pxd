"""The newest bytes of the active segment's file, in memory. See tail.pyx."""
from libc.stdint cimport uint32_t, uint64_t
from penstock.core.base.buffer cimport Out
from penstock.core.log.segment cimport Segment

cdef enum:
    TAIL_MAX_BYTES = 1572864         # written bytes kept for reading: cut to TAIL_KEEP_BYTES when beyond this
    TAIL_KEEP_BYTES = 786432


cdef class Tail:
    cdef Out out                 # written bytes that are kept for reading, then unwritten ones
    cdef uint64_t base           # offset in the file of the first of them
    cdef size_t written          # how many of them are in the file
    cdef Out sealed              # what is about to be written, encrypted

    cdef void begin(self, uint64_t base) noexcept               # nothing is in it; the next byte goes to that offset of the file
    cdef size_t unwritten(self) noexcept                        # how many bytes are not in the file
    cdef const char* unwritten_bytes(self, Segment s) except NULL      # those, as they go into the file
    cdef void wrote_all(self) noexcept
    cdef void cut_to(self, size_t keep) noexcept                # forget the bytes behind the first `keep`
    cdef void trim(self) noexcept                               # forget old bytes that are written, when there are many
    cdef int skip(self, Segment s, uint64_t first, uint64_t last, bint lost) except -1      # a SKIP record of the active segment
