"""What a CRC32C says besides good or bad.

A CRC is linear: what a flipped bit changes of it depends on how far from the end the bit is, and on nothing else. So the difference
between the checksum that is stored and the one that the bytes have, run backwards, names the bit, if one bit is all that is wrong.
Up to 2^31 - 1 bits no two places have the same difference. That a damage of more than one bit is taken for a single one:

    an even number of flipped bits   never: the polynomial has the factor x + 1, a difference of even weight is none of one bit
    anything else, n bytes           (8n + 32) / 2^32: 1 in 4 million for 100 bytes, 1 in 8,000 for 64 KiB, 1 in 8 for 64 MiB

In the same way the salt of a record follows from its bytes and its checksum. Whatever its bytes are, there is one: records that were
changed alike, each at the same distance from where it begins, agree on a wrong salt. So it counts at how many places modulo 8 the
records begin that agree. What a disk or a memory does to a file comes back after a power of two of bytes; it can be the same for
records that begin at the same place of such a row, and not for others. After 1, 2 or 4 bytes it would hit their lengths.

Pure functions; nothing here decides whether a mend is believed. See core/log/scan for what recovery does with it.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy
from penstock.core.base.buffer cimport crc32c
from penstock.core.log.record cimport RECORD_EXTRA_BYTES, Head, check_record, plausible

cdef uint32_t POLYNOMIAL = 0x82F63B78


cdef inline uint32_t back(uint32_t x) noexcept nogil:
    """The state of the checksum before a zero bit went through it."""
    return ((x ^ POLYNOMIAL) << 1) | 1 if x & <uint32_t>0x80000000 else x << 1


cdef int64_t flipped_bit(const char* p, size_t n, uint32_t stored, uint32_t start) noexcept nogil:
    cdef uint32_t x = crc32c(p, n, start) ^ stored
    cdef int64_t k = <int64_t>n * 8 - 1
    cdef int bit
    if x == 0:
        return -1
    if x & (x - 1) == 0:
        for bit in range(32):
            if x >> bit == 1:
                return <int64_t>n * 8 + bit
    while k >= 0:
        if x == POLYNOMIAL:
            return k
        x = back(x)
        k -= 1
    return -1


cdef int64_t mend_bytes(char* p, size_t n, uint32_t salt, Head* head) noexcept nogil:
    cdef uint32_t stored
    cdef int64_t bit
    if n < RECORD_EXTRA_BYTES:
        return -1
    memcpy(&stored, p + n - 4, 4)
    bit = flipped_bit(p, n - 4, stored, salt)
    if bit < 0:
        return -1
    p[bit >> 3] ^= 1 << (bit & 7)
    if check_record(p, n, salt, head) == n:
        return bit
    p[bit >> 3] ^= 1 << (bit & 7)
    return -1


cdef uint32_t salt_of(const char* p, uint32_t length) noexcept nogil:
    """The salt that makes a record's checksum right; whatever the bytes are, there is one."""
    cdef uint32_t stored, x
    cdef uint64_t k
    memcpy(&stored, p + length - 4, 4)
    x = stored ^ crc32c(p, length - 4, 0)
    for k in range(<uint64_t>(length - 4) * 8):
        x = back(x)
    return x


cdef uint32_t find_salt(const char* data, size_t at, size_t size, int* places) except? 4294967295:
    cdef dict bytes_of = {}
    cdef dict places_of = {}
    cdef set known = set()
    cdef Head head
    cdef uint32_t salt, best = 0
    cdef size_t most = 0
    cdef bint agree
    places[0] = 0
    while at + RECORD_EXTRA_BYTES <= size:
        if not plausible(data + at, size - at, &head) or head.length > size - at:
            at += 1
            continue
        salt = salt_of(data + at, head.length)
        at += head.length
        if (salt, head.seq, head.kind) in known:
            continue               # a copy of a damaged record agrees with it
        known.add((salt, head.seq, head.kind))
        bytes_of[salt] = bytes_of.get(salt, 0) + head.length
        places_of[salt] = places_of.get(salt, 0) | 1 << (at - head.length & 7)
    for salt, n in bytes_of.items():
        agree = places_of[salt].bit_count() > 1
        if agree == (places[0] > 1) and <size_t>n > most or agree > (places[0] > 1):
            most = n               # one large record that is damaged must not outvote several small ones that agree
            best, places[0] = salt, places_of[salt].bit_count()
    return best


def flipped_bit_of(data: bytes, stored: int, start: int = 0) -> int:
    """The bit (0 to 8n - 1) of data whose flip explains that its CRC32C is not the stored one; 8n to 8n + 31: a bit of the checksum
    itself; -1: no single one does, or nothing is wrong. `start`: what the checksum was begun with.
    """
    return flipped_bit(PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data), <uint32_t>stored, <uint32_t>start)


def mend_record(data: bytes, salt: int) -> object:
    """A bad record put right, when one flipped bit explains what is wrong; else None.

    `data`: its bytes up to the next good record or the end of the segment (so a flipped bit in its length does not matter);
    `salt`: of its segment. How far that can be believed: see the module's head.
    """
    cdef bytes copy = PyBytes_FromStringAndSize(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    cdef Head head
    if mend_bytes(PyBytes_AS_STRING(copy), PyBytes_GET_SIZE(copy), <uint32_t>salt, &head) < 0:
        return None
    return copy


def salt_of_records(data: bytes, offset: int = 0) -> object:
    """The salt with which most of the bytes that look like records are good records; None when there are none.

    For a segment whose head is gone. How far that can be believed: see the module's head.
    """
    cdef int places = 0
    cdef uint32_t salt = find_salt(PyBytes_AS_STRING(data), <size_t>offset, <size_t>PyBytes_GET_SIZE(data), &places)
    return salt if places else None
