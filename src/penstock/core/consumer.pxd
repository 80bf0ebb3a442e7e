"""The consumer's data path: what comes next, who takes it, what is acknowledged, what goes out again."""
from libc.stdint cimport int64_t, uint64_t
from penstock.core.buffer cimport Out
from penstock.core.hub cimport Hub, Task
from penstock.core.log cimport Log, Record
from penstock.core.pacing cimport FlowWindow, Pacing
from penstock.core.pending cimport Pending, PendingMessages
from penstock.core.pull cimport PullQueue, PullRequest, PullSpec
from penstock.core.router cimport Message, Router
from penstock.core.selection cimport Selection
from penstock.core.stream cimport Listener, Stream
from penstock.core.subjects cimport Route


cdef enum AckPolicy:
    POLICY_NONE = 0
    POLICY_ALL = 1
    POLICY_EXPLICIT = 2


cdef enum Pick:
    # what pick() found
    NEXT = 0                   # picked is the next message
    NOTHING = 1                # none is visible that was not handed out
    STALLED = 2                # too many unacknowledged


cdef enum:
    REPLY_ROOM = 1024


cdef class Consumer(Listener):
    cdef readonly Stream stream
    cdef Hub hub
    cdef Router router
    cdef Log log
    cdef readonly str name
    cdef bytes key                         # stream.consumer
    cdef bytes ack_prefix                  # $JS.ACK.stream.consumer.
    cdef public object desk                # the Desk it is registered with (advisories), or None
    cdef public object deadline_changed    # called with (self, ns) when tick() is needed earlier than the last one said; or None
    cdef readonly bint closed
    cdef public bint changed               # state differs from the last snapshot()
    cdef bint paused                       # nothing is handed out
    # rules
    cdef readonly int ack_policy
    cdef uint64_t ack_wait_ns
    cdef tuple backoff_ns
    cdef int64_t max_deliver, max_ack_pending, max_waiting, max_batch, max_expires_ns, max_bytes
    cdef bint headers_only
    cdef bytes deliver_subject             # b"": pull
    cdef bytes deliver_group
    cdef uint64_t heartbeat_ns
    # where it stands
    cdef Selection selection
    cdef PendingMessages pending
    cdef uint64_t delivered                # consumer sequence of the last delivery
    cdef uint64_t delivered_ns, acked_ns   # when last; 0: never
    cdef uint64_t due_ns                   # no redelivery is due before this; 0: none
    cdef uint64_t deadline_ns              # when tick() is wanted; 0: not at all
    cdef uint64_t held_ns                  # pacing: nothing goes before this
    cdef bint stalled                      # waits for acks
    cdef bint configured
    cdef uint64_t picked                   # what pick() found
    cdef Pending* again                    # its entry when it is a redelivery, else NULL
    cdef Pacing pacing                     # None: nothing to pace
    # pull
    cdef readonly PullQueue requests
    cdef uint64_t requested_ns             # when the last request came
    cdef uint64_t swept_ns                 # when a full queue was last searched for expired requests
    # push
    cdef Route target                      # who listens on deliver_subject; None: look
    cdef readonly bint bound               # somebody did when last looked
    cdef uint64_t unbound_ns               # since when nobody did
    cdef uint64_t beat_ns                  # next idle heartbeat; 0: none
    cdef FlowWindow window                 # None: no flow control
    cdef Out scratch                       # headers of a message without its body

    # the message that goes out
    cdef Message out
    cdef char reply[REPLY_ROOM]
    cdef bint disturbed                    # something was sent since the picked message was read: read it again

    # --- called by the Desk ---
    cdef int acknowledge(self, uint64_t seq, Message* m) except -1
    cdef int request(self, const char* reply, size_t reply_len, const char* body, size_t n) except -1
    cdef int flow_answer(self, const char* subject, size_t n) except -1
    # --- delivery ---
    cdef int kick(self) except -1
    cdef int run_pull(self) except -1
    cdef int run_push(self) except -1
    cdef int pick(self) except -1                                  # a Pick
    cdef int gone(self) except -1                                  # the picked message is not in the log
    cdef uint64_t prepare(self, Record* r) except 0                # fill `out`; its size as requests count it
    cdef int strip(self) except -1
    cdef bint held(self, uint64_t ts_ns, uint64_t size) except -1  # pacing says: not yet
    cdef int hand_out(self, Route route, bytes target) except -1   # how many took `out`
    cdef int handed(self, uint64_t ts_ns, uint64_t size) except -1
    cdef int rest(self, int why) except -1
    cdef int settle(self) except -1
    cdef int arm(self, uint64_t at_ns) except -1
    cdef uint64_t wait_ns(self, uint64_t deliveries) except? 18446744073709551615
    # --- acks ---
    cdef int ack_one(self, uint64_t seq) except -1
    cdef int negative(self, uint64_t seq, const char* p, size_t n) except -1
    cdef int terminate(self, uint64_t seq, const char* p, size_t n) except -1
    cdef int exhausted(self, Pending* e) except -1
    cdef int room_made(self) except -1
    cdef int redeliver_due(self) except -1
    # --- pull ---
    cdef int refuse_request(self, const char* reply, size_t n, str line) except -1
    cdef int status(self, bytes subject, str line, str headers) except -1
    cdef int end_request(self, PullRequest r, str line) except -1  # with what is left of it
    cdef int ready(self, PullRequest r, Task waiter) except -1
    cdef PullRequest choose(self, uint64_t size)
    cdef int completed(self, PullRequest r, uint64_t size) except -1
    cdef int end_of_stream(self) except -1
    cdef int sweep(self) except -1
    # --- push ---
    cdef int find_target(self) except -1                           # as Router.readiness
    cdef int ask_flow(self) except -1
    cdef str position(self)                                        # header lines of a heartbeat
