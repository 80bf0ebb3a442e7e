"""The part that pull and push consumers share: the next message to deliver, the unacknowledged messages, and the acks."""
cimport cython
from libc.stdint cimport int64_t, uint64_t
from pelton.core.base.buffer cimport Out
from pelton.core.broker.reactor cimport Reactor, Synced
from pelton.core.broker.router cimport Message, Router
from pelton.core.consumer.consumer_task cimport ConsumerTask
from pelton.core.consumer.pacing cimport Pacing
from pelton.core.consumer.pending cimport Pending, PendingMessages
from pelton.core.log.cursor cimport Cursor
from pelton.core.log.log cimport Log, Record
from pelton.core.protocol.subjects cimport Route
from pelton.core.stream.committer cimport Committer
from pelton.core.stream.listeners cimport Listeners
from pelton.core.stream.stream cimport Stream


cdef enum AckPolicy:
    POLICY_NONE = 0
    POLICY_ALL = 1
    POLICY_EXPLICIT = 2
    POLICY_FLOW = 3            # answers to flow-control requests acknowledge, like POLICY_ALL; there are no redeliveries


cdef enum Pick:
    # the result of pick()
    NEXT = 0                   # `picked` is the next message
    NOTHING = 1                # every visible message was delivered
    STALLED = 2                # max_ack_pending messages are unacknowledged


cdef enum:
    REPLY_ROOM = 1024
    BUDGET = 4096                  # messages of one run


cdef class AckConfirmer(Synced):
    """Answers the acks that ask for an answer, once they are as durable as promised (core/consumer/ack_journal)."""
    cdef int confirm(self, ConsumerTask consumer, uint64_t seq, const char* reply, size_t n) except -1
    cdef int was_reset(self, ConsumerTask consumer) except -1      # the consumer sequences start again from 1


@cython.final
cdef class Delivery:
    cdef ConsumerTask consumer             # ENDED when it is closed
    cdef Stream stream
    cdef Listeners listeners               # of the stream
    cdef Committer committer               # of the stream
    cdef Reactor reactor
    cdef Router router
    cdef Log log
    cdef AckConfirmer confirmer            # None: acks are answered at once
    # configuration
    cdef int ack_policy
    cdef uint64_t ack_wait_ns
    cdef tuple backoff_ns
    cdef int64_t max_deliver, max_ack_pending
    cdef bint headers_only
    cdef int sample_percent                # percentage of acks that are reported as a metric
    # position
    cdef Cursor cursor
    cdef uint64_t purges                   # Listeners.purges when the position was last checked against the stream
    cdef PendingMessages pending
    cdef uint64_t delivered                # consumer sequence of the last delivery
    cdef uint64_t delivered_ns, acked_ns   # time of the last delivery and of the last ack; 0: never
    cdef uint64_t due_ns                   # no redelivery is due before this; 0: none
    cdef dict spent                        # sequence -> deliveries: max_deliver reached, not acknowledged; None: none
    cdef uint64_t held_ns                  # pacing: no delivery before this time
    cdef bint stalled                      # max_ack_pending was reached: an ack makes the consumer run again
    cdef Pacing pacing                     # None: no rate limit and no replay
    # the message that is being delivered
    cdef uint64_t picked                   # its sequence
    cdef Pending* again                    # its entry when it is a redelivery, else NULL
    cdef Message out
    cdef object kept                       # owns the bytes that `out` points to when they are a copy
    cdef bytes ack_prefix                  # $JS.ACK.stream.consumer.
    cdef bint brief                        # its ack subjects end behind the third number
    cdef char reply[REPLY_ROOM]
    cdef Out scratch                       # headers of a message without its body

    # configuration
    cdef int set_dialect(self, str dialect) except -1
    cdef int set_filters(self, tuple patterns, bint first_time, bint last_per_subject) except -1
    cdef int set_pace(self, uint64_t rate_limit_bps, bint replay_original) except -1
    cdef int confirm_acks_with(self, AckConfirmer confirmer) except -1
    cdef int end(self) except -1                                   # the consumer is closed
    # delivery
    cdef int pick(self) except -1                                  # a Pick
    cdef int gone(self) except -1                                  # the picked message is not in the log
    cdef uint64_t prepare(self, Record* r) except 0                # fill `out`; returns its size as requests count it
    cdef int strip(self) except -1
    cdef bint held(self, uint64_t ts_ns, uint64_t size) except -1  # pacing: the picked message is not due yet
    cdef int hand_out(self, Route route, bytes target) except -1   # send `out`; the number of receivers that took it
    cdef int handed(self, uint64_t ts_ns, uint64_t size) except -1
    cdef int await_more(self) except -1                            # run again when more messages become visible
    cdef int read_later(self) except -1
    cdef int settle(self) except -1
    cdef int tick(self) except -1
    cdef uint64_t wait_ns(self, uint64_t deliveries) except? 18446744073709551615
    cdef uint64_t last_wait_ns(self) except? 18446744073709551615  # when the last ack wait ends; 0: none runs
    cdef int redeliver_due(self) except -1
    cdef int look_again(self) except -1                            # ack waits may have changed: check them at the next tick
    cdef str position(self)                                        # header lines of a heartbeat
    # called by the stream
    cdef int signalled(self, uint64_t seq) except -1
    cdef int removed(self, uint64_t seq) except -1
    cdef int expire_below(self, uint64_t seq) except -1
    cdef int purged(self) except -1
    cdef int needs(self, uint64_t seq) except -1
    cdef int drop_removed(self, Pending* e) except -1
    # acks: the sequences and the delivery count of the ack subject
    cdef int acknowledge(self, uint64_t seq, uint64_t cseq, uint64_t deliveries, Message* m) except -1
    cdef int answer(self, const char* reply, size_t n) except -1
    cdef int ack_one(self, uint64_t seq, uint64_t cseq) except -1
    cdef int ack_upto(self, uint64_t seq, uint64_t cseq) except -1
    cdef int sample(self, uint64_t seq, uint64_t cseq, uint64_t deliveries) except -1
    cdef int negative(self, uint64_t seq, uint64_t cseq, uint64_t deliveries, const char* p, size_t n) except -1
    cdef int terminate(self, uint64_t seq, uint64_t cseq, uint64_t deliveries, const char* p, size_t n) except -1
    cdef int exhausted(self, Pending* e) except -1
    cdef int room_made(self) except -1
    # the stored state (core/consumer/snapshot)
    cdef bytes snapshot(self)
    cdef int restore(self, bytes data) except -1
    cdef uint64_t reset(self, uint64_t seq) except? 0


# Send an empty message whose header block is a status line.
cdef int send_status(Router router, bytes subject, str line, str headers) except -1
