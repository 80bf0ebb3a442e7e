"""Segment files read without a log; see segment_reader.pyi for what Python sees."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from penstock.core.columns cimport Columns
from penstock.core.disk cimport Disk
from penstock.core.record cimport Head, Ranges

cdef enum:
    AT_END = 0              # what SegmentReader.step returns besides the kinds of records
    DAMAGE = 16


cdef struct Row:
    uint64_t seq
    uint64_t ts_ns
    uint32_t size                        # accounted


cdef class Opener:
    """Gives the plain subject and body of a record whose file holds them sealed; the base class is for files that do not.

    open_record is called for messages only, after the record's checksum was found right. It points head-sized facts at
    plain bytes that stay valid until its next call; False: it can't be opened (wrong key, altered).
    """
    cdef bint open_record(self, SegmentReader segment, const char* record, Head* head, const char** subject, const char** body) except -1


cdef class SegmentReader:
    """The records of one segment, one after the other."""
    cdef readonly str path
    cdef readonly uint64_t first         # sequence that its name says
    cdef readonly uint64_t size          # bytes of the segment, decompressed
    cdef readonly uint64_t stored        # bytes of the file
    cdef readonly bint packed            # the file is compressed
    cdef readonly bint headless          # its head is damaged beyond mending, or of another segment: no record can be believed
    cdef readonly bint mended            # one flipped bit of the head was put right, in memory
    cdef readonly bint unmade            # shorter than a head: its making was cut short
    cdef readonly uint32_t salt
    cdef bytes data
    cdef const char* p
    cdef size_t end                      # where reading ends
    cdef size_t at                       # of the next record
    cdef uint64_t expected               # sequence of the next message if nothing is missing
    cdef Head head                       # of the record that step() came to
    cdef size_t record                   # ... and its offset; damage: the first damaged byte
    cdef int load(self, Disk disk) except -1
    cdef int step(self) noexcept nogil   # goes to the next record: its kind, DAMAGE (bytes from `record` to `at`), or AT_END


cdef class SegmentScan:
    """What a segment holds, and which of its messages live."""
    cdef readonly str path
    cdef readonly uint64_t first
    cdef readonly uint64_t count         # sequences covered, holes included
    cdef readonly uint64_t messages      # records of messages that count
    cdef readonly uint64_t live          # messages that are there and not removed
    cdef readonly uint64_t live_bytes    # their accounted size
    cdef readonly uint64_t size
    cdef readonly uint64_t stored
    cdef readonly bint packed
    cdef readonly bint headless
    cdef readonly bint mended
    cdef readonly bint unmade
    cdef readonly uint64_t removals      # REMOVE records
    cdef readonly uint64_t skips         # SKIP records
    cdef readonly uint64_t erased        # messages whose bytes were overwritten
    cdef readonly uint64_t good_end      # offset behind the last record that counts
    cdef readonly uint64_t cut           # the last segment: sequences of an unfinished group, which do not count
    cdef readonly uint64_t last_seq      # highest sequence its records speak of
    cdef readonly uint64_t first_live    # 0: none
    cdef readonly uint64_t last_live
    cdef readonly uint64_t first_ts_ns   # of the first and last live message
    cdef readonly uint64_t last_ts_ns
    cdef readonly list damaged           # (offset, end) of bytes that are no record
    cdef readonly list faults            # (offset, end, [(first sequence, count, reason)]): what each damage costs
    cdef readonly bint whole             # read record by record; False: taken from its index file
    cdef object bad_end                  # None, or the sequence that damaged bytes at the end claim (0: none)
    cdef list missing                    # (first sequence, count, reason, offset, end), before removals are known
    cdef uint64_t group_at               # offset of the first record of a group that is not finished; 0: none
    cdef uint64_t group_index
    cdef uint8_t* gone                   # a bit per message: removed or erased
    cdef uint64_t gone_bits              # its bits; the messages of the segment, or (not whole) its sequences
    cdef Row* rows                       # while it is being looked at
    cdef uint64_t row_cap
    cdef int push(self, Head* head) except -1


cdef class LogReader:
    """The segments of a folder, and a place in their messages."""
    cdef readonly list segments          # SegmentScan, ascending
    cdef readonly uint64_t msgs
    cdef readonly uint64_t bytes
    cdef readonly uint64_t first_seq
    cdef readonly uint64_t last_seq
    cdef readonly list lost
    cdef readonly uint64_t next_seq      # fill goes on here
    cdef readonly uint64_t unopened      # messages that the opener could not open
    cdef Disk disk
    cdef readonly str folder
    cdef Opener opener
    cdef SegmentReader current
    cdef Py_ssize_t index                # of the segment that `current` reads
    cdef uint64_t ordinal                # of the next message in it
    cdef Ranges ranges                   # what the segments looked at so far remove from older ones
    cdef dict wanted                     # subject -> whether one of `patterns` matches
    cdef tuple patterns
    cdef bint wants(self, const char* subject, size_t n) except -1
    cdef bint find_segment(self) except -1
    cdef SegmentScan look(self, uint64_t first, uint64_t following, bint quick)
    cdef int apply_ranges(self, SegmentScan s) except -1
    cdef int note_tail(self, SegmentScan s, SegmentReader r) except -1
    cdef int add_up(self, bint quick) except -1
