"""Counts of a log that are made from its index; see counts.pyx."""
from libc.stdint cimport uint32_t, uint64_t
from penstock.core.log.index_file cimport LocalSubject
from penstock.core.log.log cimport Log
from penstock.core.log.segment cimport Segment
from penstock.core.log.subject_table cimport SubjectTable

cdef int merge_rows(SubjectTable subjects, Segment s, const LocalSubject* rows) except -1     # of each subject, in a segment behind those counted
cdef int count_bytes(Log log, Segment s) except -1          # live bytes of a segment
cdef int count_entries(Log log, Segment s) except -1        # those, and its subjects
cdef int recount(Log log) except -1                         # all of it, of every segment
