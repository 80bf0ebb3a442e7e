"""Reading a segment from its start. Drawn and explained in scan.pyx."""
from libc.stdint cimport uint32_t, uint64_t
from penstock.core.log.index_file cimport Evidence, IndexFile
from penstock.core.log.log cimport Log
from penstock.core.log.segment cimport Segment

cdef enum:
    UNREADABLE_MAX = 4096        # messages that bytes without any head are taken for at most


cdef class Scan:
    """What reading a segment from its start found besides the messages."""
    cdef uint64_t good_end       # offset after the last record that is good or mended
    cdef uint64_t heads_end      # of a segment without a head: offset behind the last record whose head can be read
    cdef uint64_t last_seq       # highest sequence the records speak of; first - 1 when none
    cdef uint64_t last_ts
    cdef list missing            # (first sequence, count, reason) of what is not there, unless it was removed
    cdef list damaged            # (offset, end) of bytes that are no record
    cdef list notes              # what was mended, in words
    cdef bint bad_end            # there is something behind good_end
    cdef list broken             # (first, end) indexes of groups that a hole of unknown making has torn
    cdef uint64_t group_at       # offset of the first record of a group whose last message has not come; 0: none
    cdef uint32_t group_index    # ... and its index
    cdef void end_at(self, uint64_t offset) noexcept            # good_end
    cdef int nothing_good(self, uint64_t size) except -1        # all of its bytes are damaged


cdef class Opened:
    """A segment on its way into the log."""
    cdef Segment segment
    cdef IndexFile index_file         # believed; None: not
    cdef Evidence evidence       # of one that is not
    cdef Scan scan
    cdef bint touched            # removals newer than the index file
    cdef bint headless           # its head is gone, and nothing tells what it was: none of its records can be believed
    cdef bint mended             # its head is bad on the disk
    cdef int hold(self, Segment s) except -1
    cdef bint mend(self, bint known) noexcept                   # whether its bad head is known all the same
    cdef int take_evidence(self, Evidence evidence) except -1
    cdef int take_index_file(self, IndexFile index_file) except -1      # None: it was used, or there is none
    cdef int take_scan(self, Scan scan) except -1
    cdef int lose_head(self, Scan scan) except -1
    cdef void touch(self) noexcept


cdef Scan scan(Log log, Segment s)
cdef bytes read_all(Log log, Segment s)            # the bytes of the segment, compressed or not
# Of the bad bytes that a segment ends with, behind which `expected` comes: the highest sequence that a record there may have had;
# `whole`: of the last message that was surely there to its end.
cdef uint64_t last_named(const char* p, size_t size, uint32_t salt, uint64_t expected, uint64_t* whole) noexcept
# Of a segment without a head:
cdef bint never_written(const char* p, uint64_t first) noexcept     # whether the 32 bytes are a head of which a part is still zeros
cdef Scan guessed(Log log, Segment s)                               # how far its sequences went, as its records claim
