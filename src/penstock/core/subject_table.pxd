"""The subjects of one log: ids, live counts, lowest and highest live sequence.

Knows nothing of files or of patterns. Ids are given once and never reused while the log is open.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from penstock.core.maps cimport BytesMap
from penstock.core.segment cimport SegmentList

cdef enum:
    FIRST_STALE = 1      # `first` is only a lower bound
    LAST_STALE = 2       # `last` is only an upper bound


cdef struct SubjectState:
    uint64_t msgs              # live messages on this subject
    uint64_t first             # lowest live sequence (exact: the log repairs it before handing the struct out)
    uint64_t last              # highest live sequence (exact)
    const char* name
    uint32_t name_len


cdef struct History:
    # The sequences of one subject, ascending; removed ones stay until they reach an end or outnumber the live ones.
    uint64_t* seqs
    uint32_t at                # of the first one
    uint32_t end
    uint32_t cap


cdef struct Subject:
    SubjectState state
    History* history
    uint32_t seen              # serial of the segment it was last appended to
    uint32_t local             # scratch: its number in a segment's own table
    uint8_t stale


cdef class SubjectTable:
    cdef Subject* table
    cdef readonly uint32_t count         # ids given
    cdef uint32_t cap
    cdef readonly uint64_t live          # subjects with live messages
    cdef readonly bint tracking          # every subject with more than one live message has a history
    cdef BytesMap ids
    cdef SegmentList segments
    cdef public uint64_t debt_free       # entries that may be looked at before histories are worth a thought
    cdef uint64_t debt                   # entries looked at for want of histories
    cdef uint64_t total                  # live messages of all subjects
    cdef object names                    # the SubjectIndex, once somebody asked by pattern
    cdef list arena
    cdef char* arena_at
    cdef size_t arena_left

    cdef int64_t find(self, const char* name, uint32_t n) noexcept
    cdef uint32_t intern(self, const char* name, uint32_t n) except? 4294967295
    cdef uint32_t intern_hashed(self, const char* name, uint32_t n, uint64_t h) except? 4294967295
    cdef const char* keep_name(self, const char* name, uint32_t n) except NULL
    cdef int appended(self, uint32_t id, uint64_t seq) except -1
    cdef void removed(self, uint32_t id, uint64_t seq) noexcept
    cdef void reset(self) noexcept                                       # no live message left
    cdef SubjectState* state(self, uint32_t id) except? NULL             # exact; NULL without live messages
    cdef int repair(self, Subject* s, uint32_t id) except -1
    cdef int repair_by_history(self, Subject* s) except -1
    cdef uint64_t next_from(self, uint32_t id, uint64_t seq) except? 18446744073709551615    # its lowest live sequence >= seq; 0: none
    cdef uint64_t last_upto(self, uint32_t id, uint64_t seq) except? 18446744073709551615    # its highest live sequence <= seq; 0: none
    cdef uint64_t live_from(self, uint32_t id, uint64_t seq) except? 18446744073709551615    # how many of its live messages are >= seq
    cdef int track(self) except -1                                       # build the histories
    cdef History* history_of(self, uint32_t id) except? NULL
    cdef bint alive(self, uint64_t seq) except -1
    cdef int push(self, Subject* s, uint64_t seq) except -1
    cdef int remember(self, Subject* s, uint64_t seq) except -1
    cdef void forget(self, Subject* s) noexcept
