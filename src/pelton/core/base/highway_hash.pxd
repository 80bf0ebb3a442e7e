"""HighwayHash-64: a keyed checksum that reads 32 bytes at a time. Knows nothing of the meaning of the bytes."""
from libc.stdint cimport uint8_t, uint64_t


cdef struct Highway:
    # A running hash. Copying the struct after highway_start keeps a keyed start for many hashes.
    uint64_t[4] v0
    uint64_t[4] v1
    uint64_t[4] mul0
    uint64_t[4] mul1
    uint8_t[32] rest           # bytes that do not fill a step yet
    size_t held                # how many; 0 .. 31


cdef void highway_start(Highway* h, const uint8_t* key) noexcept nogil               # key: 32 bytes
cdef void highway_put(Highway* h, const char* p, size_t n) noexcept nogil            # in pieces of any size
cdef uint64_t highway_end(Highway* h) noexcept nogil                                 # spends h
