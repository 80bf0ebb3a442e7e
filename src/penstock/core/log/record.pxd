"""The bytes of a segment file: its head, its records, their checksums. Draws them; see record.pyx.

Knows nothing of files, of indexes, or of which records matter.
"""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from penstock.core.base.buffer cimport Out

cdef enum:
    SEGMENT_HEAD_BYTES = 32
    SEALED_HEAD_BYTES = 64       # of a segment whose messages are encrypted
    TAG_BYTES = 16               # what an encrypted message has behind its payload
    SEALED_EXTRA_BYTES = 52      # RECORD_EXTRA_BYTES with it
    FRESH_BYTES = 24             # random bytes in the head of an encrypted segment
    RECORD_HEAD_BYTES = 32
    RECORD_EXTRA_BYTES = 36      # head and checksum: what a record has besides subject, headers and payload
    RECORD_MARK = 0xA75E
    RECORD_MAX_BYTES = 67108864  # 64 MiB: a longer length field is damage
    RANGES_PER_RECORD = 4096
    GAP_MAX = 1048576            # missing sequences inside a segment beyond this are damage

cdef enum RecordKind:
    MESSAGE = 1
    REMOVE = 2       # body: (u64 first, u64 count)*: these sequences are removed
    SKIP = 3         # sequences from `ts_ns` up to `seq` are consumed; nothing is stored for them

cdef enum RecordState:
    ERASED = 1       # the body was overwritten with zeros
    LOST = 2         # of a SKIP: damage took what had these sequences
    TAGGED = 4       # 16 bytes of a tag come before the checksum (zeros in memory, where the message is plain)
    SEALED = 8       # subject, headers and payload are ciphertext
    MEMBER = 64      # of a group that is stored whole or not at all: the message before belongs to it too
    MORE = 128       # ... and so does the next


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
    # A growable array of ranges; neighbours are joined as they come.
    Range* items
    size_t count
    size_t cap


cdef int ranges_add(Ranges* r, uint64_t first, uint64_t count) except -1
cdef void ranges_sort(Ranges* r) noexcept            # ascending, overlapping and touching ones joined
cdef void ranges_free(Ranges* r) noexcept

cdef int put_segment_head(Out* out, uint64_t first_seq, uint32_t salt) except -1
# The head of the file that holds the same segment compressed (core/log/compressed_segment), from the segment's own.
cdef int put_packed_head(Out* out, const char* head) except -1
cdef bint is_packed_head(const char* p) noexcept             # of a good head: whether it is that one
cdef bint is_sealed_head(const char* p) noexcept             # ... whether 32 bytes more belong to it: the file is encrypted
# The longer head: number of the data key, 24 random bytes. Its first half is as that of a plain one.
cdef int put_sealed_head(Out* out, uint64_t first_seq, uint32_t salt, uint32_t number, const char* fresh, bint packed) except -1
# Of 64 bytes whose first half is good: whether the second is, one flipped bit put right.
cdef bint get_sealed_half(char* head, uint32_t* number) noexcept
cdef bint get_segment_head(const char* p, size_t n, uint64_t* first_seq, uint32_t* salt) noexcept
cdef bint mend_segment_head(char* head, uint64_t* first, uint32_t* salt) noexcept   # one flipped bit put right; False: more is wrong

cdef void seal_record(char* p, uint32_t length, uint32_t salt) noexcept nogil     # writes the checksum of a record in place
# The length of the good record at p, or 0: head plausible, all bytes there, checksum right.
cdef uint32_t check_record(const char* p, size_t avail, uint32_t salt, Head* head) noexcept nogil
# Like check_record without the checksum: whether the head could be one.
cdef bint plausible(const char* p, size_t avail, Head* head) noexcept nogil
# The offset of the next good record after a bad one at `at`, or `size` when there is none.
cdef size_t resync(const char* data, size_t at, size_t size, uint32_t salt, uint64_t expected) noexcept nogil
# REMOVE records; everything below `below` is removed too.
cdef int put_ranges(Out* out, const Range* items, size_t count, uint64_t last_seq, uint64_t below, uint32_t salt) except -1
# A SKIP record for first .. last_seq; first 0: from the sequence after the one before on.
cdef int put_skip(Out* out, uint64_t first, uint64_t last_seq, bint lost, uint32_t salt) except -1
