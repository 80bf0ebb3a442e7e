"""HighwayHash-64 (Alakuijala, Cox, Wassenberg, 2016), the portable form: four lanes of 64 bits, multiplied and shuffled for each
32 bytes of input.

nats-server stores it as 8 bytes, little-endian. Its keys are derived from names, so the hash finds damage but does not protect
against an attacker.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef enum:
    STEP_BYTES = 32
    KEY_BYTES = 32
    FINAL_ROUNDS = 4

cdef uint64_t[4] START0
cdef uint64_t[4] START1
START0[0], START0[1] = 0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0
START0[2], START0[3] = 0x13198A2E03707344, 0x243F6A8885A308D3
START1[0], START1[1] = 0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C
START1[2], START1[3] = 0xBE5466CF34E90C6C, 0x452821E638D01377


cdef inline uint64_t load(const uint8_t* p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return v


cdef inline void zip_add(uint64_t high, uint64_t low, uint64_t* to_high, uint64_t* to_low) noexcept nogil:
    # Each byte of the two words goes to a place where a multiplication will spread it.
    to_low[0] += (
        (((low & <uint64_t>0xFF000000) | (high & <uint64_t>0xFF00000000)) >> 24)
        | (((low & <uint64_t>0xFF0000000000) | (high & <uint64_t>0xFF000000000000)) >> 16)
        | (low & <uint64_t>0xFF0000)
        | ((low & <uint64_t>0xFF00) << 32)
        | ((high & <uint64_t>0xFF00000000000000) >> 8)
        | (low << 56)
    )
    to_high[0] += (
        (((high & <uint64_t>0xFF000000) | (low & <uint64_t>0xFF00000000)) >> 24)
        | (high & <uint64_t>0xFF0000)
        | ((high & <uint64_t>0xFF0000000000) >> 16)
        | ((high & <uint64_t>0xFF00) << 24)
        | ((low & <uint64_t>0xFF000000000000) >> 8)
        | ((high & <uint64_t>0xFF) << 48)
        | (low & <uint64_t>0xFF00000000000000)
    )


cdef inline void step(Highway* h, uint64_t a, uint64_t b, uint64_t c, uint64_t d) noexcept nogil:
    cdef uint64_t[4] lanes
    cdef int i
    lanes[0], lanes[1], lanes[2], lanes[3] = a, b, c, d
    for i in range(4):
        h.v1[i] += h.mul0[i] + lanes[i]
        h.mul0[i] ^= (h.v1[i] & <uint64_t>0xFFFFFFFF) * (h.v0[i] >> 32)
        h.v0[i] += h.mul1[i]
        h.mul1[i] ^= (h.v0[i] & <uint64_t>0xFFFFFFFF) * (h.v1[i] >> 32)
    zip_add(h.v1[1], h.v1[0], &h.v0[1], &h.v0[0])
    zip_add(h.v1[3], h.v1[2], &h.v0[3], &h.v0[2])
    zip_add(h.v0[1], h.v0[0], &h.v1[1], &h.v1[0])
    zip_add(h.v0[3], h.v0[2], &h.v1[3], &h.v1[2])


cdef inline uint64_t halves_swapped(uint64_t v) noexcept nogil:
    return (v >> 32) | (v << 32)


cdef void highway_start(Highway* h, const uint8_t* key) noexcept nogil:
    cdef int i
    cdef uint64_t k
    for i in range(4):
        k = load(key + 8 * i)
        h.mul0[i] = START0[i]
        h.mul1[i] = START1[i]
        h.v0[i] = START0[i] ^ k
        h.v1[i] = START1[i] ^ halves_swapped(k)
    h.held = 0


cdef void highway_put(Highway* h, const char* data, size_t n) noexcept nogil:
    cdef const uint8_t* p = <const uint8_t*>data
    cdef size_t part
    if h.held:
        part = STEP_BYTES - h.held
        if part > n:
            part = n
        memcpy(h.rest + h.held, p, part)
        h.held += part
        p += part
        n -= part
        if h.held < STEP_BYTES:
            return
        step(h, load(h.rest), load(h.rest + 8), load(h.rest + 16), load(h.rest + 24))
        h.held = 0
    while n >= STEP_BYTES:
        step(h, load(p), load(p + 8), load(p + 16), load(p + 24))
        p += STEP_BYTES
        n -= STEP_BYTES
    if n:
        memcpy(h.rest, p, n)
        h.held = n


cdef void put_rest(Highway* h) noexcept nogil:
    # The last bytes that fill no step: their number is mixed in, and they are spread over a step of their own.
    cdef uint8_t[STEP_BYTES] packet
    cdef size_t n = h.held
    cdef size_t odd = n & 3
    cdef const uint8_t* tail = h.rest + (n - odd)
    cdef uint32_t low, high
    cdef int i
    for i in range(4):
        h.v0[i] += (<uint64_t>n << 32) + n
        low, high = <uint32_t>h.v1[i], <uint32_t>(h.v1[i] >> 32)
        low = (low << n) | (low >> (32 - n))
        high = (high << n) | (high >> (32 - n))
        h.v1[i] = low | (<uint64_t>high << 32)
    memset(packet, 0, STEP_BYTES)
    memcpy(packet, h.rest, n - odd)
    if n & 16:
        memcpy(packet + 28, h.rest + n - 4, 4)
    elif odd:
        packet[16] = tail[0]
        packet[17] = tail[odd >> 1]
        packet[18] = tail[odd - 1]
    step(h, load(packet), load(packet + 8), load(packet + 16), load(packet + 24))


cdef uint64_t highway_end(Highway* h) noexcept nogil:
    cdef int i
    if h.held:
        put_rest(h)
    for i in range(FINAL_ROUNDS):
        step(h, halves_swapped(h.v0[2]), halves_swapped(h.v0[3]), halves_swapped(h.v0[0]), halves_swapped(h.v0[1]))
    return h.v0[0] + h.v1[0] + h.mul0[0] + h.mul1[0]


def highway64(bytes key, bytes data) -> int:
    """The hash of data; ValueError unless the key has 32 bytes."""
    cdef Highway h
    if PyBytes_GET_SIZE(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
    highway_start(&h, <const uint8_t*>PyBytes_AS_STRING(key))
    highway_put(&h, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return highway_end(&h)
