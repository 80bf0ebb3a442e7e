"""How many messages and bytes a log holds, and of which subjects: counted from the index of its segments."""
from libc.stdint cimport uint32_t, uint64_t
from penstock.core.log cimport Log
from penstock.core.segment cimport Segment
from penstock.core.subject_table cimport SubjectTable

cdef int merge(SubjectTable subjects, uint32_t id, uint32_t live, uint64_t first, uint64_t last) except -1   # a segment's share of a subject
cdef int count_bytes(Log log, Segment s) except -1         # s.live_bytes, from the entries
cdef int count_entries(Log log, Segment s) except -1       # ... and its messages into the subject table
cdef int recount(Log log) except -1                        # everything anew: damage took messages whose subjects are not known any more
