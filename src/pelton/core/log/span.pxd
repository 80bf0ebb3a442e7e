"""The first and the last sequence of a log. See span.pyx."""
cimport cython
from libc.stdint cimport uint64_t


@cython.final
cdef class Span:
    cdef uint64_t first_seq                  # lowest live sequence; last_seq + 1 when the log is empty; never goes back
    cdef uint64_t last_seq                   # highest accepted sequence; 0 for a new log
    cdef uint64_t last_ts_ns                 # of the last message appended (0: none known)

    cdef void begin_at(self, uint64_t first_seq) noexcept       # the next sequence of a log without messages
    cdef void given_before(self, uint64_t first) noexcept       # recovery: the sequence `first` and higher ones are not given yet
    cdef void raise_last(self, uint64_t seq, uint64_t ts_ns) noexcept   # raise last_seq to `seq` and last_ts_ns to `ts_ns`, if they are lower
    cdef void first_is(self, uint64_t seq) noexcept             # the lowest live sequence; 0: the log is empty


cdef inline void accepted(Span span, uint64_t seq, uint64_t ts_ns) noexcept:
    # A message was appended.
    span.last_seq = seq
    span.last_ts_ns = ts_ns
