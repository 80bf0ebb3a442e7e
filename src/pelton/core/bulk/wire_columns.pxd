"""Columns of messages that say more, or come otherwise, than a pull consumer's do; see wire_columns.pyi."""
from libc.stdint cimport int64_t
from pelton.core.bulk.columns cimport Buffer, Columns


cdef class WireColumns(Columns):
    """Messages of a consumer with their ack subjects, or without their payloads."""
    cdef public bint headers_only
    cdef public bint replies
    cdef readonly Buffer payload_sizes      # int64, with headers_only
    cdef readonly Buffer reply_offsets      # int32, with replies
    cdef readonly Buffer reply_data


cdef class DirectColumns(Columns):
    """Messages that direct gets brought."""
    cdef public bytes stream
    cdef public bytes reply                 # where the answers arrive
    cdef readonly bint foreign              # something came from another stream


cdef size_t last_line(const char* block, size_t end, const char* name, size_t name_len, size_t* value) noexcept nogil
# Where the header line begins that ends (without its line end) at `end`, when it has that name; its value begins at *value. 0: it has not.

cdef int64_t parse_time(const char* p, size_t n) noexcept nogil      # RFC 3339 in UTC, as ns since 1970; -1: it is none
