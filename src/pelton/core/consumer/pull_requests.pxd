"""Pull requests of a consumer: the parser, and the queue of waiting requests."""
cimport cython
from libc.stdint cimport int64_t, uint64_t
from pelton.core.broker.reactor cimport Task
from pelton.core.broker.router cimport Router
from pelton.core.protocol.subjects cimport Route


cdef struct PullSpec:
    int64_t batch              # messages; below 1: one message
    int64_t max_bytes          # 0: no limit
    int64_t expires_ns         # 0: never
    int64_t heartbeat_ns       # 0: none
    bint no_wait
    bint json                  # the request is a JSON object: priority groups check its group
    # priority groups; the texts point into the request, or into memory that parse_pull() keeps until its next call
    bint special               # one of these is set
    const char* group
    size_t group_len
    const char* client         # the id
    size_t client_len
    int64_t priority, min_pending, min_ack_pending


@cython.final
cdef class PullRequest:
    cdef bytes reply           # the subject of messages and statuses
    cdef Route route           # the subscribers of `reply` at the last look-up
    cdef int64_t left          # messages still to send
    cdef int64_t bytes_left    # 0: no limit
    cdef uint64_t expires_ns   # 0: never
    cdef uint64_t heartbeat_ns
    cdef uint64_t beat_ns      # when the next heartbeat is due
    cdef uint64_t delivered
    cdef bint no_wait
    # priority groups
    cdef bytes group           # b"": none
    cdef bytes client          # pin id; b"": none
    cdef int64_t priority, min_pending, min_ack_pending
    cdef PullRequest next
    cdef int join_group(self, PullSpec* spec) except -1                    # the consumer has priority groups
    cdef int pinned(self, bytes pin) except -1                             # its client got this pin id
    cdef int readiness(self, Router router, Task waiter) except -1         # as Router.readiness of the reply subject
    cdef void beat(self, uint64_t now_ns) noexcept                         # a message or a heartbeat was sent now


@cython.final
cdef class PullQueue:
    """First in, first out; a request that got a message and wants more goes to the end (of its priority)."""
    cdef readonly bint prioritized             # lower priorities come first
    cdef PullRequest head, tail
    cdef readonly size_t count
    cdef readonly int64_t wanted               # messages that all waiting requests still want
    cdef size_t impatient                      # requests with no_wait
    cdef uint64_t due_ns                       # no expiry or heartbeat is due before this (0: none at all)
    cdef int order_by_priority(self, bint prioritized) except -1
    cdef int add(self, PullRequest r) except -1
    cdef int served(self, uint64_t size, uint64_t now_ns) except -1  # the head got a message: move it to the end, or remove it when it has all
    cdef int place(self, PullRequest r) except -1
    cdef PullRequest pop(self)                             # the head leaves
    cdef int rotate(self) except -1                        # the head goes to the end (of all)
    cdef int promote(self, PullRequest before) except -1   # the request behind `before` becomes the head
    cdef PullRequest detach(self)                          # empties the queue; the requests are linked by `next`


cdef PullRequest request_of(PullSpec* spec, const char* reply, size_t n, uint64_t now_ns)

# Parse a request. 1: done; 0: it is not valid.
cdef int parse_pull(const char* p, size_t n, PullSpec* spec) except -1
