"""The answers of direct get: stored messages, with stream, subject, sequence and time in their headers."""
from libc.stdint cimport int64_t, uint64_t
from pelton.core.base.buffer cimport Out
from pelton.core.log.log cimport Record
from pelton.core.stream.listeners cimport Listener
from pelton.core.stream.stream cimport Stream


cdef class Answers(Listener):
    cdef readonly Stream stream
    cdef Out out                     # answers that are composed and not sent
    cdef uint64_t barrier            # the highest sequence in `out`
    cdef list held                   # (barrier, reply, answers) or (barrier, function, its bytes) that wait until the stream is durable up to the barrier
    cdef int64_t held_bytes          # of the answers in `held`
    cdef bytes name                  # of the stream, as a header line
    # Compose one message. `pending` < 0: a single message; else of a batch, with so many to follow; `previous`: the batch's sequence before it.
    cdef int put(self, Record* r, bint bare, int64_t pending, uint64_t previous) except -1
    cdef int put_text(self, const char* p, size_t n) except -1
    cdef int send(self, bytes reply, Out* out) except -1
    cdef int finish(self, str reply) except -1
