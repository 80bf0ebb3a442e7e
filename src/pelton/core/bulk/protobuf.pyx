"""Reads fields of many protobuf messages into columns, without an object for any of them.

A scanner is a table of nodes, one for the message and one for each message inside, and a node a table of fields by
number. A row is read twice: fields are found first, and copied behind those of the row before once the whole row is
known to be sound. A row that is not plain is refused as a whole::

    unknown field, other wire type, group, number above 127, text beyond ASCII, a size beyond the end

The last value of a field counts, and parts of a message in it are merged, as every protobuf reader does. Knows
nothing of Arrow, whose layout the columns have.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from pelton.core.base.s2 cimport s2_decode, s2_decoded_len
from pelton.core.bulk.columns cimport Buffer

cdef enum:
    KIND_INT = 0
    KIND_TEXT = 1
    KIND_BYTES = 2
    KIND_TEXTS = 3
    KIND_MESSAGE = 4
    KIND_NO_INT = 5
    KIND_NO_TEXT = 6
    KIND_NO_BYTES = 7
    DEPTH_MAX = 8
    BYTES_MAX = 1 << 30            # so that offsets fit 31 bits

cdef dict KINDS = {
    "int": KIND_INT, "text": KIND_TEXT, "bytes": KIND_BYTES, "texts": KIND_TEXTS, "message": KIND_MESSAGE,
    "no int": KIND_NO_INT, "no text": KIND_NO_TEXT, "no bytes": KIND_NO_BYTES,
}


cdef inline const uint8_t* read_varint(const uint8_t* p, const uint8_t* end, uint64_t* value) noexcept nogil:
    """Behind a number of at most ten bytes; NULL if there is none."""
    cdef uint64_t found = 0
    cdef int shift = 0
    while p < end and shift < 70:
        found |= <uint64_t>(p[0] & 0x7f) << (shift if shift < 64 else 63)
        if p[0] < 0x80:
            if shift == 63 and p[0] > 1:
                return NULL
            value[0] = found
            return p + 1
        p += 1
        shift += 7
    return NULL


cdef inline bint is_ascii(const uint8_t* p, size_t n) noexcept nogil:
    cdef uint64_t word
    cdef uint64_t seen = 0
    cdef size_t i = 0
    while i + 8 <= n:
        memcpy(&word, p + i, 8)
        seen |= word
        i += 8
    if seen & 0x8080808080808080ULL:
        return False
    while i < n:
        if p[i] & 0x80:
            return False
        i += 1
    return True


cdef class Values:
    """Binary values that lie one behind the other, as a caller hands them in."""
    def __init__(self, offsets, data, Py_ssize_t begin, Py_ssize_t count):
        cdef Py_ssize_t i
        self.offsets = memoryview(offsets).cast("B").cast("i")
        self.data = memoryview(data).cast("B")
        if begin < 0 or count < 0 or begin + count + 1 > self.offsets.shape[0]:
            raise ValueError("rows beyond the offsets")
        if self.offsets[begin] < 0 or self.offsets[begin + count] > self.data.shape[0]:
            raise ValueError("offsets beyond the data")
        for i in range(begin, begin + count):
            if self.offsets[i] > self.offsets[i + 1]:
                raise ValueError("offsets go backwards")

    cdef const uint8_t* at(self, Py_ssize_t row) noexcept:
        return &self.data[0] + self.offsets[row] if self.data.shape[0] else <const uint8_t*>b""

    cdef size_t size(self, Py_ssize_t row) noexcept:
        return self.offsets[row + 1] - self.offsets[row]


cdef int put_offset(Buffer to, size_t value) except -1:
    cdef int32_t small = <int32_t>value
    if value > BYTES_MAX:
        raise ValueError("too many bytes for one column; scan fewer rows at once")
    memcpy(to.room(4), &small, 4)
    return 0


cdef class Scanner:
    """A type of messages: its fields, and the columns that they go to."""

    def __cinit__(self, list nodes, list kinds):
        cdef int node, column, number
        self.nodes = len(nodes)
        self.columns = len(kinds)
        self.fields = <Field*>malloc(self.nodes * FIELDS * sizeof(Field))
        self.kinds = <int*>calloc(self.columns + 1, sizeof(int))
        self.numbers = <int64_t*>calloc(self.columns + 1, sizeof(int64_t))
        self.pieces = <Piece*>calloc(self.columns + 1, sizeof(Piece))
        self.texts = <Piece*>calloc(TEXTS_MAX, sizeof(Piece))
        if not (self.fields and self.kinds and self.numbers and self.pieces and self.texts):
            raise MemoryError("no room for a scanner")
        for node in range(self.nodes * FIELDS):
            self.fields[node].kind = -1
            self.fields[node].target = 0
        for column, kind in enumerate(kinds):
            self.kinds[column] = KINDS[kind]
            if self.kinds[column] > KIND_TEXTS:
                raise ValueError(f"{kind} is no kind of a column")
        for node, fields in enumerate(nodes):
            for number, (kind, target) in fields.items():
                self.set_field(node, number, KINDS[kind], target)

    cdef int set_field(self, int node, int number, int kind, int target) except -1:
        if not 0 < number < FIELDS:
            raise ValueError(f"field {number} is beyond {FIELDS - 1}")
        if kind <= KIND_TEXTS and not (0 <= target < self.columns and self.kinds[target] == kind):
            raise ValueError(f"field {number} has no column of its kind")
        if kind == KIND_MESSAGE and not 0 <= target < self.nodes:
            raise ValueError(f"field {number} has no node")
        self.fields[node * FIELDS + number].kind = kind
        self.fields[node * FIELDS + number].target = target
        return 0

    def __dealloc__(self):
        free(self.fields)
        free(self.kinds)
        free(self.numbers)
        free(self.pieces)
        free(self.texts)

    cdef bint read(self, const uint8_t* p, const uint8_t* end, int node, int depth) noexcept nogil:
        """Find the fields of a message; False if it is not plain."""
        cdef uint64_t tag = 0
        cdef uint64_t value = 0
        cdef Field* field
        if depth > DEPTH_MAX:
            return False
        while p < end:
            p = read_varint(p, end, &tag)
            if p == NULL or tag >> 3 == 0 or tag >> 3 >= FIELDS:
                return False
            field = &self.fields[node * FIELDS + <int>(tag >> 3)]
            if field.kind < 0:
                return False
            if field.kind == KIND_INT or field.kind == KIND_NO_INT:
                if tag & 7 != 0:
                    return False
                p = read_varint(p, end, &value)
                if p == NULL:
                    return False
                if field.kind == KIND_INT:
                    self.numbers[field.target] = <int64_t>value
                continue
            if tag & 7 != 2:
                return False
            p = read_varint(p, end, &value)
            if p == NULL or value > <uint64_t>(end - p):
                return False
            if not self.take(field, p, <size_t>value, depth):
                return False
            p += value
        return True

    cdef bint take(self, Field* field, const uint8_t* p, size_t n, int depth) noexcept nogil:
        """Take a field with a size."""
        cdef Piece* piece
        if field.kind == KIND_MESSAGE:
            return self.read(p, p + n, field.target, depth + 1)
        if field.kind == KIND_NO_BYTES:
            return True
        if field.kind != KIND_BYTES and not is_ascii(p, n):
            return False
        if field.kind == KIND_NO_TEXT:
            return True
        if field.kind == KIND_TEXTS:
            if self.texts_count == TEXTS_MAX:
                return False
            piece = &self.texts[self.texts_count]
            self.texts_count += 1
        else:
            piece = &self.pieces[field.target]
        piece.column = field.target
        piece.at = p
        piece.size = n
        return True

    def scan(self, offsets, data, Py_ssize_t begin, Py_ssize_t count):
        """Read messages that lie one behind the other, from offset number ``begin`` on."""
        cdef Values rows = Values(offsets, data, begin, count)
        cdef Buffer refused = Buffer()
        cdef list out = [tuple([Buffer() for _ in range((1, 2, 2, 3)[self.kinds[c]])]) for c in range(self.columns)]
        cdef Py_ssize_t row
        cdef bint good
        cdef int column, i
        cdef char* flag
        for column in range(self.columns):
            if self.kinds[column] != KIND_INT:
                for i in range(len(out[column]) - 1):
                    put_offset(<Buffer>(<tuple>out[column])[i], 0)
        for row in range(begin, begin + count):
            memset(self.numbers, 0, self.columns * sizeof(int64_t))
            memset(self.pieces, 0, self.columns * sizeof(Piece))
            self.texts_count = 0
            good = self.read(rows.at(row), rows.at(row) + rows.size(row), 0, 0)
            flag = refused.room(1)
            flag[0] = not good
            self.put(out, good)
        return refused, out

    cdef int put(self, list out, bint good) except -1:
        """Put the row that was read behind the others."""
        cdef int column, i
        cdef tuple buffers
        cdef Buffer data, ends
        cdef int64_t number
        for column in range(self.columns):
            buffers = <tuple>out[column]
            if self.kinds[column] == KIND_INT:
                number = self.numbers[column] if good else 0
                memcpy((<Buffer>buffers[0]).room(8), &number, 8)
                continue
            data = <Buffer>buffers[len(buffers) - 1]
            ends = <Buffer>buffers[len(buffers) - 2]
            if self.kinds[column] != KIND_TEXTS:
                if good and self.pieces[column].size:
                    memcpy(data.room(self.pieces[column].size), self.pieces[column].at, self.pieces[column].size)
                put_offset(ends, data.size)
                continue
            if good:
                for i in range(self.texts_count):
                    if self.texts[i].column == column:
                        if self.texts[i].size:
                            memcpy(data.room(self.texts[i].size), self.texts[i].at, self.texts[i].size)
                        put_offset(ends, data.size)
            put_offset(<Buffer>buffers[0], ends.size // 4 - 1)
        return 0


def unpack_blocks(offsets, data, Py_ssize_t begin, Py_ssize_t count, long long limit):
    """Unpack snappy blocks of at most ``limit`` bytes each."""
    cdef Values rows = Values(offsets, data, begin, count)
    cdef Buffer refused = Buffer()
    cdef Buffer ends = Buffer()
    cdef Buffer out = Buffer()
    cdef Py_ssize_t row
    cdef long long size
    cdef size_t before
    cdef bint good
    cdef char* to
    put_offset(ends, 0)
    for row in range(begin, begin + count):
        size = s2_decoded_len(rows.at(row), rows.size(row)) if rows.size(row) else -1
        good = 0 <= size <= limit
        before = out.size
        if good:
            to = out.room(size) if size else <char*>b""
            good = s2_decode(rows.at(row), rows.size(row), <uint8_t*>to, size)
            if not good:
                out.cut(before)
        (refused.room(1))[0] = not good
        put_offset(ends, out.size)
    return refused, ends, out
