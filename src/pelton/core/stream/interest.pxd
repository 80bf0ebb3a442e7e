"""Interest and workqueue retention: which messages of a stream a consumer still needs."""
from libc.stdint cimport uint64_t
from pelton.core.protocol.subjects cimport Route
from pelton.core.stream.stream cimport Retention, Stream


cdef enum Verdict:
    NEEDED = 0                 # a consumer takes the message and has not acknowledged it
    DONE = 1                   # consumers take the message, and all have acknowledged it
    ORPHAN = 2                 # no consumer takes it
    MISSING = 3                # there is no such message


cdef class InterestRetention(Retention):
    cdef Stream stream
    cdef Py_ssize_t hint               # index of the consumer without filters that last needed a message
    cdef int filtered_hint             # index of the consumer with filters that last needed a message, in its route
    cdef uint64_t sweep_next           # the sweep continues here; 0: none runs
    cdef uint64_t sweep_last
    cdef bint sweep_orphans

    cdef int later(self, uint64_t seq, object error) except -1
    cdef int verdict(self, uint64_t seq) except -1
    cdef bint needed_by_unfiltered(self, uint64_t seq) except -1
    cdef bint needed_by_route(self, Route route, uint64_t seq) except -1
    cdef int drop(self, uint64_t seq) except -1
    cdef int sweep_some(self, int budget) except -1
    cdef int write(self) except -1
