"""Copying messages of one stream into another: how a mirror or a source stores a message, and the copy loop within a server."""
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.base.buffer cimport Out
from pelton.core.broker.router cimport Message
from pelton.core.log.cursor cimport Cursor
from pelton.core.stream.listeners cimport Listener
from pelton.core.stream.stream cimport Stream

cdef enum:
    SOURCED = 0x8000               # flag of a record that came through a source of this server, which wrote its Nats-Stream-Source


cdef class SourceWriter:
    cdef readonly Stream target
    cdef readonly bint mirror
    cdef readonly uint64_t position        # sequence in the origin of the last processed message
    cdef readonly uint64_t anchor          # sequence in the target of the last stored message; 0: not known
    cdef readonly uint64_t taken           # number of processed messages
    cdef readonly tuple refusal            # (code, err_code, description) while the target refuses the next message, else None
    cdef bytes before, after               # the parts of Nats-Stream-Source around the sequence
    cdef bytes origin                      # a blank and the identity of the origin, or nothing when that is not known
    cdef object transform                  # subject -> subject, or None
    cdef bytes name                        # the last answer of `transform`
    cdef Out block                         # the message as it is stored
    cdef int put(self, uint64_t seq, uint64_t ts_ns, Message* m) except -1  # 1: processed; 0: refused
    cdef int rename(self, Message* m) except -1
    cdef int dress(self, uint64_t seq, Message* m) except -1


cdef class Copier(Listener):
    cdef readonly Stream origin
    cdef readonly SourceWriter writer
    cdef Cursor cursor
    cdef tuple filters
    cdef uint64_t start_seq                # the sequence at which a mirror must begin; 0: the mirror has begun
    cdef readonly bint closed
    cdef readonly bint blocked             # the target refuses the next message; retry() continues
    cdef public object when_blocked        # called without arguments when `blocked` becomes true, or None
    cdef readonly bint caught_up           # every visible message was copied at least once
    cdef readonly uint64_t last_ns         # when a message was last copied; 0: never
    cdef int block(self) except -1
