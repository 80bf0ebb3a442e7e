"""The segments of a log without live messages whose files are not unlinked yet. See retired_segments.pyx."""
from libc.stdint cimport uint64_t
from pelton.core.base.disk cimport Disk
from pelton.core.log.removals cimport Removals
from pelton.core.log.segment cimport Segment
from pelton.core.log.segment_list cimport SegmentList
from pelton.core.log.unsynced_files cimport UnsyncedFiles
from pelton.core.log.watermarks cimport Watermarks


cdef class RetiredSegments:
    cdef Disk disk
    cdef str folder
    cdef object cipher
    cdef SegmentList segments
    cdef Removals removals
    cdef Watermarks marks
    cdef UnsyncedFiles unsynced
    cdef readonly list items                 # in the order in which they were retired

    cdef int add(self, Segment s) except -1                     # take a sealed segment without live messages off the list of segments
    cdef int drop_all(self) except -1
    cdef int prepare(self, Segment active, uint64_t first_seq) except -1       # record removals again that only retired segments record
    cdef int say_removed(self, Segment s) except -1             # record the removed sequences of a segment again
    cdef bint overdue(self) except -1                           # so many wait for a sync by the owner that the log syncs itself
    cdef int unlink(self) except -1                             # unlink the files that nothing depends on
    cdef int unlink_one(self, Segment s) except -1
    cdef bint make_room(self, Segment active, uint64_t first_seq, size_t wanted) except -1     # the disk is full: whether bytes were freed
    cdef uint64_t reduce(self, Segment s, uint64_t first_seq) except? 18446744073709551615
    cdef int say_gone_in(self, Segment s, uint64_t at, uint64_t end) except -1
    cdef bint tells(self, Segment s, Segment active) except -1
    cdef int close_handles(self) except -1
