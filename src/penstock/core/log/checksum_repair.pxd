"""What a checksum says besides good or bad: which one bit is flipped, and with what salt it was made. See checksum_repair.pyx."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from penstock.core.log.record cimport Head

# Which single bit, when flipped, makes the CRC32C of n bytes (begun with `start`) the stored one: 0 .. 8n-1 in the bytes, 8n .. 8n+31
# in the checksum; -1: none does, or nothing is wrong.
cdef int64_t flipped_bit(const char* p, size_t n, uint32_t stored, uint32_t start) noexcept nogil
# Puts right the one flipped bit in the n bytes of a bad record, in place; which one, or -1 and nothing is changed.
cdef int64_t mend_bytes(char* p, size_t n, uint32_t salt, Head* head) noexcept nogil
# The salt with which most bytes of the records between `at` and `size` are good, and at how many places modulo 8 these records begin:
# at one alone (0: there are none), it says little.
cdef uint32_t find_salt(const char* data, size_t at, size_t size, int* places) except? 4294967295
