"""Counting a log from its index; see counts.pyx."""
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.log.index_file cimport LocalSubject
from pelton.core.log.log cimport Log
from pelton.core.log.segment cimport Segment
from pelton.core.log.subject_table cimport SubjectTable

cdef int merge_rows(SubjectTable subjects, Segment s, const LocalSubject* rows) except -1     # count subjects from an index file, in order of the segments
cdef int count_bytes(Log log, Segment s) except -1          # count the live bytes of a segment
cdef int count_entries(Log log, Segment s) except -1        # count the live bytes and the subjects of a segment
cdef int recount(Log log) except -1                         # count everything in every segment again
