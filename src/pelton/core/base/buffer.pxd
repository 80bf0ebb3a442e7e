"""Bytes: a growable output buffer, a checked read cursor, number formatting, hashing, CRC32C.

Everything that indexes raw memory goes through here, so that bounds are checked in one place.
Knows nothing of the protocol, of files or of sockets.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef struct Out:
    # An output buffer: the bytes data[off:len] are waiting to be taken, data[len:cap] is room.
    char* data
    size_t off
    size_t len
    size_t cap


cdef char* out_reserve(Out* out, size_t n) except NULL nogil     # room for n more bytes; the address to write at (data + len)
cdef int out_put(Out* out, const char* p, size_t n) except -1 nogil
cdef void out_free(Out* out) noexcept nogil

cdef inline size_t out_waiting(Out* out) noexcept nogil:
    return out.len - out.off


cdef struct Cursor:
    # A read position that never passes its end: every take is checked.
    const char* at
    const char* end


cdef inline const char* cursor_take(Cursor* c, size_t n) noexcept nogil:
    # The next n bytes, or NULL (and no move) when fewer are left.
    cdef const char* p = c.at
    if <size_t>(c.end - p) < n:
        return NULL
    c.at = p + n
    return p


cdef bint cursor_u64(Cursor* c, uint64_t* value) noexcept nogil   # little-endian; False when out of bytes
cdef bint cursor_u32(Cursor* c, uint32_t* value) noexcept nogil

cdef char* put_u64(char* p, uint64_t v) noexcept nogil            # decimal digits, at most 20; returns the address after them
cdef int64_t parse_u63(const char* p, size_t n) noexcept nogil    # decimal digits only, 1..19 of them; -1 on anything else or overflow

cdef uint64_t hash_bytes(const char* p, size_t n) noexcept nogil  # seeded, always odd (so never 0)
cdef uint32_t crc32c(const char* p, size_t n, uint32_t start) noexcept nogil   # SSE4.2 where there is, else a table; start=0


cdef class OutBuffer:
    """An Out for Python callers."""
    cdef Out out


cdef class ReadCursor:
    """A Cursor for Python callers."""
    cdef Cursor cursor
    cdef bytes data
