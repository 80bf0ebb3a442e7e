"""A stream: what was accepted becomes durable, is acknowledged and shown to consumers. Accepting is in core/intake.

    visible  <=  log.written_seq  <=  log.last_seq

`visible` is the release watermark: acks and deliveries exist for messages up to there only. It follows the writes, or the syncs
when the stream promises that. Knows nothing of JSON requests, configuration rules or consumers' kinds: it tells Listeners.
"""
from libc.stdint cimport uint32_t, uint64_t
from penstock.core.hub cimport Synced, Task
from penstock.core.intake cimport Intake
from penstock.core.subjects cimport SubjectTrie


cdef class Listener(Task):
    """What a stream knows of a consumer."""
    cdef bint awaiting         # on Stream.waiting
    cdef bint holding          # on Stream.holders
    cdef int signalled(self, uint64_t seq) except -1       # a message that passes its filters was accepted
    cdef int wants(self, uint32_t subject_id) except -1    # this subject passes its filters
    cdef int removed(self, uint64_t seq) except -1         # a message is gone (told to holders only); 0: holds nothing any more
    cdef int purged(self) except -1                        # many messages are gone


cdef class Committer(Synced):
    """The stream's task in the commit phase of a turn."""
    cdef Stream stream
    cdef int outstanding       # fsyncs of the running sync that have not ended
    cdef int error             # the first errno among them
    cdef uint64_t upto         # what the running sync covers
    cdef int begin(self) except -1
    cdef int ended(self) except -1


cdef class Stream(Intake):
    cdef readonly int sync
    cdef readonly uint64_t visible           # released up to here
    cdef uint64_t removals                   # changes whenever something else than the oldest message is removed
    cdef readonly bint closed
    cdef readonly str failure                # why the log can't write; "" while it can
    cdef Committer committer
    # consumers
    cdef list listeners
    cdef list waiting                        # Listeners to run when more becomes visible
    cdef list holders                        # Listeners that have messages unacknowledged
    cdef SubjectTrie filters                 # filter -> Listener
    cdef list interested                     # subject id -> Route of filters, or None: not asked yet; empty without filters

    cdef int reveal(self, uint64_t upto) except -1
    cdef int write_failed(self, object error) except -1
    # for consumers
    cdef int add_listener(self, Listener listener, tuple filters) except -1
    cdef int drop_listener(self, Listener listener, tuple filters) except -1
    cdef int await_more(self, Listener listener) except -1
    cdef int hold(self, Listener listener) except -1
