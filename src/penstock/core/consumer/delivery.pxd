"""What a consumer hands out and what is acknowledged: the part that pull and push consumers share."""
from libc.stdint cimport int64_t, uint64_t
from penstock.core.base.buffer cimport Out
from penstock.core.broker.reactor cimport Reactor, Synced
from penstock.core.broker.router cimport Message, Router
from penstock.core.consumer.pacing cimport Pacing
from penstock.core.consumer.pending cimport Pending, PendingMessages
from penstock.core.log.cursor cimport Cursor
from penstock.core.log.log cimport Log, Record
from penstock.core.protocol.subjects cimport Route
from penstock.core.stream.stream cimport Listener, Stream


cdef enum AckPolicy:
    POLICY_NONE = 0
    POLICY_ALL = 1
    POLICY_EXPLICIT = 2
    POLICY_FLOW = 3            # answers to flow-control requests acknowledge, like POLICY_ALL; nothing is delivered again


cdef enum Pick:
    # what pick() found
    NEXT = 0                   # `picked` is the next message
    NOTHING = 1                # none is visible that was not handed out
    STALLED = 2                # too many unacknowledged


cdef enum:
    REPLY_ROOM = 1024
    BUDGET = 4096                  # messages of one run


cdef class AckConfirmer(Synced):
    """Answers the acks that ask for it, once they are as durable as promised (core/consumer/ack_journal)."""
    cdef int confirm(self, Delivery consumer, uint64_t seq, const char* reply, size_t n) except -1
    cdef int begun_anew(self, Delivery consumer) except -1          # its numbers start from the beginning


cdef class Delivery(Listener):
    cdef readonly Stream stream
    cdef Reactor reactor
    cdef Router router
    cdef Log log
    cdef readonly str name
    cdef bytes key                         # stream.consumer
    cdef bytes ack_prefix                  # $JS.ACK.stream.consumer.
    cdef public object api_subjects        # the ApiSubjects it is registered with (advisories), or None
    cdef public object deadline_changed    # called with (self, ns) when tick() is needed earlier than the last one said; or None
    cdef readonly bint closed
    cdef public bint changed               # state differs from the last snapshot()
    cdef public object on_change           # called without arguments when it begins to differ; or None
    cdef public AckConfirmer confirmer     # None: acks are answered at once
    # rules
    cdef readonly int ack_policy
    cdef uint64_t ack_wait_ns
    cdef tuple backoff_ns
    cdef int64_t max_deliver, max_ack_pending
    cdef bint headers_only
    cdef int sample_percent                # of the acks a metric tells of
    # where it stands
    cdef Cursor cursor
    cdef uint64_t purges                   # Stream.purges when it last looked for itself
    cdef PendingMessages pending
    cdef uint64_t delivered                # consumer sequence of the last delivery
    cdef uint64_t delivered_ns, acked_ns   # when last; 0: never
    cdef uint64_t due_ns                   # no redelivery is due before this; 0: none
    cdef uint64_t deadline_ns              # when tick() is wanted; 0: not at all
    cdef dict spent                        # sequence -> deliveries: not acknowledged, and will not go out again; None: never any
    cdef uint64_t held_ns                  # pacing: nothing goes before this
    cdef bint stalled                      # waits for acks
    cdef Pacing pacing                     # None: nothing to pace
    # the message that goes out
    cdef uint64_t picked                   # its sequence
    cdef Pending* again                    # its entry when it is a redelivery, else NULL
    cdef Message out
    cdef object kept                       # what `out` points to when that is a copy
    cdef char reply[REPLY_ROOM]
    cdef Out scratch                       # headers of a message without its body

    cdef int request(self, const char* reply, size_t reply_len, const char* body, size_t n) except -1  # of the pull side
    cdef bint in_demand(self) noexcept                             # somebody wants messages
    cdef int touch(self) except -1                                 # the state changes
    cdef int kick(self) except -1
    cdef int pick(self) except -1                                  # a Pick
    cdef int gone(self) except -1                                  # the picked message is not in the log
    cdef uint64_t prepare(self, Record* r) except 0                # fill `out`; its size as requests count it
    cdef int strip(self) except -1
    cdef bint held(self, uint64_t ts_ns, uint64_t size) except -1  # pacing says: not yet
    cdef int hand_out(self, Route route, bytes target) except -1   # how many took `out`
    cdef int handed(self, uint64_t ts_ns, uint64_t size) except -1
    cdef int settle(self) except -1
    cdef int arm(self, uint64_t at_ns) except -1
    cdef uint64_t wait_ns(self, uint64_t deliveries) except? 18446744073709551615
    # acks: the sequence, and what else the ack subject says
    cdef int acknowledge(self, uint64_t seq, uint64_t cseq, uint64_t deliveries, Message* m) except -1
    cdef int answer(self, const char* reply, size_t n) except -1
    cdef int ack_one(self, uint64_t seq, uint64_t cseq) except -1
    cdef int ack_upto(self, uint64_t seq, uint64_t cseq) except -1
    cdef int sample(self, uint64_t seq, uint64_t cseq, uint64_t deliveries) except -1
    cdef int lost(self, Pending* e) except -1                      # its message left the stream
    cdef int look_again(self) except -1                            # ack waits may have changed: look at the next tick
    cdef int negative(self, uint64_t seq, uint64_t cseq, uint64_t deliveries, const char* p, size_t n) except -1
    cdef int terminate(self, uint64_t seq, uint64_t cseq, uint64_t deliveries, const char* p, size_t n) except -1
    cdef int exhausted(self, Pending* e) except -1
    cdef int room_made(self) except -1
    cdef int redeliver_due(self) except -1
