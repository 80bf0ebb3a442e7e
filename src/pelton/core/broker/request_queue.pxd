"""Requests of all accounts, carried out step by step and in turns."""
from libc.stdint cimport int64_t, uint64_t
from pelton.core.broker.reactor cimport Connection, Reactor, Task


cdef class RequestQueue(Task):
    cdef Reactor reactor
    cdef object failed                     # called with the exception of a request
    cdef readonly int most                 # waiting requests of one account that hold no connection,
    cdef readonly int64_t most_bytes       # ... and their bytes
    cdef object accounts                   # deque of Shares: the accounts with waiting requests, the next one first
    cdef dict shares                       # account -> Share
    cdef uint64_t started_in               # the turn, plus one, in which a request last began at once
    cdef uint64_t ran_in                   # the turn in which requests that waited were last carried out
    cdef bint running                      # requests that waited are being carried out
    cdef bint may_begin(self) noexcept
    cdef int advance(self) except -1       # one step of the next request
    cdef bint step(self, object work) except -1
    cdef int leave(self, object waiting) except -1
