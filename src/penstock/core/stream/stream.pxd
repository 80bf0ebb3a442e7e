"""A stream: what was accepted becomes durable, is acknowledged and shown to consumers. Accepting is in core/stream/publish.

    visible  <=  log.written_seq  <=  log.last_seq

`visible` is the release watermark: acks and deliveries exist for messages up to there only. It follows the writes, or the syncs
when the stream promises that. Knows nothing of JSON requests, configuration rules or consumers' kinds: it tells Listeners.
"""
from libc.stdint cimport uint32_t, uint64_t
from penstock.core.broker.reactor cimport Synced, Task
from penstock.core.log.subject_table cimport SubjectWatcher
from penstock.core.protocol.subjects cimport Route, SubjectTrie
from penstock.core.stream.publish cimport PublishPath


cdef class Listener(Task):
    """What a stream knows of a consumer."""
    cdef bint awaiting                                     # on Stream.waiting
    cdef bint holding                                      # on Stream.holders
    cdef int signalled(self, uint64_t seq) except -1       # a message that passes its filters was accepted
    cdef int wants(self, uint32_t subject_id) except -1    # this subject passes its filters
    cdef int forgets(self, uint32_t subject_id) except -1  # one that did has no message any more: its id may become another one's
    cdef int removed(self, uint64_t seq) except -1         # a message is gone (told to holders only); 0: holds nothing any more
    cdef int expire_below(self, uint64_t seq) except -1    # messages below a sequence are about to leave for their age (told to holders)
    cdef int purged(self) except -1                        # many messages are gone (told to holders; others see Stream.purges)
    cdef int needs(self, uint64_t seq) except -1           # a message that passes its filters: not acknowledged yet (1) or done with (0)


cdef class Retention(Task):
    """What a stream with interest or workqueue retention asks about its messages; made of consumers' needs in core/stream/interest."""
    cdef int settled(self, uint64_t seq) except -1         # a consumer is done with a message: it goes unless another one needs it
    cdef int sweep(self, uint64_t start, bint orphans) except -1  # look at all from a sequence on; orphans: nobody's go, too


cdef class Committer(Synced):
    """The stream's task in the commit phase of a turn."""
    cdef Stream stream
    cdef int outstanding       # fsyncs of the running sync that have not ended
    cdef int error             # the first errno among them
    cdef uint64_t upto         # what the running sync covers
    cdef int begin(self) except -1
    cdef int ended(self) except -1


cdef class Routes(SubjectWatcher):
    """Forgets what a stream and its consumers keep by the id of a subject."""
    cdef Stream stream


cdef class Stream(PublishPath):
    cdef readonly int sync
    cdef readonly uint64_t visible           # released up to here
    cdef uint64_t removals                   # changes whenever something else than the oldest message is removed
    cdef uint64_t purges                     # changes whenever many messages are removed
    cdef uint64_t purged_first               # the first sequence after the last time
    cdef readonly bint closed
    cdef readonly str failure                # why the log can't write; "" while it can
    cdef readonly str unread                 # why the disk last refused to give a message back; "": it was asked again since
    cdef Committer committer
    cdef list removing                       # who waits for a removal to be durable: functions to call
    cdef Py_ssize_t syncing                  # so many of them, the first ones, are covered by the running sync (or are written, if that is what is promised)
    # consumers
    cdef Retention retention                 # None: limits retention
    cdef dict listeners                      # Listener -> None, oldest first
    cdef list unfiltered                     # Listeners without filters
    cdef list waiting                        # Listeners to run when more becomes visible
    cdef list holders                        # Listeners that have messages unacknowledged
    cdef Routes routes
    cdef SubjectTrie filters                 # filter -> Listener
    cdef list interested                     # subject id -> Route of filters; None or of another epoch: to be asked; empty without filters
    cdef uint64_t epoch                      # changes when a filter comes or goes
    cdef Route nobody                        # the Route of subjects without filters, of this epoch
    cdef Py_ssize_t scrubbed                 # up to here `interested` was cleared of old Routes

    cdef int reveal(self, uint64_t upto) except -1
    cdef int write_failed(self, object error) except -1
    cdef int read_failed(self, object error) except -1             # of a message that is there: nobody may take it for gone
    # for consumers
    cdef int add_listener(self, Listener listener, tuple filters) except -1
    cdef int drop_listener(self, Listener listener, tuple filters) except -1
    cdef int filters_changed(self) except -1
    cdef Route route_for(self, uint32_t subject_id, const char* subject, size_t n)  # Listeners whose filters take the subject
    cdef int await_more(self, Listener listener) except -1
    cdef int hold(self, Listener listener) except -1
