"""A publish on the slow path: the rules of a stream's rarer features look at it and may change it before it is stored."""
from libc.stdint cimport uint64_t
from penstock.core.broker.router cimport Message


cdef class Draft:
    cdef readonly str subject, reply, original     # original: the subject it was published to
    cdef readonly bytes headers, payload
    cdef public int flags                          # of the record
    cdef public bytes extra                        # joins the PubAck's members: b',"val":"42"'
    cdef public dict notes                         # what a rule's stages tell each other
    cdef readonly bint sourced                     # a mirror's or a source's: its origin has checked it
    cdef readonly uint64_t seq                     # once it is stored
    cdef readonly bint skipped                     # ... or was not: nobody takes it in a stream with interest retention
    cdef bytes subject_bytes, body                 # what a Message points to
    cdef bint changed
    cdef int point(self, Message* m) except -1     # let m be this draft; its reply stays


cdef Draft draft_of(Message* m)
