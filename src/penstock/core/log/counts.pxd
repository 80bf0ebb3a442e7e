"""Counts of a log that are made from its index; see tally.pyx."""
from libc.stdint cimport uint32_t, uint64_t
from penstock.core.log.index_file cimport LocalSubject
from penstock.core.log.log cimport Log
from penstock.core.log.segment cimport Segment
from penstock.core.log.subject_table cimport SubjectTable

# So many live messages of a subject, in a segment behind those that were counted.
cdef int merge(SubjectTable subjects, uint32_t id, uint32_t live, uint64_t first, uint64_t last) except -1
cdef int merge_rows(SubjectTable subjects, Segment s, const LocalSubject* rows) except -1     # ... of all subjects of a segment
cdef int count_bytes(Log log, Segment s) except -1          # live bytes of a segment
cdef int count_entries(Log log, Segment s) except -1        # those, and its subjects
cdef int recount(Log log) except -1                         # all of it, of every segment
