"""The bytes of a segment file.

    segment file   = head, record*                                    all numbers little-endian
    head (32)      = "PNSTKSEG"  u32 version  u32 salt  u64 first_seq  u32 0  u32 crc32c(the 28 bytes before)
    record         =
         0  u32 length        the whole record, this field and the checksum included
         4  u8  kind          1 message, 2 remove, 3 skip
         5  u8  state         bit 0: erased (the body was overwritten with zeros); bit 1, in a skip: its sequences are lost;
                              bit 2: a tag of 16 bytes precedes the checksum; bit 3: subject and body are ciphertext
                              (core/log/encryption); bits 6 and 7: the previous (6) and the next (7) message belong to the same group.
                              A group counts only with its last message, which has no bit 7 (core/stream/atomic_batch)
         6  u16 flags         set by the owner, returned unchanged
         8  u16 subject_len
        10  u16 mark          0xA75E: marks a record, to find the next one behind damage
        12  u32 hlen          header bytes at the start of the body
        16  u64 seq           message: its sequence; remove, skip: last_seq when the record was written
        24  u64 ts_ns         message: its timestamp; remove: the floor; skip: the first of its sequences (0: not given)
        32  subject, body (headers then payload; remove: (u64 first, u64 count)*)
       end  u32 crc32c of everything before it, started with the segment's salt

Version 1 is drawn here. Version 2 is the head of a compressed segment file (core/log/compressed_segment), version 3 that of a segment
with encrypted messages, version 4 that of a segment file that is compressed and then encrypted. Heads of versions 3 and 4 are longer:

        24  u32 number of the data key
        32  24 random bytes   56  u32 0   60  u32 crc32c of the 28 bytes before

Each file has its own salt, so bytes in a payload that look like a record, or bytes that an earlier file left on the disk, never
pass as a record of this file. Segments in memory hold the same records without the value of the checksum.
"""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memcmp, memcpy, memset
from pelton.core.base.buffer cimport Out, crc32c, out_reserve

cdef const char* SEGMENT_MAGIC = b"PNSTKSEG"
cdef enum:
    SEGMENT_VERSION = 1
    PACKED_VERSION = 2
    SEALED_VERSION = 3
    SEALED_PACKED_VERSION = 4


# --- ranges of sequences -------------------------------------------------------------------------

cdef int ranges_add(Ranges* r, uint64_t first, uint64_t count) except -1:
    cdef Range* last
    cdef void* grown
    if count == 0:
        return 0
    if r.count:
        last = &r.items[r.count - 1]
        if first == last.first + last.count:
            last.count += count
            return 0
        if first + count == last.first:
            last.first = first
            last.count += count
            return 0
    if r.count == r.cap:
        grown = realloc(r.items, (r.cap * 2 if r.cap else 8) * sizeof(Range))
        if grown == NULL:
            raise MemoryError
        r.items = <Range*>grown
        r.cap = r.cap * 2 if r.cap else 8
    r.items[r.count].first = first
    r.items[r.count].count = count
    r.count += 1
    return 0


cdef int compare_ranges(const void* a, const void* b) noexcept nogil:
    cdef uint64_t x = (<const Range*>a).first
    cdef uint64_t y = (<const Range*>b).first
    return -1 if x < y else (1 if x > y else 0)


cdef void ranges_sort(Ranges* r) noexcept:
    cdef size_t i, n = 0
    cdef Range* last
    cdef uint64_t end
    if r.count < 2:
        return
    qsort(r.items, r.count, sizeof(Range), compare_ranges)
    for i in range(1, r.count):
        last = &r.items[n]
        if r.items[i].first <= last.first + last.count:
            end = r.items[i].first + r.items[i].count
            if end > last.first + last.count:
                last.count = end - last.first
        else:
            n += 1
            r.items[n] = r.items[i]
    r.count = n + 1


