"""A stream: accepted messages become durable, are acknowledged and become visible to consumers. core/stream/publish accepts them.

    visible  <=  log.written_seq  <=  log.last_seq

`visible` is a watermark: acks and deliveries exist only for messages up to it. It follows the writes, or the syncs when the
stream promises them. Knows nothing of JSON requests, configuration rules or the kinds of consumers: it calls Listeners.
"""
from libc.stdint cimport uint32_t, uint64_t
from penstock.core.broker.reactor cimport Synced, Task
from penstock.core.log.subject_table cimport SubjectWatcher
from penstock.core.protocol.subjects cimport Route, SubjectTrie
from penstock.core.stream.publish cimport PublishPath


cdef class Listener(Task):
    """A consumer as the stream sees it."""
    cdef bint awaiting                                     # on Stream.waiting
    cdef bint holding                                      # on Stream.holders
    cdef int signalled(self, uint64_t seq) except -1       # a message that its filters match was accepted
    cdef int wants(self, uint32_t subject_id) except -1    # whether its filters match this subject
    cdef int forgets(self, uint32_t subject_id) except -1  # a subject that its filters match has no messages any more: its id may go to another subject
    cdef int removed(self, uint64_t seq) except -1         # a message was removed (called for holders only); 0: the listener holds no messages any more
    cdef int expire_below(self, uint64_t seq) except -1    # messages below a sequence are about to be removed for their age (called for holders)
    cdef int purged(self) except -1                        # many messages were removed (called for holders; others see Stream.purges)
    cdef int needs(self, uint64_t seq) except -1           # of a message that its filters match: 1: not acknowledged yet, 0: done with


cdef class Retention(Task):
    """Decides which messages a stream with interest or workqueue retention keeps; core/stream/interest asks the consumers."""
    cdef int settled(self, uint64_t seq) except -1         # a consumer is done with a message: remove it unless another consumer needs it
    cdef int sweep(self, uint64_t start, bint orphans) except -1  # look at all messages from a sequence on; orphans: also remove those that no consumer takes


cdef class Committer(Synced):
    """The stream's task in the commit phase of a turn."""
    cdef Stream stream
    cdef int outstanding       # fsyncs of the running sync that have not ended
    cdef int error             # the first errno among them
    cdef uint64_t upto         # the sequence that the running sync covers
    cdef int begin(self) except -1
    cdef int ended(self) except -1


cdef class Routes(SubjectWatcher):
    """Drops the state of a subject that a stream and its consumers keep by subject id."""
    cdef Stream stream


cdef class Stream(PublishPath):
    cdef readonly int sync
    cdef readonly uint64_t visible           # messages are released up to this sequence
    cdef uint64_t removals                   # changes at each removal other than of the oldest message
    cdef uint64_t purges                     # changes whenever many messages are removed
    cdef uint64_t purged_first               # the first sequence after the last purge
    cdef readonly bint closed
    cdef readonly str failure                # why the log can't write; "" while it can
    cdef readonly str unread                 # why the disk could not read a message; "": no read failed since read_again()
    cdef Committer committer
    cdef list removing                       # functions to call when the removals are durable
    cdef Py_ssize_t syncing                  # the running sync (or, if the stream does not promise syncs, the write) covers the first so many of them
    # consumers
    cdef Retention retention                 # None: limits retention
    cdef dict listeners                      # Listener -> None, oldest first
    cdef list unfiltered                     # Listeners without filters
    cdef list waiting                        # Listeners to run when more messages become visible
    cdef list holders                        # Listeners with unacknowledged messages
    cdef Routes routes
    cdef SubjectTrie filters                 # filter -> Listener
    cdef list interested                     # subject id -> Route of filters; None or of another epoch: to be looked up; empty without filters
    cdef uint64_t epoch                      # changes when a filter is added or removed
    cdef Route nobody                        # the Route of subjects without filters, of this epoch
    cdef Py_ssize_t scrubbed                 # old Routes in `interested` were dropped up to here

    cdef int reveal(self, uint64_t upto) except -1
    cdef int write_failed(self, object error) except -1
    cdef int read_failed(self, object error) except -1             # a read failed, of a message that is in the log: no consumer may skip it
    # for consumers
    cdef int add_listener(self, Listener listener, tuple filters) except -1
    cdef int drop_listener(self, Listener listener, tuple filters) except -1
    cdef int filters_changed(self) except -1
    cdef Route route_for(self, uint32_t subject_id, const char* subject, size_t n)  # the Listeners whose filters match the subject
    cdef int await_more(self, Listener listener) except -1
    cdef int hold(self, Listener listener) except -1
