"""Scanning a segment from its start. See scan.pyx."""
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.log.index_file cimport Evidence, IndexFile
from pelton.core.log.log cimport Log
from pelton.core.log.segment cimport Segment

cdef enum:
    UNREADABLE_MAX = 4096        # bytes without any head count as at most this many messages


cdef class Scan:
    """The result of scanning a segment, besides the messages."""
    cdef uint64_t good_end       # offset behind the last good or corrected record
    cdef uint64_t heads_end      # in a segment without a head: offset behind the last record with a readable head
    cdef uint64_t last_seq       # highest sequence that the records name; first - 1 when there is none
    cdef uint64_t last_ts
    cdef list missing            # (first sequence, count, reason) of missing sequences; some may turn out to be removed
    cdef list damaged            # (offset, end) of bytes that are not records
    cdef list notes              # lines for the operator about corrected records
    cdef bint bad_end            # the segment ends with bad bytes, behind good_end
    cdef list broken             # (first, end) indexes of groups with a hole that no single flipped bit explains
    cdef uint64_t group_at       # offset of the first record of a group whose last message is missing; 0: none
    cdef uint32_t group_index    # index of the first message of that group
    cdef void end_at(self, uint64_t offset) noexcept            # good_end
    cdef int stop_before(self, uint64_t first, uint32_t count) except -1    # the segment has `count` sequences, those before `first`
    cdef int nothing_good(self, uint64_t size) except -1        # all of its bytes are damaged


cdef class Opened:
    """A segment that is being opened, with the index file or the scan that it was read from."""
    cdef Segment segment
    cdef IndexFile index_file         # the valid index file; None: there is none
    cdef Evidence evidence       # the contents of an index file that is not valid
    cdef Scan scan
    cdef bint touched            # there are removals newer than the index file
    cdef bint headless           # the head is destroyed and its salt unknown: no record can be checked
    cdef bint mended             # the head is damaged on the disk, but its contents are known
    cdef bint unwritten          # its head never reached the disk as a whole: no write to the file was acknowledged
    cdef int hold(self, Segment s) except -1
    cdef bint mend(self, bint known) noexcept                   # sets `mended`; returns `known`: the contents of a bad head are known
    cdef int take_evidence(self, Evidence evidence) except -1
    cdef int take_index_file(self, IndexFile index_file) except -1      # None: it was used, or there is none
    cdef int take_scan(self, Scan scan) except -1
    cdef int lose_head(self, Scan scan) except -1
    cdef void begin_unwritten(self) noexcept
    cdef void touch(self) noexcept


cdef Scan scan(Log log, Segment s)
cdef bytes read_all(Log log, Segment s)            # all bytes of the segment, decompressed
# The highest sequence that a record may have had in the bad bytes at the end of a segment. `expected`: the next sequence there;
# `whole` gets the sequence of the last message that was surely complete.
cdef uint64_t last_named(const char* p, size_t size, uint32_t salt, uint64_t expected, uint64_t* whole) noexcept
# For a segment without a head:
cdef bint never_written(const char* p, uint64_t first) noexcept     # whether a part of the head was never written and is still zeros
cdef Scan guessed(Log log, Segment s)                               # a scan with the last sequence that the records claim
