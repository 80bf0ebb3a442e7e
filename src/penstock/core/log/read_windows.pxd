"""Windows on the segment files of one log: reads of a few KiB that grow while they go on in order.

Knows nothing of records. No memory map: a bad disk is an OSError here, not a signal.
"""
from libc.stdint cimport uint32_t, uint64_t
from penstock.core.log.segment cimport Segment, SegmentList

cdef enum:
    WINDOWS = 8


cdef struct Window:
    uint32_t serial          # of the segment; 0: empty
    uint32_t ahead           # bytes asked for at the last read
    uint64_t offset
    size_t len
    size_t cap
    uint64_t used
    char* data


cdef class Pages:
    cdef Window windows[WINDOWS]
    cdef uint64_t tick
    cdef int last
    # Bytes [offset, offset + n) of a segment file; NULL when the file ends before. Valid until the next call.
    cdef const char* get(self, SegmentList segments, Segment s, uint64_t offset, size_t n) except? NULL
    cdef const char* fill(self, SegmentList segments, Segment s, uint64_t offset, size_t n) except? NULL
    cdef void forget(self, uint32_t serial) noexcept          # of one segment; 0: all, and their memory


cdef inline const char* window_at(Window* w, uint32_t serial, uint64_t offset, size_t n) noexcept:
    if w.serial == serial and offset >= w.offset and offset + n <= w.offset + w.len:
        return w.data + (offset - w.offset)
    return NULL
