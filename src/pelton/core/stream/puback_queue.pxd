"""PubAcks that wait until their message is as durable as its stream promises: one queue per stream, first in, first out."""
cimport cython
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.base.buffer cimport Out
from pelton.core.broker.router cimport Router


cdef enum AckKind:
    ACK_STORED = 0             # {"stream":...,"seq":N}
    ACK_DUPLICATE = 1          # the same with "duplicate": true
    ACK_TEXT = 2               # a text made by the caller


cdef struct AckRecord:
    # Followed by the reply subject and the text; see the module head.
    uint32_t size
    uint32_t reply_len
    uint64_t barrier
    uint64_t seq
    uint32_t kind
    uint32_t text_len


@cython.final
cdef class PubAckQueue:
    cdef Out records
    cdef readonly size_t count
    cdef bytes head            # {"stream":"S","seq":   (with the domain in between when there is one)
    cdef bytes tail            # of an error: ,"stream":"S","seq":0}
    cdef str dialect           # "" today's answers, or "2019", "2020": +OK, -ERR
    cdef bint releasing
    cdef bint speak(self, str dialect) except -1            # set the dialect; True: it has changed
    cdef AckRecord* make(self, const char* reply, uint32_t reply_len, uint64_t barrier, size_t text_len) except NULL
    # `barrier`: the ack is sent when the stream has released this sequence (0: at once)
    cdef int push(self, const char* reply, uint32_t reply_len, uint64_t barrier, uint64_t seq, int kind) except -1
    cdef int push_text(self, const char* reply, uint32_t reply_len, uint64_t barrier, bytes text) except -1
    cdef int release(self, Router router, uint64_t upto) except -1  # send the acks whose barrier is <= upto, in order
    cdef int refuse(self, list lost, bytes text) except -1  # replace the acks of messages in these (first, count, reason) by the error
    cdef int say(self, Router router, const char* reply, uint32_t reply_len, bytes text) except -1  # send at once, before the waiting acks
    cdef int send_first(self, Router router) except -1
    cdef bytes error(self, int code, int err_code, str description)  # the bytes of an error PubAck
