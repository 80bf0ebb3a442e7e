"""Fields of many protobuf messages as columns; see protobuf.pyi."""
from libc.stdint cimport int32_t, int64_t, uint8_t


cdef enum:
    FIELDS = 128                   # a field with a greater number is refused
    TEXTS_MAX = 512                # values of repeated fields in one message


cdef struct Field:
    int kind                       # a KIND_, or -1 for a field that no message of the type has
    int target                     # the column, or the node of the message in it


cdef struct Piece:
    int column
    const uint8_t* at
    size_t size


cdef class Values:
    """Binary values that lie one behind the other, as a caller hands them in."""
    cdef const int32_t[::1] offsets
    cdef const uint8_t[::1] data
    cdef const uint8_t* at(self, Py_ssize_t row) noexcept
    cdef size_t size(self, Py_ssize_t row) noexcept


cdef class Scanner:
    """A type of messages: its fields, and the columns that they go to."""
    cdef Field* fields             # FIELDS for each node; node 0 is the message itself
    cdef int nodes
    cdef int columns
    cdef int* kinds                # of the columns
    cdef int64_t* numbers          # of the row that is read: an int column's value
    cdef Piece* pieces             # of the row that is read: the value of a text or bytes column
    cdef Piece* texts              # of the row that is read: the values of repeated columns, in their order
    cdef int texts_count
    cdef bint read(self, const uint8_t* p, const uint8_t* end, int node, int depth) noexcept nogil
    cdef bint take(self, Field* field, const uint8_t* p, size_t n, int depth) noexcept nogil
    cdef int set_field(self, int node, int number, int kind, int target) except -1
    cdef int put(self, list out, bint good) except -1
