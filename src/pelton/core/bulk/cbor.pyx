"""Writes CBOR values as JSON text, without an object for any of them.

A row is one value of the kinds below; a row with another, or with bytes behind its value, is refused as a whole::

    kind     0, 1 integers of 63 bits    3 text    4 array    5 map    7 false, true, null, numbers with a fraction

Refused are kinds whose JSON is a matter of taste, or that are rare: bytes, tags, lengths that are not in front, keys that
are no text or come twice, text with escapes other than of quotes, and numbers that JSON writes with an exponent.
"""
from libc.math cimport fabs, isfinite
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, strlen

from pelton.core.bulk.columns cimport Buffer
from pelton.core.bulk.protobuf cimport Values

cdef extern from "Python.h":
    double PyFloat_Unpack2(const char* p, int le) noexcept
    double PyFloat_Unpack4(const char* p, int le) noexcept
    double PyFloat_Unpack8(const char* p, int le) noexcept
    char* PyOS_double_to_string(double value, char code, int precision, int flags, int* kind) noexcept
    void PyMem_Free(void* p) noexcept
    void PyErr_Clear() noexcept
    int Py_DTSF_ADD_DOT_0

cdef enum:
    DEPTH_MAX = 16
    KEYS_MAX = 64                  # in a map: each is compared with those before it
    GROWTH = 10                    # characters of JSON for a byte of CBOR, at most: those of a short number with a fraction
    BYTES_MAX = 1 << 30            # so that offsets fit 31 bits
    SIMPLE_FALSE = 20
    SIMPLE_TRUE = 21
    SIMPLE_NULL = 22

cdef double LEAST = 1e-4           # between these a number is written without an exponent
cdef double MOST = 1e15


ctypedef const uint8_t* Bytes


cdef struct Reader:
    const uint8_t* p
    const uint8_t* end
    char* out


cdef inline bint argument(Reader* r, int* kind, int* short_form, uint64_t* value) noexcept:
    """Read the first byte of a value and the number that belongs to it."""
    cdef uint8_t first
    cdef int size, i
    if r.p >= r.end:
        return False
    first = r.p[0]
    r.p += 1
    kind[0] = first >> 5
    short_form[0] = first & 31
    value[0] = first & 31
    if short_form[0] < 24:
        return True
    if short_form[0] > 27:
        return False
    size = 1 << (short_form[0] - 24)
    if r.end - r.p < size:
        return False
    value[0] = 0
    for i in range(size):
        value[0] = value[0] << 8 | r.p[i]
    r.p += size
    return True


cdef inline void put(Reader* r, const char* text, size_t n) noexcept:
    memcpy(r.out, text, n)
    r.out += n


cdef inline void put_number(Reader* r, uint64_t value) noexcept:
    cdef char[20] digits
    cdef int n = 20
    while True:
        n -= 1
        digits[n] = 48 + value % 10
        value //= 10
        if not value:
            break
    put(r, digits + n, 20 - n)


cdef bint put_text(Reader* r, uint64_t size) noexcept:
    """A text in quotes; False if it needs more than them."""
    cdef const uint8_t* end
    cdef uint8_t c
    if size > <uint64_t>(r.end - r.p):
        return False
    end = r.p + size
    put(r, b'"', 1)
    while r.p < end:
        c = r.p[0]
        if c < 32 or c > 126:
            return False
        if c == 34 or c == 92:
            put(r, b"\\", 1)
        r.out[0] = c
        r.out += 1
        r.p += 1
    put(r, b'"', 1)
    return True


