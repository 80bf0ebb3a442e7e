"""Interest and workqueue retention: which messages of a stream some consumer still needs."""
from libc.stdint cimport uint64_t
from penstock.core.protocol.subjects cimport Route
from penstock.core.stream.stream cimport Retention, Listener, Stream


cdef enum Verdict:
    NEEDED = 0                 # a consumer takes it and has not acknowledged it
    DONE = 1                   # consumers take it, and all have acknowledged it
    ORPHAN = 2                 # no consumer takes it
    MISSING = 3                # it is not there


cdef class InterestRetention(Retention):
    cdef Stream stream
    cdef Py_ssize_t hint               # place of the consumer without filters that was last found to need a message
    cdef int filtered_hint             # ... and of the one with filters, in its route
    cdef uint64_t sweep_next           # the sweep goes on here; 0: none runs
    cdef uint64_t sweep_last
    cdef bint sweep_orphans

    cdef int later(self, uint64_t seq, object error) except -1
    cdef int verdict(self, uint64_t seq) except -1
    cdef bint needed_by_unfiltered(self, uint64_t seq) except -1
    cdef bint needed_by_route(self, Route route, uint64_t seq) except -1
    cdef int drop(self, uint64_t seq) except -1
    cdef int sweep_some(self, int budget) except -1
    cdef int write(self) except -1
