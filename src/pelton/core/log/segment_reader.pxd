"""Reading segment files without a server. segment_reader.pyi has the Python face."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from pelton.core.base.disk cimport Disk
from pelton.core.base.readonly_disk cimport OverlayDisk
from pelton.core.bulk.columns cimport Columns
from pelton.core.log.log cimport Log
from pelton.core.log.record cimport Head
from pelton.core.log.segment cimport Segment

cdef enum:
    AT_END = 0              # what SegmentReader.step returns besides the kinds of records
    DAMAGE = 16


cdef class SegmentReader:
    """The records of one segment, one after the other."""
    cdef readonly str path
    cdef readonly uint64_t first         # first sequence, from the file name
    cdef readonly uint64_t size          # bytes of the segment, decompressed
    cdef readonly uint64_t stored        # bytes of the file
    cdef readonly bint packed            # the file is compressed
    cdef readonly bint sealed            # it is encrypted
    cdef readonly bint locked            # it is encrypted and compressed, and there is no key: its records cannot be read
    cdef size_t begins                   # bytes of its head
    cdef readonly uint32_t mended_blocks # flipped bits corrected in memory in the blocks of a compressed file
    cdef readonly bint headless          # its head is damaged beyond repair, or belongs to another segment
    cdef readonly bint mended            # one flipped bit of the head was corrected in memory
    cdef readonly bint unmade            # the file is shorter than a head: the process ended while it made the file
    cdef public uint32_t salt            # the salt; for a headless segment the caller may set it
    cdef uint64_t low                    # offset of the first record to read ...
    cdef uint64_t high                   # ... and the end of the last one (0: the end of the file); 0 and 0: the whole file
    cdef size_t base                     # offset of the first byte in `data`
    cdef bytes data
    cdef const char* p                   # address that offset 0 has or would have
    cdef size_t end                      # offset where reading ends
    cdef size_t at                       # offset of the next record
    cdef uint64_t expected               # sequence of the next message if none is missing
    cdef Head head                       # head of the current record of step()
    cdef size_t record                   # offset of the current record, or of the first damaged byte
    cdef int load(self, Disk disk, object cipher) except -1
    cdef uint64_t part_end(self, uint64_t size) noexcept
    cdef int ready(self, int64_t end, bint good) except -1
    cdef int step(self) noexcept nogil   # goes to the next record: its kind, DAMAGE (bytes from `record` to `at`), or AT_END


cdef class SegmentScan:
    """One segment as the log has it, and its damage."""
    cdef readonly str path
    cdef readonly uint64_t first
    cdef readonly uint64_t count         # sequences covered, holes included
    cdef readonly uint64_t live          # live messages
    cdef readonly uint64_t live_bytes    # their accounted size
    cdef readonly uint64_t size
    cdef readonly uint64_t stored
    cdef readonly bint packed
    cdef readonly bint headless
    cdef readonly bint mended            # its head is damaged, but its contents are known
    cdef readonly uint32_t mended_blocks
    cdef readonly uint32_t salt
    cdef readonly list faults            # see the stub


cdef class LogReader:
    """The messages of a folder as an opening would find them, and a position in them."""
    cdef readonly Log log                # opened on the overlay
    cdef readonly OverlayDisk overlay
    cdef readonly str folder
    cdef readonly list segments          # SegmentScan, ascending
    cdef readonly uint64_t next_seq      # fill goes on here
    cdef readonly size_t damages         # runs of damaged bytes that fill() has skipped
    cdef Disk disk
    cdef readonly object cipher          # data keys of an encrypted stream; None
    cdef SegmentReader current
    cdef Segment segment                 # the segment that `current` reads
    cdef Py_ssize_t index                # its index in the log
    cdef dict wanted                     # subject -> whether one of `patterns` matches
    cdef tuple patterns
    cdef bint wants(self, const char* subject, size_t n) except -1
    cdef bint find_segment(self, uint64_t upto) except -1
    cdef uint32_t part_of(self, Segment s, uint64_t upto, uint64_t* low, uint64_t* high) except? 4294967295
    cdef SegmentScan facts_of(self, uint64_t first, dict by_first)
    cdef int find_faults(self, SegmentScan s, Segment segment, uint64_t following) except -1