cdef void ranges_free(Ranges* r) noexcept:
    free(r.items)
    r.items = NULL
    r.count = 0
    r.cap = 0


# --- the segment's head --------------------------------------------------------------------------

cdef int put_segment_head(Out* out, uint64_t first_seq, uint32_t salt) except -1:
    cdef char* p = out_reserve(out, SEGMENT_HEAD_BYTES)
    cdef uint32_t version = SEGMENT_VERSION, crc
    memset(p, 0, SEGMENT_HEAD_BYTES)
    memcpy(p, SEGMENT_MAGIC, 8)
    memcpy(p + 8, &version, 4)
    memcpy(p + 12, &salt, 4)
    memcpy(p + 16, &first_seq, 8)
    crc = crc32c(p, 28, 0)
    memcpy(p + 28, &crc, 4)
    out.len += SEGMENT_HEAD_BYTES
    return 0


cdef int put_packed_head(Out* out, const char* head) except -1:
    cdef char* p = out_reserve(out, SEGMENT_HEAD_BYTES)
    cdef uint32_t version = PACKED_VERSION, crc
    memcpy(p, head, SEGMENT_HEAD_BYTES)
    memcpy(p + 8, &version, 4)
    crc = crc32c(p, 28, 0)
    memcpy(p + 28, &crc, 4)
    out.len += SEGMENT_HEAD_BYTES
    return 0


cdef bint is_packed_head(const char* p) noexcept:
    cdef uint32_t version
    memcpy(&version, p + 8, 4)
    return version == PACKED_VERSION or version == SEALED_PACKED_VERSION


cdef bint is_sealed_head(const char* p) noexcept:
    cdef uint32_t version
    memcpy(&version, p + 8, 4)
    return version >= SEALED_VERSION


cdef int put_sealed_head(Out* out, uint64_t first_seq, uint32_t salt, uint32_t number, const char* fresh, bint packed) except -1:
    cdef char* p = out_reserve(out, SEALED_HEAD_BYTES)
    cdef uint32_t version = SEALED_PACKED_VERSION if packed else SEALED_VERSION, crc
    put_segment_head(out, first_seq, salt)
    memcpy(p + 8, &version, 4)
    memcpy(p + 24, &number, 4)
    crc = crc32c(p, 28, 0)
    memcpy(p + 28, &crc, 4)
    memcpy(p + SEGMENT_HEAD_BYTES, fresh, FRESH_BYTES)
    memset(p + SEGMENT_HEAD_BYTES + FRESH_BYTES, 0, 4)
    crc = crc32c(p + SEGMENT_HEAD_BYTES, 28, 0)
    memcpy(p + 60, &crc, 4)
    out.len += SEALED_HEAD_BYTES - SEGMENT_HEAD_BYTES
    return 0


cdef inline bint good_half(const char* p) noexcept:
    cdef uint32_t crc
    memcpy(&crc, p + 28, 4)
    return crc == crc32c(p, 28, 0)


cdef bint get_sealed_half(char* head, uint32_t* number) noexcept:
    cdef char* p = head + SEGMENT_HEAD_BYTES
    cdef int bit
    memcpy(number, head + 24, 4)
    if good_half(p):
        return True
    for bit in range(SEGMENT_HEAD_BYTES * 8):
        p[bit >> 3] ^= 1 << (bit & 7)
        if good_half(p):
            return True
        p[bit >> 3] ^= 1 << (bit & 7)
    return False


cdef bint get_segment_head(const char* p, size_t n, uint64_t* first_seq, uint32_t* salt) noexcept:
    cdef uint32_t version, crc
    if n < SEGMENT_HEAD_BYTES or memcmp(p, SEGMENT_MAGIC, 8) != 0:
        return False
    memcpy(&version, p + 8, 4)
    memcpy(&crc, p + 28, 4)
    if not SEGMENT_VERSION <= version <= SEALED_PACKED_VERSION or crc != crc32c(p, 28, 0):
        return False
    memcpy(salt, p + 12, 4)
    memcpy(first_seq, p + 16, 8)
    return True


