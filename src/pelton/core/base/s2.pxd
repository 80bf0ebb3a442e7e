"""S2 and snappy blocks: compressing, and decompressing with every bound checked. Drawn in s2.pyx.

Knows nothing of streams or files. Blocks made here are snappy blocks, which every reader of S2 reads as well.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    S2_BLOCK_MAX = 4194304         # decompressed bytes of one block, by the format


# The most bytes that compressing n bytes can give.
cdef size_t s2_bound(size_t n) noexcept nogil
# Compress n <= S2_BLOCK_MAX bytes to a block at `to`, which has s2_bound(n) bytes; the block's length.
cdef size_t s2_encode(const uint8_t* p, size_t n, uint8_t* to) noexcept nogil
# What a block says it decompresses to, or -1 when it says nothing sensible.
cdef long long s2_decoded_len(const uint8_t* p, size_t n) noexcept nogil
# Decompress a block to exactly `room` bytes at `to`, room being its decoded length; False when it is damaged.
cdef bint s2_decode(const uint8_t* p, size_t n, uint8_t* to, size_t room) noexcept nogil
