"""The ordered list of the segments of one log."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from pelton.core.base.disk cimport Disk
from pelton.core.log.segment cimport Segment


cdef class SegmentList:
    cdef readonly list items              # ascending; the last one is active
    cdef Segment active
    cdef Disk disk
    cdef str folder
    cdef object cipher                    # data keys of the stream; None: the stream is not encrypted
    cdef object rebuild                   # called with a segment whose entries cannot be read from its index file
    cdef uint64_t tick
    cdef size_t loaded_bytes              # bytes of the entry arrays of sealed segments in memory
    cdef public size_t loaded_limit       # the limit of loaded_bytes
    cdef size_t loads
    cdef Py_ssize_t hint
    cdef uint32_t serials

    cdef int rebuild_with(self, object rebuild) except -1      # set `rebuild`
    cdef void number(self, Segment s) noexcept                 # give the segment a new serial
    cdef void count_entries(self, Segment s) noexcept          # entries of a sealed segment are in memory
    cdef void forget_entries(self, Segment s) noexcept
    cdef void activate(self, Segment s) noexcept               # appends go to this segment
    cdef str path(self, Segment s, str suffix)
    cdef int add(self, Segment s) except -1
    cdef int discard(self, Segment s) except -1
    cdef Py_ssize_t position(self, uint64_t seq) noexcept       # of the first segment that ends at or after seq; len(items) if none
    cdef Segment find(self, uint64_t seq)                       # the segment that covers seq, or None
    cdef int need(self, Segment s) except -1                    # loads its entries; they stay in memory until the next call
    cdef int load(self, Segment s) except -1
    cdef int make_room(self, Segment keep) except -1
    cdef int handle(self, Segment s) except -1                  # the file of the segment, opened if needed; for use before the next call
    cdef int64_t read_at(self, Segment s, char* p, size_t n, uint64_t offset) except -1     # bytes of the segment, compressed or not
    cdef uint64_t next_live(self, uint64_t seq) noexcept
    cdef uint64_t prev_live(self, uint64_t seq) noexcept
    cdef uint64_t next_wanted(self, uint64_t seq, uint64_t stop, const uint8_t* wanted, uint32_t n) except? 18446744073709551615
    cdef uint64_t prev_wanted(self, uint64_t seq, const uint8_t* wanted, uint32_t n) except? 18446744073709551615
    cdef uint64_t count_wanted(self, uint64_t seq, uint64_t stop, const uint8_t* wanted, uint32_t n) except? 18446744073709551615
    cdef uint64_t next_headed(self, uint64_t seq) except? 18446744073709551615     # the lowest live sequence >= seq that has headers, 0 if none
    cdef bint holds(self, Segment s, uint32_t subject) noexcept
    cdef uint64_t next_of(self, uint64_t seq, uint32_t subject, uint64_t* cost) except? 18446744073709551615
    cdef uint64_t prev_of(self, uint64_t seq, uint32_t subject, uint64_t* cost) except? 18446744073709551615
