"""Messages of a pull consumer, from received bytes straight into columns; see columns.pyi."""
from libc.stdint cimport int32_t, int64_t, uint64_t

from pelton.core.protocol.wire cimport Op, Parser


cdef class Buffer:
    """Bytes that grow at the end and are read through the buffer protocol, without a copy."""
    cdef char* data
    cdef size_t size               # bytes in use
    cdef size_t cap
    cdef int views                 # buffers handed out: while there are any the address must not change
    cdef char* room(self, size_t n) except NULL           # n more bytes in use; returns the first of them
    cdef void cut(self, size_t size) noexcept             # keep the first `size` bytes


cdef class Columns:
    """One batch of messages as columns."""
    cdef readonly Buffer seq                # int64: stream sequence
    cdef readonly Buffer timestamp_ns       # int64: when the stream stored it
    cdef readonly Buffer subject_offsets    # int32, count + 1 of them: row i is data[offsets[i]:offsets[i + 1]]
    cdef readonly Buffer subject_data
    cdef readonly Buffer headers_offsets
    cdef readonly Buffer headers_data       # header blocks as received, empty for a message without
    cdef readonly Buffer payload_offsets
    cdef readonly Buffer payload_data
    cdef readonly size_t count
    cdef readonly int64_t last_seq          # of the last message added, 0 before the first
    cdef readonly int64_t last_consumer_seq
    cdef readonly int64_t last_pending      # messages of the consumer after it; -1 before the first
    cdef readonly list statuses             # (subject, header block) of messages from the server itself
    cdef public bytes inbox                 # how the subjects of statuses begin: such a message is never a row
    cdef readonly size_t rows_max
    cdef readonly size_t bytes_max
    cdef bint is_full(self) noexcept
    cdef bint add(self, Op* op) except -1                 # False when it was no message of a consumer
    cdef int put(self, const char* subject, size_t subject_len, const char* body, size_t hlen, size_t body_len,
                 const int64_t* numbers) except -1
    cdef int put_parts(self, const char* subject, size_t subject_len, const char* headers, size_t hlen, const char* payload,
                       size_t payload_len, const int64_t* numbers) except -1
    cdef int put_status(self, Op* op) except -1
    cdef int64_t payload_bytes(self, size_t row) noexcept            # of the message, also when it came without its payload


cdef bint parse_ack(const char* reply, size_t n, int64_t* numbers) noexcept nogil
# The last five tokens of the first nine (or, behind domain and account, eleven): delivered, stream seq, consumer seq,
# timestamp, pending. False when the subject is no ack subject.
