"""S2 and snappy: blocks, and the framed stream of them.

    block    = uvarint decoded length, op*
    op         by the two low bits of its first byte, the tag:
      00       literal: length - 1 in the upper six bits, or 60..63: in the 1..4 bytes that follow; then the bytes
      01       copy: length 4..11 in bits 2-4, offset of 11 bits: bits 5-7 and one byte; in S2 offset 0 means the last offset again, and
               then the length's bits say 0..4: that + 4; 5: one byte + 8; 6: two bytes + 260; 7: three bytes + 65540
      10       copy: length - 1 in the upper six bits, offset in two bytes
      11       copy: length - 1 in the upper six bits, offset in four bytes
    stream   = chunk*
    chunk    = u8 type, u24 length, that many bytes                             all numbers little-endian
      ff       "S2sTwO" or "sNaPpY": a stream begins
      00       u32 masked CRC32C of the decompressed bytes, block
      01       u32 masked CRC32C, the bytes as they are
      80..fe   passed over: padding, index

Compressing is greedy with one hash table of four-byte words; it makes no S2 repeats, so that readers of snappy read it too.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from pelton.core.base.buffer cimport Out, crc32c, out_free, out_put, out_reserve, out_waiting

BLOCK_MAX = S2_BLOCK_MAX

cdef enum:
    HASH_BITS = 14
    MIN_INPUT = 16               # a shorter block is one literal
    LITERAL = 0
    COPY1 = 1
    COPY2 = 2
    COPY4 = 3
    CHUNK_HEAD_BYTES = 4
    CRC_BYTES = 4
    KIND_BLOCK = 0x00
    KIND_PLAIN = 0x01
    KIND_SKIP = 0x80             # and above: passed over
    KIND_START = 0xFF
    MAGIC_BYTES = 6

cdef const char* MAGIC_S2 = b"S2sTwO"
cdef const char* MAGIC_SNAPPY = b"sNaPpY"


cdef inline uint32_t load32(const uint8_t* p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v


cdef inline uint64_t load64(const uint8_t* p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return v


cdef extern from *:
    """
    #if defined(_MSC_VER)
    #include <intrin.h>
    static inline unsigned count_zeros64(uint64_t v) {
        unsigned long at;
        _BitScanForward64(&at, v);
        return at;
    }
    #else
    #define count_zeros64(v) ((unsigned)__builtin_ctzll(v))
    #endif
    """
    unsigned count_zeros64(uint64_t v) noexcept nogil


# --- compressing ---------------------------------------------------------------------------------

cdef size_t s2_bound(size_t n) noexcept nogil:
    return 32 + n + n // 6


cdef inline uint8_t* put_literal(uint8_t* to, const uint8_t* p, size_t n) noexcept nogil:
    cdef size_t k = n - 1
    if n == 0:
        return to
    if k < 60:
        to[0] = <uint8_t>(k << 2) | LITERAL
        to += 1
    elif k < 256:
        to[0] = (60 << 2) | LITERAL
        to[1] = <uint8_t>k
        to += 2
    elif k < 65536:
        to[0] = (61 << 2) | LITERAL
        to[1] = <uint8_t>k
        to[2] = <uint8_t>(k >> 8)
        to += 3
    else:
        to[0] = (62 << 2) | LITERAL
        to[1] = <uint8_t>k
        to[2] = <uint8_t>(k >> 8)
        to[3] = <uint8_t>(k >> 16)
        to += 4
    memcpy(to, p, n)
    return to + n


cdef inline uint8_t* put_copy_part(uint8_t* to, uint32_t offset, size_t n) noexcept nogil:
    # n is 4 .. 64
    if offset < 2048 and n < 12:
        to[0] = <uint8_t>((offset >> 8) << 5) | <uint8_t>((n - 4) << 2) | COPY1
        to[1] = <uint8_t>offset
        return to + 2
    if offset < 65536:
        to[0] = <uint8_t>((n - 1) << 2) | COPY2
        to[1] = <uint8_t>offset
        to[2] = <uint8_t>(offset >> 8)
        return to + 3
    to[0] = <uint8_t>((n - 1) << 2) | COPY4
    memcpy(to + 1, &offset, 4)
    return to + 5


cdef inline uint8_t* put_copy(uint8_t* to, uint32_t offset, size_t n) noexcept nogil:
    while n >= 68:
        to = put_copy_part(to, offset, 64)
        n -= 64
    if n > 64:
        to = put_copy_part(to, offset, 60)       # so that 4 or more are left
        n -= 60
    return put_copy_part(to, offset, n)


cdef size_t s2_encode(const uint8_t* p, size_t n, uint8_t* to) noexcept nogil:
    cdef uint32_t[1 << HASH_BITS] table
    cdef uint8_t* start = to
    cdef size_t at, emitted = 0, match, limit, length, left = n
    cdef uint32_t word, h, misses = 32
    cdef uint64_t different
    while left >= 128:
        to[0] = <uint8_t>left | 128
        left >>= 7
        to += 1
    to[0] = <uint8_t>left
    to += 1
    if n < MIN_INPUT:
        return put_literal(to, p, n) - start
    memset(table, 0, sizeof(table))
    limit = n - 8                                # eight bytes can be read at every place below
    at = 1
    while at < limit:
        word = load32(p + at)
        h = (word * <uint32_t>0x9E3779B1) >> (32 - HASH_BITS)
        match = table[h]
        table[h] = <uint32_t>at
        if match >= at or load32(p + match) != word:
            at += misses >> 5                    # what does not compress is gone through in growing steps
            misses += 1
            continue
        misses = 32
        while match and at > emitted and p[match - 1] == p[at - 1]:
            match -= 1
            at -= 1
        to = put_literal(to, p + emitted, at - emitted)
        length = 4
        while at + length < limit:
            different = load64(p + match + length) ^ load64(p + at + length)
            if different:
                length += count_zeros64(different) >> 3
                break
            length += 8
        while at + length < n and at + length >= limit and p[match + length] == p[at + length]:
            length += 1
        to = put_copy(to, <uint32_t>(at - match), length)
        at += length
        emitted = at
        if at < limit:
            table[(load32(p + at - 2) * <uint32_t>0x9E3779B1) >> (32 - HASH_BITS)] = <uint32_t>(at - 2)
    return put_literal(to, p + emitted, n - emitted) - start


# --- decompressing -------------------------------------------------------------------------------

cdef long long s2_decoded_len(const uint8_t* p, size_t n) noexcept nogil:
    cdef uint64_t value = 0
    cdef size_t i
    for i in range(5):
        if i >= n:
            return -1
        value |= <uint64_t>(p[i] & 127) << (7 * i)
        if p[i] < 128:
            return -1 if value > S2_BLOCK_MAX else <long long>value
    return -1


cdef inline void copy_within(uint8_t* at, uint32_t offset, size_t n) noexcept nogil:
    # n bytes from `offset` before to `at`, in order: what was copied just now may be copied again
    cdef const uint8_t* source = at - offset
    cdef size_t i
    if offset >= n:
        memcpy(at, source, n)
        return
    if offset == 1:
        memset(at, source[0], n)
        return
    for i in range(n):
        at[i] = source[i]


cdef bint s2_decode(const uint8_t* p, size_t n, uint8_t* to, size_t room) noexcept nogil:
    cdef size_t at = 0, done = 0, extra, i, length
    cdef uint32_t offset = 0, found
    cdef uint8_t tag
    while at < n and p[at] >= 128:
        at += 1
    at += 1                                      # behind the length
    while at < n:
        tag = p[at]
        at += 1
        if tag & 3 == LITERAL:
            length = tag >> 2
            if length >= 60:
                extra = length - 59
                if n - at < extra:
                    return False
                length = 0
                for i in range(extra):
                    length |= <size_t>p[at + i] << (8 * i)
                at += extra
            length += 1
            if length > n - at or length > room - done:
                return False
            memcpy(to + done, p + at, length)
            at += length
            done += length
            continue
        if tag & 3 == COPY1:
            if n - at < 1:
                return False
            found = (<uint32_t>(tag & 0xE0) << 3) | p[at]
            at += 1
            length = (tag >> 2) & 7
            if found:
                offset = found
            elif length > 4:
                extra = length - 4               # 1, 2 or 3 bytes
                if n - at < extra:
                    return False
                length = 4 if extra == 1 else (256 if extra == 2 else 65536)
                for i in range(extra):
                    length += <size_t>p[at + i] << (8 * i)
                at += extra
            length += 4
        elif tag & 3 == COPY2:
            if n - at < 2:
                return False
            offset = p[at] | (<uint32_t>p[at + 1] << 8)
            at += 2
            length = 1 + (tag >> 2)
        else:
            if n - at < 4:
                return False
            offset = load32(p + at)
            at += 4
            length = 1 + (tag >> 2)
        if offset == 0 or offset > done or length > room - done:
            return False
        copy_within(to + done, offset, length)
        done += length
    return done == room


cdef inline uint32_t masked_crc(const char* p, size_t n) noexcept nogil:
    cdef uint32_t c = crc32c(p, n, 0)
    return ((c >> 15) | (c << 17)) + <uint32_t>0xA282EAD8


# --- for Python ----------------------------------------------------------------------------------

def compress(bytes data) -> bytes:
    """One block; ValueError for more than BLOCK_MAX bytes."""
    cdef size_t n = PyBytes_GET_SIZE(data)
    if n > S2_BLOCK_MAX:
        raise ValueError(f"a block holds {S2_BLOCK_MAX} bytes at most, not {n}")
    room = PyBytes_FromStringAndSize(NULL, s2_bound(n))
    n = s2_encode(<const uint8_t*>PyBytes_AS_STRING(data), n, <uint8_t*>PyBytes_AS_STRING(room))
    return room[:n]


def decompress(bytes block) -> bytes:
    """What a block holds; ValueError when it is damaged."""
    cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(block)
    cdef long long n = s2_decoded_len(p, PyBytes_GET_SIZE(block))
    if n < 0:
        raise ValueError("s2: the length of a block is not valid")
    data = PyBytes_FromStringAndSize(NULL, n)
    if not s2_decode(p, PyBytes_GET_SIZE(block), <uint8_t*>PyBytes_AS_STRING(data), n):
        raise ValueError("s2: a block is damaged")
    return data


cdef class FrameWriter:
    """Bytes in, a framed stream out; see s2.pyi."""

    cdef Out plain              # not compressed yet; less than a block after each put
    cdef Out out
    cdef size_t block_bytes

    def __cinit__(self, size_t block_bytes=262144):
        if not 1 <= block_bytes <= S2_BLOCK_MAX:
            raise ValueError(f"a block has 1 to {S2_BLOCK_MAX} bytes, not {block_bytes}")
        self.block_bytes = block_bytes
        out_put(&self.out, b"\xff\x06\x00\x00", CHUNK_HEAD_BYTES)
        out_put(&self.out, MAGIC_S2, MAGIC_BYTES)

    def __dealloc__(self):
        out_free(&self.plain)
        out_free(&self.out)

    def __len__(self) -> int:
        return out_waiting(&self.out)

    cdef int add(self, const char* p, size_t n) except -1:
        """One block of n bytes, as it is when compressing does not help."""
        cdef uint8_t* at = <uint8_t*>out_reserve(&self.out, CHUNK_HEAD_BYTES + CRC_BYTES + s2_bound(n))
        cdef uint32_t crc = masked_crc(p, n)
        cdef size_t length = s2_encode(<const uint8_t*>p, n, at + CHUNK_HEAD_BYTES + CRC_BYTES)
        at[0] = KIND_BLOCK
        if length >= n - n // 16:
            at[0] = KIND_PLAIN
            length = n
            memcpy(at + CHUNK_HEAD_BYTES + CRC_BYTES, p, n)
        at[1] = <uint8_t>(length + CRC_BYTES)
        at[2] = <uint8_t>((length + CRC_BYTES) >> 8)
        at[3] = <uint8_t>((length + CRC_BYTES) >> 16)
        memcpy(at + CHUNK_HEAD_BYTES, &crc, CRC_BYTES)
        self.out.len += CHUNK_HEAD_BYTES + CRC_BYTES + length
        return 0

    def put(self, data) -> None:
        """Take bytes; full blocks are compressed at once."""
        cdef Py_buffer view
        cdef const char* p
        cdef size_t n, part
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            p = <const char*>view.buf
            n = view.len
            while n:
                if self.plain.len == 0 and n >= self.block_bytes:
                    part = self.block_bytes
                    self.add(p, part)
                else:
                    part = min(n, self.block_bytes - self.plain.len)
                    out_put(&self.plain, p, part)
                    if self.plain.len == self.block_bytes:
                        self.add(self.plain.data, self.plain.len)
                        self.plain.len = 0
                p += part
                n -= part
        finally:
            PyBuffer_Release(&view)

    def finish(self) -> None:
        """Compress what is left."""
        if self.plain.len:
            self.add(self.plain.data, self.plain.len)
            self.plain.len = 0

    def take(self, size_t count) -> bytes:
        """The next bytes of the stream, at most that many."""
        cdef size_t n = min(count, out_waiting(&self.out))
        data = PyBytes_FromStringAndSize(self.out.data + self.out.off, n)
        self.out.off += n
        if self.out.off == self.out.len:
            self.out.off = self.out.len = 0
        elif self.out.off > self.out.cap // 2:
            rest = PyBytes_FromStringAndSize(self.out.data + self.out.off, out_waiting(&self.out))
            self.out.off = 0
            self.out.len = PyBytes_GET_SIZE(rest)
            memcpy(self.out.data, PyBytes_AS_STRING(rest), self.out.len)
        return data


cdef class FrameReader:
    """A framed stream in, its bytes out, one block at a time; see s2.pyi."""

    cdef Out out
    cdef bint begun
    cdef str broken

    def __dealloc__(self):
        out_free(&self.out)

    @property
    def waiting(self) -> int:
        """Bytes that were fed and not read."""
        return out_waiting(&self.out)

    def feed(self, bytes data) -> None:
        """Take bytes of the stream."""
        cdef size_t n = out_waiting(&self.out)
        if self.out.off and self.out.off >= n:             # so that it does not grow by what was read
            memcpy(self.out.data, self.out.data + self.out.off, n)
            self.out.off = 0
            self.out.len = n
        out_put(&self.out, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    cdef object fail(self, str why):
        self.broken = f"s2: {why}"
        raise ValueError(self.broken)

    def next(self) -> bytes | None:
        """The next decompressed block, or None: not there yet."""
        cdef const uint8_t* p
        cdef size_t length
        cdef uint32_t crc
        cdef uint8_t kind
        cdef long long room
        if self.broken is not None:
            raise ValueError(self.broken)
        while out_waiting(&self.out) >= CHUNK_HEAD_BYTES:
            p = <const uint8_t*>self.out.data + self.out.off
            length = p[1] | (<size_t>p[2] << 8) | (<size_t>p[3] << 16)
            if not self.begun and p[0] != KIND_START:
                self.fail("the data does not begin with a stream header")
            if KIND_PLAIN < p[0] < KIND_SKIP:
                self.fail(f"a chunk has the unknown kind {p[0]:#x}")
            if out_waiting(&self.out) < CHUNK_HEAD_BYTES + length:
                return None
            self.out.off += CHUNK_HEAD_BYTES + length
            if p[0] == KIND_START:
                if length != MAGIC_BYTES or (memcmp(p + CHUNK_HEAD_BYTES, MAGIC_S2, MAGIC_BYTES) != 0
                                             and memcmp(p + CHUNK_HEAD_BYTES, MAGIC_SNAPPY, MAGIC_BYTES) != 0):
                    self.fail("the data does not begin with a stream header")
                self.begun = True
                continue
            if p[0] >= KIND_SKIP:
                continue
            if length < CRC_BYTES:
                self.fail("a chunk has no checksum")
            crc = load32(p + CHUNK_HEAD_BYTES)
            length -= CRC_BYTES
            kind = p[0]
            p += CHUNK_HEAD_BYTES
            if kind == KIND_PLAIN:
                if length > S2_BLOCK_MAX:
                    self.fail("a block is too long")
                data = PyBytes_FromStringAndSize(<const char*>p + CRC_BYTES, length)
            else:
                room = s2_decoded_len(p + CRC_BYTES, length)
                if room < 0:
                    self.fail("the length of a block is not valid")
                data = PyBytes_FromStringAndSize(NULL, room)
                if not s2_decode(p + CRC_BYTES, length, <uint8_t*>PyBytes_AS_STRING(data), room):
                    self.fail("a block is damaged")
            if masked_crc(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)) != crc:
                self.fail("the checksum of a block does not match")
            if PyBytes_GET_SIZE(data):
                return data
        return None
