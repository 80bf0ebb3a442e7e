"""Checksum repair: finding one flipped bit, or a lost salt, from a CRC32C. See checksum_repair.pyx."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from pelton.core.log.record cimport Head

# Which single bit is wrong in n bytes (0 .. 8n-1) or in their stored CRC32C (8n .. 8n+31); -1: no single bit explains the difference,
# or nothing is wrong. `start`: the initial value of the checksum.
cdef int64_t flipped_bit(const char* p, size_t n, uint32_t stored, uint32_t start) noexcept nogil
# Correct the one flipped bit in the n bytes of a bad record, in place; returns the bit, or -1 when nothing was changed.
cdef int64_t mend_bytes(char* p, size_t n, uint32_t salt, Head* head) noexcept nogil
# The salt with which most bytes of the records between `at` and `size` are good. `places`: the number of places modulo 8 at which
# these records begin (0: there are no records); with 1 the salt is not reliable.
cdef uint32_t find_salt(const char* data, size_t at, size_t size, int* places) except? 4294967295