cdef bint mend_segment_head(char* head, uint64_t* first, uint32_t* salt) noexcept:
    # Corrects one flipped bit in the head of a segment: else the whole segment would be lost.
    cdef int bit
    for bit in range(SEGMENT_HEAD_BYTES * 8):
        head[bit >> 3] ^= 1 << (bit & 7)
        if get_segment_head(head, SEGMENT_HEAD_BYTES, first, salt):
            return True
        head[bit >> 3] ^= 1 << (bit & 7)
    return False


# --- records -------------------------------------------------------------------------------------

cdef void seal_record(char* p, uint32_t length, uint32_t salt) noexcept nogil:
    cdef uint32_t crc = crc32c(p, length - 4, salt)
    memcpy(p + length - 4, &crc, 4)


cdef bint plausible(const char* p, size_t avail, Head* head) noexcept nogil:
    if avail < RECORD_EXTRA_BYTES:
        return False
    memcpy(head, p, RECORD_HEAD_BYTES)
    if head.mark != RECORD_MARK or head.length < RECORD_EXTRA_BYTES or head.length > RECORD_MAX_BYTES:
        return False
    if head.kind < MESSAGE or head.kind > SKIP or head.seq >> 63:
        return False
    return <uint64_t>head.subject_len + head.hlen <= head.length - RECORD_EXTRA_BYTES


cdef uint32_t check_record(const char* p, size_t avail, uint32_t salt, Head* head) noexcept nogil:
    cdef uint32_t crc
    if not plausible(p, avail, head) or head.length > avail:
        return 0
    memcpy(&crc, p + head.length - 4, 4)
    if crc != crc32c(p, head.length - 4, salt):
        return 0
    return head.length


cdef size_t resync(const char* data, size_t at, size_t size, uint32_t salt, uint64_t expected) noexcept nogil:
    # Looks for a mark of a good record that continues the sequence. The length of the bad record is not used: with records of equal
    # size, a flipped bit in the length would lead to a good record behind others.
    cdef Head head
    cdef size_t i
    cdef uint16_t mark
    i = at + 1
    while i + RECORD_EXTRA_BYTES <= size:
        memcpy(&mark, data + i + 10, 2)
        if mark == RECORD_MARK and plausible(data + i, size - i, &head):
            if head.seq + 1 >= expected and head.seq <= expected + GAP_MAX and check_record(data + i, size - i, salt, &head):
                return i
        i += 1
    return size


cdef int put_plain(Out* out, int kind, int state, uint64_t last_seq, uint64_t says, const char* body, uint32_t n, uint32_t salt) except -1:
    cdef uint32_t length = RECORD_EXTRA_BYTES + n
    cdef char* p = out_reserve(out, length)
    cdef Head head
    memset(&head, 0, sizeof(Head))
    head.length = length
    head.kind = kind
    head.state = state
    head.ts_ns = says
    head.mark = RECORD_MARK
    head.seq = last_seq
    memcpy(p, &head, RECORD_HEAD_BYTES)
    if n:
        memcpy(p + RECORD_HEAD_BYTES, body, n)
    seal_record(p, length, salt)
    out.len += length
    return 0


cdef int put_ranges(Out* out, const Range* items, size_t count, uint64_t last_seq, uint64_t below, uint32_t salt) except -1:
    cdef size_t n
    while count:
        n = count if count < RANGES_PER_RECORD else RANGES_PER_RECORD
        put_plain(out, REMOVE, 0, last_seq, below, <const char*>items, n * sizeof(Range), salt)
        items += n
        count -= n
    return 0


cdef int put_skip(Out* out, uint64_t first, uint64_t last_seq, bint lost, uint32_t salt) except -1:
    return put_plain(out, SKIP, LOST if lost else 0, last_seq, first, NULL, 0, salt)
