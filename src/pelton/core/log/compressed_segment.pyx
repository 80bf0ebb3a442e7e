"""Segment files that are compressed block by block; readers see the uncompressed bytes.

    file    = head (32)   the head of the segment (core/log/record), but with version 2
              block*      u32 length of the data that follows (bit 31: stored uncompressed), an S2 block of 65536 bytes of the segment;
                          the last block has the remaining bytes
              count x { u32 the length again, u32 crc32c of that many bytes }
              u64 bytes of the segment   u32 count   u32 crc32c from the lengths to here   "PNSTKEN2"

An encrypted file has a longer head, with version 4. Each of its blocks is the length, ciphertext and a tag of 16 bytes; the nonce is
the number of the block, and the length is authenticated with the block. The records in a block are plain (core/log/encryption).

All numbers are little-endian. The first block contains the head of the segment too, with version 1 or 3, so offsets in the segment
are the same before and after compression. When the table at the end is damaged, the reader finds the blocks one after the other
and has no checksums of them. One flipped bit would make a whole block unreadable, so it is corrected in memory when the checksum of
the block proves which bit it is (the records have their own checksums, too). A block that cannot be decompressed reads as zeros,
which are no records.

All logs share a cache of a few decompressed blocks; the least recently used block is replaced.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset
from pelton.core.base.buffer cimport Out, crc32c, out_free, out_put, out_reserve
from pelton.core.base.disk cimport Disk
from pelton.core.base.s2 cimport s2_bound, s2_decode, s2_decoded_len, s2_encode
from pelton.core.log.checksum_repair cimport flipped_bit
from pelton.core.log.encryption cimport aead_of, begin_file, open_part, seal_part
from pelton.core.log.record cimport (
    SEALED_HEAD_BYTES, SEGMENT_HEAD_BYTES, TAG_BYTES, get_sealed_half, get_segment_head, mend_segment_head, put_packed_head,
)

cdef const char* END_MAGIC = b"PNSTKEN2"
cdef enum:
    LENGTH_BYTES = 4
    ROW_BYTES = 8
    END_BYTES = 24
    CACHED = 8

cdef uint32_t PLAIN = <uint32_t>1 << 31


cdef struct Cached:
    uint64_t owner         # Packed.id; 0: empty
    uint64_t used
    uint32_t block
    char* data             # PACKED_BLOCK_BYTES

cdef Cached[CACHED] cache
cdef uint64_t cache_tick = 0
cdef uint64_t ids = 0
memset(cache, 0, sizeof(cache))


cdef bytes pack(const char* p, size_t n, object cipher):
    """Compress the n bytes of a segment into a file."""
    cdef Out out
    cdef Out lengths
    cdef size_t at = 0, part, length
    cdef uint32_t said, count = 0, crc
    cdef uint64_t size = n
    cdef char* to
    cdef object aead = None
    cdef bytes sealed
    cdef uint64_t first
    cdef uint32_t salt
    memset(&out, 0, sizeof(Out))
    memset(&lengths, 0, sizeof(Out))
    try:
        if cipher is None:
            put_packed_head(&out, p)
        else:
            get_segment_head(p, n, &first, &salt)
            aead = begin_file(cipher, &out, first, salt, True)
        while at < n:
            part = min(n - at, <size_t>PACKED_BLOCK_BYTES)
            to = out_reserve(&out, LENGTH_BYTES + s2_bound(part)) + LENGTH_BYTES
            length = s2_encode(<const uint8_t*>p + at, part, <uint8_t*>to)
            said = <uint32_t>length
            if length >= part:
                memcpy(to, p + at, part)
                length = part
                said = <uint32_t>part | PLAIN
            if aead is not None:
                length += TAG_BYTES
                said += TAG_BYTES
                sealed = seal_part(aead, count, to, length - TAG_BYTES, bound_to(said))
                to = out_reserve(&out, LENGTH_BYTES + length) + LENGTH_BYTES
                memcpy(to, PyBytes_AS_STRING(sealed), length)
            memcpy(to - LENGTH_BYTES, &said, LENGTH_BYTES)
            out.len += LENGTH_BYTES + length
            out_put(&lengths, <const char*>&said, LENGTH_BYTES)
            crc = crc32c(out.data + out.len - length, length, 0)
            out_put(&lengths, <const char*>&crc, LENGTH_BYTES)
            count += 1
            at += part
        out_put(&lengths, <const char*>&size, 8)
        out_put(&lengths, <const char*>&count, 4)
        crc = crc32c(lengths.data, lengths.len, 0)
        out_put(&lengths, <const char*>&crc, 4)
        out_put(&lengths, END_MAGIC, 8)
        out_put(&out, lengths.data, lengths.len)
        return PyBytes_FromStringAndSize(out.data, out.len)
    finally:
        out_free(&out)
        out_free(&lengths)


cdef inline bytes bound_to(uint32_t said):
    return PyBytes_FromStringAndSize(<const char*>&said, LENGTH_BYTES)


cdef Packed open_packed(Disk disk, int handle, object cipher, str path):
    """Open a compressed segment file for reading."""
    global ids
    cdef Packed found = Packed()
    cdef char[SEALED_HEAD_BYTES] head
    cdef uint64_t first
    cdef uint32_t number, salt
    ids += 1
    found.id = ids
    found.stored = disk.size(handle)
    found.begins = SEGMENT_HEAD_BYTES
    if cipher is not None:
        found.cipher = cipher
        found.begins = SEALED_HEAD_BYTES
        disk.read_at(handle, head, SEALED_HEAD_BYTES, 0)
        if not get_segment_head(head, SEALED_HEAD_BYTES, &first, &salt):
            mend_segment_head(head, &first, &salt)
        get_sealed_half(head, &number)
        found.aead = aead_of(cipher, head, path)
    if not read_table(found, disk, handle):
        walk(found, disk, handle)
    return found


cdef bint read_table(Packed found, Disk disk, int handle) except -1:
    """Read the table at the end; False when a part of it is damaged."""
    cdef char[END_BYTES] end
    cdef uint32_t count, crc, length, k
    cdef uint64_t size, at = found.begins
    cdef bytes table
    cdef const char* p
    if found.stored < found.begins + END_BYTES:
        return False
    if disk.read_at(handle, end, END_BYTES, found.stored - END_BYTES) != END_BYTES or memcmp(end + 16, END_MAGIC, 8) != 0:
        return False
    memcpy(&size, end, 8)
    memcpy(&count, end + 8, 4)
    memcpy(&crc, end + 12, 4)
    if size > <uint64_t>count * PACKED_BLOCK_BYTES or (count and size <= <uint64_t>(count - 1) * PACKED_BLOCK_BYTES):
        return False
    if <uint64_t>count * ROW_BYTES > found.stored - found.begins - END_BYTES:
        return False
    table = PyBytes_FromStringAndSize(NULL, count * ROW_BYTES)
    p = PyBytes_AS_STRING(table)
    if disk.read_at(handle, <char*>p, count * ROW_BYTES, found.stored - END_BYTES - count * ROW_BYTES) != count * ROW_BYTES:
        return False
    if crc32c(end, 12, crc32c(p, count * ROW_BYTES, 0)) != crc:
        return False
    found.table = table
    found.starts = <uint64_t*>malloc((count + 1) * sizeof(uint64_t))
    if found.starts == NULL:
        raise MemoryError
    for k in range(count):
        found.starts[k] = at
        memcpy(&length, p + k * ROW_BYTES, LENGTH_BYTES)
        at += LENGTH_BYTES + (length & ~PLAIN)
    found.starts[count] = at
    found.count = count
    found.size = size
    if at + count * ROW_BYTES + END_BYTES == found.stored:
        return True
    found.table = None
    return False


cdef bint ends_packed(Disk disk, int handle) except -1:
    """Whether a file with an unreadable head has the end of a compressed file."""
    cdef Packed found = Packed()
    found.begins = SEGMENT_HEAD_BYTES
    found.stored = disk.size(handle)
    return read_table(found, disk, handle)


cdef int walk(Packed found, Disk disk, int handle) except -1:
    """Find the blocks one after the other, as long as their lengths are plausible."""
    cdef uint64_t at = found.begins
    cdef uint32_t said, length, cap = 0
    cdef uint8_t[8] lead
    cdef long long size
    cdef void* grown
    found.count = 0
    found.size = 0
    while at + LENGTH_BYTES < found.stored:
        if found.count + 2 > cap:
            cap = cap * 2 if cap else 64
            grown = realloc(found.starts, cap * sizeof(uint64_t))
            if grown == NULL:
                raise MemoryError
            found.starts = <uint64_t*>grown
        memset(lead, 0, 8)
        disk.read_at(handle, <char*>lead, 8, at)
        memcpy(&said, lead, LENGTH_BYTES)
        length = said & ~PLAIN
        if found.aead is not None:
            if length > s2_bound(PACKED_BLOCK_BYTES) + TAG_BYTES or at + LENGTH_BYTES + length > found.stored:
                break
            size = found.measure(disk, handle, at, said)
        else:
            size = length if said & PLAIN else s2_decoded_len(lead + LENGTH_BYTES, 4)
        if length == 0 or not 1 <= size <= PACKED_BLOCK_BYTES or length > s2_bound(PACKED_BLOCK_BYTES) + TAG_BYTES:
            break
        if at + LENGTH_BYTES + length > found.stored:
            break
        found.starts[found.count] = at
        at += LENGTH_BYTES + length
        found.count += 1
        found.starts[found.count] = at
        found.size += size
        if size < PACKED_BLOCK_BYTES:
            return 0
    # The last block was not found: the rest of the file is damaged, and one unreadable block stands for it.
    if found.starts == NULL:
        found.starts = <uint64_t*>malloc(2 * sizeof(uint64_t))
        if found.starts == NULL:
            raise MemoryError
    found.starts[found.count] = at
    found.count += 1
    found.size = <uint64_t>found.count * PACKED_BLOCK_BYTES
    grown = realloc(found.starts, (found.count + 1) * sizeof(uint64_t))
    if grown == NULL:
        raise MemoryError
    found.starts = <uint64_t*>grown
    found.starts[found.count] = at
    return 0


cdef class Packed:
    """The places of the blocks in one compressed file."""

    def __dealloc__(self):
        cdef int k
        free(self.starts)
        for k in range(CACHED):
            if cache[k].owner == self.id:
                cache[k].owner = cache[k].used = 0

    cdef bytes opened(self, bytes raw, uint32_t said, uint32_t k):
        # Decrypts a block: its length, then the plain data. Without data when the authentication fails.
        cdef bytes lead = bound_to(said)
        cdef bytes plain = open_part(self.aead, self.cipher, k, PyBytes_AS_STRING(raw) + LENGTH_BYTES,
                                     PyBytes_GET_SIZE(raw) - LENGTH_BYTES, lead)
        return lead if plain is None else lead + plain

    cdef long long measure(self, Disk disk, int handle, uint64_t at, uint32_t said) except -1:
        # Decompressed size of the encrypted block at `at`; 0: the block cannot be read.
        cdef size_t n = LENGTH_BYTES + (said & ~PLAIN)
        cdef bytes raw = PyBytes_FromStringAndSize(NULL, n)
        if disk.read_at(handle, PyBytes_AS_STRING(raw), n, at) != <int64_t>n:
            return 0
        raw = self.opened(raw, said, self.count)
        n = PyBytes_GET_SIZE(raw) - LENGTH_BYTES
        if said & PLAIN or n == 0:
            return n
        return max(s2_decoded_len(<const uint8_t*>PyBytes_AS_STRING(raw) + LENGTH_BYTES, n), 0)

    cdef int64_t read_at(self, Disk disk, int handle, char* p, size_t n, uint64_t offset) except -1:
        cdef size_t done = 0, part, inside
        cdef const char* data
        if offset >= self.size:
            return 0
        n = <size_t>min(<uint64_t>n, self.size - offset)
        while done < n:
            inside = <size_t>((offset + done) % PACKED_BLOCK_BYTES)
            part = min(n - done, PACKED_BLOCK_BYTES - inside)
            data = self.block(disk, handle, <uint32_t>((offset + done) // PACKED_BLOCK_BYTES))
            memcpy(p + done, data + inside, part)
            done += part
        return n

    cdef const char* block(self, Disk disk, int handle, uint32_t k) except NULL:
        """A decompressed block; valid until the next call."""
        global cache_tick
        cdef Cached* slot = cache
        cdef bytes raw
        cdef const char* p
        cdef uint32_t said
        cdef size_t n = <size_t>(self.starts[k + 1] - self.starts[k]), size
        cdef int i
        cache_tick += 1
        for i in range(CACHED):
            if cache[i].owner == self.id and cache[i].block == k:
                cache[i].used = cache_tick
                return cache[i].data
            if cache[i].used < slot.used:
                slot = &cache[i]
        if slot.data == NULL:
            slot.data = <char*>calloc(1, PACKED_BLOCK_BYTES)
            if slot.data == NULL:
                raise MemoryError
        slot.owner = 0
        size = <size_t>min(<uint64_t>PACKED_BLOCK_BYTES, self.size - <uint64_t>k * PACKED_BLOCK_BYTES)
        raw = PyBytes_FromStringAndSize(NULL, n)
        p = PyBytes_AS_STRING(raw)
        if disk.read_at(handle, <char*>p, n, self.starts[k]) != <int64_t>n or n <= LENGTH_BYTES:
            memset(slot.data, 0, PACKED_BLOCK_BYTES)
        else:
            if self.table is not None:
                self.mend(<char*>p, n, k)
            elif self.aead is None:
                self.unsure += 1
            memcpy(&said, p, LENGTH_BYTES)
            if self.aead is not None:
                raw = self.opened(raw, said, k)
                p = PyBytes_AS_STRING(raw)
                n = PyBytes_GET_SIZE(raw)
            if said & PLAIN and n - LENGTH_BYTES == size:
                memcpy(slot.data, p + LENGTH_BYTES, size)
            elif said & PLAIN or n <= LENGTH_BYTES or s2_decoded_len(<const uint8_t*>p + LENGTH_BYTES, n - LENGTH_BYTES) != <long long>size or not s2_decode(
                    <const uint8_t*>p + LENGTH_BYTES, n - LENGTH_BYTES, <uint8_t*>slot.data, size):
                memset(slot.data, 0, PACKED_BLOCK_BYTES)
        slot.owner = self.id
        slot.block = k
        slot.used = cache_tick
        return slot.data

    cdef int mend(self, char* p, size_t n, uint32_t k) except -1:
        """Correct one flipped bit in the n bytes of a block, if its checksum proves which bit it is."""
        cdef uint32_t crc, said
        cdef int64_t bit
        memcpy(&said, PyBytes_AS_STRING(self.table) + k * ROW_BYTES, LENGTH_BYTES)
        memcpy(&crc, PyBytes_AS_STRING(self.table) + k * ROW_BYTES + LENGTH_BYTES, LENGTH_BYTES)
        if memcmp(p, &said, LENGTH_BYTES) != 0:
            memcpy(p, &said, LENGTH_BYTES)            # the table has the length, too
            self.mended += 1
        bit = flipped_bit(p + LENGTH_BYTES, n - LENGTH_BYTES, crc, 0)
        if 0 <= bit < <int64_t>(n - LENGTH_BYTES) * 8:
            p[LENGTH_BYTES + (bit >> 3)] ^= 1 << (bit & 7)
            self.mended += 1
        if self.aead is None and crc32c(p + LENGTH_BYTES, n - LENGTH_BYTES, 0) != crc:
            self.unsure += 1
        return 0