cdef bint put_fraction(Reader* r, int size) noexcept:
    """A number with a fraction, whose bytes were just read: the shortest text that gives it again."""
    cdef const char* p = <const char*>r.p - size
    cdef double value
    cdef char* text
    if size == 2:
        value = PyFloat_Unpack2(p, 0)
    else:
        value = PyFloat_Unpack4(p, 0) if size == 4 else PyFloat_Unpack8(p, 0)
    if not isfinite(value) or (value != 0 and not LEAST <= fabs(value) < MOST):
        return False
    text = PyOS_double_to_string(value, 114, 0, Py_DTSF_ADD_DOT_0, NULL)
    if text == NULL:
        PyErr_Clear()
        return False
    put(r, text, strlen(text))
    PyMem_Free(text)
    return True


cdef bint put_map(Reader* r, uint64_t count, int depth) noexcept:
    """The pairs of a map; False also if a key comes twice."""
    cdef Bytes[KEYS_MAX] keys
    cdef uint64_t[KEYS_MAX] sizes
    cdef int kind = 0
    cdef int short_form = 0
    cdef uint64_t i, j
    if count > KEYS_MAX:
        return False
    put(r, b"{", 1)
    for i in range(count):
        if i:
            put(r, b",", 1)
        if not argument(r, &kind, &short_form, &sizes[i]) or kind != 3:
            return False
        keys[i] = r.p
        if not put_text(r, sizes[i]):
            return False
        for j in range(i):
            if sizes[j] == sizes[i] and memcmp(keys[j], keys[i], sizes[i]) == 0:
                return False
        put(r, b":", 1)
        if not put_value(r, depth + 1):
            return False
    put(r, b"}", 1)
    return True


cdef bint put_array(Reader* r, uint64_t count, int depth) noexcept:
    cdef uint64_t i
    if count > <uint64_t>(r.end - r.p):
        return False
    put(r, b"[", 1)
    for i in range(count):
        if i:
            put(r, b",", 1)
        if not put_value(r, depth + 1):
            return False
    put(r, b"]", 1)
    return True


cdef bint put_value(Reader* r, int depth) noexcept:
    """Write one value; False if it is not plain."""
    cdef int kind = 0
    cdef int short_form = 0
    cdef uint64_t value = 0
    if depth > DEPTH_MAX or not argument(r, &kind, &short_form, &value):
        return False
    if kind == 3:
        return put_text(r, value)
    if kind == 4:
        return put_array(r, value, depth)
    if kind == 5:
        return put_map(r, value, depth)
    if kind <= 1:
        if value >> 62:
            return False
        if kind == 1:
            put(r, b"-", 1)
            value += 1
        put_number(r, value)
        return True
    if kind != 7 or short_form == 24:
        return False
    if short_form > 24:
        return put_fraction(r, 1 << (short_form - 24))
    if short_form == SIMPLE_FALSE:
        put(r, b"false", 5)
    elif short_form == SIMPLE_TRUE:
        put(r, b"true", 4)
    elif short_form == SIMPLE_NULL:
        put(r, b"null", 4)
    else:
        return False
    return True


def json_of_cbor(offsets, data, Py_ssize_t begin, Py_ssize_t count):
    """The values that lie one behind the other as JSON without spaces."""
    cdef Values rows = Values(offsets, data, begin, count)
    cdef Buffer refused = Buffer()
    cdef Buffer ends = Buffer()
    cdef Buffer texts = Buffer()
    cdef Py_ssize_t row
    cdef size_t before, room
    cdef int32_t size = 0
    cdef Reader r
    cdef bint good
    memcpy(ends.room(4), &size, 4)
    for row in range(begin, begin + count):
        before = texts.size
        room = GROWTH * rows.size(row) + 32
        if before + room > BYTES_MAX:
            raise ValueError("too many bytes for one column; read fewer rows at once")
        r.out = texts.room(room)
        r.p = rows.at(row)
        r.end = r.p + rows.size(row)
        good = put_value(&r, 0) and r.p == r.end
        texts.cut(<size_t>(r.out - texts.data) if good else before)
        (refused.room(1))[0] = not good
        size = <int32_t>texts.size
        memcpy(ends.room(4), &size, 4)
    return refused, ends, texts
