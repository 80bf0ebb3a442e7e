"""Checksum repair: finding one flipped bit, or a lost salt, from a CRC32C.

A CRC is linear: how a flipped bit changes it depends only on the distance of the bit from the end. So if exactly one bit is wrong,
the difference between the stored and the computed checksum, run backwards, names this bit. Up to 2^31 - 1 bits no two places have the
same difference. The probability that other damage is taken for one flipped bit:

    an even number of flipped bits   0: the polynomial has the factor x + 1, so the difference never equals that of a single bit
    anything else, n bytes           (8n + 32) / 2^32: 1 in 4 million for 100 bytes, 1 in 8,000 for 64 KiB, 1 in 8 for 64 MiB

In the same way the salt of a record follows from its bytes and its checksum. Some salt fits any bytes, so records with the same damage
at the same distance from their beginnings agree on a wrong salt. Therefore the places modulo 8 count at which the agreeing records
begin. Damage by a disk or a memory repeats after a power of two of bytes: it can be the same in records that begin at the same place
of such a period, but not in others. Damage that repeats after 1, 2 or 4 bytes would hit the lengths of the records.

Pure functions. core/log/scan decides which repairs recovery uses.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy
from pelton.core.base.buffer cimport crc32c
from pelton.core.log.record cimport RECORD_EXTRA_BYTES, Head, check_record, plausible

cdef uint32_t POLYNOMIAL = 0x82F63B78


cdef inline uint32_t back(uint32_t x) noexcept nogil:
    """The state of the checksum before a zero bit was added."""
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
    """The salt with which the checksum of a record is right; there is one for any bytes."""
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
            continue               # a copy of a damaged record agrees with that record
        known.add((salt, head.seq, head.kind))
        bytes_of[salt] = bytes_of.get(salt, 0) + head.length
        places_of[salt] = places_of.get(salt, 0) | 1 << (at - head.length & 7)
    for salt, n in bytes_of.items():
        agree = places_of[salt].bit_count() > 1
        if agree == (places[0] > 1) and <size_t>n > most or agree > (places[0] > 1):
            most = n               # one large damaged record must not outweigh several small ones that agree
            best, places[0] = salt, places_of[salt].bit_count()
    return best


def flipped_bit_of(data: bytes, stored: int, start: int = 0) -> int:
    """Which single bit of data (0 to 8n - 1), or of the stored checksum (8n to 8n + 31), is wrong.

    -1: no single bit explains the difference, or nothing is wrong. `start`: the initial value of the checksum.
    """
    return flipped_bit(PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data), <uint32_t>stored, <uint32_t>start)


def mend_record(data: bytes, salt: int) -> object:
    """The corrected bytes of a bad record if one flipped bit explains its checksum; else None.

    `data`: its bytes up to the next good record or the end of the segment, so that its length field may be wrong; `salt`: the salt
    of the segment. The head of the module has the probability of an error.
    """
    cdef bytes copy = PyBytes_FromStringAndSize(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    cdef Head head
    if mend_bytes(PyBytes_AS_STRING(copy), PyBytes_GET_SIZE(copy), <uint32_t>salt, &head) < 0:
        return None
    return copy


def salt_of_records(data: bytes, offset: int = 0) -> object:
    """The salt with which most bytes that look like records are good records; None when there are no such bytes.

    For a segment with a destroyed head. The head of the module says when the result is reliable.
    """
    cdef int places = 0
    cdef uint32_t salt = find_salt(PyBytes_AS_STRING(data), <size_t>offset, <size_t>PyBytes_GET_SIZE(data), &places)
    return salt if places else None
