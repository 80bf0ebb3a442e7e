"""The first and the last sequence of a log, and the time of its last message.

    first_seq  <=  last_seq + 1

Knows nothing of the messages between.
"""
cimport cython
from libc.stdint cimport uint64_t


@cython.final
cdef class Span:
    """The sequences of one log."""

    cdef void begin_at(self, uint64_t first_seq) noexcept:
        self.first_seq = first_seq
        self.last_seq = first_seq - 1

    cdef void given_before(self, uint64_t first) noexcept:
        self.last_seq = first - 1

    cdef void raise_last(self, uint64_t seq, uint64_t ts_ns) noexcept:
        if seq > self.last_seq:
            self.last_seq = seq
        if ts_ns > self.last_ts_ns:
            self.last_ts_ns = ts_ns

    cdef void first_is(self, uint64_t seq) noexcept:
        self.first_seq = seq if seq else self.last_seq + 1
