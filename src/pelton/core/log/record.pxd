"""The bytes of a segment file: its head, its records, their checksums. record.pyx draws the format.

Knows nothing of files, of index files, or of the meaning of the records for a log.
"""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from pelton.core.base.buffer cimport Out

cdef enum:
    SEGMENT_HEAD_BYTES = 32
    SEALED_HEAD_BYTES = 64       # head of an encrypted segment
    TAG_BYTES = 16               # tag behind the payload of an encrypted message
    SEALED_EXTRA_BYTES = 52      # RECORD_EXTRA_BYTES + TAG_BYTES
    FRESH_BYTES = 24             # random bytes in the head of an encrypted segment
    RECORD_HEAD_BYTES = 32
    RECORD_EXTRA_BYTES = 36      # head and checksum: the bytes of a record besides subject, headers and payload
    RECORD_MARK = 0xA75E
    RECORD_MAX_BYTES = 67108864  # 64 MiB: a longer length field is damage
    RANGES_PER_RECORD = 4096
    GAP_MAX = 1048576            # missing sequences inside a segment beyond this are damage

cdef enum RecordKind:
    MESSAGE = 1
    REMOVE = 2       # body: (u64 first, u64 count)*: the removed sequences
    SKIP = 3         # the sequences `ts_ns` to `seq` have no message

cdef enum RecordState:
    ERASED = 1       # the body was overwritten with zeros
    LOST = 2         # in a SKIP: its sequences are lost
    TAGGED = 4       # a tag of 16 bytes precedes the checksum (zeros in memory, where the message is plain)
    SEALED = 8       # subject, headers and payload are ciphertext
    MEMBER = 64      # part of a group that is stored whole or not at all: the previous message belongs to it, too
    MORE = 128       # ... the next message belongs to it, too


cdef struct Head:
    # The first 32 bytes of a record, as they lie in the file (little-endian; all fields aligned).
    uint32_t length
    uint8_t kind
    uint8_t state
    uint16_t flags
    uint16_t subject_len
    uint16_t mark
    uint32_t hlen
    uint64_t seq
    uint64_t ts_ns


cdef struct Range:
    uint64_t first
    uint64_t count


cdef struct Ranges:
    # A growable array of ranges; a range that continues the last one is joined to it.
    Range* items
    size_t count
    size_t cap


cdef int ranges_add(Ranges* r, uint64_t first, uint64_t count) except -1
cdef void ranges_sort(Ranges* r) noexcept            # ascending, overlapping and touching ones joined
cdef void ranges_free(Ranges* r) noexcept

cdef int put_segment_head(Out* out, uint64_t first_seq, uint32_t salt) except -1
# The head of a compressed file (core/log/compressed_segment), made from the head of the segment.
cdef int put_packed_head(Out* out, const char* head) except -1
cdef bint is_packed_head(const char* p) noexcept             # whether a good head is that of a compressed file
cdef bint is_sealed_head(const char* p) noexcept             # whether a good head is that of an encrypted file: it has 32 more bytes
# The head of an encrypted file, with the number of the data key and 24 random bytes. Its first half is like a plain head.
cdef int put_sealed_head(Out* out, uint64_t first_seq, uint32_t salt, uint32_t number, const char* fresh, bint packed) except -1
# Checks the second half of a 64-byte head whose first half is good; corrects one flipped bit. False: damaged.
cdef bint get_sealed_half(char* head, uint32_t* number) noexcept
cdef bint get_segment_head(const char* p, size_t n, uint64_t* first_seq, uint32_t* salt) noexcept
cdef bint mend_segment_head(char* head, uint64_t* first, uint32_t* salt) noexcept   # corrects one flipped bit; False: more is wrong

cdef void seal_record(char* p, uint32_t length, uint32_t salt) noexcept nogil     # writes the checksum of a record in place
# The length of the record at p if its head is plausible, all its bytes are there and the checksum is right; else 0.
cdef uint32_t check_record(const char* p, size_t avail, uint32_t salt, Head* head) noexcept nogil
# Whether the bytes at p can be a record head: check_record without the checksum.
cdef bint plausible(const char* p, size_t avail, Head* head) noexcept nogil
# The offset of the next good record behind a bad one at `at`; `size` when there is none.
cdef size_t resync(const char* data, size_t at, size_t size, uint32_t salt, uint64_t expected) noexcept nogil
# REMOVE records for these ranges; `below` is the floor.
cdef int put_ranges(Out* out, const Range* items, size_t count, uint64_t last_seq, uint64_t below, uint32_t salt) except -1
# A SKIP record for first .. last_seq; first 0: its first sequence is the one after the previous record.
cdef int put_skip(Out* out, uint64_t first, uint64_t last_seq, bint lost, uint32_t salt) except -1
