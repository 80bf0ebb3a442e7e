"""An index by name: finds the subjects of a log that match a pattern without comparing each of them. See subject_index.pyx.

The index follows the changes of its SubjectTable. Knows nothing of messages: it also finds subjects without live messages.
"""
from libc.stdint cimport uint32_t
from pelton.core.base.buffer cimport Out
from pelton.core.log.subject_table cimport SubjectTable

cdef enum:
    TOKENS_MAX = 256         # a pattern of more tokens is compared with every subject


cdef struct Pattern:
    # A pattern and its tokens. `prefix`: the number of bytes before its first wildcard token.
    const char* text
    size_t n
    uint32_t tokens
    uint32_t start[256]
    uint32_t length[256]
    size_t prefix


cdef class SubjectIndex:
    cdef SubjectTable table
    cdef uint32_t* order             # ids; each run of RUN_IDS of them is sorted by name
    cdef uint32_t cap
    cdef uint32_t run                # number of ids in a run
    cdef uint32_t* scratch
    cdef Out key                     # the name at which the search in a run continues

    # Append the ids of the subjects that match to `found`, as uint32s: each once, in no order.
    cdef int match(self, const char* pattern, size_t n, Out* found) except -1
    cdef int compare(self, uint32_t one, uint32_t other) noexcept
    cdef int compare_key(self, uint32_t id) noexcept
    cdef int advance(self) except -1
    cdef int compare_each(self, uint32_t first, uint32_t end, const char* pattern, size_t n, Out* found) except -1
    cdef int sort(self, uint32_t* ids, size_t n, uint32_t* scratch) noexcept     # n ids by name; scratch has room for as many
    cdef int scan(self, Pattern* pattern, const uint32_t* run, Out* found) except -1
    cdef int step(self, Pattern* pattern, const char* s, size_t n) except -1
    cdef size_t seek(self, const uint32_t* run, size_t at) noexcept
    cdef int behind(self, size_t at) noexcept
