"""The stream's data path: publish -> header scan -> expectations -> dedupe -> limits -> append -> PubAck -> wake consumers.

    visible  <=  log.written_seq  <=  log.last_seq

`visible` is the release watermark: acks and deliveries exist for messages up to there only. It follows the writes, or the syncs
when the stream promises that. Knows nothing of JSON requests, configuration rules or consumers' kinds: it tells Listeners.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from penstock.core.acks cimport AckQueue
from penstock.core.buffer cimport Out
from penstock.core.dedupe cimport MessageIds
from penstock.core.expect cimport PublishHeaders, Text
from penstock.core.hub cimport Connection, Hub, Synced, Task
from penstock.core.log cimport Log
from penstock.core.router cimport Message, Router, Sink
from penstock.core.subjects cimport SubjectTrie


cdef enum Outcome:
    STORED = 0
    DUPLICATE = 1              # the sequence is that of the original
    REFUSED = 2                # Stream.refusal says why


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


cdef class Stream(Sink):
    cdef readonly Router router
    cdef Hub hub
    cdef readonly str name
    cdef bytes name_bytes
    cdef readonly Log log
    cdef readonly int sync
    cdef readonly uint64_t visible           # released up to here
    cdef uint64_t removals                   # changes whenever something else than the oldest message is removed
    # rules
    cdef int64_t max_msgs, max_bytes, max_msgs_per_subject, max_msg_size
    cdef uint64_t max_age_ns, duplicate_window_ns
    cdef bint discard_new, discard_new_per_subject, no_ack, sealed
    cdef readonly bint closed
    cdef readonly str failure                # why it takes nothing any more; "" while it does
    cdef public object rare                  # the slow path for rare headers; see stream.pyi
    # publishing
    cdef Committer committer
    cdef AckQueue acks
    cdef MessageIds ids
    cdef tuple refusal                       # (code, err_code, description) of the last REFUSED
    cdef bytes refusal_text                  # its PubAck
    cdef dict refusal_texts                  # those with a constant description
    cdef Out scratch                         # a message whose headers had to be tidied
    cdef Out last_subject                    # subject of the last message, whose id is last_subject_id
    cdef uint32_t last_subject_id
    cdef Out last_id                         # message id of the last stored message
    # consumers
    cdef list listeners
    cdef list waiting                        # Listeners to run when more becomes visible
    cdef list holders                        # Listeners that have messages unacknowledged
    cdef SubjectTrie filters                 # filter -> Listener
    cdef list interested                     # subject id -> Route of filters, or None: not asked yet

    cdef int accept(self, Message* m, uint64_t* seq) except -1         # an Outcome
    cdef int refuse(self, int code, int err_code, str description) except -1
    cdef int check_headers(self, Message* m, PublishHeaders* h, uint64_t* seq) except -1
    cdef int check_rare(self, int stage, Message* m) except -1
    cdef int check_subject_sequence(self, Message* m, PublishHeaders* h) except -1
    cdef int check_room(self, bint rollup, Message* m) except -1
    cdef uint32_t id_of(self, const char* subject, uint32_t n) except? 4294967295
    cdef int tidied(self, Message* m) except -1
    cdef int make_room(self, uint32_t subject_id) except -1
    cdef int evict(self, uint64_t seq) except -1
    cdef int signal(self, uint32_t subject_id, Message* m, uint64_t seq) except -1
    cdef int reveal(self, uint64_t upto) except -1
    cdef int write_failed(self, object error) except -1
    # for consumers
    cdef int add_listener(self, Listener listener, tuple filters) except -1
    cdef int drop_listener(self, Listener listener, tuple filters) except -1
    cdef int await_more(self, Listener listener) except -1
    cdef int hold(self, Listener listener) except -1
