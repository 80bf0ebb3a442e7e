"""Read windows: bytes of the segment files of one log in memory. Sequential reads make the windows larger.

Windows are read with system calls and not mapped, so a bad disk raises OSError instead of a signal. Knows nothing of records.
"""
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.log.segment cimport Segment
from pelton.core.log.segment_list cimport SegmentList

cdef enum:
    WINDOWS = 8


cdef struct Window:
    uint32_t serial          # of the segment; 0: empty
    uint32_t ahead           # bytes of the last read
    uint64_t offset
    size_t len
    size_t cap
    uint64_t used
    char* data


cdef class Pages:
    cdef Window windows[WINDOWS]
    cdef uint64_t tick
    cdef int last
    # Bytes [offset, offset + n) of a segment; NULL when the segment ends before offset + n. Valid until the next call.
    cdef const char* get(self, SegmentList segments, Segment s, uint64_t offset, size_t n) except? NULL
    cdef const char* fill(self, SegmentList segments, Segment s, uint64_t offset, size_t n) except? NULL
    cdef void forget(self, uint32_t serial) noexcept          # drop the windows of one segment; 0: drop all and free their memory


cdef inline const char* window_at(Window* w, uint32_t serial, uint64_t offset, size_t n) noexcept:
    if w.serial == serial and offset >= w.offset and offset + n <= w.offset + w.len:
        return w.data + (offset - w.offset)
    return NULL
