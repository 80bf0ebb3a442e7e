"""The consumers of a stream as the stream sees them: who takes which message, who waits for the next one, who has messages unacknowledged."""
cimport cython
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.broker.reactor cimport Reactor, Task
from pelton.core.log.log cimport Log
from pelton.core.log.subject_table cimport SubjectWatcher
from pelton.core.protocol.subjects cimport Route, SubjectTrie


cdef class Listener(Task):
    """A consumer as the stream sees it."""
    cdef bint awaiting                                     # on Listeners.waiting
    cdef bint holding                                      # on Listeners.holders
    cdef int signalled(self, uint64_t seq) except -1       # a message that its filters match was accepted
    cdef int wants(self, uint32_t subject_id) except -1    # whether its filters match this subject
    cdef int forgets(self, uint32_t subject_id) except -1  # a subject that its filters match has no messages any more: its id may go to another subject
    cdef int removed(self, uint64_t seq) except -1         # a message was removed (called for holders only); 0: the listener holds no messages any more
    cdef int expire_below(self, uint64_t seq) except -1    # messages below a sequence are about to be removed for their age (called for holders)
    cdef int purged(self) except -1                        # many messages were removed (called for holders; others see Listeners.purges)
    cdef int needs(self, uint64_t seq) except -1           # of a message that its filters match: 1: not acknowledged yet, 0: done with


@cython.final
cdef class Listeners(SubjectWatcher):
    cdef Reactor reactor
    cdef Log log
    cdef readonly dict all                   # Listener -> None, oldest first
    cdef list unfiltered                     # Listeners without filters
    cdef list waiting                        # Listeners to run when more messages become visible
    cdef list holders                        # Listeners with unacknowledged messages
    cdef uint64_t removals                   # changes at each removal other than of the oldest message
    cdef uint64_t purges                     # changes whenever many messages are removed
    cdef uint64_t purged_first               # the first sequence after the last purge
    cdef SubjectTrie filters                 # filter -> Listener
    cdef list interested                     # subject id -> Route of filters; None or of another epoch: to be looked up; empty without filters
    cdef uint64_t epoch                      # changes when a filter is added or removed
    cdef Route nobody                        # the Route of subjects without filters, of this epoch
    cdef Py_ssize_t scrubbed                 # old Routes in `interested` were dropped up to here

    cdef int add(self, Listener listener, tuple filters) except -1
    cdef int drop(self, Listener listener, tuple filters) except -1
    cdef int filters_changed(self) except -1
    cdef Route route_for(self, uint32_t subject_id, const char* subject, size_t n)  # the Listeners whose filters match the subject
    cdef bint anyone_takes(self, const char* subject, size_t n) except -1  # whether some listener takes messages of this subject
    cdef int stored(self, uint32_t subject_id, const char* subject, size_t n, uint64_t seq) except -1  # a message was accepted
    cdef int await_more(self, Listener listener) except -1
    cdef int wake(self) except -1                                  # more messages are visible
    cdef int hold(self, Listener listener) except -1
    cdef int removed(self, uint64_t seq, bint oldest) except -1    # a message was removed; oldest: it was the first of the log
    cdef int expire_below(self, uint64_t seq) except -1
    cdef int purged(self) except -1                                # many messages were removed
