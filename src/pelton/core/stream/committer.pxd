"""The commits of a stream: accepted messages become as durable as the stream promises, and then visible."""
cimport cython
from libc.stdint cimport uint64_t
from pelton.core.broker.reactor cimport Reactor, Synced
from pelton.core.broker.router cimport Router
from pelton.core.log.log cimport Log
from pelton.core.stream.listeners cimport Listeners
from pelton.core.stream.puback_queue cimport PubAckQueue


@cython.final
cdef class Committer(Synced):
    """The stream's task in the commit phase of a turn."""
    cdef Reactor reactor
    cdef Router router
    cdef Log log
    cdef PubAckQueue acks
    cdef Listeners listeners
    cdef readonly int sync                   # SYNC_ALWAYS or SYNC_INTERVAL
    cdef readonly uint64_t visible           # messages are released up to this sequence
    cdef readonly str failure                # why the log can't write; "" while it can
    cdef list removing                       # functions to call when the removals are durable
    cdef Py_ssize_t syncing                  # the running sync (or, if the stream does not promise syncs, the write) covers the first so many of them
    cdef int outstanding                     # fsyncs of the running sync that have not ended
    cdef int error                           # the first errno among them
    cdef uint64_t upto                       # the sequence that the running sync covers

    cdef int enlist(self) except -1          # commit at the end of this turn
    cdef int begin(self) except -1
    cdef int ended(self) except -1
    cdef int reveal(self, uint64_t upto) except -1
    cdef int write_failed(self, object error) except -1
    cdef bint in_doubt(self) noexcept        # since the opening readers see messages that may not be on the disk
    cdef bint may_lose(self, uint64_t seq) except -1
    cdef int sync_soon(self) except -1
    cdef int when_removed(self, object then) except -1
    cdef int close(self) except -1
    cdef object mend(self)
    cdef int defer(self, object error, object call) except -1
