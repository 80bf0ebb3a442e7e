"""Rows of columns as publishes, and the acks that come back for them; see publish_window.pyi."""
from cpython.buffer cimport Py_buffer
from libc.stdint cimport int64_t, uint64_t

from pelton.core.base.buffer cimport Out
from pelton.core.protocol.wire cimport Op, Parser


cdef enum:
    TOKEN = 16                     # characters of a token


cdef struct Slice:
    const char* p
    size_t n


cdef struct Slot:
    # A message that was put, found by its number modulo the capacity.
    int64_t row                    # of the partition
    uint64_t at                    # position of its first byte among all bytes ever put
    size_t size
    int64_t seq                    # where the stream has it; 0 when not known
    bint answered
    char token[TOKEN]              # before the number in its reply, if the window has tokens


cdef class Column:
    """A column of texts in Arrow's layout, or one text for every row; the buffers are held as long as it lives."""
    cdef Py_buffer data
    cdef Py_buffer offsets
    cdef bint fixed
    cdef int views                 # buffers to release
    cdef readonly size_t count
    cdef int at(self, size_t i, Slice* found) except -1        # row i; ValueError when the offsets lie


cdef class Rows:
    """One batch of rows to publish."""
    cdef readonly Column subjects
    cdef readonly Column payloads
    cdef readonly Column lines     # of headers, each with its CR LF; None for no row
    cdef readonly int64_t first    # row of the partition that row 0 is
    cdef readonly size_t count
    cdef bytes how                 # a byte per row, b"" for all SEND


cdef class Encoder:
    """What the messages of one writer have in common."""
    cdef bytes common              # lines of headers
    cdef bytes numbered            # the line that a number ends; b"" for none
    cdef bytes reply               # the number of the message follows; b"" for none
    cdef readonly int64_t max_payload
    cdef size_t max_subject        # bytes of a subject beside which reply and sizes fit into a line
    cdef readonly list refused     # (row, TOO_LARGE, BAD_SUBJECT or LONG_SUBJECT, bytes)
    cdef bint are_alike(self, Rows rows) noexcept      # they differ in nothing but the number of their reply
    cdef int write(self, Out* out, Rows rows, size_t i, uint64_t number, uint64_t line_number,
                   const char* token=*) except -1
    # One message, with a token (if any) and a number in its reply and a number in its numbered line; 1 when it was written (or could be: no out),
    # 0 when the row is to be skipped or was refused.


cdef class PublishWindow:
    """The window of messages that wait for an answer."""
    cdef readonly Encoder encoder
    cdef Out held                  # bytes from the oldest message without an answer on
    cdef uint64_t base             # position of the first of them among all bytes ever put
    cdef uint64_t sent             # position up to which bytes were taken
    cdef Slot* slots
    cdef size_t mask
    cdef uint64_t oldest           # number of the oldest message without an answer
    cdef uint64_t next_number
    cdef readonly size_t outstanding
    cdef readonly size_t rows_max
    cdef readonly size_t bytes_max
    cdef readonly int64_t acked
    cdef readonly int64_t duplicates
    cdef readonly int64_t floor_seq
    cdef readonly list failures    # (row, operation, header block, payload) of answers that are no plain ack
    cdef Out head                  # of messages that are alike: what comes before the number of the reply,
    cdef Out tail                  # and what comes behind it
    cdef object tokens             # returns bytes of tokens; None for none
    cdef bytes drawn               # tokens, used up to token_at
    cdef size_t token_at
    cdef Out ack                   # the last ack up to its sequence, if that ends it
    cdef bint is_full(self) noexcept
    cdef const char* next_token(self, Slot* slot) except? NULL     # drawn into the slot; NULL without tokens
    cdef int64_t put_some(self, Rows rows, size_t start, size_t most, size_t bytes_wanted) except -1   # how many rows were looked at
    cdef int64_t put_alike(self, Rows rows, size_t start, size_t stop, size_t bytes_wanted) except -1
    cdef bint acknowledges(self, const char* p, size_t n, int64_t* seq, bint* duplicate) except -1
    cdef const char* untaken(self, size_t* n) noexcept         # the bytes not taken yet, valid until the next put or answer
    cdef void taken(self) noexcept                             # all of them were
    cdef bytes operation(self, Slot* slot)
    cdef int answer(self, Op* op) except -1
    cdef int settled(self, uint64_t number, int64_t seq) except -1
    cdef int move_floor(self) except -1


cdef bint read_ack(const char* p, size_t n, int64_t* seq, bint* duplicate) noexcept nogil
# Whether the text is the ack of a stored message; False for anything else, an error above all.
