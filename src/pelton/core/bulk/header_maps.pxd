"""Header blocks as the buffers of a column of maps; see header_maps.pyi."""
from libc.stdint cimport int32_t, int64_t
from pelton.core.bulk.columns cimport Buffer


cdef struct Line:
    # One header of a block: where its parts lie, and what other lines have the same name.
    int32_t key
    int32_t key_len
    int32_t value
    int32_t value_len
    int32_t next           # the next line with that name; -1: none
    int32_t tail           # of the first line with a name: the last one so far
    bint first             # no line before has that name


cdef class HeaderMaps:
    """The maps of one batch of messages."""
    cdef readonly Buffer valid              # bitmap: 0 where a message has no headers
    cdef readonly Buffer map_offsets        # int32, count + 1 of them: whose names are whose
    cdef readonly Buffer key_offsets        # int32
    cdef readonly Buffer key_data
    cdef readonly Buffer list_offsets       # int32: whose values are whose
    cdef readonly Buffer value_offsets      # int32
    cdef readonly Buffer value_data
    cdef readonly size_t count
    cdef readonly size_t nulls
    cdef readonly size_t keys
    cdef readonly size_t values
    cdef Line* lines
    cdef int32_t lines_cap
    cdef int32_t found                      # lines of the block at hand
    cdef int take(self, const char* block, size_t n) except -1
    cdef Line* room_for_line(self) except NULL
    cdef int link(self, const char* block) except -1
    cdef int emit(self, const char* block) except -1


cdef bint has_lines(const char* block, size_t n) noexcept nogil          # whether more than its first line and its end can be in it
