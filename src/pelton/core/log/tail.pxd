"""The tail: the newest bytes of the active segment in memory. See tail.pyx."""
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.base.buffer cimport Out
from pelton.core.log.segment cimport Segment

cdef enum:
    TAIL_MAX_BYTES = 1572864         # limit of the written bytes kept for reading; beyond it they are cut to TAIL_KEEP_BYTES
    TAIL_KEEP_BYTES = 786432


cdef class Tail:
    cdef Out out                 # written bytes that are kept for reading, then the unwritten bytes
    cdef uint64_t base           # offset of the first byte in the file
    cdef size_t written          # number of written bytes
    cdef Out sealed              # the encrypted bytes of the next write

    cdef void begin(self, uint64_t base) noexcept               # empty the tail; the next byte goes to offset `base` of the file
    cdef size_t unwritten(self) noexcept                        # number of unwritten bytes
    cdef const char* unwritten_bytes(self, Segment s) except NULL      # the unwritten bytes in the form of the file
    cdef void wrote_all(self) noexcept
    cdef void cut_to(self, size_t keep) noexcept                # drop the bytes behind the first `keep`
    cdef void trim(self) noexcept                               # drop old written bytes if there are more than TAIL_MAX_BYTES
    cdef int skip(self, Segment s, uint64_t first, uint64_t last, bint lost) except -1      # append a SKIP record to the active segment
