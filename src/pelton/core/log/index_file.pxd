"""The index file of a sealed segment: written when it is sealed, read when the log is opened. Rebuildable at any time."""
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.log.record cimport Ranges
from pelton.core.log.segment cimport Segment
from pelton.core.log.segment_list cimport SegmentList
from pelton.core.log.subject_table cimport SubjectTable


cdef struct LocalSubject:
    # One row of an index file's subject table, as it lies in the file.
    uint32_t live
    uint32_t first           # index of its first and last live entry
    uint32_t last
    uint32_t name_len


cdef class IndexFile:
    """The contents of an index file besides the entries."""
    cdef bytes tables            # the part of the file after the entries
    cdef const LocalSubject* rows
    cdef uint32_t row_count
    cdef uint32_t range_count
    cdef size_t ranges_at        # offset of the ranges in tables
    cdef uint64_t last_seq       # highest sequence that the records name


cdef class Evidence:
    """The contents of an index file whose segment has changed since, or is missing."""
    cdef uint32_t salt
    cdef uint32_t count
    cdef uint64_t size           # size of the segment when the index file was written
    cdef uint64_t last_seq
    cdef uint64_t last_ts
    cdef uint64_t removed_below
    cdef list live               # (first, end) of sequences with a live message
    cdef list gone               # (first, end) of sequences without one: removed, or never a message
    cdef list ranges             # (first, count) in its REMOVE records


cdef bint write_index_file(SegmentList segments, SubjectTable subjects, Segment s, uint64_t last_seq) except -1
cdef IndexFile read_index_file(SegmentList segments, SubjectTable subjects, Segment s)     # fills s; None when missing, damaged or of another file
cdef int doubt_index_file(SegmentList segments, Segment s) except -1
cdef Evidence read_evidence(SegmentList segments, Segment s)       # None when there is none; s.salt 0: any salt is accepted
cdef bint read_ranges(SegmentList segments, Segment s, Ranges* out) except -1         # the ranges in an index file; False when it is not valid
