"""Header blocks as the buffers of a column of maps from a name to the list of its values, as Arrow lays them out.

    map_offsets    0     2  2           message 0 has two names, message 1 none (its bit in `valid` is 0)
    key            K  Trace
    list_offsets   0     2  3           K has two values
    value          v1 v2  00-1

The names and values are those that core/protocol/headers.decode_headers finds: names keep their case and have the order of their first
lines, the values of a name have the order of their lines. A message whose block decode_headers refuses, or is empty, has no names.

Knows nothing of Arrow or UTF-8: the bytes are copied unchanged.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy, memset
from pelton.core.bulk.columns cimport Buffer, Columns

cdef enum:
    COMPARED_MAX = 32            # more lines are told apart by a dict
    FIRST_LINE_BYTES = 8         # NATS/1.0


cdef inline int append_i32(Buffer to, int32_t value) except -1:
    memcpy(to.room(4), &value, 4)
    return 0


cdef inline int append_bytes(Buffer data, Buffer offsets, const char* p, size_t n) except -1:
    if n:
        memcpy(data.room(n), p, n)
    return append_i32(offsets, <int32_t>data.size)


cdef inline bint blank(char c) noexcept nogil:
    return c == c' ' or c == c'\t'


cdef bint has_lines(const char* block, size_t n) noexcept nogil:
    cdef const char* end = <const char*>memchr(block, c'\n', n) if n else NULL
    return end != NULL and n - <size_t>(end - block) > 3


cdef bint good_first_line(const char* p, size_t n) noexcept nogil:
    # NATS/1.0, then nothing or blanks, or a blank and three digits that end there or before a blank.
    cdef size_t i = FIRST_LINE_BYTES
    if n < FIRST_LINE_BYTES or memcmp(p, b"NATS/1.0", FIRST_LINE_BYTES) != 0:
        return False
    while i < n and blank(p[i]):
        i += 1
    if i == n:
        return True
    if i == FIRST_LINE_BYTES or n - i < 3:
        return False
    if not (c'0' <= p[i] <= c'9' and c'0' <= p[i + 1] <= c'9' and c'0' <= p[i + 2] <= c'9'):
        return False
    return n - i == 3 or blank(p[i + 3])


cdef class HeaderMaps:
    """The maps of one batch of messages; see the stub."""

    def __cinit__(self):
        self.lines = NULL
        self.valid = Buffer()
        self.map_offsets = Buffer()
        self.key_offsets = Buffer()
        self.key_data = Buffer()
        self.list_offsets = Buffer()
        self.value_offsets = Buffer()
        self.value_data = Buffer()

    def __dealloc__(self):
        free(self.lines)

    def __init__(self, Columns columns) -> None:
        cdef int32_t* offsets = <int32_t*>columns.headers_offsets.data
        cdef const char* data = columns.headers_data.data
        cdef size_t i
        cdef size_t bits = (columns.count + 7) >> 3
        for buffer in (self.map_offsets, self.key_offsets, self.list_offsets, self.value_offsets):
            append_i32(buffer, 0)
        if bits:
            memset(self.valid.room(bits), 0, bits)
        for i in range(columns.count):
            if offsets[i + 1] > offsets[i] and self.take(data + offsets[i], <size_t>(offsets[i + 1] - offsets[i])):
                self.link(data + offsets[i])
                self.emit(data + offsets[i])
                (<uint8_t*>self.valid.data)[i >> 3] |= <uint8_t>(1 << (i & 7))
            else:
                self.nulls += 1
            append_i32(self.map_offsets, <int32_t>self.keys)
        self.count = columns.count

    cdef int take(self, const char* block, size_t n) except -1:
        # The lines of a block; 0 when there is none, or when it is no header block.
        cdef size_t at = 0
        cdef size_t end
        cdef const char* found
        cdef Line* line
        cdef bint first = True
        self.found = 0
        if n < FIRST_LINE_BYTES + 4 or memcmp(block + n - 4, b"\r\n\r\n", 4) != 0:
            return 0
        while at < n - 2:                     # the last two bytes are the empty line
            found = <const char*>memchr(block + at, c'\n', n - at)
            end = <size_t>(found - block)     # there is one: the block ends with it
            if end == at or block[end - 1] != c'\r' or memchr(block + at, c'\r', end - 1 - at) != NULL:
                return 0
            end -= 1
            if first:
                if not good_first_line(block, end):
                    return 0
                first = False
            else:
                found = <const char*>memchr(block + at, c':', end - at)
                if found == NULL or found == block + at:
                    return 0
                line = self.room_for_line()
                line.key = <int32_t>at
                line.key_len = <int32_t>(found - block - at)
                line.value = <int32_t>(found - block + 1)
                while <size_t>line.value < end and blank(block[line.value]):
                    line.value += 1
                line.value_len = <int32_t>(end - <size_t>line.value)
            at = end + 2
        return self.found

    cdef Line* room_for_line(self) except NULL:
        cdef int32_t cap
        cdef Line* lines
        if self.found == self.lines_cap:
            cap = max(32, self.lines_cap * 2)
            lines = <Line*>realloc(self.lines, cap * sizeof(Line))
            if lines == NULL:
                raise MemoryError(f"no room for {cap} headers")
            self.lines = lines
            self.lines_cap = cap
        self.found += 1
        return &self.lines[self.found - 1]

    cdef int link(self, const char* block) except -1:
        # Lines with the same name, one behind the other.
        cdef int32_t i, k
        cdef Line* line
        cdef Line* other
        cdef dict seen = {} if self.found > COMPARED_MAX else None
        for i in range(self.found):
            line = &self.lines[i]
            line.next = -1
            line.tail = i
            line.first = True
            if seen is not None:
                k = seen.setdefault(PyBytes_FromStringAndSize(block + line.key, line.key_len), i)
            else:
                k = 0
                while k < i:
                    other = &self.lines[k]
                    if (other.first and other.key_len == line.key_len
                            and memcmp(block + other.key, block + line.key, <size_t>line.key_len) == 0):
                        break
                    k += 1
            if k != i:
                line.first = False
                self.lines[self.lines[k].tail].next = i
                self.lines[k].tail = i
        return 0

    cdef int emit(self, const char* block) except -1:
        cdef int32_t i, k
        cdef Line* line
        for i in range(self.found):
            line = &self.lines[i]
            if not line.first:
                continue
            append_bytes(self.key_data, self.key_offsets, block + line.key, <size_t>line.key_len)
            self.keys += 1
            k = i
            while k >= 0:
                line = &self.lines[k]
                append_bytes(self.value_data, self.value_offsets, block + line.value, <size_t>line.value_len)
                self.values += 1
                k = line.next
            append_i32(self.list_offsets, <int32_t>self.values)
        return 0


def message_sizes(Columns columns) -> Buffer:
    """int64 values: the bytes of headers and payload of each message; a block without a header counts as none."""
    cdef Buffer sizes = Buffer()
    cdef int32_t* headers = <int32_t*>columns.headers_offsets.data
    cdef int64_t* out
    cdef int32_t n
    cdef size_t i
    if not columns.count:
        return sizes
    out = <int64_t*>sizes.room(columns.count * 8)
    for i in range(columns.count):
        n = headers[i + 1] - headers[i]
        out[i] = columns.payload_bytes(i) + (n if n and has_lines(columns.headers_data.data + headers[i], <size_t>n) else 0)
    return sizes
