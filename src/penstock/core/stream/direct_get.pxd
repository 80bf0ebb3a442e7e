"""The answers of direct get: stored messages as they are, with what the reader should know in their headers."""
from libc.stdint cimport int64_t, uint64_t
from penstock.core.base.buffer cimport Out
from penstock.core.log.log cimport Record
from penstock.core.stream.stream cimport Listener, Stream


cdef class Answers(Listener):
    cdef readonly Stream stream
    cdef Out out                     # answers that were put and not sent
    cdef uint64_t barrier            # the highest sequence among them
    cdef list held                   # (barrier, reply, answers): until the stream is that durable
    cdef bytes name                  # of the stream, as a header line
    # One message. `pending` < 0: a single one, else one of a batch, with how many follow; `previous`: the sequence before it there.
    cdef int put(self, Record* r, bint bare, int64_t pending, uint64_t previous) except -1
    cdef int put_text(self, const char* p, size_t n) except -1
    cdef int send(self, bytes reply, Out* out) except -1
    cdef int finish(self, str reply) except -1
