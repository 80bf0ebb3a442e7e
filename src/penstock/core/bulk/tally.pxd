"""Counts of received messages, and their answers; see tally.pyi."""
from libc.stdint cimport int64_t

from penstock.core.base.buffer cimport Out
from penstock.core.protocol.wire cimport Op, Parser


cdef class Tally:
    """Counts the messages of a subscription and writes an answer to each."""
    cdef readonly int64_t messages       # of the subscription, statuses apart
    cdef readonly int64_t payload_bytes  # of these, without headers
    cdef readonly int64_t confirmations  # messages of the other subscription: confirmed acks
    cdef readonly list statuses          # header blocks of messages from the server itself; the caller empties it
    cdef bytes answer                    # payload of the answer to each message that has a reply subject; None for no answer
    cdef bytes reply                     # reply subject of each answer; b"" for none
    cdef bint only_last                  # one answer for all messages of a feed: to the last
    cdef Out out                         # answers that were not taken yet
    cdef int count(self, Op* op) except -1
    cdef int put_answer(self, const char* subject, size_t n) except -1
