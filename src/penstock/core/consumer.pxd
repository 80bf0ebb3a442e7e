"""A consumer: when it runs, who gets its messages, and what the engine asks of it. What it hands out is in core/handout."""
from libc.stdint cimport int64_t, uint64_t
from penstock.core.handout cimport Handout
from penstock.core.hub cimport Task
from penstock.core.pacing cimport FlowWindow
from penstock.core.pull cimport PullQueue, PullRequest
from penstock.core.subjects cimport Route


cdef class Consumer(Handout):
    cdef bint paused                       # nothing is handed out
    cdef bint configured
    # pull
    cdef int64_t max_waiting, max_batch, max_expires_ns, max_bytes
    cdef readonly PullQueue requests
    cdef uint64_t requested_ns             # when the last request came
    cdef uint64_t swept_ns                 # when a full queue was last searched for expired requests
    cdef bint disturbed                    # something was sent since the picked message was read: read it again
    # push
    cdef bytes deliver_subject             # b"": pull
    cdef bytes deliver_group
    cdef uint64_t heartbeat_ns
    cdef Route target                      # who listens on deliver_subject; None: look
    cdef readonly bint bound               # somebody did when last looked
    cdef uint64_t unbound_ns               # since when nobody did
    cdef uint64_t beat_ns                  # next idle heartbeat
    cdef FlowWindow window                 # None: no flow control

    cdef int run_pull(self) except -1
    cdef int run_push(self) except -1
    cdef int rest(self, int why) except -1
    cdef int flow_answer(self, const char* subject, size_t n) except -1
    # pull
    cdef int refuse_request(self, const char* reply, size_t n, str line) except -1
    cdef int status(self, bytes subject, str line, str headers) except -1
    cdef int end_request(self, PullRequest r, str line) except -1  # with what is left of it
    cdef int ready(self, PullRequest r, Task waiter) except -1
    cdef PullRequest choose(self, uint64_t size)
    cdef int completed(self, PullRequest r, uint64_t size) except -1
    cdef int end_impatient(self, bint stalled) except -1
    cdef int sweep(self) except -1
    # push
    cdef int find_target(self) except -1                           # as Router.readiness
    cdef int ask_flow(self) except -1
    cdef str position(self)                                        # header lines of a heartbeat
