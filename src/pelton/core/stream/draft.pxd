"""A publish with headers for rules: the stream's rules look at it and may change it before it is stored."""
from libc.stdint cimport uint64_t
from pelton.core.broker.router cimport Message


cdef class Draft:
    cdef readonly str subject, reply, original     # original: the subject it was published to
    cdef readonly bytes headers, payload
    cdef public int flags                          # of the record
    cdef public bytes extra                        # further members of the PubAck: b',"val":"42"'
    cdef public dict notes                         # values that the stages of a rule pass on
    cdef readonly bint sourced                     # copied by a mirror or a source: its origin has checked it
    cdef readonly uint64_t seq                     # set when the message is stored
    cdef readonly bint skipped                     # it has a sequence and is not stored: no consumer takes it (interest retention)
    cdef bytes subject_bytes, body                 # the bytes that a Message points to
    cdef bint changed
    cdef int point(self, Message* m) except -1     # let m be this draft; its reply stays
    cdef int take_headers(self, Message* m) except -1  # the message's headers were tidied
    cdef int note(self, str name, object value) except -1
    cdef int skip(self) except -1                  # no consumer takes the message: it is not stored
    cdef int stored(self, uint64_t seq) except -1  # the message has this sequence


cdef Draft draft_of(Message* m)
cdef Draft draft_of_record(Message* m, int flags, bint sourced)   # of a message that has its record flags
