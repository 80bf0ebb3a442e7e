"""Copying one stream's messages into another: what a mirror or a source does with each message, and the loop within a server."""
from libc.stdint cimport uint32_t, uint64_t
from penstock.core.base.buffer cimport Out
from penstock.core.broker.router cimport Message
from penstock.core.log.cursor cimport Cursor
from penstock.core.stream.stream cimport Listener, Stream

cdef enum:
    SOURCED = 0x8000               # flag of a record that came through a source: its Nats-Stream-Source is ours


cdef class SourceWriter:
    cdef readonly Stream target
    cdef readonly bint mirror
    cdef readonly uint64_t position        # sequence in the origin of the last message that is dealt with
    cdef readonly uint64_t anchor          # sequence here of the last one that was stored; 0: not known
    cdef readonly uint64_t taken           # messages dealt with
    cdef readonly tuple refusal            # (code, err_code, description) while the target refuses the next one, else None
    cdef bytes before, after               # of the value of Nats-Stream-Source: around the sequence
    cdef object transform                  # subject -> subject, or None
    cdef bytes name                        # its last answer
    cdef Out block                         # the message as it is stored
    cdef int put(self, uint64_t seq, uint64_t ts_ns, Message* m) except -1  # 1: dealt with; 0: refused
    cdef int rename(self, Message* m) except -1
    cdef int dress(self, uint64_t seq, Message* m) except -1


cdef class Copier(Listener):
    cdef readonly Stream origin
    cdef readonly SourceWriter writer
    cdef Cursor cursor
    cdef tuple filters
    cdef uint64_t start_seq                # a mirror has to be there before its first message; 0: it is
    cdef readonly bint closed
    cdef readonly bint blocked             # the target refuses: retry() goes on
    cdef public object when_blocked        # called without arguments when it comes to that, or None
    cdef readonly bint caught_up           # everything that is visible was copied, at least once
    cdef readonly uint64_t last_ns         # when a message was last copied; 0: never
    cdef int block(self) except -1
