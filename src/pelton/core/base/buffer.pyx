"""Bytes: a growable output buffer, a checked read cursor, number formatting, hashing, CRC32C.

Everything that indexes raw memory goes through here, so that bounds are checked in one place.
Knows nothing of the protocol, of files or of sockets.

The `def` functions at the end do the same for Python callers: tests, tools, and the server, which seeds the hash.
"""
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* ---- hashing: products of 64 x 64 bits, folded ---- */

    static uint64_t pelton_seed_a = 0x9AE16A3B2F90404FULL;
    static uint64_t pelton_seed_b = 0xC3A5C85C97CB3127ULL;

    static inline uint64_t pelton_fold(uint64_t a, uint64_t b) {
    #ifdef __SIZEOF_INT128__
        __uint128_t product = (__uint128_t)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    #else
        uint64_t low = (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu), high = (a >> 32) * (b >> 32);
        uint64_t mid = (a >> 32) * (b & 0xFFFFFFFFu) ^ ((a & 0xFFFFFFFFu) * (b >> 32));
        return low ^ high ^ (mid << 32) ^ (mid >> 32);
    #endif
    }
    static inline uint64_t pelton_load64(const uint8_t* p) { uint64_t v; memcpy(&v, p, 8); return v; }
    static inline uint64_t pelton_load32(const uint8_t* p) { uint32_t v; memcpy(&v, p, 4); return v; }

    static uint64_t pelton_hash(const uint8_t* p, size_t n) {
        uint64_t state = pelton_seed_b, a, b;
        if (n > 16) {
            size_t left = n;
            const uint8_t* at = p;
            while (left > 16) {
                state = pelton_fold(pelton_load64(at) ^ pelton_seed_a, pelton_load64(at + 8) ^ state);
                at += 16;
                left -= 16;
            }
            a = pelton_load64(p + n - 16);     /* overlaps what was taken when the length is no multiple of 16 */
            b = pelton_load64(p + n - 8);
        } else if (n >= 8) {
            a = pelton_load64(p);
            b = pelton_load64(p + n - 8);
        } else if (n >= 4) {
            a = pelton_load32(p);
            b = pelton_load32(p + n - 4);
        } else if (n > 0) {
            a = ((uint64_t)p[0] << 16) | ((uint64_t)p[n >> 1] << 8) | p[n - 1];
            b = 0;
        } else {
            a = b = 0;
        }
        a = pelton_fold(a ^ pelton_seed_a, b ^ state);
        return pelton_fold(a ^ 0xA0761D6478BD642FULL, pelton_seed_a ^ (uint64_t)n) | 1;
    }

    /* ---- CRC32C (Castagnoli, reflected polynomial 0x82F63B78) ---- */

    #define PELTON_LANE 256            /* bytes of each of the three interleaved lanes */
    static uint32_t pelton_crc_table[8][256];
    static uint32_t pelton_crc_skip[4][256];   /* a register moved past PELTON_LANE zero bytes, by byte of the register */
    static int pelton_crc_hardware = 0;

    static void pelton_crc_init(void) {
        for (int i = 0; i < 256; i++) {
            uint32_t c = (uint32_t)i;
            for (int bit = 0; bit < 8; bit++) c = (c >> 1) ^ ((c & 1) ? 0x82F63B78u : 0);
            pelton_crc_table[0][i] = c;
        }
        for (int i = 0; i < 256; i++)
            for (int k = 1; k < 8; k++) {
                uint32_t c = pelton_crc_table[k - 1][i];
                pelton_crc_table[k][i] = (c >> 8) ^ pelton_crc_table[0][c & 0xFF];
            }
        uint32_t moved[32];
        for (int bit = 0; bit < 32; bit++) {
            uint32_t c = 1u << bit;
            for (int i = 0; i < PELTON_LANE; i++) c = (c >> 8) ^ pelton_crc_table[0][c & 0xFF];
            moved[bit] = c;
        }
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < 256; i++) {
                uint32_t c = 0;
                for (int bit = 0; bit < 8; bit++) if (i & (1 << bit)) c ^= moved[8 * k + bit];
                pelton_crc_skip[k][i] = c;
            }
    #if defined(__x86_64__) && defined(__GNUC__)
        pelton_crc_hardware = __builtin_cpu_supports("sse4.2") ? 1 : 0;
    #endif
    }

    static uint32_t pelton_crc_software(const uint8_t* p, size_t n, uint32_t c) {
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        while (n >= 8) {
            uint64_t v = pelton_load64(p) ^ c;
            c = pelton_crc_table[7][v & 0xFF] ^ pelton_crc_table[6][(v >> 8) & 0xFF]
              ^ pelton_crc_table[5][(v >> 16) & 0xFF] ^ pelton_crc_table[4][(v >> 24) & 0xFF]
              ^ pelton_crc_table[3][(v >> 32) & 0xFF] ^ pelton_crc_table[2][(v >> 40) & 0xFF]
              ^ pelton_crc_table[1][(v >> 48) & 0xFF] ^ pelton_crc_table[0][v >> 56];
            p += 8;
            n -= 8;
        }
    #endif
        while (n--) c = (c >> 8) ^ pelton_crc_table[0][(c ^ *p++) & 0xFF];
        return c;
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <nmmintrin.h>
    static inline uint32_t pelton_crc_move(uint32_t c) {
        return pelton_crc_skip[0][c & 0xFF] ^ pelton_crc_skip[1][(c >> 8) & 0xFF]
             ^ pelton_crc_skip[2][(c >> 16) & 0xFF] ^ pelton_crc_skip[3][c >> 24];
    }
    __attribute__((target("sse4.2")))
    static uint32_t pelton_crc_sse(const uint8_t* p, size_t n, uint32_t start) {
        uint64_t c = start;
        while (n >= 3 * PELTON_LANE) {
            /* the instruction takes three cycles but one can start each cycle: three lanes hide the wait */
            uint64_t second = 0, third = 0;
            for (int i = 0; i < PELTON_LANE; i += 8) {
                c = _mm_crc32_u64(c, pelton_load64(p + i));
                second = _mm_crc32_u64(second, pelton_load64(p + PELTON_LANE + i));
                third = _mm_crc32_u64(third, pelton_load64(p + 2 * PELTON_LANE + i));
            }
            c = pelton_crc_move((uint32_t)c) ^ second;
            c = pelton_crc_move((uint32_t)c) ^ third;
            p += 3 * PELTON_LANE;
            n -= 3 * PELTON_LANE;
        }
        while (n >= 8) {
            c = _mm_crc32_u64(c, pelton_load64(p));
            p += 8;
            n -= 8;
        }
        while (n--) c = _mm_crc32_u8((uint32_t)c, *p++);
        return (uint32_t)c;
    }
    #else
    #define pelton_crc_sse pelton_crc_software
    #endif

    /* ---- decimal digits, two at a time ---- */

    static char pelton_pairs[200];
    static void pelton_pairs_init(void) {
        for (int i = 0; i < 100; i++) {
            pelton_pairs[2 * i] = (char)('0' + i / 10);
            pelton_pairs[2 * i + 1] = (char)('0' + i % 10);
        }
    }
    static char* pelton_put_u64(char* p, uint64_t v) {
        char scratch[20];
        char* at = scratch + 20;
        while (v >= 100) {
            uint64_t rest = v / 100;
            at -= 2;
            memcpy(at, pelton_pairs + 2 * (v - rest * 100), 2);
            v = rest;
        }
        if (v >= 10) {
            at -= 2;
            memcpy(at, pelton_pairs + 2 * v, 2);
        } else {
            *--at = (char)('0' + v);
        }
        size_t n = (size_t)(scratch + 20 - at);
        memcpy(p, at, n);
        return p + n;
    }
    """
    uint64_t pelton_seed_a
    uint64_t pelton_seed_b
    int pelton_crc_hardware
    uint64_t pelton_fold(uint64_t a, uint64_t b) noexcept nogil
    uint64_t pelton_hash(const uint8_t* p, size_t n) noexcept nogil
    void pelton_crc_init() noexcept nogil
    uint32_t pelton_crc_software(const uint8_t* p, size_t n, uint32_t c) noexcept nogil
    uint32_t pelton_crc_sse(const uint8_t* p, size_t n, uint32_t c) noexcept nogil
    void pelton_pairs_init() noexcept nogil
    char* pelton_put_u64(char* p, uint64_t v) noexcept nogil

pelton_crc_init()
pelton_pairs_init()

cdef enum:
    OUT_FIRST_BYTES = 512


cdef char* out_reserve(Out* out, size_t n) except NULL nogil:
    cdef size_t waiting = out.len - out.off
    cdef size_t wanted, cap
    cdef char* data
    if n <= out.cap - out.len and out.data != NULL:
        return out.data + out.len
    # Moving what waits to the front is worth it only when that frees at least as much as it moves: else a
    # buffer that is nearly full would be moved for every few bytes.
    if out.data != NULL and out.off >= waiting and n <= out.cap - waiting:
        memmove(out.data, out.data + out.off, waiting)
        out.off = 0
        out.len = waiting
        return out.data + waiting
    wanted = waiting + n
    if wanted < n:
        with gil:
            raise MemoryError("an output buffer of more bytes than there are addresses")
    cap = out.cap if out.cap >= OUT_FIRST_BYTES else OUT_FIRST_BYTES
    while cap < wanted:
        if cap > (<size_t>-1) // 2:
            cap = wanted
        else:
            cap *= 2
    if out.off > 0:
        memmove(out.data, out.data + out.off, waiting)
        out.off = 0
        out.len = waiting
    if cap > out.cap or out.data == NULL:
        data = <char*>realloc(out.data, cap)
        if data == NULL:
            with gil:
                raise MemoryError(f"no room for an output buffer of {cap} bytes")
        out.data = data
        out.cap = cap
    return out.data + out.len


cdef int out_put(Out* out, const char* p, size_t n) except -1 nogil:
    cdef char* at
    if n == 0:
        return 0
    at = out_reserve(out, n)
    memcpy(at, p, n)
    out.len += n
    return 0


cdef void out_free(Out* out) noexcept nogil:
    free(out.data)
    out.data = NULL
    out.off = 0
    out.len = 0
    out.cap = 0


cdef bint cursor_u64(Cursor* c, uint64_t* value) noexcept nogil:
    cdef const uint8_t* p = <const uint8_t*>cursor_take(c, 8)
    cdef uint64_t v = 0
    cdef int i
    if p == NULL:
        return False
    for i in range(8):      # compilers make one load of it
        v |= <uint64_t>p[i] << (8 * i)
    value[0] = v
    return True


cdef bint cursor_u32(Cursor* c, uint32_t* value) noexcept nogil:
    cdef const uint8_t* p = <const uint8_t*>cursor_take(c, 4)
    if p == NULL:
        return False
    value[0] = <uint32_t>p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24
    return True


cdef char* put_u64(char* p, uint64_t v) noexcept nogil:
    return pelton_put_u64(p, v)


cdef int64_t parse_u63(const char* p, size_t n) noexcept nogil:
    cdef uint64_t v = 0
    cdef size_t i
    cdef unsigned int digit
    if n == 0 or n > 19:
        return -1
    for i in range(n):
        digit = <unsigned int>(<uint8_t>p[i]) - 48u
        if digit > 9:
            return -1
        v = v * 10 + digit          # 19 digits stay below 2**64
    if v > 0x7FFFFFFFFFFFFFFFu:
        return -1
    return <int64_t>v


cdef uint64_t hash_bytes(const char* p, size_t n) noexcept nogil:
    return pelton_hash(<const uint8_t*>p, n)


cdef uint32_t crc32c(const char* p, size_t n, uint32_t start) noexcept nogil:
    if pelton_crc_hardware:
        return ~pelton_crc_sse(<const uint8_t*>p, n, ~start)
    return ~pelton_crc_software(<const uint8_t*>p, n, ~start)


def seed_hash(seed: int) -> None:
    """Seed hash_bytes, so that nobody outside can choose keys that collide.

    Called once at the start of a process, before any map holds a key: maps keep hashes, a later call loses their keys.
    """
    global pelton_seed_a, pelton_seed_b
    cdef uint64_t value = <uint64_t>(seed & 0xFFFFFFFFFFFFFFFF)
    pelton_seed_a = pelton_fold(value ^ 0x9AE16A3B2F90404Fu, 0xE7037ED1A0B428DBu) | 1
    pelton_seed_b = pelton_fold(value ^ 0xC3A5C85C97CB3127u, 0x8EBC6AF09C88C6E3u) | 1


def hash_of(data: bytes) -> int:
    """hash_bytes of data."""
    return hash_bytes(PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))


def crc32c_of(data: bytes, start: int = 0) -> int:
    """The CRC32C of data; start is the CRC of what came before it."""
    return crc32c(PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data), <uint32_t>start)


def crc32c_table_of(data: bytes, start: int = 0) -> int:
    """As crc32c_of, always by table: what a machine without the instruction computes."""
    return <uint32_t>~pelton_crc_software(
        <const uint8_t*>PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data), ~<uint32_t>start
    )


def digits_of(value: int) -> bytes:
    """The decimal digits of a number from 0 to 2**64 - 1."""
    cdef char scratch[20]
    cdef char* end = put_u64(scratch, <uint64_t>value)
    return PyBytes_FromStringAndSize(scratch, end - scratch)


def number_of(digits: bytes) -> int:
    """The number that 1 to 19 decimal digits say; -1 when they do not, or from 2**63 on."""
    return parse_u63(PyBytes_AS_STRING(digits), <size_t>PyBytes_GET_SIZE(digits))


cdef class OutBuffer:
    """An Out for Python callers."""

    def __cinit__(self):
        self.out.data = NULL
        self.out.off = self.out.len = self.out.cap = 0

    def __dealloc__(self):
        out_free(&self.out)

    def __len__(self) -> int:
        return out_waiting(&self.out)

    @property
    def capacity(self) -> int:
        """Bytes of memory held."""
        return self.out.cap

    def put(self, data: bytes) -> None:
        """Append data."""
        out_put(&self.out, PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))

    def take(self, count: int) -> bytes:
        """Remove and return the first count bytes, or all when fewer are waiting; ValueError when count is negative."""
        cdef size_t n
        if count < 0:
            raise ValueError(f"cannot take {count} bytes")
        n = min(<size_t>count, out_waiting(&self.out))
        taken = PyBytes_FromStringAndSize(self.out.data + self.out.off, <Py_ssize_t>n) if n else b""
        self.out.off += n
        return taken


cdef class ReadCursor:
    """A Cursor for Python callers: every take is None once too few bytes are left."""

    def __cinit__(self, data: bytes):
        self.data = data
        self.cursor.at = PyBytes_AS_STRING(data)
        self.cursor.end = self.cursor.at + PyBytes_GET_SIZE(data)

    @property
    def left(self) -> int:
        """Bytes not taken yet."""
        return self.cursor.end - self.cursor.at

    def take(self, count: int) -> bytes | None:
        """The next count bytes; ValueError when count is negative."""
        cdef const char* p
        if count < 0:
            raise ValueError(f"cannot take {count} bytes")
        p = cursor_take(&self.cursor, <size_t>count)
        return None if p == NULL else PyBytes_FromStringAndSize(p, <Py_ssize_t>count)

    def u64(self) -> int | None:
        """The next eight bytes as a little-endian number."""
        cdef uint64_t value = 0
        return value if cursor_u64(&self.cursor, &value) else None

    def u32(self) -> int | None:
        """The next four bytes as a little-endian number."""
        cdef uint32_t value = 0
        return value if cursor_u32(&self.cursor, &value) else None
